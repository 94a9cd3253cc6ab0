"""Tools as data: name, description, arguments, handler; and the one way a call runs.

Whatever goes wrong in a call becomes a sentence the agent can act on; a traceback goes to the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agensh.clock import Clock
from agensh.errors import AgenshError, ServiceError
from agensh.text import one_line

log = logging.getLogger(__name__)

SAID_CAP = 1_000  # characters of what a service said
CALL_TIMEOUT = 60.0  # seconds; the shortest limit of the harnesses is about 180 s

PortT = TypeVar("PortT")
OwnerT = TypeVar("OwnerT", covariant=True)
ServedT = TypeVar("ServedT", contravariant=True)
Arguments = Mapping[str, Any]


class Refused(AgenshError):
    """The call was refused; `first_line` is its machine-readable line."""

    def __init__(self, message: str, *, first_line: str = "status=refused") -> None:
        super().__init__(message)
        self.first_line = first_line


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent reads."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool."""

    name: str
    description: str
    kind: type[str] | type[int] = str
    default: str | int | None = None
    """None makes the argument required."""
    allowed: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    """Largest value of an integer, most characters of a string."""

    def schema(self) -> dict[str, Any]:
        """Return its JSON schema, kept to the keywords that every protocol version and harness reads."""
        schema: dict[str, Any] = {
            "type": "integer" if self.kind is int else "string",
            "description": self.description,
        }
        # No empty strings: some model services refuse them in a schema. Left out means the default.
        if self.allowed:
            schema["enum"] = [option for option in self.allowed if option]
        if self.default not in (None, ""):
            schema["default"] = self.default
        if self.kind is int:
            if self.minimum is not None:
                schema["minimum"] = self.minimum
            if self.maximum is not None:
                schema["maximum"] = self.maximum
        return schema

    def read(self, value: Any) -> str | int:
        """Return the value as the handler gets it; ValueError with the sentence the agent reads."""
        if self.kind is int:
            return self._integer(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{self.name} must be a string, not {_kind(value)}.")
        text = str(value)
        if self.allowed and text not in self.allowed:
            folded = {option.casefold(): option for option in self.allowed}
            if text.strip().casefold() not in folded:
                raise ValueError(f"{self.name} is {_short(text)}; allowed: {', '.join(map(_quoted, self.allowed))}.")
            text = folded[text.strip().casefold()]
        if self.minimum is not None and len(text.strip()) < self.minimum:
            raise ValueError(f"{self.name} is empty; {self.description[0].lower()}{self.description[1:]}")
        if self.maximum is not None and len(text) > self.maximum:
            raise ValueError(f"{self.name} has {len(text)} characters; at most {self.maximum} fit.")
        return text

    def _integer(self, value: Any) -> int:
        # Models often quote numbers or write 12.0; both are plain enough.
        if isinstance(value, str):
            text = value.strip().removeprefix("#")
            if not text.lstrip("-").isdecimal():
                raise ValueError(f"{self.name} must be an integer, not {_short(value)}.")
            number = int(text[:20])
        elif isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise ValueError(f"{self.name} must be an integer, not {_kind(value)}.")
        else:
            number = int(value)
        if self.minimum is not None and number < self.minimum:
            raise ValueError(f"{self.name} is {number}; it must be at least {self.minimum}.")
        if self.maximum is not None and number > self.maximum:
            raise ValueError(f"{self.name} is {number}; it must be at most {self.maximum}.")
        return number


def _kind(value: Any) -> str:
    names = {bool: "a boolean", list: "a list", dict: "an object", float: f"{value}", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _short(text: str) -> str:
    return _quoted(text if len(text) <= 60 else text[:60] + "…")


@dataclass(frozen=True, slots=True)
class Call(Generic[OwnerT]):
    """One call on its way: whose it is, what was asked (checked, with defaults), and the time."""

    port: OwnerT
    arguments: Arguments
    clock: Clock
    arrived: Callable[[], bool] | None = None
    """Says later whether the answer may have arrived; None where nobody knows."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]


@dataclass(frozen=True, slots=True)
class Tool(Generic[ServedT]):
    """A tool as the agent sees it and what runs it."""

    name: str
    description: str
    arguments: tuple[Argument, ...]
    handler: Callable[[Call[ServedT]], Awaitable[str]]
    """Returns the result's text; raises Refused, another AgenshError, or ServiceError."""
    writes: bool = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {argument.name: argument.schema() for argument in self.arguments},
            "required": [argument.name for argument in self.arguments if argument.default is None],
            "additionalProperties": False,
        }

    def read(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the checked arguments with their defaults; Refused with every fault in one message."""
        values = given or {}
        faults = self._unknown(values)
        checked: dict[str, Any] = {}
        for argument in self.arguments:
            value = values.get(argument.name)
            if value is None:
                if argument.default is None:
                    faults.append(f"{argument.name} is missing; {self._usage()}")
                checked[argument.name] = argument.default
                continue
            try:
                checked[argument.name] = argument.read(value)
            except ValueError as fault:
                faults.append(str(fault))
        if faults:
            raise Refused(" ".join(faults), first_line="status=invalid")
        return checked

    def _unknown(self, values: Mapping[str, Any]) -> list[str]:
        known = {argument.name for argument in self.arguments}
        return [f"{self.name} has no argument {_short(name)}; {self._usage()}" for name in values if name not in known]

    def _usage(self) -> str:
        return f"{self.name} takes {', '.join(argument.name for argument in self.arguments) or 'no arguments'}."


class Toolbox(Generic[PortT]):
    """The tools of one server, by name."""

    def __init__(self, tools: Sequence[Tool[PortT]], *, clock: Clock, timeout: float = CALL_TIMEOUT) -> None:
        self.tools: dict[str, Tool[PortT]] = {tool.name: tool for tool in tools}
        self._clock = clock
        self._timeout = timeout

    async def call(
        self,
        port: PortT,
        name: str,
        given: Mapping[str, Any] | None,
        arrived: Callable[[], bool] | None = None,
    ) -> Reply:
        """Run one call, bounded in time; never raises for what a service or an agent did.

        `arrived` says later whether the answer may have arrived.
        """
        tool = self.tools.get(name)
        if tool is None:
            return Reply(f"status=invalid\nThere is no tool {_short(name)}; there are {', '.join(self.tools)}.", True)
        try:
            call = Call(port, tool.read(given), self._clock, arrived)
            async with asyncio.timeout(self._timeout):
                return Reply(await tool.handler(call))
        except Refused as error:
            return Reply(f"{error.first_line}\n{error}", True)
        except ServiceError as error:
            return Reply(f"{_failed_line(error)}\n{_failure(error, tool)}", True)
        except AgenshError as error:
            return Reply(f"status=refused\n{error}", True)
        except TimeoutError:
            return Reply(f"status=timeout\n{name} did not end within {self._timeout:g} s. {_again(tool)}", True)
        except Exception as error:
            # The last line before the agent: a fault of ours must not end its turn.
            log.exception("tool failed", extra={"action": "tool_failed", "tool": tool.name})
            return Reply(
                f"status=failed\n{tool.name} failed inside Agensh ({type(error).__name__}). {_again(tool)}", True
            )


def _failed_line(error: ServiceError) -> str:
    return f"status=failed service={error.service.split()[-1].lower()} code={error.status}"


def _failure(error: ServiceError, tool: Tool[Any]) -> str:
    sentence = one_line(str(error), SAID_CAP).rstrip(".") + "."
    if error.retryable:
        wait = f"in {error.retry_after:.0f} s" if error.retry_after else "in a minute"
        return f"{sentence} Try again {wait}; go on with something else meanwhile."
    if error.status in (401, 403):
        return f"{sentence} Your account may not do this; do not try again."
    if error.status == 404:
        return f"{sentence} Check the number or the name."
    if error.status == 0 or error.status >= 500:
        return f"{sentence} {_again(tool)}"
    return sentence


def _again(tool: Tool[Any]) -> str:
    if not tool.writes:
        return "Try again in a minute; go on with something else meanwhile."
    if any(argument.name == "key" for argument in tool.arguments):
        return "It may have taken effect: look first, or repeat it with the same key, which never writes twice."
    return "It may have taken effect: look before you repeat it."
