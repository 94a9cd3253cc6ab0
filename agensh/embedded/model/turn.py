"""One turn of a worker's mind on the wire: what it wants done becomes tool calls, their results let it go on.

The mind is a coroutine. Each time it asks for something, the answer to the CLI's request is that tool call; the CLI's
next request brings the result. A request that comes twice (the CLI retries) gets the same answer: nothing is done
twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from agensh.embedded.model.conversation import Call, Called, Conversation, Reply, Returned, Said, ToolSpec
from agensh.embedded.model.tools import NotOffered
from agensh.embedded.model.wire import fresh
from agensh.errors import AgenshError

log = logging.getLogger(__name__)

Ask = Callable[[Sequence[ToolSpec]], Call]


class Asking(Protocol):
    """Whatever has tools called."""

    async def ask(self, make: Ask) -> str:
        """Have a tool called; return the text of its result with whatever else came along."""
        ...


class Turn:
    """Runs `work` until it returns the last words."""

    def __init__(self, work: Callable[[Turn], Awaitable[str]]) -> None:
        self._tools: Sequence[ToolSpec] = ()
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._made = 0
        self._task = asyncio.create_task(self._run(work))

    async def answer(self, conversation: Conversation) -> Reply:
        """Hand over the result that the conversation brings, and return what the mind does next."""
        self._tools = conversation.tools
        for call_id in list(self._asked):
            result = _result(conversation, call_id)
            if result is not None:
                self._reply = asyncio.get_running_loop().create_future()
                self._asked.pop(call_id).set_result(result)
        # The client may be gone before the mind has decided; its next request asks for the same decision.
        return await asyncio.shield(self._reply)

    def holds(self, calls: int) -> bool:
        """Say whether a conversation with that many calls since the prompt can be in this turn.

        It may lack the newest call, whose answer was lost on the way; with fewer it was begun anew.
        """
        return calls + 1 >= self._made

    async def ask(self, make: Ask) -> str:
        """Have a tool called; return the text of its result with whatever else came along.

        NotOffered as `make` raises it.
        """
        call = make(self._tools)
        call_id = fresh("call_")
        self._made += 1
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[call_id] = done
        self._reply.set_result(Reply(call=call, call_id=call_id))
        return await done

    async def cancel(self) -> None:
        """End the turn where it is."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._reply.cancel()

    async def _run(self, work: Callable[[Turn], Awaitable[str]]) -> None:
        try:
            words = await work(self)
        except NotOffered as error:
            words = f"I cannot work: the tool {error} is missing."
        except AgenshError as error:
            words = f"I stop this turn here: {error}"
        except Exception as error:
            # The CLI must get an answer; the log says where it went wrong.
            log.exception("turn failed")
            words = f"I stop this turn here: {type(error).__name__}: {error}"
        self._reply.set_result(Reply(words))


def _result(conversation: Conversation, call_id: str) -> str | None:
    """Return what a call gave, with all that was said since the call, such as a hook's words; None without a result."""
    texts: list[str] = []
    begun = done = False
    for item in conversation.items:
        match item:
            case Called(id) if id == call_id:
                begun, texts = True, []
            case Returned(id, text) if id == call_id:
                # Some CLIs put a hook's words in front of the result.
                done, texts = True, [text, *texts]
            case Said(role, text) if begun and role != "assistant":
                texts.append(text)
    return "\n".join(texts) if done else None
