"""`agensh baseline`: a real CLI works alone, on the scripted model behind the gateway."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agensh.embedded.model import PRICES
from agensh.harnesses import install
from agensh.launch.examples import example
from agensh.rundir import RunDir
from tests.support.scripted_model import scripted_model
from tests.support.whole_runs import newest, processes_of, report, started, status, wait_for

pytestmark = pytest.mark.timeout(600)  # the first time npm has to bring some hundred megabytes
# A request costs 0.01 $, so the budget is spent after a dozen, however fast the machine is.
GOAL = """\
# Make `done`

[[usage: input=8000 output=0]]
[[bash: git clone -q ../../../workspace.git workspace]]
[[bash: cd workspace && echo half > half && git add . && git commit -qm half && git push -q origin HEAD:main]]
[[bash: env > environment && tail -f /dev/null]]
[[bash: cd workspace && echo done > done && git add . && git commit -qm done && git push -q origin HEAD:main]]
[[bash: tail -f /dev/null]]
"""
SPEC = """\
[team]
name = "alone"
workers = 8
[task]
kind = "repo"
goal = "goal.md"
acceptance = "test -f done"
[worker]
harness = "codex"
model = "scripted"
max_prompt_tokens = 1000000
options = {{ binary = "{binary}", retries = "0" }}
[clock]
speed = 10
[gateway]
base_url = "{url}/v1"
auth = "none"
prices = "{prices}"
budget_usd = 0.15
"""


def commits(run: RunDir) -> list[str]:
    log = ["git", f"--git-dir={run.workspace}", "log", "--reverse", "--format=%s", "main"]
    return subprocess.run(log, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def t0_of(run: RunDir) -> float:
    with sqlite3.connect(run.path / "runtime.sqlite3") as database:
        return float(database.execute("SELECT t0 FROM runs").fetchone()[0])


def wait_while(process: subprocess.Popen[str], condition: Callable[[], bool], what: str) -> None:
    wait_for(lambda: condition() or process.poll() is not None, seconds=120, what=what)
    assert process.poll() is None, process.communicate()


def whole_life(spec: Path, runs: Path) -> RunDir:
    """Run it, kill the launcher in the middle of a turn, interrupt what goes on then, and let it come to its end."""
    with started("baseline", str(spec), runs=runs) as process:
        wait_for(lambda: newest(runs) is not None, seconds=60, what="the run folder")
        run = newest(runs)
        assert run is not None
        stuck = run.worker("alone-worker1") / "work" / "environment"
        wait_while(process, stuck.exists, "the third command of the first turn")
        now = status(runs)
        assert (now["launcher_pid"], now["turns"], now["workers"]) == (process.pid, 1, {})
        process.kill()
        process.wait()
    wait_for(lambda: processes_of(run) == [], seconds=60, what="the end of all processes")
    began = t0_of(run)
    with started("resume", str(run.path), runs=runs) as process:
        wait_while(process, lambda: "done" in commits(run), "the last commit")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1, err
        assert "agensh: stopped" in err
    assert processes_of(run) == []
    with started("resume", str(run.path), runs=runs) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "1 (codex)" in out
    assert t0_of(run) == began
    return run


async def test_a_baseline_outlives_a_kill_and_an_interrupt_and_ends_with_its_budget(tmp_path: Path) -> None:
    binary = await asyncio.to_thread(install, "@openai/codex")
    (tmp_path / "goal.md").write_text(GOAL)
    async with scripted_model() as model:
        text = SPEC.format(binary=binary, url=model.url, prices=PRICES)
        (tmp_path / "team.toml").write_text(text)
        run = await asyncio.to_thread(whole_life, tmp_path / "team.toml", tmp_path / "runs")
        prompts = model.said()
    assert commits(run) == ["Starting point", "half", "done"]
    figures = await asyncio.to_thread(report, tmp_path / "runs")
    assert (figures["state"], figures["workers"], figures["harness"]) == ("finished", 1, "codex")
    assert [share for _, share in figures["pass_rate_curve"]] == [0.0, 0.0, 1.0]
    assert figures["turns"] >= 3
    assert 0.1 < figures["cost_usd"] < 0.3
    assert figures["tokens"]["input"] > 0
    assert "budget" in figures["parked"]["alone-worker1"]
    nothing = ("direct_messages", "channel_posts", "notices_mid_turn", "merges", "claims", "events_delivered")
    assert {name: figures[name] for name in nothing} == dict.fromkeys(nothing, 0)
    assert (run.path / "submission.tar.gz").exists()
    assert (run.path / "workspace.bundle").exists()
    assert json.loads((run.path / "report.json").read_text())["pass_rate_final"] == 1.0
    assert any("You stopped, but" in prompt for prompt in prompts)
    assert any("You were interrupted" in prompt for prompt in prompts)
    environment = (run.worker("alone-worker1") / "work" / "environment").read_text()
    assert "AGENSH_WORKER=alone-worker1" in environment
    for word in ("AGENSH_MCP", "AGENSH_FORGE"):
        assert word not in environment


def test_the_scripted_harness_is_refused(tmp_path: Path) -> None:
    with started("baseline", str(example("textutils") / "team.toml"), runs=tmp_path) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "worker.harness: 'scripted' cannot work alone" in err
    assert "a baseline takes acp, claude-code, codex, copilot." in err
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_cannot_go_on_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "goal.md").write_text("Make `done`.\n")
    spec = SPEC.format(binary="", url="http://127.0.0.1:9", prices=PRICES).split("[gateway]")[0]
    spec = spec.replace('"codex"', '"acp"').replace('binary = "", retries = "0"', 'command = "/nowhere/cli --acp"')
    (tmp_path / "team.toml").write_text(spec)
    with started("baseline", str(tmp_path / "team.toml"), runs=tmp_path / "runs") as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "agensh: The worker cannot go on: " in err
    assert "/nowhere/cli" in err
    assert "go on with: agensh resume " in err
    assert "Traceback" not in err
