"""Counts what reached whom, exactly, from what was posted and what each worker was shown.

For one worker, the entries of the others stand in the board's order. What it has *heard of* is always a beginning of
that order: the desk shows some of what is new and counts the rest, so after a result or prompt that shows entries
and says "N more", the worker has heard of as many entries as it was shown so far, plus what former turns moved past,
plus N. An entry that is never shown and always counted is still pending: `board_pending` shows it, and `board_read`
after the cursor. An entry that a desk dropped would be missing from every later count, so the beginning would never
again reach the end of the order (how many are lost is exact, which ones is not).

- *shown*: the entry's text stood in a notice or in the shared context of a turn. A listing the worker asked for is not
  a showing.
- *announced*: shown, or counted among the rest, whichever came first.
- *lost*, for entries: pairs of entry and worker that were never announced by the end, also after the worker's closing
  call; besides, each entry the board admitted and does not hold. For direct messages: never shown. For posts of the
  task channel, which only prompts tell: left out by a prompt that told of a later one, and not read by the worker.
- *repeated*: showings of the same entry or message to the same worker after its first.
- *excess*: how much later than the end of the worker's next call something was announced. The next call is the first
  that began after the writer had the answer to its post. What was announced earlier has no excess.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agensh.rehearse.log import Call, SentMessage
from agensh.rehearse.reading import Seen

READ_AT_MOST = 10  # posts that a reading of the channel shows, and so withdraws


@dataclass(frozen=True, slots=True)
class Posted:
    """An entry of the board."""

    marker: str
    author: int
    """Index of its worker."""
    created_at: float
    answered_at: float
    """When its writer had the answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A turn's prompt as the worker got it."""

    at: float
    seen: Seen


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of one figure; 0 where nothing was measured."""

    p50: float
    p99: float
    largest: float

    @classmethod
    def of(cls, values: array[float], *, factor: float = 1.0, digits: int = 3) -> Quantiles:
        """Take them from `values`, each times `factor`."""
        if not values:
            return cls(0.0, 0.0, 0.0)
        ordered = sorted(values)
        last = len(ordered) - 1

        def at(share: float) -> float:
            return round(ordered[min(last, int(share * len(ordered)))] * factor, digits)

        return cls(at(0.5), at(0.99), at(1.0))


def _doubles() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Tally:
    """What was counted, over all workers."""

    lost: int = 0
    repeated: int = 0
    shown: int = 0
    """Pairs of entry and worker in which the text was shown."""
    counted: int = 0
    """Pairs in which the entry was only ever counted among the rest."""
    posts: int = 0
    """Pairs of post and worker in which a prompt told of the post."""
    entry_delays: array[float] = field(default_factory=_doubles)
    """Seconds from the board's time of an entry to its text."""
    announce_delays: array[float] = field(default_factory=_doubles)
    entry_excess: array[float] = field(default_factory=_doubles)
    message_delays: array[float] = field(default_factory=_doubles)
    message_excess: array[float] = field(default_factory=_doubles)
    examples: list[str] = field(default_factory=list)
    """A few of what was lost or repeated, for a person."""

    def note(self, text: str) -> None:
        """Keep an example."""
        if len(self.examples) < 20:
            self.examples.append(text)


@dataclass(frozen=True, slots=True)
class _Sight:
    """One result or prompt of a worker."""

    at: float
    seen: Seen
    prompt: bool


class _Reader:
    """What one worker has heard of; takes its sights in the order in which the desk made them."""

    def __init__(self, tally: Tally, worker: int, others: Sequence[Posted]) -> None:
        self._tally = tally
        self._worker = worker
        self._position = {entry.marker: index for index, entry in enumerate(others)}
        self.shown_at: dict[int, float] = {}
        self.announced_at: list[float] = []
        """When each of the others' entries was first heard of; as long as the beginning that was."""
        self._passed = 0
        """The first so many are done with: a turn's context moved past them."""
        self._beyond: set[int] = set()
        """Shown, and not among those."""

    def take(self, sight: _Sight) -> None:
        """Take one result or prompt."""
        known = False
        for marker in sight.seen.entries:
            index = self._position.get(marker)
            if index is None:
                self._repeated(f"{marker}, which is its own or not on the board")
                continue
            known = True
            if index in self.shown_at:
                self._repeated(f"{marker} again")
                continue
            self.shown_at[index] = sight.at
            if index >= self._passed:
                self._beyond.add(index)
        if known or sight.prompt:
            heard = min(len(self._position), self._heard(sight))
            self.announced_at.extend([sight.at] * (heard - len(self.announced_at)))
            if sight.prompt:
                self._passed = max(self._passed, heard)
                self._beyond = {index for index in self._beyond if index >= self._passed}

    def came_first(self, prompt: _Sight, call: _Sight) -> bool:
        """Say whether the desk made a prompt before the result of a call that was under way meanwhile.

        The prompt moves past all there is, so what is shown after it stands behind that; where both orders are
        possible they come to the same.
        """
        fresh = {self._position[marker] for marker in prompt.seen.entries if marker in self._position}
        heard = (
            self._passed + len(self._beyond | {index for index in fresh if index >= self._passed}) + prompt.seen.more
        )
        return all(self._position.get(marker, heard) >= heard for marker in call.seen.entries)

    def _heard(self, sight: _Sight) -> int:
        return self._passed + len(self._beyond) + sight.seen.more

    def _repeated(self, what: str) -> None:
        self._tally.repeated += 1
        self._tally.note(f"worker {self._worker + 1} was shown {what}")


