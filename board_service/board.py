"""The rules of the board, pure: what makes a note admissible, which labels it names, what grep understands.

Every mistake of a note is reported at once. Nothing is ever cut or corrected: a note is admitted as written or refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agensh.entries import DETAIL_CAP, Entry, EntryType, content_cap
from board_service.errors import Mistake, Refusal, refuse

BOARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
KEY = re.compile(r"[!-~]{1,128}")
LABEL = re.compile(r"[Gg]([1-9][0-9]{0,15})")
GREP_CAP = 500  # Unicode code points
GREP_TERMS = 32
FIELDS = ("files", "idea", "evidence")
PLACEHOLDERS = frozenset(
    {"tbd", "tba", "todo", "pending", "unverified", "untested", "na", "none", "unknown", "later", "wip"}
)
"""Words that stand for evidence that is not there; compared in folded case without punctuation and spaces."""

_FIELD = re.compile(r"(?:^|\|)\s*(files|idea|evidence)\s*=", re.IGNORECASE)
_NAMED_LABEL = re.compile(r"(?<!\w)G([1-9][0-9]{0,15})(?!\w)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ALLOWED = ", ".join(EntryType)


@dataclass(frozen=True, slots=True)
class Note:
    """An admissible note that has no sequence number yet."""

    worker: str
    type: EntryType
    content: str
    detail: str
    key: str
    """As stored: `k:` and the client's key, or `i:` and one of ours."""

    @property
    def keyed(self) -> bool:
        """Say whether the client chose the key."""
        return self.key.startswith("k:")


def check_note(body: Mapping[str, Any], worker: str, key: str) -> Note:
    """Return the note in `body`, written by `worker`; Refusal (422, or 413 for a long detail) with every mistake.

    `key` is the stored form of the idempotency key.
    """
    mistakes: list[Mistake] = []
    type_ = _type(body.get("type"), mistakes)
    content = _text(body, "content", mistakes)
    detail = _text(body, "detail", mistakes)
    if content is not None:
        mistakes += _content_mistakes(content, type_)
    if detail is not None:
        mistakes += _detail_mistakes(detail)
    if mistakes or type_ is None or content is None or detail is None:
        status = 413 if any(mistake.code == "detail_too_long" for mistake in mistakes) else 422
        raise Refusal(status, mistakes)
    return Note(worker, type_, content, detail, key)


def _type(value: Any, mistakes: list[Mistake]) -> EntryType | None:
    if value is None:
        mistakes.append(Mistake("type_missing", f"type: it is missing; use one of {_ALLOWED}."))
        return None
    try:
        return EntryType(value)
    except ValueError:
        shown = ascii(value)[:60]
        mistakes.append(Mistake("type_unknown", f"type: {shown} is not an entry type; use one of {_ALLOWED}."))
        return None


def _text(body: Mapping[str, Any], field: str, mistakes: list[Mistake]) -> str | None:
    value = body.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        mistakes.append(Mistake(f"{field}_not_text", f"{field}: it is a {type(value).__name__}; it must be a string."))
        return None
    return value


def _content_mistakes(content: str, type_: EntryType | None) -> list[Mistake]:
    mistakes = []
    if _SURROGATE.search(content):
        mistakes.append(_surrogate("content"))
    control = _CONTROL.search(content)
    if control is not None:
        mistakes.append(
            Mistake(
                "content_control",
                f"content: character {control.start() + 1} is U+{ord(control[0]):04X}; content is one line of plain "
                "text without newlines, tabs and terminal escapes. Put longer text into detail.",
            )
        )
    if not any(unicodedata.category(character)[0] not in "ZC" for character in content):
        mistakes.append(Mistake("content_empty", "content: it is empty; say in one line what others need to know."))
        return mistakes
    if type_ is not None and len(content) > content_cap(type_):
        mistakes.append(
            Mistake(
                "content_too_long",
                f"content: it has {len(content)} characters; at most {content_cap(type_)} fit into a {type_}. "
                "Shorten it and put the rest into detail.",
            )
        )
    if type_ is EntryType.PATCH_SUMMARY:
        mistakes += _summary_mistakes(content)
    return mistakes


def _detail_mistakes(detail: str) -> list[Mistake]:
    mistakes = []
    if _SURROGATE.search(detail):
        mistakes.append(_surrogate("detail"))
    if "\0" in detail:
        place = detail.index("\0") + 1
        mistakes.append(Mistake("detail_nul", f"detail: character {place} is NUL (U+0000); leave it out."))
    size = len(detail.encode("utf-8", "surrogatepass"))
    if size > DETAIL_CAP:
        mistakes.append(
            Mistake(
                "detail_too_long",
                f"detail: it has {size} bytes of UTF-8; at most {DETAIL_CAP} fit. Shorten it, or commit it as a file "
                "and name the file.",
            )
        )
    return mistakes


def _surrogate(field: str) -> Mistake:
    return Mistake(
        f"{field}_surrogate", f"{field}: it has a lone surrogate, which is no character; send valid Unicode."
    )


