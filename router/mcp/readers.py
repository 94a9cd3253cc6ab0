"""The readers of `/pending/{worker}` as a node host sees them: which of its answers never reached them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_READERS = 10_000  # of a node host


class Readers:
    """Who asks for workers' notices.

    A reader says with each request how many answers with notices it has got, and sends one request at a time; so what
    it does not know of is lost. A reader without a name says nothing of the kind.
    """

    def __init__(self) -> None:
        self._readers: dict[tuple[str, str], _Reader] = {}

    def reader(self, worker: str, name: str, got: int | None) -> _Reader:
        """Return the reader of that name, after it said what it got."""
        reader = self._readers.pop((worker, name), None) or _Reader()
        self._readers[worker, name] = reader
        while len(self._readers) > MOST_READERS:
            del self._readers[next(iter(self._readers))]
        if name and got is not None:
            reader.lost.update(range(got + 1, reader.answers + 1))
        return reader


@dataclass(slots=True)
class _Reader:
    answers: int = 0
    """Answers with notices so far."""
    lost: set[int] = field(default_factory=set)

    def next_answer(self, whole: Callable[[], bool]) -> Callable[[], bool]:
        """Return what says later whether the answer under way may have arrived; `whole` says it of its connection."""
        number = self.answers + 1
        return lambda: number not in self.lost and whole()
