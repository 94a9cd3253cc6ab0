"""The mind's hands on the worker's machine: the CLI's shell and the worker's MCP tools, through tool calls.

Two small programs (`kit/`) are written into the worker's folder first, as a model would write them: one runs a command
and says how it ended, one compares two programs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.scripted.mcp_client import Result, Tools, ToolsUnavailable
from adapters.scripted.reading import NOTICE_HEADER, Notice, fields_of, split_notices
from adapters.scripted.shell import Done, Shell
from adapters.scripted.work import Bench, Comparison, Difference
from agensh.cases import AnsweredCase, Case, dump_cases
from agensh.clock import Clock
from agensh.embedded.model.edits import by_pieces, whole
from agensh.embedded.model.tools import NotOffered, mcp_call, named_call, shell_call
from agensh.embedded.model.turn import Ask, Asking
from agensh.errors import AgenshError
from agensh.trial import Outcome

_KIT = Path(__file__).with_name("kit")
_FOLDER = "tools"
_WRITTEN, _NOT_WRITTEN = "--- written", "--- not written"
_WRITE_END = re.compile(r"--- (?:not )?written")
_DONE = re.compile(r"^--- output\n(?P<text>.*)\n--- (?P<size>\d+) bytes, exit (?P<code>\d+)$", re.MULTILINE | re.DOTALL)
_STILL = re.compile(r"Process running with session ID (\d+)")
_CHUNK = re.compile(r"\A(?:Chunk ID: .*\n)?Wall time: .*\n(?:.*\n)*?Output:\n")
_HEADER = re.compile(r"[ \t]*" + re.escape(NOTICE_HEADER))
_FAILURES = {
    "invalid",
    "refused",
    "timeout",
    "failed",
    "missing_branch",
    "conflict",
    "try_later",
    "head_moved",
    "closed",
    "rejected",
}
_STATUS = re.compile(r"\bstatus=\w+")
_ATTEMPTS = 4
_BACK_OFF = 0.5  # seconds, doubled
_PAGE = 80  # entries of one reading: CLIs show long results shortened
_COMPARE_LIMIT = 280.0  # seconds
_CHANGING = {"git", "mv", "rm", "find"}
_QUICK = 60.0  # seconds for what is done at once
_YIELD = 30_000  # milliseconds


class HandsFailed(AgenshError):
    """The CLI's shell did not do what it was asked."""


