"""A small rehearsal on SQLite, over two node hosts: nothing lost, nothing repeated, nothing left undone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.errors import AgenshError
from agensh.launch.create import share_workers
from agensh.rehearse.mariadb import private_mariadb
from agensh.rehearse.rehearsal import Options, Rehearsal
from tests.support.mariadb import running_mariadb

RATES = [
    "--call-every",
    "1.5",
    "--entry-every",
    "5",
    "--dm-every",
    "4",
    "--post-every",
    "15",
    "--merge-every",
    "30",
    "--turn-every",
    "5",
]
KEYS = {
    "entries", "direct_messages", "lost", "repeated", "entry_shown_delay_s", "dm_shown_delay_s", "excess_delay_ms",
    "router_mb", "backlog_end", "cpu_s",
}  # fmt: skip


@pytest.mark.timeout(240)
def test_eight_workers_lose_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "agensh", "rehearse", "--workers", "8", "--minutes", "0.33", "--hosts", "2", "--sqlite",
        "--json", "--keep", str(tmp_path), *RATES,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    figures = json.loads(done.stdout)
    assert figures.keys() >= KEYS
    assert (figures["lost"], figures["repeated"], figures["backlog_end"]) == (0, 0, 0), figures
    assert figures["calls_failed"] == 0, figures["failures"]
    assert (figures["workers"], figures["hosts"]) == (8, 2)
    # Seven others are shown each of some 30 entries; with seed 1 the load is the same each time.
    assert figures["entries"] >= 10
    assert figures["direct_messages"] >= 10
    assert figures["merged"] >= 1
    assert figures["posts"] >= 2
    assert figures["posts_told"] >= 7
    assert figures["under_way"] == 0
    assert figures["shown_share"] == 1.0
    assert 0 < figures["entry_shown_delay_s"]["p50"] <= figures["entry_shown_delay_s"]["p99"]
    assert figures["cpu_s"].keys() == {"board", "forge", "chat", "node-1", "node-2", "load-0", "total"}
    [run] = [folder for folder in tmp_path.iterdir() if (folder / "run.json").exists()]
    prompts = list(run.glob("workers/*/*/prompts.jsonl"))
    assert len(prompts) == 8
    assert max(len(file.read_text(encoding="utf-8").splitlines()) for file in prompts) > 1, "several turns"


async def test_without_mariadb_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AgenshError, match=r"mariadbd is not installed .* --db URL, or rehearse on SQLite"):
        async with private_mariadb(SystemClock(), ("a",), path=str(tmp_path)):
            pass


def test_hosts_share_the_workers() -> None:
    shares = share_workers(10, ["http://a", "http://b", "http://c"])
    assert [(share.name, share.first, share.count) for share in shares] == [
        ("node-1", 0, 3), ("node-2", 3, 4), ("node-3", 7, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "cores", "hosts"), [(8, 2, 1), (64, 2, 1), (65, 2, 2), (1024, 2, 2), (1024, 64, 16)]
)
def test_a_host_for_each_core_and_64_workers(workers: int, cores: int, hosts: int) -> None:
    assert Options(workers=workers).host_count(cores) == hosts


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql+aiomysql://a:secret@127.0.0.1:1/x", "--db: put {name} where the name of the database goes"),
        ("postgresql://a:secret@127.0.0.1:1/{name}", "--db: database: 'postgresql' is not supported"),
        ("nonsense {name}", "--db: Could not parse SQLAlchemy URL"),
        ("mysql+aiomysql://a:secret@127.0.0.1:1/{name}", "--db: mysql+aiomysql://a:***@127.0.0.1:1/agensh_board?"),
    ],
)
async def test_a_database_that_cannot_be_used_is_said_before_anything_starts(
    tmp_path: Path, url: str, reason: str
) -> None:
    with pytest.raises(AgenshError) as refused:
        await Rehearsal(Options(workers=2, db=url), tmp_path, lambda _line: None, SystemClock()).run()
    assert str(refused.value).startswith(reason)
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "goal.md").exists()


async def test_a_database_that_holds_something_is_refused(tmp_path: Path) -> None:
    with running_mariadb() as server:
        server.run("CREATE DATABASE agensh_board", "CREATE TABLE agensh_board.mine (a INT)")
        url = server.url("{name}")
        with pytest.raises(AgenshError, match=r"agensh_board\S* is not empty \(it has mine, "):
            await Rehearsal(Options(workers=2, db=url), tmp_path, lambda _line: None, SystemClock()).run()
