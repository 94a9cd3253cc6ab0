"""What the run record keeps of turns, tool calls and sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.base import ToolActivity, TurnEnd
from agensh.clock import Clock
from router.ports import ToolCall
from router.tables import sessions, tool_calls, turns
from router.writer import Writer, row_inserts

TEXT_CAP = 200_000  # characters of what a worker said in one turn; the beginning and the end are kept
SUMMARY_CAP = 4000  # characters of one tool call


@dataclass(frozen=True, slots=True)
class Session:
    """The CLI session of one worker, as it survives a restart of the host."""

    session_id: str = ""
    number: int = 0
    """How many sessions the worker has had."""
    primed: bool = False
    """The session has received the worker prompt."""
    started_at: float | None = None
    failures: int = 0
    """Failed turns in a row."""
    restarts: int = 0
    """Fresh sessions in a row without a completed turn."""
    parked_reason: str = ""
    parked_at: float | None = None


class Recorder:
    """Writes the record of one worker; nothing of it waits but `save_session`."""

    def __init__(self, worker: str, writer: Writer, clock: Clock) -> None:
        self.worker = worker
        self._writer = writer
        self._clock = clock
        self._running: dict[str, float] = {}
        self._open: dict[str, ToolActivity] = {}

    async def load_session(self) -> Session:
        """Return the session of a former host, or an empty one."""
        query = select(sessions).where(sessions.c.worker == self.worker)
        row = (await self._writer.read(lambda connection: connection.execute(query))).one_or_none()
        if row is None:
            return Session()
        values = dict(row._mapping)
        del values["worker"]
        return Session(**values)

    async def save_session(self, session: Session) -> None:
        """Write the session; it is committed when this returns."""
        values = {field: getattr(session, field) for field in Session.__slots__}

        async def operation(connection: AsyncConnection) -> None:
            known = await connection.scalar(select(sessions.c.worker).where(sessions.c.worker == self.worker))
            if known is None:
                await connection.execute(insert(sessions).values(worker=self.worker, **values))
            else:
                await connection.execute(update(sessions).where(sessions.c.worker == self.worker).values(**values))

        await self._writer.submit(operation)

    async def last_turn(self) -> int:
        """Return the number of the worker's newest turn; 0 when it had none."""
        query = select(func.max(turns.c.id)).where(turns.c.worker == self.worker)
        return int(await self._writer.read(lambda connection: connection.scalar(query)) or 0)

    def prompted(self, turn_id: int, prompt: str, entries: int) -> None:
        """The prompt of a turn that begins now."""
        self._change_turn(turn_id, {"prompt": prompt, "entries": entries})

    def ended(self, turn_id: int, end: TurnEnd, text: str) -> None:
        """A turn ended; tool calls it left open are recorded without a result."""
        for activity in list(self._open.values()):
            self._write_activity(turn_id, activity, None)
        self._open.clear()
        self._running.clear()
        usage = end.usage
        self._change_turn(
            turn_id,
            {
                "ended_at": self._clock.time(),
                "outcome": str(end.outcome),
                "reason": end.reason,
                "text": _middle_cut(text, TEXT_CAP),
                "input_tokens": usage.input_tokens,
                "cached_tokens": usage.cached_tokens,
                "output_tokens": usage.output_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "cost_usd": usage.cost_usd,
            },
        )

    def activity(self, turn_id: int, activity: ToolActivity) -> None:
        """A tool call the CLI reported; calls of our own MCP endpoint are recorded there, with their arguments."""
        if _is_ours(activity):
            return
        now = self._clock.time()
        self._running.setdefault(activity.call_id, now)
        if activity.ok is None:
            self._open[activity.call_id] = activity
        else:
            begun = self._open.pop(activity.call_id, None)
            if not activity.summary and begun is not None:
                activity = replace(activity, summary=begun.summary)
            self._write_activity(turn_id, activity, now)

    def call(self, turn_id: int | None, call: ToolCall) -> None:
        """A finished call of our own MCP endpoint."""
        self._insert_call(
            turn_id=turn_id,
            tool=call.tool,
            kind="mcp",
            arguments=call.arguments,
            ok=call.ok,
            summary=call.summary,
            started_at=call.started_at,
            ended_at=call.ended_at,
        )

    def _write_activity(self, turn_id: int, activity: ToolActivity, ended_at: float | None) -> None:
        self._insert_call(
            turn_id=turn_id,
            tool=activity.name[:190],
            kind=activity.kind,
            arguments="",
            ok=activity.ok,
            summary=_middle_cut(activity.summary, SUMMARY_CAP),
            started_at=self._running.pop(activity.call_id, self._clock.time()),
            ended_at=ended_at,
        )

    def _insert_call(self, **values: Any) -> None:
        row = {"worker": self.worker, **values}
        self._writer.record_item(_CALLS, [row])

    def _change_turn(self, turn_id: int, values: dict[str, Any]) -> None:
        change = update(turns).where(turns.c.id == turn_id).values(**values)
        self._writer.record(lambda connection: connection.execute(change))


_CALLS = row_inserts(tool_calls)


def _is_ours(activity: ToolActivity) -> bool:
    # Harnesses write `mcp__agensh__board_write`, `agensh-board_write`, `agensh.board_write` or the bare name.
    name = activity.name.lower()
    return activity.kind == "mcp" and ("agensh" in name or name.startswith(("board_", "chat_", "forge_")))


def _middle_cut(text: str, cap: int) -> str:
    if len(text) <= cap:
        return text
    half = cap // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half} characters left out) …\n{text[-half:]}"
