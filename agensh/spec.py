"""The team spec, `team.toml`: what a run is made of.

Every error names the key, the value and what is allowed; unknown keys are errors, so a typing mistake cannot pass
silently. Paths in the file are relative to the file. `docs/spec.md` documents every key; a test holds that.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from agensh.clock import Timing
from agensh.errors import SpecError
from agensh.identity import TEAM_NAME, worker_name

ACCOUNT = 40
"""Characters that an account of the forge may have; team and workers are accounts."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?")
_SIZE_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: object) -> float:
    """Return seconds for `"6h"`, `"1h30m"`, `"45s"`, `"200ms"` or a number of seconds; ValueError otherwise."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a duration cannot be negative")
        return float(value)
    if isinstance(value, str):
        text = value.replace(" ", "")
        parts = _DURATION.findall(text)
        if parts and "".join(number + unit for number, unit in parts) == text:
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    raise ValueError('expected a duration such as "6h", "1h30m", "45s" or a number of seconds')


def parse_size(value: object) -> int:
    """Return bytes for `"64g"`, `"512m"`, `"2GiB"` or a number of bytes; ValueError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip().lower())):
        return int(float(found[1]) * _SIZE_UNITS[found[2]])
    raise ValueError('expected a size such as "64g", "512m" or a number of bytes')


Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(float, return_type=float)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TeamSection(_Section):
    """Who works."""

    name: str = Field(description="Name of the team; part of every worker's handle.")
    workers: int = Field(8, ge=1, le=1024, description="How many workers.")

    @model_validator(mode="after")
    def _check_name(self) -> TeamSection:
        if not TEAM_NAME.fullmatch(self.name):
            raise ValueError(
                f"name: {self.name!r} is not allowed; use 2 to {ACCOUNT} of a-z, 0-9 and '-', starting with a letter "
                "and not ending with '-'"
            )
        if (over := len(last := worker_name(self.name, self.workers)) - ACCOUNT) > 0:
            raise ValueError(
                f"name: {self.name!r} is too long for {self.workers} workers; {last} would be an account of "
                f"{len(last)} characters, and the forge takes {ACCOUNT}. Use {len(self.name) - over} at most"
            )
        return self


class TaskSection(_Section):
    """What is worked on."""

    kind: Literal["rebuild", "repo"] = Field(
        description="rebuild: build a program that behaves like the reference; repo: reach a goal in a repository."
    )
    goal: Path = Field(description="File with the goal text (Markdown); becomes issue 1.")
    repository: Path | None = Field(
        None, description="Starting repository: a folder (its files) or a bare or ordinary Git repository (its main)."
    )
    reference: Path | None = Field(None, description="rebuild: the reference program; may be run, not read.")
    cases: Path | None = Field(
        None,
        description="rebuild: hidden cases, a .jsonl file or a Python file that prints them; workers never see it.",
    )
    acceptance: str | None = Field(None, description="repo: command run in a clean export of main; 0 means accepted.")
    build_timeout: Duration = Field(900.0, description="How long compile.sh or the acceptance command may take.")

    @model_validator(mode="after")
    def _check_kind(self) -> TaskSection:
        if self.kind == "rebuild":
            if self.reference is None:
                raise ValueError('reference: missing; a task of kind "rebuild" needs the reference program')
            if self.acceptance is not None:
                raise ValueError('acceptance: not allowed for kind "rebuild"; its grader compares with the reference')
        else:
            if self.acceptance is None:
                raise ValueError('acceptance: missing; a task of kind "repo" needs a command that checks the goal')
            for key in ("reference", "cases"):
                if getattr(self, key) is not None:
                    raise ValueError(f'{key}: not allowed for kind "repo"')
        return self


class WorkerSection(_Section):
    """How one worker runs."""

    harness: str = Field("scripted", description="The single-agent CLI each worker runs: the name of an adapter.")
    model: str = Field("", description="Model name handed to the CLI; empty: the CLI's own default.")
    effort: str = Field("", description="Reasoning effort handed to the CLI; empty: the CLI's own default.")
    max_prompt_tokens: int = Field(
        0, ge=0, le=100_000_000, description="Most tokens of a request to the model; 0: the CLI's own default."
    )
    max_output_tokens: int = Field(
        0, ge=0, le=100_000_000, description="Most tokens of an answer of the model; 0: the CLI's own default."
    )
    failures: int = Field(3, ge=1, le=100, description="Failed turns in a row before a fresh session of the CLI.")
    restarts: int = Field(3, ge=1, le=100, description="Fresh sessions in a row before the worker is parked.")
    options: dict[str, str] = Field(default_factory=dict, description="Options of the adapter, e.g. playbook.")


