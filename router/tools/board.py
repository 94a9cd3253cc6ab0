"""The board's tools."""

from __future__ import annotations

from typing import Protocol

from agensh.clients.board import BoardClient
from agensh.entries import CONTENT_CAP, DETAIL_CAP, PATCH_SUMMARY_CAP, Entry, EntryType, content_cap
from agensh.text import BLOCK_INDENT, block, handle, one_line
from router.ports import NoticeDesk
from router.tools.registry import Argument, Call, Refused, Tool
from router.tools.texts import TEXT_ROOM, clip_newest, clip_oldest, minutes

TYPES = tuple(str(type_) for type_ in EntryType)
PENDING_ROOM = 7_500  # characters of one board_pending; longer results are shown shortened


class BoardPort(Protocol):
    """What the board's tools need of a worker."""

    @property
    def board(self) -> BoardClient: ...

    @property
    def desk(self) -> NoticeDesk: ...


def entry_row(entry: Entry, now: float) -> str:
    """Return the line of a listing: `G12 [demo-worker3, FAIL, 3.2 min ago] content`."""
    marks = "" if entry.active else ", no longer active"
    more = " (+detail)" if entry.has_detail else ""
    head = f"{entry.label} [{handle(entry.worker)}, {entry.type}, {minutes(entry.created_at, now)}{marks}]"
    return f"{head} {one_line(entry.content, content_cap(entry.type))}{more}"


async def write(call: Call[BoardPort]) -> str:
    written = await call.port.board.write(
        EntryType(call["type"]), call["content"], call["detail"], key=call["key"] or None
    )
    lines = [f"status=admitted label={written.label} overlaps={len(written.overlaps)}"]
    if written.repeated:
        lines[0] += " repeated=1"
        lines.append(f"This key was used before: {written.label} is the entry it wrote; nothing new was written.")
    else:
        lines.append(f"On the board as {written.label}; every worker sees it with its next tool result.")
    if written.overlaps:
        lines.append("Active claims that look like yours (settle it with chat_dm; the earlier claim goes first):")
        lines += [
            f"{overlap.label} [{handle(overlap.worker)}] {one_line(overlap.content)}" for overlap in written.overlaps
        ]
        lines.append(f"If you give way: board_release label={written.label}, and claim something else.")
    return "\n".join(lines)


async def read(call: Call[BoardPort]) -> str:
    type_ = EntryType(call["type"]) if call["type"] else None
    after = call["after"] or None
    entries = await call.port.board.read(limit=call["limit"], after=after, type=type_)
    now = call.clock.time()
    rows = [entry_row(entry, now) for entry in entries]
    if not rows:
        none = f"No entries{' of that type' if type_ else ''}{f' after G{after}' if after else ' yet'}."
        return f"status=ok entries=0 last={after or 0}\n{none}"
    if after:
        # Read onwards from an entry: what does not fit is the next page.
        kept = clip_newest(rows, TEXT_ROOM)
        last = entries[len(kept) - 1].seq
        more = []
        if len(kept) < len(rows) or len(rows) == call["limit"]:
            more = [f"Newer entries may follow: board_read(after={last})."]
        return "\n".join([f"status=ok entries={len(kept)} last={last}", *kept, *more])
    kept, dropped = clip_oldest(rows, TEXT_ROOM)
    head = f"status=ok entries={len(kept)} last={entries[-1].seq}"
    if dropped:
        head += f"\n{dropped} older entries left out to keep this short: board_grep finds them, or narrow with type=."
    return "\n".join([head, *kept])


async def grep(call: Call[BoardPort]) -> str:
    page = await call.port.board.grep(call["query"], before=call["before"] or None)
    now = call.clock.time()
    if not page.entries:
        return f"status=ok entries=0\nNothing on the board matches {call['query']!r}."
    lines = [f"status=ok entries={len(page.entries)} more={int(page.more)}"]
    lines += [entry_row(entry, now) for entry in page.entries]
    if page.more:
        lines.append(f"There are older matches: board_grep with the same query and before={page.next_before}.")
    return "\n".join(lines)


async def unfold(call: Call[BoardPort]) -> str:
    entry, detail = await call.port.board.unfold(_label(call["label"]))
    return "\n".join(
        [
            f"status=ok label={entry.label} detail={len(detail)}",
            entry_row(entry, call.clock.time()),
            f"{BLOCK_INDENT}{block(detail)}" if detail else "This entry has no detail.",
        ]
    )


