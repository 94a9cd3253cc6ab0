"""What grep looks through: the folded text of a board's entries in memory, in blocks, the newest last.

Entries never change, so that the text only grows. A term that occurs in no entry costs one pass of `memmem` over the
text; in blocks where all terms occur, the entries around the rarest one are looked at. A search gives way to other
requests after every block, and searches take turns. Why not an index of the database: docs/decisions/grep-in-memory.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agensh.entries import Entry
from board_service.board import folded

BLOCK = 4096  # entries; about 0.4 MB, which `memmem` passes in less than a millisecond
SPLIT_FROM = 400  # places of a term in a block from which looking at every entry is faster than going to each place
SAMPLE = 32_768  # bytes of a block by which it is told how often a term is in it; to count all is a pass of its own
SEPARATOR = "\x1e"
"""Between two entries: neither contents nor names may have control characters."""
_SEPARATOR = SEPARATOR.encode()


@dataclass(frozen=True, slots=True)
class _Block:
    floor: int
    """The seq before its first entry."""
    text: bytes

    def found(self, groups: Sequence[Sequence[bytes]], before: int | None, limit: int) -> list[int]:
        """Return the seqs of at most `limit` entries that match one of `groups`, newest first."""
        text = self.text
        end = len(text)
        if before is not None and self.floor + text.count(_SEPARATOR) + 1 >= before:
            end = _start(text, before - self.floor - 1)
        found: set[int] = set()
        lines: list[bytes] | None = None
        for group in groups:
            if not all(term in text for term in group):
                continue
            counts = {term: text.count(term, 0, SAMPLE) for term in group}
            rarest = min(group, key=counts.__getitem__)
            if counts[rarest] * max(1.0, end / SAMPLE) < SPLIT_FROM:
                found.update(_around(text, end, rarest, group))
            else:
                if lines is None:
                    lines = text[:end].split(_SEPARATOR)
                found.update(_newest(lines, group, limit))
        return [self.floor + index + 1 for index in sorted(found, reverse=True)[:limit]]


def _start(text: bytes, index: int) -> int:
    """Return where the entry at `index` begins, or the end of the one before it for what follows."""
    position = 0
    for _ in range(index):
        position = text.index(_SEPARATOR, position) + 1
    return max(0, position - 1)


def _around(text: bytes, end: int, rarest: bytes, group: Sequence[bytes]) -> Iterator[int]:
    """Yield the index of every entry that contains all of `group`, by the places of its rarest term."""
    index = counted = 0
    position = text.find(rarest, 0, end)
    while position >= 0:
        first = text.rfind(_SEPARATOR, 0, position) + 1
        last = text.find(_SEPARATOR, position, end)
        if last < 0:
            last = end
        if all(text.find(term, first, last) >= 0 for term in group):
            index += text.count(_SEPARATOR, counted, first)
            counted = first
            yield index
        position = text.find(rarest, last, end)


def _newest(lines: Sequence[bytes], group: Sequence[bytes], limit: int) -> Iterator[int]:
    """Yield the indexes of the last `limit` entries that contain all of `group`."""
    left = limit
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        for term in group:
            if term not in line:
                break
        else:
            yield index
            left -= 1
            if not left:
                return


class History:
    """The text of the newest entries of one board, gapless, at most about `cap` bytes of it."""

    def __init__(self, floor: int, cap: int) -> None:
        self._cap = cap
        self._blocks: deque[_Block] = deque()
        self._tail: list[bytes] = []
        self._tail_floor = floor
        self._turn = asyncio.Lock()
        self.size = 0
        """Bytes in memory."""

    @property
    def floor(self) -> int:
        """The seq before the oldest entry in memory."""
        return self._blocks[0].floor if self._blocks else self._tail_floor

    @property
    def head(self) -> int:
        """The seq of the newest entry in memory."""
        return self._tail_floor + len(self._tail)

    @property
    def full(self) -> bool:
        """Say whether there is no room for older entries."""
        return self.size >= self._cap

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries that follow the head."""
        for entry in entries:
            assert entry.seq == self.head + 1, f"G{entry.seq} does not follow G{self.head}"
            line = folded(entry.content, entry.worker).encode()
            self._tail.append(line)
            self.size += len(line) + 1
            if len(self._tail) == BLOCK:
                self._blocks.append(_Block(self._tail_floor, _SEPARATOR.join(self._tail)))
                self._tail_floor += BLOCK
                self._tail = []
        while self.size > self._cap and len(self._blocks) > 1:
            self.size -= len(self._blocks.popleft().text) + 1

    def prepend(self, text: str, count: int) -> bool:
        """Put the `count` entries before the floor in front; False when `text` does not hold as many."""
        data = text.encode()
        if data.count(_SEPARATOR) != count - 1:
            return False
        self._blocks.appendleft(_Block(self.floor - count, data))
        self.size += len(data) + 1
        return True

    async def search(self, groups: Sequence[Sequence[str]], before: int | None, limit: int) -> tuple[list[int], int]:
        """Return the seqs of entries that contain every term of at least one group, newest first, and the floor.

        Terms are in folded case. What lies at or below the floor was not looked at.
        """
        async with self._turn:
            floor = self.floor
            blocks = list(self._blocks)
            if self._tail:
                blocks.append(_Block(self._tail_floor, _SEPARATOR.join(self._tail)))
            terms = [[term.encode() for term in group] for group in groups]
            found: list[int] = []
            for block in reversed(blocks):
                if before is None or block.floor + 1 < before:
                    found += block.found(terms, before, limit - len(found))
                    if len(found) == limit:
                        break
                    await asyncio.sleep(0)
            return found, floor