class ClockSection(_Section):
    """The run's durations; all of them are divided by `speed`."""

    budget: Duration = Field(6 * 3600.0, description="From the first start to the end.")
    stagger: Duration = Field(30.0, description="Between two workers' starts inside the ramp.")
    ramp: Duration = Field(3600.0, description="How long the first stagger holds.")
    stagger_after_ramp: Duration = Field(3.0, description="Between two workers' starts after the ramp.")
    idle: Duration = Field(600.0, description="An idle worker gets the idle prompt after this.")
    wind_down: Duration = Field(45 * 60.0, description="First reminder, before the end.")
    last_call: Duration = Field(5 * 60.0, description="Second reminder, before the end.")
    speed: float = Field(1.0, gt=0, le=10_000, description="Rehearsal factor: 60 makes an hour a minute.")

    @model_validator(mode="after")
    def _check_order(self) -> ClockSection:
        if self.budget <= 0:
            raise ValueError("budget: 0 is not allowed; give the run some time")
        if self.last_call > self.wind_down:
            raise ValueError(f"last_call: {self.last_call:g}s comes before wind_down ({self.wind_down:g}s)")
        return self

    def timing(self) -> Timing:
        """Return the same durations for the run clock."""
        return Timing(**self.model_dump())


class BoardSection(_Section):
    """The shared context."""

    claim_ttl: Duration = Field(3600.0, description="A CLAIM leaves the listing after this (divided by speed).")


class DeliverySection(_Section):
    """How events and entries reach a worker."""

    paths: Literal["mcp+hooks", "mcp"] = Field(
        "mcp+hooks",
        description="What carries notices mid-turn. mcp: results of our own tools; mcp+hooks: any tool's, by hooks.",
    )
    notice_chars: int = Field(2000, ge=200, le=20_000, description="Most characters a notice adds to a tool result.")
    context_chars: int = Field(12_000, ge=1000, le=400_000, description="Most characters of unread entries in a turn.")
    calls_per_second: float = Field(
        50.0, ge=0, le=100_000, description="Requests a second of one worker to its MCP endpoint; 0 for no limit."
    )
    calls_burst: int = Field(10_000, ge=1, le=10_000_000, description="Requests of one worker before that rate counts.")
    attempts: int = Field(8, ge=1, le=100, description="Failed deliveries of an event before it is dead.")


AuthHeader = Literal["bearer", "x-api-key", "api-key", "none"]
"""How a provider takes its credential: OpenAI and most others, Anthropic, Azure, not at all."""
_CREDENTIAL_HEADERS = {"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"}


class ContainerSection(_Section):
    """The workers' containers, where they run in containers (`agensh up`)."""

    image: str = Field("", description="Image of the workers; empty: built from task_image and the harness.")
    task_image: str = Field(
        "debian:bookworm-slim", description="What workers build and test in; the worker image is laid on it."
    )
    memory: Annotated[int, BeforeValidator(parse_size)] = Field(
        64 * 2**30, description="Memory of one worker; 0 for no limit."
    )
    cpus: float = Field(0.0, ge=0, le=1024, description="Cores of one worker; 0 for no limit.")
    pids: int = Field(4096, ge=64, le=1_000_000, description="Processes of one worker.")
    on_reboot: Literal["resume", "abort"] = Field(
        "resume", description="After a reboot of the box: go on, on the same clock, or mark the run aborted and stop."
    )


class GatewaySection(_Section):
    """The only way to the model provider; a run without this section has no gateway."""

    base_url: str = Field(
        description="Root of the provider's API, e.g. https://api.openai.com/v1; /responses and the like follow it."
    )
    auth: AuthHeader = Field("bearer", description="How the provider takes the credential.")
    api_key_env: str = Field("", description="Environment variable of the launcher that holds the credential.")
    api_key_file: Path | None = Field(None, description="File of mode 600 that holds the credential instead.")
    api_version: str = Field("", description="Sent as the query parameter api-version (Azure).")
    headers: dict[str, str] = Field(default_factory=dict, description="Further headers for the provider; no secret.")
    models: tuple[str, ...] = Field((), description="Models that workers may ask for; empty: any.")
    efforts: tuple[str, ...] = Field((), description="Reasoning efforts that workers may ask for; empty: any.")
    prices: Path | None = Field(None, description="Your own prices.toml; models it names win over the shipped ones.")
    budget_usd: float = Field(0.0, ge=0, description="What the team may spend; 0 for no bound.")
    worker_budget_usd: float = Field(0.0, ge=0, description="What each worker may spend; 0 for no bound.")
    concurrency: int = Field(64, ge=1, le=10_000, description="Requests under way toward the provider at most.")
    queue: int = Field(2048, ge=0, le=100_000, description="Requests that may wait for such a place.")
    queue_wait: Duration = Field(300.0, description="How long one may wait before it is refused with 429.")
    idle_timeout: Duration = Field(600.0, description="A provider that sends nothing for this long is given up.")
    max_body: int = Field(64 * 2**20, ge=1024, le=2**30, description="Most bytes of a request's body.")
    forward_worker: bool = Field(False, description="Tell the provider the worker's name in x-agensh-worker.")

    @model_validator(mode="after")
    def _check(self) -> GatewaySection:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"base_url: {self.base_url!r} is not allowed; expected http(s)://HOST[:PORT][/PATH]")
        if parts.username or parts.password:
            raise ValueError("base_url: it holds a credential; name it by api_key_env or api_key_file instead")
        if self.api_key_env and self.api_key_file is not None:
            raise ValueError("api_key_file: not allowed beside api_key_env; name one of them")
        named = bool(self.api_key_env) or self.api_key_file is not None
        if self.auth == "none" and named:
            raise ValueError('auth: "none" is not allowed when api_key_env or api_key_file names a credential')
        if self.auth != "none" and not named:
            raise ValueError('api_key_env: missing; name it or api_key_file, or set auth = "none"')
        for name, value in self.headers.items():
            if name.lower() in _CREDENTIAL_HEADERS:
                raise ValueError(
                    f"headers: {name!r} is not allowed; name the credential by api_key_env or api_key_file"
                )
            if not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
                raise ValueError(f"headers: {name!r} is not a header's name, or its value is not printable ASCII")
        return self


