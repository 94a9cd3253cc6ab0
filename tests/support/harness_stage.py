"""A real CLI on a stage: the scripted model as its provider, an MCP endpoint with its hooks, and one adapter."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from adapters.base import Adapter, Process, TurnEnd, TurnItem, Usage, WorkerLaunch
from adapters.runtime import LocalRuntime
from agensh.clock import SystemClock
from agensh.embedded.model.app import Recorded
from router.mcp.calls import new_server, text_result
from router.mcp.notices import PendingMessage, add_notice, place
from router.mcp.server import create_mcp_app
from router.tools.registry import Argument, Call, Refused, Tool, Toolbox
from tests.support.router_stage import until
from tests.support.scripted_model import Model, scripted_model
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

CLOCK = SystemClock()
WORKER, PEER = "demo-worker1", "demo-worker2"
MCP_TOKEN = "mcp-token-0123456789abcdef0123456789"
MODEL_KEY = "model-key-fedcba9876543210fedcba98765"
LIMIT = 90.0  # seconds; a CLI on a busy machine takes its time
LOOK = 0.1  # seconds between two looks at all processes, or at a CLI's transcripts, which take milliseconds each


class Spy:
    """A runtime that remembers what it started."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.commands: list[Sequence[str]] = []
        self.environments: list[Mapping[str, str]] = []

    async def spawn(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Process:
        """See Runtime.spawn."""
        self.commands.append(command)
        self.environments.append(env)
        process = await LocalRuntime().spawn(command, env=env, cwd=cwd, log=log)
        self.processes.append(process)
        return process


@dataclass
class Stage:
    """One worker with a real CLI. `turn` runs a turn; `model.turns` holds what the CLI asked the model."""

    folder: Path
    model: Model
    worker: StubWorker
    launch: WorkerLaunch
    kind: type[Adapter]
    tools: Tools
    runtime: Spy = field(default_factory=Spy)
    items: list[TurnItem] = field(default_factory=list)
    """What the last turn yielded."""
    asked: int = 0
    """How many requests the model had when the last turn began."""
    _adapters: list[Adapter] = field(default_factory=list)
    _messages: int = 0

    @property
    def adapter(self) -> Adapter:
        """The newest one."""
        return self._adapters[-1]

    async def open(self, session: str | None = None, **changes: Any) -> str:
        """Start the CLI with a new adapter, in a session that is given or a fresh one."""
        self._adapters.append(self.kind(replace(self.launch, **changes), self.runtime, CLOCK))
        async with asyncio.timeout(LIMIT):
            return await self.adapter.start(session)

    async def turn(self, prompt: str, limit: float = LIMIT) -> TurnEnd:
        """Run one turn and return its end; the items are in `items`."""
        self.items, self.asked = [], len(self.model.requests)
        async with asyncio.timeout(limit):
            async for item in self.adapter.turn(prompt):
                self.items.append(item)
        ends = [item for item in self.items if isinstance(item, TurnEnd)]
        assert ends == [self.items[-1]], self.items
        return ends[0]

    async def close(self) -> None:
        """Stop every adapter."""
        for adapter in self._adapters:
            await adapter.stop()

    def tell(self, text: str) -> None:
        """Let a direct message wait for the worker."""
        self._messages += 1
        self.worker.desk.messages.append(PendingMessage(f"e{self._messages}", PEER, text, CLOCK.time()))

    def asked_now(self) -> list[Recorded]:
        """Return the requests of the last turn."""
        return self.model.requests[self.asked :]

    def loop_now(self) -> list[Recorded]:
        """Return the requests of the last turn that offered tools: those of the agent itself."""
        return [each for each in self.asked_now() if each.conversation is not None and each.conversation.tools]

    def used(self) -> Usage:
        """Return what the model said it counted in the last turn."""
        total = Usage()
        for each in self.asked_now():
            if each.figures is not None:
                figures = each.figures
                total += Usage(figures.input, figures.cached, figures.output, figures.reasoning)
        return total

    def kill(self) -> None:
        """SIGKILL to the CLI alone, as the kernel does when memory runs out."""
        os.kill(self.runtime.processes[-1].pid, signal.SIGKILL)

    def left(self) -> dict[int, str]:
        """Return the processes of this stage's worker, CLI included, with their command lines."""
        return processes_of(self.launch.env["AGENSH_RUN"])

    def running(self, words: str) -> dict[int, str]:
        """Return the processes of this stage whose command line holds `words`."""
        return {pid: line for pid, line in self.left().items() if words in line}


def mentions(recorded: Recorded, phrase: str) -> int:
    """Return how often a request says something."""
    return json.dumps(recorded.body, ensure_ascii=False).count(phrase)


def ours(recorded: Recorded) -> list[str]:
    """Return the names of our tools that a request offered the model."""
    tools = recorded.conversation.tools if recorded.conversation is not None else ()
    return [tool.name for tool in tools if "agensh" in f"{tool.namespace} {tool.name}"]


def tokens(usage: Usage) -> Usage:
    """Return a usage without the price that a CLI puts on it."""
    return replace(usage, cost_usd=0.0)


def processes_of(run_id: str) -> dict[int, str]:
    """Return the living processes of a run's workers with their command lines."""
    mark = f"AGENSH_RUN={run_id}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if line:  # a zombie has none
                    found[int(folder.name)] = line
        except OSError:  # it has ended
            continue
    return found


class Tools:
    """The tools of the stage's MCP endpoint: `echo` answers, `refuse` fails, `hold` waits until it is let go."""

    def __init__(self) -> None:
        self.holding = asyncio.Event()
        self.released = asyncio.Event()

    def all(self) -> tuple[Tool[Any], ...]:
        """Return them as the endpoint lists them."""
        text = Argument("text", "What to say.", default="")
        return (
            Tool("echo", "Says it again.", (text,), self._echo),
            Tool("refuse", "Fails.", (text,), self._refuse),
            Tool("hold", "Waits.", (text,), self._hold),
        )

    async def _echo(self, call: Call[Any]) -> str:
        return f"echo: {call['text']}"

    async def _refuse(self, call: Call[Any]) -> str:
        raise Refused(f"refused: {call['text']}")

    async def _hold(self, call: Call[Any]) -> str:
        self.holding.set()
        await self.released.wait()
        return "let go"


def structured_app(worker: StubWorker, tools: Sequence[Tool[Any]]) -> Starlette:
    """Return an endpoint of somebody else's making: its results carry structured data, and our notices."""
    toolbox: Toolbox[Any] = Toolbox(tools, clock=CLOCK)

    async def call(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        worker.desk.acknowledge()
        reply = await toolbox.call(worker, params.name, params.arguments)
        result = text_result(reply) | {"structuredContent": {"answer": reply.text}}
        placement = place(result)
        notice = worker.desk.collect(placement.room) if placement is not None else None
        return types.CallToolResult.model_validate(add_notice(result, notice.text) if notice else result)

    server = new_server(toolbox, instructions="", on_call=call)
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=lifespan)


@asynccontextmanager
async def late_endpoint(stage: Stage, delay: float) -> AsyncIterator[str]:
    """Serve the stage's worker at another endpoint, which answers its first request after `delay` seconds."""
    app = create_mcp_app({WORKER: stage.worker}, clock=CLOCK, tools=stage.tools.all())
    first = True

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal first
        if first and scope["type"] == "http" and scope["method"] == "POST":
            first = False
            await asyncio.sleep(delay)
        await app(scope, receive, send)

    async with serving(late) as url:
        yield f"{url}/mcp/{WORKER}"


@asynccontextmanager
async def harness_stage(
    folder: Path, kind: type[Adapter], *, options: Mapping[str, str], model: str, structured: bool = False
) -> AsyncIterator[Stage]:
    """Set up model, endpoint and folders; no CLI runs until `Stage.open`. At the end no process is left."""
    worker = StubWorker(WORKER, CLOCK, token=MCP_TOKEN)
    tools = Tools()
    home, work, tmp = folder / "home", folder / "work", folder / "tmp"
    for path in (home, work, tmp):
        path.mkdir()
    async with AsyncExitStack() as stack:
        scripted = await stack.enter_async_context(scripted_model())
        node = await stack.enter_async_context(
            serving(create_mcp_app({WORKER: worker}, clock=CLOCK, tools=tools.all()))
        )
        stack.callback(tools.released.set)
        mcp_url = f"{node}/mcp/{WORKER}"
        if structured:
            mcp_url = await stack.enter_async_context(serving(structured_app(worker, tools.all()))) + "/mcp/"
        stage = Stage(
            folder,
            scripted,
            worker,
            WorkerLaunch(
                worker=WORKER,
                home=home,
                work=work,
                tmp=tmp,
                log=folder / "cli.log",
                mcp_url=mcp_url,
                mcp_token=MCP_TOKEN,
                hooks_url=f"{node}/hooks/{WORKER}",
                model_url=scripted.url,
                model_key=MODEL_KEY,
                model=model,
                options=options,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(home),
                    "TMPDIR": str(tmp),
                    "LANG": "C.UTF-8",
                    "AGENSH_RUN": uuid.uuid4().hex,
                    "AGENSH_WORKER": WORKER,
                },
            ),
            kind,
            tools,
        )
        try:
            yield stage
        finally:
            await stage.close()
            await until(lambda: not stage.left(), LIMIT, every=LOOK)
