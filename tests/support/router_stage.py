"""What a node host needs around it, in memory: a board, listeners, and CLIs that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from adapters.base import Adapter, Outcome, SessionLost, Text, TurnEnd, TurnItem
from agensh.clients.board import Released, StreamOpened, WorkerState
from agensh.clock import Clock
from agensh.entries import Entry, EntryType
from agensh.errors import ServiceError
from agensh.launch.ports import free_port
from agensh.rundir import AdminSecrets, RunDir, RunInfo, RunSecrets, ServiceUrls, WorkerSecrets
from agensh.spec import parse_spec
from router.backends import Listener, WorkerClients
from router.events import EventSink, Kind, NewEvent, Priority, Source
from router.posts import PostFeed

Turn = Callable[["StageAdapter", str], AsyncIterator[TurnItem]]


class Stage:
    """Directs the CLIs of a test and remembers what happened to them."""

    def __init__(self, turn: Turn | None = None) -> None:
        self.turn = turn or say_done
        self.prompts: dict[str, list[str]] = {}
        self.starts: list[tuple[str, str | None]] = []
        self.stops: list[str] = []
        self.adapters: dict[str, StageAdapter] = {}
        self.known_sessions: set[str] = set()

    def adapter(self, _harness: str) -> type[Adapter]:
        """Return an adapter class that plays on this stage."""
        stage = self

        class Bound(StageAdapter):
            pass

        Bound.stage = stage
        return Bound

    async def until(self, condition: Callable[[], bool], limit: float = 20.0) -> None:
        """Wait until `condition` holds."""
        await until(condition, limit)


class StageAdapter(Adapter):
    """A CLI without a process."""

    name: ClassVar[str] = "stage"
    stage: ClassVar[Stage]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.interrupted = asyncio.Event()
        self.session = ""
        self.stage.adapters[self.launch.worker] = self

    async def start(self, session: str | None = None) -> str:
        self.stage.starts.append((self.launch.worker, session))
        if session is not None and session not in self.stage.known_sessions:
            raise SessionLost
        count = sum(worker == self.launch.worker for worker, _ in self.stage.starts)
        self.session = session or f"{self.launch.worker}-s{count}"
        self.stage.known_sessions.add(self.session)
        return self.session

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        self.interrupted.clear()
        self.stage.prompts.setdefault(self.launch.worker, []).append(prompt)
        async for item in self.stage.turn(self, prompt):
            yield item

    async def interrupt(self) -> None:
        self.interrupted.set()

    async def stop(self) -> None:
        self.interrupted.set()
        self.stage.stops.append(self.launch.worker)


async def say_done(_adapter: StageAdapter, _prompt: str) -> AsyncIterator[TurnItem]:
    """A turn that says something and ends well."""
    yield Text("done")
    yield TurnEnd(Outcome.COMPLETED)


class MemoryBoard:
    """The entries of a board; its stream can be cut."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.entries: list[Entry] = []
        self.releases: list[int] = []
        self._changed = asyncio.Event()
        self.streams = 0
        self._cut = 0

    def write(self, worker: str, type_: EntryType, content: str, **fields: Any) -> Entry:
        entry = Entry(len(self.entries) + 1, worker, type_, content, self._clock.time(), **fields)
        self.entries.append(entry)
        self._wake()
        return entry

    def release(self, seq: int, *, told: bool = True) -> None:
        """Release a claim; without `told`, no open stream hears of it."""
        self.entries[seq - 1] = replace(self.entries[seq - 1], active=False)
        if told:
            self.releases.append(seq)
            self._wake()

    def cut(self) -> None:
        """Break every open stream."""
        self._cut += 1
        self._wake()

    async def read(self, *, limit: int = 2000, after: int | None = None, type: EntryType | None = None) -> list[Entry]:
        found = [
            entry
            for entry in self.entries
            if (after is None or entry.seq > after) and entry.active and type in {None, entry.type}
        ]
        return found[-limit:] if after is None else found[:limit]

    async def follow(self, after: int) -> AsyncGenerator[Entry | Released | StreamOpened, None]:
        self.streams += 1
        cut, released = self._cut, len(self.releases)
        yield StreamOpened()
        while True:
            changed = self._changed
            for entry in self.entries[after:]:
                after = entry.seq
                yield entry
            for seq in self.releases[released:]:
                released += 1
                yield Released(seq)
            if self._cut != cut:
                raise ServiceError("The board", 0, "the stream was cut", retryable=True)
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class QueueListener:
    """A listener that is told what to hear."""

    def __init__(self, sink: EventSink) -> None:
        self.sink = sink
        self.heard: asyncio.Queue[tuple[list[NewEvent], dict[str, str]]] = asyncio.Queue()
        self.live = asyncio.Event()
        self.live.set()

    async def run(self) -> None:
        while True:
            events, cursor = await self.heard.get()
            await self.sink.put(events, cursor)


