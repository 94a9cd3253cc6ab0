"""SIGKILL at every statement of the queue: nothing is lost, and nothing that was acknowledged is delivered again."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.support.router_victim import SOURCE

ROOT = Path(__file__).parents[2]


def test_a_kill_at_any_statement_loses_nothing_and_repeats_nothing_acknowledged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.router_victim", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    kills = [result for result in results if result["first"] == -signal.SIGKILL]
    assert results[-1]["first"] == 0  # the last scenario was too short to be killed, so every statement was hit
    assert len(kills) == len(results) - 1 > 30
    repeated = 0
    for result in results:
        assert result["second"] == 0, result
        with closing(sqlite3.connect(tmp_path / f"{result['at']}.sqlite3")) as connection:
            states = connection.execute("SELECT dedupe_key, state FROM events ORDER BY dedupe_key").fetchall()
            cursor = connection.execute("SELECT value FROM cursors").fetchall()
        assert states == [(key, "sent") for key in SOURCE], result
        assert cursor == [(str(len(SOURCE)),)], result
        acknowledged: set[str] = set()
        seen: set[str] = set()
        for line in result["log"]:
            what, key = line.split()
            if what == "saw":
                assert key not in acknowledged, result
                repeated += key in seen
                seen.add(key)
            elif what == "acked":
                acknowledged.add(key)
        assert seen == set(SOURCE), result
    # Between a delivery and its acknowledgement a kill must repeat it: the test really hit that moment.
    assert repeated > 0
