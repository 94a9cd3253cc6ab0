"""A CLI from its start, and one turn of it from its prompt to its end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from adapters.base import Adapter, HarnessUnavailable, Outcome, Text, ToolActivity, TurnEnd
from agensh.text import storable
from router.record import Recorder

log = logging.getLogger(__name__)


async def start(adapter: Adapter, session: str | None, retries: int, rest: Callable[[int], Awaitable[None]]) -> str:
    """Start the CLI and return the session's id; `rest` is awaited, with the number of failures, before each retry.

    SessionLost at once; HarnessUnavailable, also for what this machine refuses (its disk is full), after the last try.
    """
    for failures in range(1, retries + 1):
        try:
            return await _start(adapter, session)
        except HarnessUnavailable as error:
            log.warning("CLI does not start", extra={"worker": adapter.launch.worker, "error": str(error)})
            await adapter.stop()
        await rest(failures)
    return await _start(adapter, session)


async def _start(adapter: Adapter, session: str | None) -> str:
    try:
        return await adapter.start(session)
    except OSError as error:
        raise HarnessUnavailable(f"The CLI cannot be started: {type(error).__name__}: {error}") from error


async def drive(
    adapter: Adapter, recorder: Recorder, prompt: str, turn_id: int, texts: list[str], heard: Callable[[], None]
) -> TurnEnd:
    """Send a prompt and return how the turn ended; an adapter that fails, or says no end, is a crash.

    What the CLI says goes to `texts`, its tool calls on record; `heard` is called when it has read the prompt.
    """
    end = await _drive(adapter, recorder, prompt, turn_id, texts, heard)
    return replace(end, reason=storable(end.reason))


async def _drive(
    adapter: Adapter, recorder: Recorder, prompt: str, turn_id: int, texts: list[str], heard: Callable[[], None]
) -> TurnEnd:
    try:
        # Closed here and now: what an adapter does at the end of a turn must not come in the middle of the next one.
        async with aclosing(adapter.turn(prompt)) as items:
            async for item in items:
                if isinstance(item, TurnEnd):
                    return item
                # Whatever it says or does, it has read the prompt.
                heard()
                if isinstance(item, Text):
                    texts.append(storable(item.text))
                elif isinstance(item, ToolActivity):
                    name, summary = storable(item.name), storable(item.summary)
                    recorder.activity(turn_id, replace(item, name=name, summary=summary))
    except Exception as error:
        log.error("adapter failed", extra={"worker": adapter.launch.worker}, exc_info=error)
        return TurnEnd(Outcome.CRASHED, f"The adapter failed: {type(error).__name__}: {error}")
    return TurnEnd(Outcome.CRASHED, "The CLI ended the turn without a result.")
