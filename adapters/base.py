"""What the router asks of a single-agent CLI.

One `Adapter` object drives the CLI of one worker over a `Runtime` (where the CLI's process lives). A turn is one prompt
until the CLI is done; it yields what happened and ends with exactly one `TurnEnd`. What a CLI reports as text, flag or
exit code instead of an error becomes a typed `Outcome` here, so that the router needs no word of any CLI's language.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Protocol

from agensh.clock import Clock
from agensh.errors import AgenshError

LINGER = 5.0  # seconds between the last line of a CLI and its end


class Rule(StrEnum):
    """What follows from a turn's outcome; `router/dispatcher.py` carries it out."""

    DONE = "done"
    """The events are delivered; all counters of failure start anew."""
    WAIT = "wait"
    """The same events go again after `TurnEnd.retry_after`, or after growing pauses; nobody's failure."""
    RETRY = "retry"
    """A failed turn: the events go again after a growing pause and are dead after `delivery.attempts`."""
    RESUME = "resume"
    """A failed turn as in RETRY, and the CLI is started again in the same session."""
    FRESH = "fresh"
    """A fresh session takes the same events."""
    PARK = "park"
    """Only a person can help: the worker is parked with the reason, its events stay queued, the team goes on."""


class Outcome(StrEnum):
    """How a turn ended, and what is done about it.

    | outcome | what happened | rule |
    |---|---|---|
    | completed | the CLI is done with the prompt | done |
    | no_work | the CLI said it was done, but there was neither text nor tool call | retry |
    | interrupted | `Adapter.interrupt` ended it | retry (a stop of the worker puts the events back) |
    | rate_limited | the provider answers 429 | wait |
    | overloaded | the provider's trouble: 5xx, 529, no connection, a stream that stalled or was cut | wait |
    | quota_spent | the account's quota, or the gateway's budget (402, code `agensh_budget_spent`), is spent | park |
    | auth | 401 or 403: the key is missing, wrong or revoked | park |
    | context_window | the session no longer fits into the model's context | fresh |
    | refused | the provider refuses the request itself (another 4xx), or the model refuses to answer | retry |
    | tools_missing | none of our tools was connected: a failed turn, never a green one | resume |
    | crashed | the CLI died, or does not follow its own protocol | resume |

    After `Limits.failures` failed turns in a row (retry, resume) a fresh session takes over; after `Limits.restarts`
    fresh sessions without a completed turn the worker is parked.
    """

    COMPLETED = "completed"
    NO_WORK = "no_work"
    """The CLI said it was done although nothing happened (no text, no tool call)."""
    INTERRUPTED = "interrupted"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    QUOTA_SPENT = "quota_spent"
    AUTH = "auth"
    CONTEXT_WINDOW = "context_window"
    REFUSED = "refused"
    TOOLS_MISSING = "tools_missing"
    """The CLI did not see our MCP endpoint: a failed turn, never a green one."""
    CRASHED = "crashed"

    @property
    def rule(self) -> Rule:
        """What follows from it."""
        return _RULES[self]