class WireShell(Shell):
    """The CLI's own shell."""

    def __init__(self, turn: Asking, notice: Callable[[Notice], None]) -> None:
        self._turn = turn
        self._notice = notice
        self.home = Path()
        """The CLI's current directory, once `set_up` has asked."""
        self._known: dict[Path, str] = {}
        """Files as they were last seen; all are forgotten when Git or `rm` may have changed them."""

    async def set_up(self) -> None:
        """Ask where the CLI is, and see that the kit is there."""
        kit = {file.name: file.read_text(encoding="utf-8") for file in sorted(_KIT.iterdir()) if file.is_file()}
        version = hashlib.sha256("".join(kit.values()).encode()).hexdigest()[:12]
        seen = await self.raw(f"echo at:$PWD; cat {_FOLDER}/version", lambda text: "at:/" in text)
        found = re.search(r"at:(/.*)", seen)
        assert found is not None
        self.home = Path(found[1].strip())
        if version not in seen:
            await self.write(self.home / _FOLDER, {**kit, "version": f"{version}\n"})

    async def raw(self, command: str, done: Callable[[str], object]) -> str:
        """Run a line of shell and return what the CLI made of it; HandsFailed when `done` does not see its end."""
        said = await self._ask(lambda tools: shell_call(tools, command))
        text = _CHUNK.sub("", said)
        # Codex hands back a command that takes long, and wants to be asked for the rest.
        while not done(text) and (still := _STILL.search(said)) is not None:
            arguments = {"session_id": int(still[1]), "chars": "", "yield_time_ms": _YIELD}
            said = await self._ask(_named("write_stdin", arguments))
            text += _CHUNK.sub("", said)
        _hear(text, self._notice)
        if not done(text):
            raise HandsFailed(f"The shell gave no end of `{command[:80]}`: {text.strip()[-200:]}")
        return text

    async def _ask(self, make: Ask) -> str:
        return (await self._turn.ask(make)).replace("\r\n", "\n")

    async def run(
        self, command: Sequence[str], cwd: Path, *, timeout: float = 120.0, env: Mapping[str, str] | None = None
    ) -> Done:
        """See Shell.run."""
        if command[0] in _CHANGING or command[:2] == ["sh", "-c"]:
            self._known.clear()
        if env is not None:
            command = ["env", "-i", *(f"{name}={value}" for name, value in env.items()), *command]
        return await self._do(f"{_FOLDER}/do {self._place(cwd)} {timeout:g} {shlex.join(command)}")

    async def run_all(self, *commands: Sequence[str], cwd: Path, timeout: float = 120.0) -> Done:
        """See Shell.run_all; one call for all."""
        line = " && ".join(shlex.join(command) for command in commands)
        return await self.run(["sh", "-c", line], cwd, timeout=timeout * len(commands))

    async def _do(self, line: str) -> Done:
        found = _DONE.search(await self.raw(line, _DONE.search))
        assert found is not None
        text = found["text"]
        while (shown := len(text.encode())) < int(found["size"]):
            found = _DONE.search(await self.raw(f"{_FOLDER}/do + {shown + 1}", _DONE.search))
            assert found is not None
            if not found["text"]:
                break
            text += found["text"]
        return Done(int(found["code"]), text)

    async def read(self, path: Path) -> str | None:
        """See Shell.read."""
        if path in self._known:
            return self._known[path]
        done = await self._do(f"{_FOLDER}/do . {_QUICK:g} cat {self._place(path)}")
        if not done.ok:
            return None
        self._known[path] = done.output
        return done.output

    async def write(self, root: Path, files: Mapping[str, str]) -> None:
        """See Shell.write. What is there already stays, and of a file that is known only the changes are written."""
        due = {root / name: text for name, text in files.items() if self._known.get(root / name) != text}
        if not due:
            return
        wholes = {path: self._whole(path, text) for path, text in due.items()}
        shortest = [self._change(path, text) or wholes[path] for path, text in due.items()]
        # The second time when somebody else has changed a file, so that the pieces do not fit.
        if await self._written(due, shortest) or await self._written(due, list(wholes.values())):
            self._known |= due
            return
        raise HandsFailed(f"The shell could not write {', '.join(map(str, due))}.")

    def _change(self, path: Path, text: str) -> str | None:
        if path not in self._known:
            return None
        return by_pieces(f"{_FOLDER}/edit.py", self._place(path), self._known[path], text)

    def _whole(self, path: Path, text: str) -> str:
        return whole(self._place(path), text)

    async def _written(self, files: Mapping[Path, str], lines: Sequence[str]) -> bool:
        folders = sorted({self._place(path.parent) for path in files})
        scripts = [self._place(path) for path, text in files.items() if text.startswith("#!")]
        modes = [f"chmod +x {' '.join(scripts)}"] if scripts else []
        line = " &&\n".join([f"mkdir -p {' '.join(folders)}", *lines, *modes, f"echo '{_WRITTEN}'"])
        said = await self.raw(f"{line} || echo '{_NOT_WRITTEN}'", _WRITE_END.search)
        return _NOT_WRITTEN not in said

    async def exists(self, path: Path) -> bool:
        """See Shell.exists."""
        return (await self._do(f"{_FOLDER}/do . {_QUICK:g} test -e {self._place(path)}")).ok

    async def remove(self, path: Path) -> None:
        """See Shell.remove."""
        self._known.clear()
        await self._do(f"{_FOLDER}/do . {_QUICK:g} rm -rf {self._place(path)}")

    def _place(self, path: Path) -> str:
        """Return a path as it is typed: short where it can be."""
        return shlex.quote(str(path.relative_to(self.home) if path.is_relative_to(self.home) else path))

    async def compare(self, blob: str, *programs: Path) -> dict[str, Any]:
        """Run programs on the packed cases and return the unpacked report."""
        cases = whole(f"{_FOLDER}/cases", f"{blob}\n")
        names = shlex.join(map(str, programs))
        line = f"{_FOLDER}/do . {_COMPARE_LIMIT:g} python3 {_FOLDER}/compare.py {_FOLDER}/cases {names}"
        done = await self._do(f"{cases}\n{line}")
        if not done.ok:
            raise HandsFailed(f"The comparison failed: {done.output.strip()[-200:]}")
        report: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(done.output.splitlines()[-1])))
        return report

    def note(self, command: str, output: str, *, ok: bool) -> None:
        """Nothing to report: the CLI sees every call itself."""


