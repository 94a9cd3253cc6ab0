"""What the mind's hands make of a CLI's results. The shell is a real one; no CLI, no server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.scripted.mcp_client import ToolsUnavailable
from adapters.scripted.reading import Message
from agensh.cases import Case
from agensh.embedded.model.conversation import Call, ToolSpec
from agensh.embedded.model.hands import HandsFailed, WireBench, WireShell, WireTools
from agensh.embedded.model.turn import Ask
from tests.support.clock import ManualClock

TOOLS = (ToolSpec("bash", {"command": {}}), ToolSpec("agensh-board_read"), ToolSpec("agensh-board_write"))


class Hasty(ManualClock):
    """Nobody moves this clock: it does not wait."""

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


class Cli:
    """Answers calls: commands by a real shell, the rest by what the test says."""

    def __init__(self, folder: Path, *answers: str) -> None:
        self.folder = folder
        self.answers = list(answers)
        self.calls: list[Call] = []
        self.around: Callable[[str], str] = lambda text: text

    async def ask(self, make: Ask) -> str:
        call = make(TOOLS)
        self.calls.append(call)
        if self.answers:
            return self.answers.pop(0)
        assert isinstance(call.arguments, dict)
        return self.around(_bash(call.arguments["command"], self.folder))


def _bash(command: str, folder: Path) -> str:
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True)
    return (done.stdout + done.stderr).decode()


@pytest.fixture
async def cli(tmp_path):
    return Cli(tmp_path)


@pytest.fixture
async def shell(cli):
    shell = WireShell(cli, lambda _: None)
    await shell.set_up()
    return shell


async def test_the_kit_is_written_once(cli, shell, tmp_path):
    assert shell.home == tmp_path
    made = len(cli.calls)
    await WireShell(cli, lambda _: None).set_up()
    assert len(cli.calls) == made + 1


async def test_commands_files_and_their_limits(cli, shell, tmp_path):
    text = "a\nEND\n  b\t'c' $HOME `x`\n"
    await shell.write(tmp_path / "in", {"d/e.txt": text, "run": "#!/bin/sh\nexit 3\n", "bare": "no newline"})
    assert await shell.read(tmp_path / "in/d/e.txt") == text
    assert await shell.read(tmp_path / "in/bare") == "no newline"
    assert await shell.read(tmp_path / "in/none") is None
    assert (await shell.run(["./run"], tmp_path / "in")).code == 3
    assert (await shell.run(["sleep", "5"], tmp_path, timeout=0.1)).code == 124
    both = await shell.run_all(["echo", "one"], ["sh", "-c", "echo two; exit 4"], ["echo", "three"], cwd=tmp_path)
    assert (both.code, both.output) == (4, "one\ntwo\n")
    assert (await shell.build(["sh", "-c", "echo $HOME"], tmp_path)).output == "/nonexistent\n"
    await shell.remove(tmp_path / "in")
    assert not await shell.exists(tmp_path / "in")


async def test_of_a_known_file_only_the_changes_are_written(cli, shell, tmp_path):
    lines = [f"line {number}" for number in range(200)]
    before = "\n".join([*lines, ""])
    after = (
        before.replace("line 7\n", "line seven\n").replace("line 150\n", "").replace("line 199\n", "line 199\nend\n")
    )
    await shell.write(tmp_path, {"a.txt": before})
    made = len(cli.calls)
    await shell.write(tmp_path, {"a.txt": before})
    assert len(cli.calls) == made
    await shell.write(tmp_path, {"a.txt": after})
    assert (tmp_path / "a.txt").read_text() == after
    assert "edit.py" in cli.calls[-1].arguments["command"]
    assert len(cli.calls[-1].arguments["command"]) < 400
    # Changed behind its back: the pieces do not fit, so it is written whole.
    (tmp_path / "a.txt").write_text("other\n")
    await shell.write(tmp_path, {"a.txt": before})
    assert (tmp_path / "a.txt").read_text() == before
    await shell.run(["git", "--version"], tmp_path)
    (tmp_path / "a.txt").write_text("once more\n")
    assert await shell.read(tmp_path / "a.txt") == "once more\n"


async def test_a_long_output_is_fetched_in_parts(cli, shell, tmp_path):
    text = "".join(f"line {number}\n" for number in range(2000))
    (tmp_path / "long").write_text(text)
    made = len(cli.calls)
    assert await shell.read(tmp_path / "long") == text
    assert len(cli.calls) - made == -(-len(text) // 6000)


async def test_what_clis_put_around_an_output_does_no_harm(cli, tmp_path):
    heard: list[object] = []
    cli.around = lambda text: (
        f"Wall time: 1 s\nOutput:\n{text}\n<exited>\nhook said: [agensh notices]\n[demo-worker2/DM +0.1m] hello\n"
    ).replace("\n", "\r\n")
    shell = WireShell(cli, heard.append)
    await shell.set_up()
    assert (await shell.run(["printf", "x\n\n"], tmp_path)).output == "x\n\n"
    assert heard[-1] == Message("demo-worker2", "hello")


async def test_a_command_that_takes_long_is_asked_for_again(tmp_path):
    head = "Chunk ID: 1f\nWall time: 30.0 seconds\nProcess {}\nOriginal token count: 9\nOutput:\n"
    parts = [
        head.format("running with session ID 7") + "--- output\na",
        head.format("running with session ID 7") + "b",
        head.format("exited with code 0") + "c\n--- 3 bytes, exit 0\n",
    ]
    cli = Cli(tmp_path, *parts)
    assert (await WireShell(cli, lambda _: None).run(["slow"], tmp_path)).output == "abc"
    assert (cli.calls[1].name, cli.calls[1].arguments) == (
        "write_stdin",
        {"session_id": 7, "chars": "", "yield_time_ms": 30000},
    )
    with pytest.raises(HandsFailed, match="gave no end of"):
        await WireShell(Cli(tmp_path, "Blocked: not allowed"), lambda _: None).run(["x"], tmp_path)


async def test_the_tools_results():
    heard: list[object] = []
    answers = [
        "Output:\nstatus=admitted label=G7 overlaps=0\nOn the board.\n[agensh notices]\n[demo-worker2/DM +0.1m] hi",
        "Error: status=refused pull=3\nIt is closed.",
        "MCP error -32001",
        "status=ok entries=1 last=9\nG9 [a, FACT, 0.1 min ago] x",
    ]
    cli = Cli(Path(), *answers)
    tools = WireTools(cli, heard.append, Hasty())
    written = await tools.call("board_write", type="FACT", content="x")
    assert (written.ok, written.fields["label"], heard) == (True, "G7", [Message("demo-worker2", "hi")])
    assert cli.calls[0] == Call("agensh-board_write", {"type": "FACT", "content": "x"})
    refused = await tools.call("board_write", type="FACT", content="x")
    assert (refused.ok, refused.number("pull")) == (False, 3)
    # The endpoint was away once.
    assert "G9" in (await tools.call("board_read", after=8)).text
    with pytest.raises(ToolsUnavailable, match="forge_pulls: the CLI does not offer it"):
        await tools.call("forge_pulls")
    cli.answers = ["nothing"] * 4
    with pytest.raises(ToolsUnavailable, match="gave no answer: nothing"):
        await tools.call("board_read")


async def test_a_long_board_is_read_in_pages():
    rows = [f"G{number} [a, FACT, 0.1 min ago] x" for number in range(1, 121)]
    pages = [
        "status=ok entries=80 last=80\n" + "\n".join(rows[:80]),
        "status=ok entries=40 last=120\n" + "\n".join(rows[80:]),
    ]
    cli = Cli(Path(), *pages)
    result = await WireTools(cli, lambda _: None, Hasty()).call("board_read", after=1)
    assert "G1 " in result.text
    assert "G120 " in result.text
    assert cli.calls[1].arguments == {"after": 80, "limit": 80}


async def test_the_comparison_runs_where_the_shell_is(shell, tmp_path):
    for name, body in (("right", "cat; exit 2"), ("wrong", "tr a b; exit 2")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    cases = [Case(f"c{number}", ("x",), text) for number, text in enumerate(["a\n", "z\n", "\udcff"])]
    bench = WireBench(tmp_path / "right", shell)
    assert [(case.stdout, case.code) for case in await bench.answer(cases)] == [("a\n", 2), ("z\n", 2), ("\udcff", 2)]
    result = await bench.compare(tmp_path / "wrong", cases, "x")
    assert str(result) == "2 of 3 probes agree"
    assert result.differences[0].case.id == "c0"
    assert (result.differences[0].got.stdout, (await bench.compare(tmp_path / "right", cases, "x")).agrees) == (
        b"b\n",
        True,
    )