class StageBackends:
    """The services of a run, in memory."""

    def __init__(self, board: MemoryBoard) -> None:
        self.board = board
        self.ears: dict[str, QueueListener] = {}
        self.closed = False
        self.told: list[WorkerState] = []

    def feed_source(self) -> MemoryBoard:
        return self.board

    async def channel_id(self) -> str:
        return "channel-1"

    def clients(self, worker: str, secrets: WorkerSecrets) -> WorkerClients:
        nothing: Any = None
        return WorkerClients(nothing, nothing, nothing)

    def listeners(
        self, worker: str, secrets: WorkerSecrets, clients: WorkerClients, sink: EventSink, posts: PostFeed
    ) -> Sequence[Listener]:
        self.ears[worker] = QueueListener(sink)
        return [self.ears[worker]]

    def usage(self) -> None:
        """This stage has no gateway."""

    async def tell_workers(self, states: Sequence[WorkerState]) -> None:
        self.told = list(states)

    async def aclose(self) -> None:
        self.closed = True


async def until(condition: Callable[[], bool], limit: float = 20.0, *, every: float = 0.01) -> None:
    """Wait until `condition` holds, looked at `every` so many seconds; TimeoutError after `limit` seconds."""
    async with asyncio.timeout(limit):
        while True:
            if condition():
                return
            await asyncio.sleep(every)


class NoRuntime:
    """A runtime for adapters that spawn nothing."""

    async def spawn(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is spawned here")


def direct_message(number: int, text: str, *, author: str = "demo-worker2", at: float = 0.0) -> NewEvent:
    """A direct message as the chat's listener queues it."""
    return NewEvent(
        source=Source.MATTERMOST,
        kind=Kind.DIRECT_MESSAGE,
        dedupe_key=f"mattermost:post:{number}",
        summary=text,
        observed_at=at,
        thread=f"mattermost:{author}",
        priority=Priority.DIRECT,
        body={"author": author, "text": text, "post_id": f"p{number}"},
    )


def comment(number: int, text: str, *, issue: int = 4, at: float = 0.0) -> NewEvent:
    """A comment as the forge's listener queues it."""
    return NewEvent(
        source=Source.GITEA,
        kind=Kind.COMMENT,
        dedupe_key=f"gitea:comment:{number}",
        summary=text,
        observed_at=at,
        thread=f"gitea:demo/task#{issue}",
        body={"number": issue},
    )


def new_run(folder: Path, *, workers: int = 2, created_at: float = 0.0, **clock: Any) -> RunDir:
    """Write a run folder for `workers` workers of team `demo`."""
    folder.mkdir(parents=True, exist_ok=True)
    goal = folder / "goal.md"
    goal.write_text("Rebuild it.\n", encoding="utf-8")
    spec = parse_spec(
        {
            "team": {"name": "demo", "workers": workers},
            "task": {"kind": "rebuild", "goal": str(goal), "reference": "/usr/bin/true"},
            "clock": clock,
        }
    )
    run = RunDir(folder)
    urls = ServiceUrls(
        forge="http://127.0.0.1:1", chat="http://127.0.0.1:1", board="http://127.0.0.1:1",
        node=f"http://127.0.0.1:{free_port()}",
    )  # fmt: skip
    run.write_info(
        RunInfo(
            run_id=folder.name, created_at=created_at, spec=spec, urls=urls, board="demo", owner="demo",
            repository="task", channel="task", chat_team="demo",
        )
    )  # fmt: skip
    admin = AdminSecrets(name="admin", password="-")
    names = spec.worker_names
    run.write_secrets(
        RunSecrets(
            forge_admin=admin,
            chat_admin=admin,
            board_admin="-",
            node_admin="node-token",
            workers={
                name: WorkerSecrets(
                    forge_password="-", forge_token=f"forge-{name}", chat_token="-", chat_user_id="-",
                    board_token="-", mcp_token=f"mcp-{name}",
                )
                for name in names
            },
        )
    )  # fmt: skip
    return run