class WireTools(Tools):
    """The worker's MCP tools as the CLI offers them."""

    def __init__(self, turn: Asking, notice: Callable[[Notice], None], clock: Clock) -> None:
        self._turn = turn
        self._notice = notice
        self._clock = clock

    async def call(self, tool: str, **arguments: Any) -> Result:
        """See Tools.call."""
        if tool == "board_read":
            return await self._read_board(arguments)
        return await self._call(tool, arguments)

    async def _read_board(self, arguments: dict[str, Any]) -> Result:
        """Read in pages what a single call would show at once."""
        result = await self._call("board_read", {**arguments, "limit": _PAGE})
        texts = [result.text]
        while "after" in arguments and result.ok and result.number("entries") == _PAGE:
            arguments = {**arguments, "after": result.number("last")}
            result = await self._call("board_read", {**arguments, "limit": _PAGE})
            texts.append(result.text)
        return Result(result.ok, "\n".join(texts), result.fields)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Result:
        wait = _BACK_OFF
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                text = await self._turn.ask(lambda tools: mcp_call(tools, tool, arguments))
            except NotOffered as error:
                raise ToolsUnavailable(f"{tool}: the CLI does not offer it.") from error
            own = _hear(text, self._notice)
            status = _STATUS.search(own)
            if status is not None:
                # In front of it stands what the CLI says about the call.
                own = own[status.start() :]
                fields = fields_of(own)
                return Result(fields["status"] not in _FAILURES, own, fields)
            if attempt < _ATTEMPTS:
                await self._clock.sleep(wait)
                wait *= 2
        raise ToolsUnavailable(f"{tool}: the MCP endpoint gave no answer: {text.strip()[-200:]}")


class WireBench(Bench):
    """Compares on the worker's machine, with the kit's program."""

    def __init__(self, reference: Path, shell: WireShell) -> None:
        self._reference = reference
        self._shell = shell

    async def answer(self, cases: Sequence[Case]) -> list[AnsweredCase]:
        """See Bench.answer."""
        report = await self._shell.compare(_packed(cases), self._reference)
        answers = zip(cases, report["answers"], strict=True)
        return [AnsweredCase.of(case, got["stdout"], got["code"]) for case, got in answers if got is not None]

    async def compare(self, program: Path, cases: Sequence[Case], name: str) -> Comparison:
        """See Bench.compare. All differences are counted; the first ones are shown."""
        report = await self._shell.compare(_packed(cases), self._reference, program)
        found = []
        for number, right, got in report["differences"]:
            outcome = Outcome(b"", b"", 0, timed_out=True)
            if got is not None:
                outcome = Outcome(got["stdout"].encode("utf-8", "surrogateescape"), b"", got["code"])
            found.append(Difference(AnsweredCase.of(cases[number], right["stdout"], right["code"]), outcome))
        return Comparison(report["total"], tuple(found), report["wrong"] - len(found))


def _named(name: str, arguments: dict[str, Any]) -> Ask:
    return lambda tools: named_call(tools, name, arguments)


def _packed(cases: Sequence[Case]) -> str:
    return base64.b64encode(zlib.compress(dump_cases(cases).encode(), 9)).decode()


def _hear(text: str, notice: Callable[[Notice], None]) -> str:
    """Hand on the notices in a result; return the rest of it."""
    own, notices = split_notices(_HEADER.sub(f"\n{NOTICE_HEADER}", text))
    for each in notices:
        notice(each)
    return own
