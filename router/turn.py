"""One turn of a CLI, from its prompt to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from adapters.base import Adapter, Outcome, Text, ToolActivity, TurnEnd
from router.record import Recorder

log = logging.getLogger(__name__)


async def drive(
    adapter: Adapter, recorder: Recorder, prompt: str, turn_id: int, texts: list[str], heard: Callable[[], None]
) -> TurnEnd:
    """Send a prompt and return how the turn ended; an adapter that fails, or says no end, is a crash.

    What the CLI says goes to `texts`, its tool calls on record; `heard` is called when it has read the prompt.
    """
    try:
        async for item in adapter.turn(prompt):
            if isinstance(item, TurnEnd):
                return item
            # Whatever it says or does, it has read the prompt.
            heard()
            if isinstance(item, Text):
                texts.append(item.text)
            elif isinstance(item, ToolActivity):
                recorder.activity(turn_id, item)
    except Exception as error:
        log.error("adapter failed", extra={"worker": adapter.launch.worker}, exc_info=error)
        return TurnEnd(Outcome.CRASHED, f"The adapter failed: {type(error).__name__}: {error}")
    return TurnEnd(Outcome.CRASHED, "The CLI ended the turn without a result.")
