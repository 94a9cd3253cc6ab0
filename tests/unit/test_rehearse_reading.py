"""What a rehearsal finds in tool results and prompts; the texts are made by the router's own functions."""

from __future__ import annotations

from agensh.entries import Entry, EntryType
from agensh.rehearse.reading import Posts, Seen, entry_marker, message_marker, read_prompt, read_result
from router.desk import SharedContext
from router.events import Kind, Priority, QueuedEvent, Source
from router.mcp.notices import PendingMessage, render_notice
from router.prompt import context_text, event_lines

NOW = 1000.0


def entry(seq: int, marker: str) -> Entry:
    return Entry(seq=seq, worker="t-worker2", type=EntryType.FACT, content=f"{marker} words", created_at=NOW - 5)


def notice(entries: int, messages: int, room: int = 2000) -> str:
    waiting = [PendingMessage(f"e{n}", "t-worker3", f"{message_marker(3, n)} hello", NOW) for n in range(messages)]
    rendered = render_notice(waiting, [entry(n, entry_marker(2, n)) for n in range(entries)], room=room, now=NOW)
    assert rendered is not None
    return rendered.text


def test_a_notice_is_read_and_what_the_tool_was_asked_for_is_not() -> None:
    listing = "status=ok entries=1 last=9\nG9 [t-worker2, FACT, 0.1 min ago] me2x9 words"
    assert read_result([listing, "\n" + notice(2, 1)]) == Seen(("me2x0", "me2x1"), ("md3x0",), 0)
    assert read_result([listing]) == Seen()


def test_the_rest_is_counted_as_the_notice_says() -> None:
    text = notice(40, 1, room=400)
    seen = read_result([text])
    assert seen.messages == ("md3x0",)
    assert 0 < len(seen.entries) < 40
    assert len(seen.entries) + seen.more == 40


def test_pending_and_the_notice_behind_it_count_once() -> None:
    seen = read_result([f"status=ok pending=2\n{notice(2, 0)}", "\n" + notice(1, 0)])
    assert seen == Seen(("me2x0", "me2x1", "me2x0"), (), 0)


def test_a_prompt_shows_messages_in_its_events_and_entries_in_its_context() -> None:
    context = context_text(SharedContext((entry(1, "me2x1"),), left_out=7, after=0), NOW)
    prompt = (
        "[event] event_id=e1 source=mattermost kind=direct_message observed_at=x from=t-worker3 summary: md3x4 hello\n"
        "[event] event_id=e2 source=mattermost kind=channel_post observed_at=x summary: md3x5 quoted\n\n" + context
    )
    assert read_prompt(prompt) == Seen(("me2x1",), ("md3x4",), 7)


def test_a_prompt_tells_of_posts_by_their_numbers() -> None:
    def event(seq: int, kind: Kind = Kind.CHANNEL_POST) -> QueuedEvent:
        priority = Priority.MENTION if kind is Kind.MENTION else Priority.REST
        return QueuedEvent(-seq, Source.MATTERMOST, kind, priority, "mattermost:c", f"s{seq}", {}, 0.0, 0, 0)

    few = event_lines([event(1), event(2, Kind.MENTION), event(4)])
    assert set(read_prompt("\n".join(few) + "\n\n==== SHARED CONTEXT ====\n").posts) == {
        Posts(1, 1, 1), Posts(2, 2, 1), Posts(4, 4, 1),
    }  # fmt: skip
    many = event_lines([event(seq) for seq in range(7, 60) if seq != 9])
    assert read_prompt("\n".join(many) + "\n\n==== SHARED CONTEXT ====\n").posts == (Posts(7, 59, 52),)
