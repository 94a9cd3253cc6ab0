"""The tokens of a turn, from the spans of OpenTelemetry that Copilot writes into a file when it is told to.

Versions that report no tokens to their client write them there: a JSON line a span, one `chat` for each request to the
model, and one without a parent when the prompt is done. Lines are taken out of the file as they are read, so that it
stays small; what comes late counts for the next turn, and nothing counts twice. The worker can write there as well: no
link of its is followed, and what is read at once has a limit.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path

from adapters.base import Usage
from agensh.clock import Clock
from agensh.inside import open_file_inside, remove_inside

VARIABLE = "COPILOT_OTEL_FILE_EXPORTER_PATH"
PATIENCE = 1.0  # seconds for the last lines of a prompt that was answered; they are there before the answer as a rule
_LOOK = 0.05  # seconds between two looks
_MOST = 64 * 1024 * 1024  # bytes read at once; a request is 4 KB
_COUNTS = "gen_ai.usage."
_MOST_TOKENS = 10**9  # of one request


class TokenFile:
    """The file of one worker's Copilot, `inside` its home."""

    def __init__(self, home: Path, inside: str, clock: Clock) -> None:
        self._home = home
        self._inside = inside
        self._clock = clock
        self._read = 0

    @property
    def path(self) -> Path:
        """Where Copilot is to write."""
        return self._home / self._inside

    def begin(self) -> None:
        """Forget what a former process wrote (blocking)."""
        remove_inside(self._home, self._inside)
        self._read = 0

    async def take(self, *, answered: bool) -> Usage:
        """Return the tokens since the last call; after the answer to a prompt, wait for the lines of its end."""
        until = self._clock.monotonic() + PATIENCE
        usage = Usage()
        while True:
            more, done = await asyncio.to_thread(self._take)
            usage += more
            if done or not answered or self._clock.monotonic() >= until:
                return usage
            await self._clock.sleep(_LOOK)

    def _take(self) -> tuple[Usage, bool]:
        try:
            with os.fdopen(open_file_inside(self._home, self._inside), "r+b") as file:
                file.seek(self._read)
                data = file.read(_MOST)
                whole = data[: data.rfind(b"\n") + 1]
                self._read += len(whole)
                usage, done = tokens_in(whole.splitlines())
                if (done and len(whole) == len(data)) or len(data) == _MOST:
                    # Copilot appends, so it goes on at the beginning.
                    file.truncate(0)
                    self._read = 0
                return usage, done
        except OSError:
            return Usage(), False


def tokens_in(lines: Iterable[bytes]) -> tuple[Usage, bool]:
    """Return the tokens of all requests to the model, and whether a prompt's own span is among the lines."""
    usage, done = Usage(), False
    for line in lines:
        try:
            span = json.loads(line)
            attributes = span["attributes"]
            operation = attributes["gen_ai.operation.name"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # a metric, or not a span of the model's
        if operation == "chat":
            usage += Usage(
                _count(attributes, "input_tokens"),
                _count(attributes, "cache_read.input_tokens"),
                _count(attributes, "output_tokens"),
                _count(attributes, "reasoning.output_tokens"),
            )
        elif operation == "invoke_agent" and not span.get("parentSpanId"):
            done = True
    return usage, done


def _count(attributes: dict[str, object], name: str) -> int:
    value = attributes.get(_COUNTS + name)
    return value if type(value) is int and 0 < value <= _MOST_TOKENS else 0