def count_worker(
    tally: Tally,
    worker: int,
    calls: Sequence[Call],
    prompts: Sequence[Prompt],
    board: Sequence[Posted],
    messages: Sequence[SentMessage],
) -> None:
    """Count one worker's part: `board` holds all entries in the board's order, `messages` those sent to this worker."""
    ordered = sorted(calls, key=lambda call: call.began)
    others = [entry for entry in board if entry.author != worker]
    reader = _Reader(tally, worker, others)
    sights = _in_order(reader, ordered, prompts)
    began = [call.began for call in ordered]
    lost = len(others) - len(reader.announced_at)
    tally.lost += lost
    tally.shown += len(reader.shown_at)
    tally.counted += len(others) - lost - len(reader.shown_at)
    if lost:
        tally.note(f"worker {worker + 1} heard of {len(reader.announced_at)} of {len(others)} entries")
    for index, entry in enumerate(others):
        shown = reader.shown_at.get(index)
        heard = reader.announced_at[index] if index < len(reader.announced_at) else None
        first = min((time for time in (shown, heard) if time is not None), default=None)
        if first is None:
            continue
        if shown is not None:
            tally.entry_delays.append(shown - entry.created_at)
        tally.announce_delays.append(first - entry.created_at)
        tally.entry_excess.append(_excess(ordered, began, entry.answered_at, first))
    _count_messages(tally, worker, ordered, began, sights, messages)


def count_posts(
    tally: Tally, worker: int, calls: Sequence[Call], prompts: Sequence[Prompt], authors: Mapping[int, int]
) -> None:
    """Count what a worker's prompts told of the task channel; `authors` has the author's index of each post by its seq.

    A prompt tells of everything up to its newest post, so each post of the others after the newest of the prompt before
    must be in it, but for what the worker has read by itself: a reading of the channel withdraws the posts that it
    shows. What came later waits for the next turn.
    """
    readings = sorted(call.ended for call in calls if call.tool == "chat_read" and call.ok)
    through = unread = lost = 0
    for prompt in sorted(prompts, key=lambda item: item.at):
        groups = prompt.seen.posts
        if not groups:
            continue
        newest = max(group.last for group in groups)
        again = sum(_others(authors, worker, group.first, min(group.last, through)) for group in groups)
        if again:
            tally.repeated += again
            tally.note(f"worker {worker + 1} was told of posts up to {through} again")
        told = sum(group.count for group in groups)
        unread += _others(authors, worker, through + 1, newest) - (told - again)
        # What a reading withdrew may be newer than what the next prompt tells of.
        more = unread - READ_AT_MOST * bisect_right(readings, prompt.at) - lost
        if more > 0:
            lost += more
            tally.note(f"worker {worker + 1} was not told of {more} posts between {through} and {newest}")
        tally.posts += told
        through = max(through, newest)
    tally.lost += lost


def _others(authors: Mapping[int, int], worker: int, first: int, last: int) -> int:
    return sum(authors.get(seq, worker) != worker for seq in range(first, last + 1))


def _in_order(reader: _Reader, calls: Sequence[Call], prompts: Sequence[Prompt]) -> list[_Sight]:
    """Let the reader take all sights in the order in which the desk made them, and return them."""
    waiting = deque(_Sight(prompt.at, prompt.seen, True) for prompt in sorted(prompts, key=lambda item: item.at))
    taken: list[_Sight] = []

    def take(sight: _Sight) -> None:
        reader.take(sight)
        taken.append(sight)

    for call in calls:
        while waiting and waiting[0].at < call.began:
            take(waiting.popleft())
        sight = _Sight(call.ended, Seen(call.entries, call.messages, call.more), False)
        while waiting and waiting[0].at <= call.ended and reader.came_first(waiting[0], sight):
            take(waiting.popleft())
        take(sight)
    for prompt in waiting:
        take(prompt)
    return taken


def _count_messages(
    tally: Tally,
    worker: int,
    calls: Sequence[Call],
    began: Sequence[float],
    sights: Sequence[_Sight],
    messages: Sequence[SentMessage],
) -> None:
    first: dict[str, float] = {}
    for sight in sights:
        for marker in sight.seen.messages:
            if marker in first:
                tally.repeated += 1
                tally.note(f"worker {worker + 1} was shown {marker} again")
            first.setdefault(marker, sight.at)
    for message in messages:
        at = first.get(message.marker)
        if at is None:
            tally.lost += 1
            tally.note(f"worker {worker + 1} was never shown {message.marker}")
            continue
        tally.message_delays.append(at - message.began)
        tally.message_excess.append(_excess(calls, began, message.ended, at))


def _excess(calls: Sequence[Call], began: Sequence[float], posted: float, announced: float) -> float:
    """Return the seconds between the end of the next call and the announcement; 0 when it was not later."""
    place = bisect_left(began, posted)
    return max(0.0, announced - calls[place].ended) if place < len(calls) else 0.0


def board_in_order(
    markers: Iterable[tuple[str, int, float]], answered: Mapping[str, float], tally: Tally
) -> list[Posted]:
    """Join the board's own listing (marker, author, time; ascending) with what writers were answered.

    An admitted entry that the board does not hold is lost; one that stands there twice is repeated.
    """
    found: dict[str, Posted] = {}
    for marker, author, created_at in markers:
        if marker in found:
            tally.repeated += 1
            tally.note(f"{marker} stands on the board twice")
            continue
        # Without an answer the writer does not know that it was admitted; the board's own time is the best there is.
        found[marker] = Posted(marker, author, created_at, answered.get(marker, created_at))
    for marker in answered:
        if marker not in found:
            tally.lost += 1
            tally.note(f"{marker} was admitted and is not on the board")
    return list(found.values())
