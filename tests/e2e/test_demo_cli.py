"""`agensh demo --harness`: real CLIs from npm cooperate, with the scripted model behind the gateway."""

from __future__ import annotations

import json
import os

import pytest

from agensh.harnesses import TESTED
from agensh.rundir import find_run
from tests.support.whole_runs import processes_of, report, started

pytestmark = pytest.mark.timeout(900)  # the first time npm has to bring some hundred megabytes
ALL = os.environ.get("AGENSH_DEMOS") == "all"
HARNESSES = [row.harness for row in TESTED if row.harness != "acp"]


@pytest.mark.parametrize("harness", HARNESSES if ALL else ["codex"])
def test_real_clis_merge_work_and_leave_no_process(harness, tmp_path):
    speed = "120" if ALL else "360"
    with started(
        "demo", "--harness", harness, "--workers", "2", "--speed", speed, "--checkpoints", "2", runs=tmp_path
    ) as process:
        out, err = process.communicate(timeout=840)
    assert process.returncode == 0, err
    figures = report(tmp_path)
    assert (figures["state"], figures["parked"], figures["events_dead"]) == ("finished", {}, 0)
    assert figures["merges"] >= 1
    assert figures["pass_rate_final"] > 0
    assert figures["notices_mid_turn"] >= 1
    assert figures["tokens"]["input"] > figures["tokens"]["output"] > 0
    assert figures["cost_usd"] > 0
    assert f"2 ({harness})" in out
    run = find_run(tmp_path)
    assert processes_of(run) == []
    entries = json.loads((run.path / "record" / "entries.json").read_text())
    assert {entry["worker"] for entry in entries} == set(run.info().spec.worker_names)


@pytest.mark.parametrize("harness", ["acp", "codx"])
def test_a_harness_without_a_cli_of_its_own_is_refused(harness, tmp_path):
    with started("demo", "--harness", harness, runs=tmp_path) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"harness: {harness!r} is not installed by Agensh; it installs copilot, claude-code, codex." in err
