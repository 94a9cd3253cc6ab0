"""`agensh status`, `report` and `board read` on data that tries to steer the terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import insert
from typer.testing import CliRunner

from agensh.cli.app import app
from agensh.db import begin_write, migrate, open_engine
from agensh.rundir import RunDir
from router.tables import MIGRATIONS, VERSION_TABLE, runs, sessions
from tests.support.board_server import running_board
from tests.support.hostile import HOSTILE, unsafe
from tests.support.records import run_info

REORDERED = "evil\u202egnp.exe\u2066 \u200bhidden\U000e0041"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run whose worker was parked with every hostile text as the reason."""
    run = RunDir(tmp_path_factory.mktemp("runs") / "demo-1")
    run.path.mkdir()
    run.write_info(run_info())
    migrate(run.runtime_url, MIGRATIONS, version_table=VERSION_TABLE)

    async def park() -> None:
        engine = open_engine(run.runtime_url)
        async with begin_write(engine) as connection:
            await connection.execute(insert(runs).values(run_id="demo-1", t0=1_800_000_000.0, state="running"))
            row = {
                "worker": "demo-worker1",
                "session_id": "s",
                "number": 1,
                "primed": True,
                "failures": 5,
                "restarts": 0,
            }
            reason = " ".join(text[:400] for text in HOSTILE.values())
            await connection.execute(insert(sessions).values(row | {"parked_reason": reason}))
        await engine.dispose()

    asyncio.run(park())
    return run


@pytest.mark.parametrize("command", ["status", "report"])
def test_what_a_run_says_steers_nothing(run: RunDir, command: str) -> None:
    shown = CliRunner().invoke(app, [command, str(run.path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "demo-worker1" in shown.stdout
    assert not unsafe(shown.stdout.replace("\u200d", ""), lines=True)


def test_a_board_that_is_read_steers_nothing(tmp_path: Path) -> None:
    with running_board(tmp_path) as board:
        environment = {"AGENSH_BOARD_URL": board.url, "AGENSH_BOARD_TOKEN": board.token_for("w1")}
        for arguments in (["write", "FACT", REORDERED], ["read"], ["grep", "evil"]):
            shown = CliRunner().invoke(app, ["board", *arguments], env=environment)
            assert shown.exit_code == 0, shown.output
            assert not unsafe(shown.stdout.replace("\t", " "), lines=True)
        assert "evil\\u202egnp.exe\\u2066 \\u200bhidden\\U000e0041" in shown.stdout
