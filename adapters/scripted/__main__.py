"""The rule-based worker as a program: `python -m adapters.scripted --playbook DIR (--session ID | --resume ID)`.

It speaks the lines of `adapters.scripted.wire` and ends when its input ends or SIGTERM comes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from adapters.base import Outcome, SessionLost, Text, ToolActivity, TurnEnd, TurnItem
from adapters.scripted import wire
from adapters.scripted.session import SessionFile, State
from agensh.clock import SystemClock
from agensh.errors import AgenshError
from agensh.logs import set_up_logging

log = logging.getLogger(__name__)

_PROMPT_LIMIT = 64 * 1024 * 1024  # bytes of one line on standard input


class Cli:
    """One session: reads lines, runs a turn at a time, can be interrupted."""

    def __init__(self, playbook: Path, file: SessionFile, state: State) -> None:
        self.playbook = playbook
        self.file = file
        self.state = state
        self.turn: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until the input ends; a running turn is then cancelled."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        reader = asyncio.StreamReader(limit=_PROMPT_LIMIT)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            self._write({"type": "ready", "session": self.state.session})
            while line := await reader.readline():
                await self._handle(wire.parse(line.decode("utf-8", "replace")))
        finally:
            await self._end_turn()
            transport.close()

    async def _handle(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "turn" if self.turn is None or self.turn.done():
                self.turn = asyncio.create_task(self._turn(str(message.get("prompt", ""))))
            case "turn":
                self._emit(Text("A turn is running; interrupt it first."))
            case "interrupt":
                await self._end_turn()
            case other:
                log.warning("line not understood", extra={"line_type": str(other)})

    async def _end_turn(self) -> None:
        if self.turn is not None:
            self.turn.cancel()
            # It reports its own end; nothing is raised here but a cancellation of this program.
            await asyncio.wait([self.turn])

    async def _turn(self, prompt: str) -> None:
        # Loaded by the first turn: the MCP library alone takes half a second.
        from adapters.scripted.brain import outcome_of, run_turn

        said = False

        def emit(item: Text | ToolActivity) -> None:
            nonlocal said
            said = True
            self._emit(item)

        end = TurnEnd(Outcome.CRASHED, "The turn ended without an answer.")
        try:
            await run_turn(prompt, self.playbook, self.file, self.state, SystemClock(), emit)
            end = TurnEnd(Outcome.COMPLETED if said else Outcome.NO_WORK)
        except asyncio.CancelledError:
            end = TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.")
        except AgenshError as error:
            log.warning("turn failed", extra={"error": str(error)})
            end = TurnEnd(outcome_of(error), str(error))
        except Exception as error:
            # The router sees how the turn ended; the log says where.
            log.exception("turn failed")
            end = TurnEnd(Outcome.CRASHED, f"The turn failed: {type(error).__name__}: {error}")
        finally:
            self._emit(end)

    def _emit(self, item: TurnItem) -> None:
        self._write(wire.encode(item))

    @staticmethod
    def _write(line: dict[str, Any]) -> None:
        sys.stdout.write(wire.dump(line))
        sys.stdout.flush()


def main() -> int:
    """Read the options, open the session, serve."""
    parser = argparse.ArgumentParser(prog="adapters.scripted", description=__doc__)
    parser.add_argument("--playbook", type=Path, required=True, help="folder of the bundled implementations")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--session", help="id of a fresh session")
    which.add_argument("--resume", help="id of a session to go on with")
    options = parser.parse_args()
    set_up_logging()
    try:
        file = SessionFile(Path(os.environ["HOME"]), options.resume or options.session)
        state = file.load() if options.resume else file.create()
    except SessionLost as error:
        sys.stdout.write(wire.dump({"type": "error", "code": wire.SESSION_LOST, "message": str(error)}))
        return 3
    with suppress(asyncio.CancelledError):
        asyncio.run(Cli(options.playbook, file, state).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
