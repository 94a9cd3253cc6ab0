"""SIGKILL before each step that writes: what was promised is there once, and the next process goes on with it.

A step is a statement or a commit, on MySQL also its answer; of the forge and the chat also a program that is started
and a file that is renamed.

The queue of a worker is killed like that in `tests/integration/test_router_kill.py`.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from agensh.identity import token_hash
from tests.support.chaos import either
from tests.support.embedded_victims import TEXTS
from tests.support.mariadb import MariaDb
from tests.support.router_stage import new_run
from tests.support.victims import ASKED, CLAIMED, END, ME, NOTES, PEER, POSTS

ROOT = Path(__file__).parents[2]
STEP = either(12, 1)  # steps between two kills
PATIENCE = either(100, 400)  # seconds

pytestmark = pytest.mark.timeout(PATIENCE + 20)


@dataclass
class Kill:
    """One kill, what clients had been told by then and by the process after it, and what is stored."""

    at: int
    told: list[tuple[str, str]]
    rows: Callable[[str], list[Any]]
    """What a query finds."""

    def about(self, what: str) -> list[str]:
        return [about for said, about in self.told if said == what]


def results_of(program: str, name: str, folder: Path, least: int, *more: str, step: int = STEP) -> list[dict[str, Any]]:
    """Run a program that is killed again and again; return what it says of each kill."""
    done = subprocess.run(
        [sys.executable, "-m", program, name, str(folder), str(step), *more],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert results[-1]["first"] == 0, "the last scenario was too short to be killed, so every step was hit"
    assert len(results) > least // step
    for result in results:
        assert result["first"] in {0, -signal.SIGKILL}, (result, done.stderr)
        assert result["second"] == 0, (result, done.stderr)
    return results


def kills(name: str, folder: Path, least: int, server: MariaDb | None = None) -> Iterator[Kill]:
    template = [] if server is None else [server.new_database()]
    step = STEP if server is None else either(2 * STEP, STEP)  # there are twice as many, and each takes longer
    for result in results_of("tests.support.victims", name, folder, least, *template, step=step):
        told = [(line.partition(" ")[0], line.partition(" ")[2]) for line in result["log"]]
        if server is None:
            rows = partial(sqlite_rows, folder / f"{result['at']}.sqlite3")
        else:
            rows = partial(server.run, database=f"{make_url(template[0]).database}_{result['at']}")
        yield Kill(result["at"], told, rows)


def sqlite_rows(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(params=["sqlite", "mariadb"])
def server(request: pytest.FixtureRequest) -> MariaDb | None:
    """The server whose databases are used; None: files."""
    return request.getfixturevalue("mariadb_server") if request.param == "mariadb" else None


def test_the_board(tmp_path: Path, server: MariaDb | None) -> None:
    for kill in kills("board", tmp_path, 40, server):
        wrote = {f"{number}={number}" for number in range(1, len(NOTES) + 1)}
        assert set(kill.about("wrote")) == wrote, kill
        entries = kill.rows("SELECT seq, content, released_at IS NULL FROM board_entries ORDER BY seq")
        assert [(seq, content) for seq, content, _ in entries] == list(
            enumerate((content for _, content in NOTES), start=1)
        ), kill
        assert [claimed for seq, _, claimed in entries if seq in {1, CLAIMED}] == [0, 0], kill
        assert kill.rows("SELECT head_seq, releases FROM board_boards") == [(len(NOTES), 2)], kill
        assert kill.rows("SELECT agent, cursor_seq FROM board_cursors") == [(PEER, CLAIMED)], kill
        stored = {row[0] for row in kill.rows("SELECT token_hash FROM board_tokens WHERE worker = 'new'")}
        made = kill.about("made")
        assert token_hash(made[-1]) in stored, kill
        assert kill.rows("SELECT count(*) FROM board_tokens WHERE worker = 'old'") == [(0,)], kill


def test_the_ledger(tmp_path: Path, server: MariaDb | None) -> None:
    open_at_the_kill = 0
    for kill in kills("ledger", tmp_path, 20, server):
        states: dict[str, str] = dict(kill.rows("SELECT id, state FROM gateway_requests"))
        assert "open" not in states.values(), kill
        answered = kill.about("answered")
        assert ASKED <= len(answered) <= 2 * ASKED
        assert {states[each] for each in answered} == {"metered"}, kill
        # Of what was asked and not answered, one request at most: it may have been committed, or not.
        lost = {each: state for each, state in states.items() if each not in answered}
        assert len(lost) <= 1, kill
        open_at_the_kill += "unmetered" in lost.values()
        metered = sum(state == "metered" for state in states.values())
        assert END.cost_usd is not None
        assert kill.rows("SELECT sum(cost_usd) FROM gateway_requests") == [(metered * END.cost_usd,)], kill
        mine = kill.about("key")[-2]
        valid = kill.rows("SELECT hash, worker FROM gateway_keys WHERE revoked_at IS NULL")
        assert valid == [(token_hash(mine), ME)], kill
    assert open_at_the_kill or STEP > 1, "the moment between a request and its answer was hit"


def test_the_posts_of_the_task_channel(tmp_path: Path) -> None:
    repeated = 0
    for kill in kills("posts", tmp_path, 30):
        rows = kill.rows("SELECT seq, message FROM posts ORDER BY seq")
        assert rows == list(enumerate(POSTS, start=1)), kill
        saved: set[str] = set()
        seen: list[str] = []
        for said, about in kill.told:
            if said == "saw":
                assert about not in saved, kill
                seen.append(about)
            elif said == "saved":
                saved.add(about)
        assert set(seen) == {str(seq) for seq, _ in rows}, kill
        repeated += len(seen) - len(set(seen))
    # Between a delivery and its saved position a kill must repeat it: the test really hit that moment.
    assert repeated > 0 or STEP > 1


def test_the_forge(tmp_path: Path) -> None:
    for result in results_of("tests.support.embedded_victims", "forge", tmp_path, 40):
        assert result["found"] == {
            "merged": [True, "closed"],
            "main": ["README.md", "work.txt"],
            "tip": True,
            "more": ["README.md", "more.txt"],
            "timeline": ["comment", "merge_pull"],
            "comments": ["looks good"],
        }, result


def test_the_chat(tmp_path: Path) -> None:
    for result in results_of("tests.support.embedded_victims", "chat", tmp_path, 10):
        found = result["found"]
        assert [text for text, _ in found["posts"]] == TEXTS, result
        told = {line.removeprefix("posted ") for line in result["log"]}
        assert told == {f"{text}={post_id}" for text, post_id in found["posts"]}, result
        assert (found["replies"], found["count"]) == ([len(TEXTS) - 1], len(TEXTS)), result


def test_the_files_of_a_run_folder(tmp_path: Path) -> None:
    """Each is the old one or the new one, whole, and the secrets are their owner's alone at any moment."""
    run = new_run(tmp_path / "run")
    before = [run.info().board, run.secrets().board_admin, 0o600]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.file_victim", str(run.path)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["ended"] for result in results] == [-signal.SIGKILL] * (len(results) - 1) + [0]
    board, token = run.info().board, run.secrets().board_admin
    assert (board, token) == (f"board-{len(results)}", f"token-{len(results)}"), "the last one was not killed"
    written = set()
    for result in results:
        now = [f"board-{result['at']}", f"token-{result['at']}", 0o600]
        assert all(found in {old, new} for found, old, new in zip(result["found"], before, now, strict=True)), result
        written |= set(result["found"]) & set(now)
        before = result["found"]
    assert len(written) > 4, "kills came after the first file, too"
