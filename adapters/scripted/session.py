"""The session file: all that a scripted worker remembers, written whole at every step.

`$HOME/.scripted/<session>.json`. A worker that is killed at any moment finds in it the last step that was finished;
every step may be done again, so nothing is lost and nothing is done wrongly twice.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from adapters.base import SessionLost
from agensh.identity import write_private_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(slots=True)
class Job:
    """The piece of work at hand."""

    kind: str
    """`core`, `area` or `audit`."""
    tool: str
    claim: str
    """Label of the CLAIM."""
    branch: str
    step: str = "claimed"
    """The last step that is finished: claimed, built, compared, landed, published."""
    revision: int = 1
    seed: str = ""
    evidence: str = ""
    pull: int = 0
    sha: str = ""
    author: str = ""
    """audit: who published the tool."""
    cases: list[dict[str, Any]] = field(default_factory=list)
    """Cases this piece adds to the team's tests, answered by the reference."""
    asked: int = 0
    """How often the core's owner was asked about it."""


@dataclass(slots=True)
class State:
    """What a worker remembers between turns."""

    session: str
    worker: str = ""
    repository: str = ""
    reference: str = ""
    deadline: float = 0.0
    """When the run ends, as far as the prompts told; epoch seconds, 0: unknown."""
    began_at: float = 0.0
    """When my first turn began, epoch seconds."""
    pace: float = 5.0
    """Seconds a piece of work takes me lately."""
    turns: int = 0
    introduced: bool = False
    winding_down: bool = False
    last_call: bool = False
    finished: bool = False
    """The last call was answered."""
    job: Job | None = None
    audited: dict[str, int] = field(default_factory=dict)
    """How many audits of mine each tool passed."""
    stuck: dict[str, str] = field(default_factory=dict)
    """Tools I cannot bring further, and why."""
    answered: list[str] = field(default_factory=list)
    """Direct messages and overlaps I have reacted to; the newest 200."""

    def answer_once(self, key: str) -> bool:
        """Say whether this is the first time, and remember it."""
        if key in self.answered:
            return False
        self.answered = [*self.answered[-199:], key]
        return True

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what `save` wrote; unknown keys of another version are ignored."""
        values = _known(cls, data)
        if values.get("job") is not None:
            values["job"] = Job(**_known(Job, values["job"]))
        return cls(**values)


class SessionFile:
    """Where one session is kept."""

    def __init__(self, home: Path, session: str) -> None:
        if not _NAME.fullmatch(session):
            raise SessionLost(f"session: {session!r} is not a session's name.")
        self.session = session
        self.path = home / ".scripted" / f"{session}.json"

    def create(self) -> State:
        """Begin a fresh session."""
        state = State(self.session)
        self.save(state)
        return state

    def load(self) -> State:
        """Return the session as it was saved last; SessionLost when there is none that can be read."""
        try:
            return State.from_json(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise SessionLost(f"session: {self.session!r} is not known here.") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise SessionLost(f"session: {self.path} cannot be read: {error}.") from error

    def save(self, state: State) -> None:
        """Write the session, whole or not at all."""
        write_private_json(self.path, asdict(state))


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {key: value for key, value in data.items() if key in names}
