"""The tokens of a turn, from the spans of OpenTelemetry that Copilot writes into a file when it is told to.

Versions that report no tokens to their client write them there: a JSON line a span, one `chat` for each request to the
model, and one without a parent when the prompt is done. Lines are taken out of the file as they are read, so that it
stays small; what comes late counts for the next turn, and nothing counts twice.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from adapters.base import Usage
from agensh.clock import Clock

VARIABLE = "COPILOT_OTEL_FILE_EXPORTER_PATH"
PATIENCE = 1.0  # seconds for the last lines of a prompt that was answered; they are there before the answer as a rule
_LOOK = 0.05  # seconds between two looks
_COUNTS = "gen_ai.usage."


class TokenFile:
    """The file of one Copilot process."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._read = 0

    def begin(self) -> None:
        """Forget what a former process wrote (blocking)."""
        self.path.unlink(missing_ok=True)
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
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return Usage(), False
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        usage, done = tokens_in(whole.splitlines())
        if done and len(whole) == len(data):
            # Copilot appends, so it goes on at the beginning. It may not be ours to cut, in a container.
            with suppress(OSError):
                os.truncate(self.path, 0)
                self._read = 0
        return usage, done


def tokens_in(lines: Iterable[bytes]) -> tuple[Usage, bool]:
    """Return the tokens of all requests to the model, and whether a prompt's own span is among the lines."""
    usage, done = Usage(), False
    for line in lines:
        try:
            span = json.loads(line)
            attributes = span["attributes"]
            operation = attributes["gen_ai.operation.name"]
        except (ValueError, KeyError, TypeError):
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
    return value if isinstance(value, int) else 0