def summary_fields(content: str) -> dict[str, list[str]]:
    """Return the values of the fields of a PATCH_SUMMARY by name, lower case; a value may itself contain `|`."""
    found: dict[str, list[str]] = {}
    marks = list(_FIELD.finditer(content))
    for index, mark in enumerate(marks):
        end = marks[index + 1].start() if index + 1 < len(marks) else len(content)
        found.setdefault(mark[1].lower(), []).append(content[mark.end() : end].strip().rstrip("|").strip())
    return found


def _summary_mistakes(content: str) -> list[Mistake]:
    mistakes = []
    fields = summary_fields(content)
    for name in FIELDS:
        values = fields.get(name)
        if values is None:
            text = f"{name}: the field is missing; a PATCH_SUMMARY reads files=… | idea=… | evidence=…"
            mistakes.append(Mistake(f"{name}_missing", text))
        elif len(values) > 1:
            mistakes.append(Mistake(f"{name}_repeated", f"{name}: it is given {len(values)} times; give it once."))
        elif not values[0]:
            mistakes.append(Mistake(f"{name}_empty", f"{name}: it is empty; a PATCH_SUMMARY needs all three fields."))
        elif name == "evidence" and is_placeholder(values[0]):
            mistakes.append(
                Mistake(
                    "evidence_placeholder",
                    f"evidence: {values[0]!r} is a placeholder; name what shows that the patch works, e.g. the command "
                    "you ran and its result.",
                )
            )
    return mistakes


def is_placeholder(evidence: str) -> bool:
    """Say whether `evidence` stands for evidence that is not there: `tbd`, `(N/A)`, `todo, pending`, `-`, `…`."""
    folded = unicodedata.normalize("NFKC", evidence).casefold()
    words = re.findall(r"[^\W_]+", folded)
    return "".join(words) in PLACEHOLDERS or all(word in PLACEHOLDERS for word in words)


def named_labels(content: str) -> set[int]:
    """Return the seqs of the labels that stand as words in `content` (`G12`)."""
    return {int(match[1]) for match in _NAMED_LABEL.finditer(content)}


def parse_label(label: str) -> int:
    """Return the seq of a label; Refusal (422) when it is none."""
    match = LABEL.fullmatch(label)
    if match is None:
        raise refuse(422, "label", f"label: {label[:40]!a} is not a label; labels look like G12.")
    return int(match[1])


def check_board_name(name: str) -> str:
    """Return `name` when a board may have it; Refusal (422) otherwise."""
    if BOARD_NAME.fullmatch(name) is None:
        raise refuse(
            422, "board_name", f"board: {name[:80]!a} is no board name; use 1 to 64 of A-Z a-z 0-9 . _ - (not first)."
        )
    return name


def check_agent_name(name: str) -> str:
    """Return `name` when a worker may have it; Refusal (422) otherwise."""
    if AGENT_NAME.fullmatch(name) is None:
        raise refuse(
            422, "worker_name", f"worker: {name[:80]!a} is no name; use 1 to 128 of A-Z a-z 0-9 . _ @ - (not first)."
        )
    return name


def client_key(header: str | None) -> str | None:
    """Return the stored form of an `Idempotency-Key` header, None without one; Refusal (422) for a bad one."""
    if header is None:
        return None
    if KEY.fullmatch(header) is None:
        raise refuse(
            422,
            "key",
            f"Idempotency-Key: it has {len(header)} characters; use 1 to 128 printable ASCII ones, no space.",
        )
    return f"k:{header}"


def is_shown(entry: Entry, now: float) -> bool:
    """Say whether the listing shows `entry`: all but expired and released claims."""
    return entry.type is not EntryType.CLAIM or (
        entry.active and entry.expires_at is not None and entry.expires_at > now
    )


def folded(content: str, worker: str) -> str:
    """Return what grep looks through: content and worker in folded case, one line each."""
    return f"{content.casefold()}\n{worker.casefold()}"


def grep_terms(q: str) -> list[list[str]]:
    """Return a query as OR-groups of AND-terms in folded case; Refusal (422) for an empty or a huge one.

    Blanks around a term do not count, every other character is literal.
    """
    if len(q) > GREP_CAP:
        raise refuse(422, "q_too_long", f"q: it has {len(q)} characters; at most {GREP_CAP} are allowed.")
    if _CONTROL.search(q) or _SURROGATE.search(q):
        raise refuse(422, "q_control", "q: it contains a control character; entries have none, so it finds nothing.")
    groups = [[term.strip().casefold() for term in group.split("&") if term.strip()] for group in q.split(",")]
    groups = [group for group in groups if group]
    if not groups:
        raise refuse(422, "q_empty", "q: it is empty; give words to look for, `,` between alternatives, `&` for both.")
    terms = sum(len(group) for group in groups)
    if terms > GREP_TERMS:
        raise refuse(422, "q_terms", f"q: it has {terms} terms; at most {GREP_TERMS} are allowed.")
    return groups
