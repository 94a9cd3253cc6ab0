"""`agensh board read|grep|write|token` against a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agensh.cli.board import app
from agensh.clients.board import EntryRejected
from agensh.errors import ServiceError, UsageError
from agensh.text import printable
from tests.support.board_server import RunningBoard, running_board


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBoard]:
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield running


def run(board: RunningBoard, token: str, *arguments: str, stdin: str | None = None) -> str:
    environment = {"AGENSH_BOARD_URL": board.url, "AGENSH_BOARD_TOKEN": token, "AGENSH_BOARD": "main"}
    result = CliRunner().invoke(app, list(arguments), env=environment, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_write_read_and_grep(board: RunningBoard) -> None:
    one, two = board.token_for("w1"), board.token_for("w2")
    assert run(board, one, "write", "CLAIM", "implement wc", "--key", "k") == "G1\n"
    assert run(board, one, "write", "CLAIM", "implement wc", "--key", "k") == "G1 (written before with this key)\n"
    assert run(board, two, "write", "CLAIM", "wc") == "G2\nlooks like G1 of w1: implement wc\n"
    run(board, one, "write", "FACT", "[red]not markup[/red]", "--detail", "-", stdin="long\ntext")
    lines = run(board, one, "read").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["G1", "G2", "G3"]
    assert lines[2].endswith("\tw1\tFACT\t[red]not markup[/red]")
    entries = [json.loads(line) for line in run(board, one, "read", "--json", "--type", "FACT").splitlines()]
    assert [(entry["label"], entry["has_detail"]) for entry in entries] == [("G3", True)]
    assert [line.split("\t")[0] for line in run(board, one, "grep", "wc&w2,markup").splitlines()] == ["G3", "G2"]
    written = json.loads(run(board, two, "write", "CLAIM", "wc it", "--json"))
    assert (written["label"], [item["label"] for item in written["overlaps"]]) == ("G4", ["G1"])


def test_mistakes_are_sentences(board: RunningBoard) -> None:
    with pytest.raises(EntryRejected, match=r"^type: 'NOTE' is not an entry type; use one of OBSERVED"):
        run(board, board.token_for("w1"), "write", "NOTE", "x")
    with pytest.raises(UsageError, match=r"^token: none is given"):
        run(board, "", "read")
    with pytest.raises(ServiceError, match="board answered 401: Send a valid token"):
        run(board, "wrong", "read")


def test_tokens(tmp_path: Path) -> None:
    folder = str(tmp_path / "new")
    result = CliRunner().invoke(app, ["token", "alice", "--data", folder, "--role", "reader"])
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    assert result.stdout.startswith("agb_")
    with running_board(tmp_path / "new") as board:
        run(board, result.stdout.strip(), "read")
        with pytest.raises(ServiceError, match="403"):
            run(board, result.stdout.strip(), "write", "FACT", "x")
    for arguments, words in (
        ([" "], "worker: ' '"),
        (["a", "--role", "god"], "role: 'god'"),
        (["a", "--board", "/"], "board:"),
    ):
        failed = CliRunner().invoke(app, ["token", *arguments, "--data", folder])
        assert isinstance(failed.exception, UsageError)
        assert words in str(failed.exception)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✅ text", "plain ✅ text"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("\x9b2J\x07\r", "\\x9b2J\\x07\\r"),
        ("a\tb\nc", "a\tb\nc"),
        ("evil\u202egpj", "evil\\u202egpj"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_steers_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown
