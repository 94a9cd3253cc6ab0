"""Who is addressed by a text."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=2048)
def _handle(name: str) -> re.Pattern[str]:
    # Neither part of a longer handle (worker1 in worker12) nor of a mail address or a path; a full stop may follow.
    return re.compile(rf"(?<![\w@/.-])@{re.escape(name)}(?![\w-]|\.\w|@)", re.IGNORECASE)


def mentions(text: str, name: str) -> bool:
    """Say whether `text` addresses `@name` by the full handle."""
    return _handle(name).search(text) is not None