_RULES = {
    Outcome.COMPLETED: Rule.DONE,
    Outcome.NO_WORK: Rule.RETRY,
    Outcome.INTERRUPTED: Rule.RETRY,
    Outcome.RATE_LIMITED: Rule.WAIT,
    Outcome.OVERLOADED: Rule.WAIT,
    Outcome.QUOTA_SPENT: Rule.PARK,
    Outcome.AUTH: Rule.PARK,
    Outcome.CONTEXT_WINDOW: Rule.FRESH,
    Outcome.REFUSED: Rule.RETRY,
    Outcome.TOOLS_MISSING: Rule.RESUME,
    Outcome.CRASHED: Rule.RESUME,
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn, as the CLI reported them; zero where it said nothing."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True, slots=True)
class Text:
    """Something the worker said."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """A tool call the CLI reported: its shell, its editor, an MCP tool.

    `ok` is None while the tool runs. For shell calls `summary` is the command and the end of its output.
    """

    call_id: str
    name: str
    kind: str
    """`shell`, `mcp`, `edit` or `other`."""
    summary: str = ""
    ok: bool | None = None


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The last item of every turn."""

    outcome: Outcome
    reason: str = ""
    """One sentence for a person; empty when the turn completed."""
    retry_after: float | None = None
    """Seconds the provider asked to wait, when it did."""
    usage: Usage = field(default_factory=Usage)


TurnItem = Text | ToolActivity | TurnEnd


class SessionLost(AgenshError):
    """The CLI does not know this session any more; start a fresh one."""


class HarnessUnavailable(AgenshError):
    """The CLI cannot be started on this machine."""


class Process(Protocol):
    """A child started by a runtime. It is the leader of its own process group."""

    @property
    def pid(self) -> int:
        """The process id, for logs."""
        ...

    async def write_line(self, line: str) -> None:
        """Write one line to its standard input; BrokenPipeError when it is gone."""
        ...

    async def read_line(self) -> str | None:
        """Return its next line of standard output (any length up to 64 MiB), or None at the end."""
        ...

    async def wait(self) -> int:
        """Wait for its end; return the exit code (negative: the signal)."""
        ...

    async def stop(self, grace: float = 5.0) -> None:
        """End it and all it started: close its input, then SIGTERM, then SIGKILL to the group after `grace` seconds."""
        ...


async def end_of(process: Process) -> int:
    """Return the exit code of a process that says no more; one that nevertheless goes on is ended."""
    try:
        async with asyncio.timeout(LINGER):
            return await process.wait()
    except TimeoutError:
        await process.stop()
        return await process.wait()


class Runtime(Protocol):
    """Where CLI processes live: a local subprocess now, a container later."""

    async def spawn(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Process:
        """Start `command` with exactly this environment; standard error is appended to `log`."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """All that an adapter needs to run one worker's CLI."""

    worker: str
    home: Path
    """HOME of the CLI: its configuration, its Git credentials."""
    work: Path
    """Its current directory; its clone lives below."""
    tmp: Path
    log: Path
    mcp_url: str
    """The worker's MCP endpoint. Empty: it has none, so the CLI is told of none and no turn is asked for our tools."""
    mcp_token: str
    hooks_url: str = ""
    """The worker's hook endpoint; the adapter appends `/<style>` (`adapters.hook_file`). Empty: no hooks."""
    model_url: str = ""
    """Root of the gateway or provider, such as `http://127.0.0.1:9000`; the adapter appends `/v1` where its CLI wants
    it. Empty: the CLI's own default."""
    model_key: str = ""
    """The worker's own key there; never a provider's credential when a gateway runs."""
    model: str = ""
    effort: str = ""
    max_prompt_tokens: int = 0
    """Most tokens of a request; 0 leaves it to the CLI."""
    max_output_tokens: int = 0
    """Most tokens of an answer; 0 leaves it to the CLI."""
    options: Mapping[str, str] = field(default_factory=dict)
    contained: bool = False
    """The CLI lives in a container: programs are not looked for in this process's file system, folders are shared."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of the CLI, apart from what the adapter adds."""


class Adapter(ABC):
    """Drives one worker's CLI. One turn at a time; `interrupt` and `stop` may come from another task."""

    name: ClassVar[str]
    limits_output: ClassVar[bool] = True
    """Whether its CLI can be told `WorkerLaunch.max_output_tokens`."""
    needs_tools: ClassVar[bool] = False
    """Whether it can do nothing without the team's tools."""

    def __init__(self, launch: WorkerLaunch, runtime: Runtime, clock: Clock) -> None:
        self.launch = launch
        self.runtime = runtime
        self.clock = clock

    @classmethod
    def check(cls, kind: str, options: Mapping[str, str]) -> None:
        """Say whether this harness can do a task of that kind with these `worker.options`; called before a run starts.

        Raises UsageError that names the key and what is allowed. Without an override every kind and option is.
        """
        del kind, options

    @abstractmethod
    async def start(self, session: str | None = None) -> str:
        """Start the CLI, in a fresh session or in the one given, and return the session's id.

        Raises SessionLost when the session cannot be resumed, HarnessUnavailable when the CLI cannot run at all.
        """

    @abstractmethod
    def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        """Send one prompt; yield what happens, at last one `TurnEnd`. A dead CLI ends the turn as CRASHED."""

    @abstractmethod
    async def interrupt(self) -> None:
        """End the running turn soon, with its children; nothing happens when none runs."""

    @abstractmethod
    async def stop(self) -> None:
        """End the CLI and all its children. Safe to call twice."""
