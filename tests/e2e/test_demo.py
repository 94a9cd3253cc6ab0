"""Whole runs, as a user starts them. Figures of speed belong to a benchmark; these hold on any machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from agensh.rundir import find_run
from tests.support.whole_runs import AGENSH, newest, node_pid, processes_of, report, started, status, wait_for

pytestmark = pytest.mark.timeout(420)


def assert_guarantees(figures: dict[str, Any]) -> None:
    """What holds of every finished run, however fast the machine was."""
    assert figures["state"] == "finished"
    assert figures["events_dead"] == 0
    assert figures["commits_stranded"] == 0
    assert figures["parked"] == {}
    assert figures["merges"] >= 1
    assert figures["notices_mid_turn"] >= 1
    rates = [rate for _, rate in figures["pass_rate_curve"]]
    assert rates[0] < 0.5 < rates[-1]
    assert rates[-1] == figures["pass_rate_final"]


def test_a_team_rebuilds_the_program_and_leaves_no_process(tmp_path):
    with started("demo", "--workers", "4", "--speed", "240", "--checkpoints", "6", runs=tmp_path) as process:
        out, err = process.communicate(timeout=360)
    assert process.returncode == 0, err
    figures = report(tmp_path)
    assert_guarantees(figures)
    assert "pull requests merged" in out
    run = find_run(tmp_path)
    assert processes_of(run) == []
    assert (run.path / "submission.tar.gz").exists()
    assert (run.path / "workspace.bundle").exists()
    out_folder = tmp_path / "out"
    subprocess.run([*AGENSH, "export", str(run.path), "--to", str(out_folder)], check=True, timeout=60)
    for name in ("submission.tar.gz", "workspace.bundle", "report.json", "record/entries.json", "record/runtime.json"):
        assert (out_folder / name).stat().st_size > 0
    secrets = run.secrets()
    worker = secrets.workers["demo-worker1"]
    for hidden in (
        secrets.board_admin,
        secrets.forge_admin.password,
        secrets.chat_admin.password,
        worker.forge_password,
    ):
        for file in [run.run_file, *run.logs.iterdir(), *(run.path / "workers").rglob("*"), run.path / "report.json"]:
            if file.is_file() and not file.is_symlink():
                assert hidden.encode() not in file.read_bytes(), f"a secret stands in {file}"


def test_a_killed_node_host_is_resumed_on_the_same_clock(tmp_path):
    with started("demo", "--workers", "4", "--speed", "200", "--checkpoints", "3", runs=tmp_path) as process:
        wait_for(lambda: status(tmp_path).get("turns", 0) >= 6, seconds=120, what="six turns")
        run = newest(tmp_path)
        assert run is not None
        pid = node_pid(run)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"agensh resume {run.path}" in err
    assert processes_of(run) == []
    with started("resume", str(run.path), "--checkpoints", "3", runs=tmp_path) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    figures = report(tmp_path)
    assert_guarantees(figures)
    assert figures["wall_s"] < 6 * 3600 / 200 + 30
    record = run.path / "record"
    entries = json.loads((record / "entries.json").read_text())
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    posts = json.loads((record / "posts.json").read_text())
    assert len({post["id"] for post in posts}) == len(posts)


def test_ctrl_c_stops_cleanly_and_says_where_the_record_is(tmp_path):
    with started("demo", "--workers", "2", "--speed", "60", runs=tmp_path) as process:
        wait_for(lambda: status(tmp_path).get("turns", 0) >= 1, seconds=120, what="a first turn")
        run = newest(tmp_path)
        assert run is not None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert str(run.path) in err
    assert "Traceback" not in err
    assert processes_of(run) == []
