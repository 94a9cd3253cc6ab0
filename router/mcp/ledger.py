"""What one reader of `/pending/{worker}` has shown, what still waits, and how far it may acknowledge.

Pure, standard library only; not thread-safe. The board answers with everything unacknowledged each time and counts by
entry (`cursor` is a seq); a node host answers with what is new (`handed_out`) and counts by answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from agensh.text import one_line
from router.mcp.notices import RenderedNotice, compose

LINE_LIMIT = 1_000  # characters of one notice line
REMEMBERED = 5_000  # ids of shown notices


class Ledger:
    """One reader's side of the acknowledgement."""

    def __init__(self) -> None:
        self._unshown: dict[str, str] = {}
        self._shown: dict[str, None] = {}
        self._more = 0
        self._fetch = "board_pending"
        self._cursor = 0
        self._by_entry = True
        self.acknowledged = 0
        """The largest cursor that the other side has taken."""

    @property
    def cursor(self) -> int:
        """The largest cursor that came."""
        return self._cursor

    def merge(
        self, notices: Iterable[tuple[str, str]], cursor: int, *, more: int = 0, handed_out: bool = False
    ) -> None:
        """Take an answer in: `(id, text)` of its notices."""
        self._by_entry = not handed_out
        self._cursor = max(self._cursor, cursor)
        self._more, self._fetch = more, "board_pending"
        if self._by_entry:
            self._unshown.clear()
        for ref, text in notices:
            if ref in self._shown:
                continue
            if ref.startswith("more-"):
                # The board's own count of what it left out: `more-<after>-<cursor>`, "7 more entries (…): …".
                count = text.split(" ", 1)[0]
                self._more = int(count) if count.isdecimal() else 1
                self._fetch = f"board_read after={ref.split('-')[1]}"
                self._shown[ref] = None
            else:
                self._unshown[ref] = one_line(text, LINE_LIMIT)

    def take(self, room: int) -> RenderedNotice | None:
        """Return what waits in at most `room` characters and count it as shown; None when nothing can be shown."""
        notice = compose(list(self._unshown.items()), room=room, more=self._more, fetch=self._fetch)
        if notice is None:
            return None
        for ref in notice.shown:
            del self._unshown[ref]
            self._shown[ref] = None
        for ref in list(islice(self._shown, max(0, len(self._shown) - REMEMBERED))):
            del self._shown[ref]
        self._more = 0
        return notice

    def provable(self) -> int:
        """Return the cursor up to which everything was shown; what was acknowledged before when nothing more is."""
        if not self._unshown:
            return self._cursor
        if not self._by_entry:
            return self.acknowledged
        waiting = [int(ref[1:]) for ref in self._unshown if ref[:1] == "g" and ref[1:].isdecimal()]
        return max(self.acknowledged, min([self._cursor, *(seq - 1 for seq in waiting)]))