class TeamSpec(_Section):
    """A whole team.toml."""

    team: TeamSection
    task: TaskSection
    worker: WorkerSection = WorkerSection()
    clock: ClockSection = ClockSection()
    board: BoardSection = BoardSection()
    delivery: DeliverySection = DeliverySection()
    container: ContainerSection = ContainerSection()
    gateway: GatewaySection | None = None

    @property
    def worker_names(self) -> list[str]:
        """The full handles, in the order in which the workers start."""
        return [worker_name(self.team.name, number) for number in range(1, self.team.workers + 1)]


def load_spec(path: Path, overrides: dict[str, Any] | None = None) -> TeamSpec:
    """Read `team.toml`; `overrides` are dotted keys (`{"team.workers": 4}`) that win over the file.

    SpecError names the file, the key, the value and what is allowed, and lists every mistake at once.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML: {error}.") from error
    for key, value in (overrides or {}).items():
        section, _, name = key.partition(".")
        data.setdefault(section, {})[name] = value
    spec = parse_spec(data, source=str(path))
    return _resolve_paths(spec, path.absolute().parent, source=str(path))


def parse_spec(data: dict[str, Any], *, source: str = "spec") -> TeamSpec:
    """Validate a spec given as plain data; paths stay as they are."""
    try:
        return TeamSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError("\n".join(f"{source}: {_sentence(item)}" for item in error.errors())) from error


def _sentence(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{key}: no such key."
    if kind == "missing":
        return f"{key}: missing."
    message = str(item["msg"]).removeprefix("Value error, ")
    if kind == "value_error" and isinstance(value, dict):
        return f"{key}.{message}."
    message = message[:1].lower() + message[1:]
    return f"{key}: {value!r} is not allowed: {message}."


def _resolve_paths(spec: TeamSpec, base: Path, *, source: str) -> TeamSpec:
    updates: dict[str, Path] = {}
    for key in ("goal", "repository", "reference", "cases"):
        value: Path | None = getattr(spec.task, key)
        if value is None:
            continue
        resolved = (base / value).resolve()
        if not resolved.exists():
            raise SpecError(f"{source}: task.{key}: {str(value)!r} does not exist (looked for {resolved}).")
        updates[key] = resolved
    try:
        updates["goal"].read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{source}: task.goal: {str(spec.task.goal)!r} cannot be read as a text in UTF-8: {error}."
        ) from error
    options = dict(spec.worker.options)
    for key in ("binary", "packages", "cache"):
        if "/" in options.get(key, ""):
            options[key] = str((base / options[key]).resolve())
    if "playbook" in options:
        playbook = (base / options["playbook"]).resolve()
        if not playbook.is_dir():
            raise SpecError(f"{source}: worker.options.playbook: {options['playbook']!r} is not a folder.")
        options["playbook"] = str(playbook)
    return spec.model_copy(
        update={
            "task": spec.task.model_copy(update=updates),
            "worker": spec.worker.model_copy(update={"options": options}),
            "gateway": _resolve_gateway(spec.gateway, base, source=source),
        }
    )


def _resolve_gateway(section: GatewaySection | None, base: Path, *, source: str) -> GatewaySection | None:
    if section is None:
        return None
    updates: dict[str, Path] = {}
    for key in ("api_key_file", "prices"):
        value: Path | None = getattr(section, key)
        if value is None:
            continue
        resolved = (base / value.expanduser()).resolve()
        if not resolved.is_file():
            raise SpecError(f"{source}: gateway.{key}: {str(value)!r} does not exist (looked for {resolved}).")
        updates[key] = resolved
    return section.model_copy(update=updates)
