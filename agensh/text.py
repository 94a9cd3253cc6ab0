"""Text of strangers, made safe to show.

Whatever a person or another agent wrote may carry terminal escapes, invisible characters, line breaks that forge the
structure of a prompt, or simply too much of it. `one_line` is the one place where such text becomes part of an event's
summary, a notice or a progress line.
"""

from __future__ import annotations

import re
import unicodedata

# CSI and OSC/DCS/PM/APC/SOS sequences in their 7-bit and 8-bit forms, then any other two-character escape (ECMA-48).
# An unterminated string sequence is cut at its introducer, so that it cannot swallow the text that follows.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n\r]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"
)
_EVENT_MARK = re.compile(r"\[(\s*/?\s*event\s*)\]", re.IGNORECASE)
_RULE = re.compile(r"={4,}")


def one_line(text: str, limit: int = 400) -> str:
    """Return `text` as one harmless line of at most `limit` code points.

    Escape sequences, control and format characters (bidi overrides, zero-width characters, tags) and lone surrogates
    are removed, every kind of white space becomes one blank, and what looks like the marks of a prompt (`[event]`, a
    rule of four or more `=`) is defused. What does not fit is cut and counted: `… (+123 characters)`.
    """
    text = _ESCAPES.sub("", text)
    kept = "".join(" " if character.isspace() else character for character in text if _shown(character))
    kept = _EVENT_MARK.sub(r"(\1)", kept)
    kept = _RULE.sub("===", kept)
    kept = " ".join(kept.split())
    if len(kept) <= limit:
        return kept
    room = max(0, limit - len(f"… (+{len(kept)} characters)"))
    mark = f"… (+{len(kept) - room} characters)"
    return (kept[:room].rstrip() + mark)[:limit]


def _shown(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}
