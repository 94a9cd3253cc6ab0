"""Text of strangers, made safe to show.

Whatever a person or another agent wrote may carry terminal escapes, invisible characters, line breaks that forge the
structure of a prompt, or simply too much of it. `one_line` is the one place where such text becomes part of an event's
summary, a notice, a row of a listing or a progress line; `block` where it keeps its lines in a tool result; `handle`
where a name stands among the words of a head; `printable` where a terminal shows it as it is.
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
_MARK = re.compile(r"\[(\s*/?\s*(?:event|agensh\s+notices)\s*)\]", re.IGNORECASE)
_RULE = re.compile(r"={4,}")
_CONTEXT_RULE = re.compile(r"={4,}(?=\s*SHARED\s+CONTEXT)|(?<=CONTEXT)(\s*)={4,}", re.IGNORECASE)
_LONE = re.compile("[\\ud800-\\udfff]")
_NO_HANDLE = re.compile(r"[^\w.@+-]")
# Controls but newline and tab, line separators, bidi controls and marks, invisible characters that hide or reorder
# text, tags, lone surrogates. The joiners U+200C and U+200D stay: scripts and emoji need them.
_UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)
BLOCK_INDENT = "    "


def storable(text: str) -> str:
    """Return `text` with a replacement character for each lone surrogate, which no encoding and no database takes.

    Who counts in UTF-16 makes them where it cuts a text in the middle of an emoji.
    """
    return text if text.isascii() else _LONE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, limit: int = 400) -> str:
    """Return `text` as one harmless line of at most `limit` code points.

    Escape sequences, control and format characters (bidi overrides, zero-width characters, tags) and lone surrogates
    are removed, every kind of white space becomes one blank, and what looks like the marks of a prompt (`[event]`,
    `[agensh notices]`, a rule of four or more `=`) is defused. What does not fit is cut and counted:
    `… (+123 characters)`.
    """
    # Nearly every text is printable as it is, and a listing has thousands: only the others are taken apart.
    kept = text
    if not text.isprintable():
        text = _ESCAPES.sub("", text)
        kept = "".join(" " if character.isspace() else character for character in text if _shown(character))
    if "[" in kept:
        kept = _MARK.sub(r"(\1)", kept)
    if "====" in kept:
        kept = _RULE.sub("===", kept)
    kept = " ".join(kept.split())
    if len(kept) <= limit:
        return kept
    room = max(0, limit - len(f"… (+{len(kept)} characters)"))
    mark = f"… (+{len(kept) - room} characters)"
    return (kept[:room].rstrip() + mark)[:limit]


def block(text: str) -> str:
    """Return `text` as lines that cannot pass for anybody else's: every line but the first is indented by four blanks.

    Put it behind a head on the same line, or behind `BLOCK_INDENT` on a line of its own. Escape sequences and control
    and format characters are removed, every kind of line break becomes one newline, tabs and blanks stay, and the marks
    of a prompt are defused as in `one_line`.
    """
    lines = []
    for line in _ESCAPES.sub("", text).splitlines():
        kept = line
        if not line.isprintable():
            kept = "".join(character for character in line if character == "\t" or _kept(character))
        if "[" in kept:
            kept = _MARK.sub(r"(\1)", kept)
        if "====" in kept:
            kept = _CONTEXT_RULE.sub(lambda match: f"{match[1] or ''}===", kept)
        lines.append(kept.rstrip())
    return f"\n{BLOCK_INDENT}".join(lines).strip()


def handle(name: str, limit: int = 80) -> str:
    """Return a name as one word that can stand among `key=value` words and in brackets; `?` for an empty one."""
    word = _NO_HANDLE.sub("_", name)[:limit] or "?"
    return f"{word}_" if word.casefold() == "event" else word  # in brackets it would be the mark of an event


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: what could is shown as an escape (`\\x1b`), newlines and tabs stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def printable_line(text: str) -> str:
    """Return text that cannot steer a terminal, on one line: newlines and tabs are shown as escapes, too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _kept(character: str) -> bool:
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _shown(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}