async def release(call: Call[BoardPort]) -> str:
    entry = await call.port.board.release(_label(call["label"]))
    return f"status=released label={entry.label}\nYour claim is released; others may take it: {one_line(entry.content)}"


async def pending(call: Call[BoardPort]) -> str:
    notice = call.port.desk.collect(PENDING_ROOM)
    if notice is None:
        return "status=ok pending=0\nNothing waits for you."
    return f"status=ok pending={len(notice.refs)}\n{notice.text}"


def _label(text: str) -> str:
    label = text.strip().upper()
    label = label if label.startswith("G") else f"G{label}"
    if not label[1:].isdecimal():
        raise Refused(f"label is {text!r}; expected the label of an entry, e.g. G12.", first_line="status=invalid")
    return label


LABEL = Argument("label", "Label of an entry, e.g. G12.", minimum=1, maximum=20)

TOOLS: tuple[Tool[BoardPort], ...] = (
    Tool(
        "board_write",
        f"""Put one short entry on the team's shared board; every other worker sees it with its next tool result.
Write as soon as you know something others need: before you start (CLAIM), when something turns out not to work (FAIL),
when you have verified something (FACT), when you noticed something unexplained (OBSERVED), when work is merged
(PATCH_SUMMARY). Content has at most {CONTENT_CAP} characters (PATCH_SUMMARY {PATCH_SUMMARY_CAP}); longer is refused,
never cut: the rest goes into detail (at most {DETAIL_CAP // 1024} KiB), which others unfold. A PATCH_SUMMARY reads
`files=… | idea=… | evidence=…` with real evidence (a test that passes, a commit), not a placeholder.
A CLAIM expires after an hour and is an announcement, not a lock: the answer lists active claims that look like it.
Example: board_write(type="FAIL", content="cut -f with -s drops lines w/o delimiter: ours kept them", key="cut-s").""",
        (
            Argument("type", "Kind of the entry.", allowed=TYPES),
            Argument("content", "The entry in one line; say what others must know.", minimum=1),
            Argument("detail", "Anything longer: commands, output, reasoning. Shown only when unfolded.", default=""),
            Argument("key", "Any word of yours; repeating a call with the same key never writes twice.", default=""),
        ),
        write,
        writes=True,
    ),
    Tool(
        "board_read",
        """Read the board, oldest first: the newest `limit` entries, or those after an entry (`after=12`: after G12).
Read it before you choose work, so that you neither repeat what failed nor take what is claimed. Lines look like
`G12 [demo-worker3, FAIL, 3.2 min ago] content`; `(+detail)` means that board_unfold shows more. Expired and released
claims are not listed.
Example: board_read(type="CLAIM").""",
        (
            Argument("limit", "At most this many entries.", int, 2000, minimum=1, maximum=2000),
            Argument("after", "Number of the last entry you know; 0 for the newest ones.", int, 0, minimum=0),
            Argument("type", "Only entries of this type; empty for all.", default="", allowed=("", *TYPES)),
        ),
        read,
    ),
    Tool(
        "board_grep",
        """Search everything ever written to the board (contents of entries, also expired claims), newest first.
`,` means OR, `&` means AND, letters match in either case, every other character is literal.
Example: board_grep(query="sort&stable,uniq -c") finds entries with both "sort" and "stable", or with "uniq -c".""",
        (
            Argument("query", "What to look for.", minimum=1, maximum=1000),
            Argument(
                "before", "For the next page: the number the last answer named; 0 for the first.", int, 0, minimum=0
            ),
        ),
        grep,
    ),
    Tool(
        "board_unfold",
        """Show one entry with its detail. Use it on lines marked `(+detail)`. Example: board_unfold(label="G12").""",
        (LABEL,),
        unfold,
    ),
    Tool(
        "board_release",
        """Give up a CLAIM of your own so that others may take the work: when you stop, or give way to an earlier claim.
Publishing the PATCH_SUMMARY that names the claim releases it as well. Example: board_release(label="G12").""",
        (LABEL,),
        release,
        writes=True,
    ),
    Tool(
        "board_pending",
        """Show what waits for you and was not shown yet: direct messages, then new entries. Call it when a notice says
`N more: call board_pending`; otherwise notices come with your tool results by themselves.""",
        (),
        pending,
    ),
)
