"""Takes the figures of a rehearsal from what was written down: logs, prompts, the board, the routers' database."""

from __future__ import annotations

import asyncio
import json
import os
import re
from array import array
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from adapters.rehearsal import PROMPTS
from agensh.clients.board import BoardClient
from agensh.db import open_engine
from agensh.identity import parse_worker_name
from agensh.rehearse.counting import Posted, Prompt, Quantiles, Tally, board_in_order, count_posts, count_worker
from agensh.rehearse.figures import Figures
from agensh.rehearse.log import Load, SentMessage, read_logs
from agensh.rehearse.plan import DUE, Plan, log_file
from agensh.rehearse.reading import read_prompt
from agensh.rundir import RunDir, RunInfo
from router.events import Source
from router.tables import events, posts

PAGE = 2000  # entries; the most the board lists at once
_MARKER = re.compile(r"\bme\d+x\d+\b")
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Ends:
    """How the processes stood at the moment the load ended."""

    feed_heads: Sequence[int]
    """Newest entry that each node host has."""
    post_heads: Sequence[int]
    """Newest post of the task channel that each has."""
    unwritten: int
    cpu: dict[str, float]
    hosts_mb: Sequence[float]
    looks: int = 1
    """How often the workers looked at what was left for them."""


async def evaluate(
    run: RunDir, info: RunInfo, plan: Plan, ends: Ends, *, database: str, provision_s: float, empty_mb: float
) -> Figures:
    """Count everything. The board must still answer."""
    files = [log_file(run.path, number, look) for look in range(ends.looks) for number in range(plan.generators)]
    load = await asyncio.to_thread(read_logs, files)
    tally = Tally()
    listing = [line async for line in _listing(run, info)]
    board = board_in_order(listing, load.entries, tally)
    queued = await _queued(run)
    authors = await _authors(run)
    await asyncio.to_thread(_count, run, info, load, board, authors, tally)
    backlog = _backlog(plan, ends, load, board, queued)
    calls = [call for made in load.calls.values() for call in made]
    in_load = [call for call in calls if call.due <= plan.end]
    return Figures(
        workers=plan.workers,
        hosts=len(info.places),
        seconds=plan.seconds,
        database=database,
        calls=len(calls),
        calls_failed=len(load.failures),
        entries=len(board),
        direct_messages=len(load.messages),
        posts=len(authors),
        posts_told=tally.posts,
        merged=load.merged,
        lost=tally.lost,
        under_way=0,
        repeated=tally.repeated,
        entry_shown_delay_s=Quantiles.of(tally.entry_delays),
        entry_announced_delay_s=Quantiles.of(tally.announce_delays),
        dm_shown_delay_s=Quantiles.of(tally.message_delays),
        excess_delay_ms=Quantiles.of(tally.entry_excess + tally.message_excess, factor=1000, digits=1),
        entry_excess_ms=Quantiles.of(tally.entry_excess, factor=1000, digits=1),
        dm_excess_ms=Quantiles.of(tally.message_excess, factor=1000, digits=1),
        shown_share=round(tally.shown / max(1, tally.shown + tally.counted), 4),
        call_ms=Quantiles.of(array("d", [call.ended - call.began for call in in_load]), factor=1000, digits=1),
        late_ms=Quantiles.of(array("d", [call.began - call.due for call in in_load]), factor=1000, digits=1),
        queued_delay_s=Quantiles.of(array("d", [at - posted for posted, at in queued])),
        backlog_end=sum(backlog.values()),
        backlog=backlog,
        unwritten_end=ends.unwritten,
        router_mb=round((sum(ends.hosts_mb) - len(ends.hosts_mb) * empty_mb) / plan.workers, 3),
        empty_host_mb=round(empty_mb, 1),
        cpu_s=ends.cpu | {"total": round(sum(ends.cpu.values()), 2)},
        provision_s=round(provision_s, 1),
        load_average=round(os.getloadavg()[0], 1),
        failures=load.failures[:_EXAMPLES],
        examples=tally.examples[:_EXAMPLES],
    )


async def _listing(run: RunDir, info: RunInfo) -> AsyncGenerator[tuple[str, int, float], None]:
    """Yield marker, author and time of every entry of the rehearsal, as a worker reads the board."""
    token = next(iter(run.secrets().workers.values())).board_token
    after = 0
    async with BoardClient(info.urls.board, token, info.board) as board:
        while page := await board.read(limit=PAGE, after=after):
            for entry in page:
                found = _MARKER.search(entry.content)
                if found is not None:
                    yield found.group(0), parse_worker_name(entry.worker)[1] - 1, entry.created_at
            after = page[-1].seq


async def _queued(run: RunDir) -> list[tuple[float, float]]:
    """Return when each of the chat's posts was made and when it was in the database of the queues."""
    engine = open_engine(run.runtime_url, pool_size=1)
    try:
        async with engine.connect() as connection:
            direct = select(events.c.observed_at, events.c.queued_at).where(events.c.source == Source.MATTERMOST)
            channel = select(posts.c.created_at, posts.c.queued_at)
            return [(posted, at) for query in (direct, channel) for posted, at in await connection.execute(query)]
    finally:
        await engine.dispose()


async def _authors(run: RunDir) -> dict[int, int]:
    """Return the index of the author of each post of the task channel, by its seq."""
    engine = open_engine(run.runtime_url, pool_size=1)
    try:
        async with engine.connect() as connection:
            rows = await connection.execute(select(posts.c.seq, posts.c.author).order_by(posts.c.seq))
            return {seq: parse_worker_name(author)[1] - 1 for seq, author in rows}
    finally:
        await engine.dispose()


def _count(
    run: RunDir, info: RunInfo, load: Load, board: list[Posted], authors: Mapping[int, int], tally: Tally
) -> None:
    to: dict[int, list[SentMessage]] = {}
    for message in load.messages:
        to.setdefault(message.to, []).append(message)
    for index, name in enumerate(info.spec.worker_names):
        prompts = list(_prompts(run.worker(name) / "work" / PROMPTS))
        calls = load.calls.get(index, [])
        count_worker(tally, index, calls, prompts, board, to.get(index, []))
        count_posts(tally, index, calls, prompts, authors)


def _prompts(path: Path) -> Iterator[Prompt]:
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            value = json.loads(line)
            yield Prompt(value["at"], read_prompt(value["prompt"]))


def _backlog(
    plan: Plan, ends: Ends, load: Load, board: Sequence[Posted], queued: Sequence[tuple[float, float]]
) -> dict[str, int]:
    """Return what was due `DUE` seconds before the end and was not done at the end."""
    due = plan.end - DUE
    late = sum(call.due < due and call.began > plan.end for made in load.calls.values() for call in made)
    posted = sum(entry.created_at < due for entry in board)
    return {
        "calls": late + load.undone,
        "entries": sum(max(0, posted - head) for head in ends.feed_heads),
        "chat_posts": sum(at > plan.end and when < due for when, at in queued)
        + sum(max(ends.post_heads) - head for head in ends.post_heads),
    }
