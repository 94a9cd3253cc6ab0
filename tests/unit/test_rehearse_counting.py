"""The counting of a rehearsal: what is lost, repeated, announced and late, from known sights."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agensh.rehearse.counting import (
    Posted,
    Prompt,
    Quantiles,
    Tally,
    board_in_order,
    count_posts,
    count_worker,
)
from agensh.rehearse.log import Call, SentMessage
from agensh.rehearse.plan import Rates
from agensh.rehearse.reading import Posts, Seen

ME, OTHER = 0, 1


def board(count: int, *, every: float = 1.0) -> list[Posted]:
    """Entries of the other worker, one a second from 0 on; answered a tenth of a second later."""
    return [Posted(f"me1x{n}", OTHER, n * every, n * every + 0.1) for n in range(count)]


def call(began: float, *entries: str, messages: Sequence[str] = (), more: int = 0, lasts: float = 0.01) -> Call:
    return Call("chat_who", began, began, began + lasts, True, entries, tuple(messages), more)


def prompt(at: float, *entries: str, more: int = 0, messages: Sequence[str] = ()) -> Prompt:
    return Prompt(at, Seen(entries, tuple(messages), more))


def count(
    calls: Sequence[Call],
    entries: Sequence[Posted],
    prompts: Sequence[Prompt] = (),
    messages: Sequence[SentMessage] = (),
) -> Tally:
    tally = Tally()
    count_worker(tally, ME, calls, prompts, entries, messages)
    return tally


def test_what_is_shown_with_the_next_call_has_no_excess() -> None:
    tally = count([call(0.5, "me1x0"), call(2.5, "me1x1", "me1x2")], board(3))
    assert (tally.lost, tally.repeated, tally.shown, tally.counted) == (0, 0, 3, 0)
    assert list(tally.entry_excess) == [0.0, 0.0, 0.0]
    assert [round(delay, 3) for delay in tally.entry_delays] == [0.51, 1.51, 0.51]


def test_an_entry_that_the_next_call_passes_over_has_its_excess() -> None:
    tally = count([call(0.5), call(20.0, "me1x0")], board(1))
    assert [round(value, 3) for value in tally.entry_excess] == [19.5]


def test_a_call_that_began_before_the_answer_is_not_the_next_one() -> None:
    tally = count([call(0.05, lasts=0.2), call(20.0, "me1x0")], board(1))
    assert list(tally.entry_excess) == [0.0]


def test_what_is_counted_among_the_rest_is_announced_and_not_shown() -> None:
    tally = count([call(9.5, "me1x4", more=4), call(30.0, "me1x0", more=3)], board(5))
    assert (tally.lost, tally.repeated, tally.shown, tally.counted) == (0, 0, 2, 3)
    assert list(tally.entry_excess) == [0.0] * 5


def test_an_entry_that_is_neither_shown_nor_counted_is_lost() -> None:
    tally = count([call(9.5, "me1x0", "me1x2", more=0), call(30.0)], board(3))
    assert tally.lost == 1
    assert tally.examples == ["worker 1 heard of 2 of 3 entries"]


def test_an_entry_dropped_in_the_middle_of_a_long_rest_is_missing_from_every_later_count() -> None:
    # Of ten entries one is dropped by the desk: 3 shown and 6 counted, then 9 shown in all.
    first = call(20.0, "me1x0", "me1x1", "me1x2", more=6)
    second = call(40.0, *(f"me1x{n}" for n in range(4, 10)))
    assert count([first, second], board(10)).lost == 1


def test_a_second_showing_is_a_repetition_over_all_ways() -> None:
    tally = count([call(1.5, "me1x0"), call(2.5, "me1x0")], board(1), [prompt(3.0, "me1x0")])
    assert tally.repeated == 2


def test_a_turns_context_moves_past_what_it_leaves_out() -> None:
    tally = count([call(9.0, "me1x5")], board(6), [prompt(4.5, "me1x0", "me1x1", more=3)])
    assert (tally.lost, tally.shown, tally.counted) == (0, 3, 3)


def test_a_prompt_while_a_call_is_under_way_is_taken_in_the_order_of_the_desk() -> None:
    entries = board(6)
    # The result was made first (it shows old ones), although it arrived after the prompt.
    before = count([call(4.4, "me1x0", "me1x1", lasts=0.3)], entries, [prompt(4.5, "me1x2", more=3)])
    # The prompt was made first, and the result shows what came after it.
    after = count([call(4.4, "me1x5", lasts=1.3)], entries, [prompt(4.5, "me1x0", more=4)])
    assert (before.lost, before.repeated, after.lost, after.repeated) == (0, 0, 0, 0)


def test_own_entries_are_expected_of_nobody_and_shown_to_nobody() -> None:
    entries = [*board(1), Posted("me0x1", ME, 1.0, 1.1)]
    assert count([call(2.0, "me1x0")], entries).lost == 0
    assert count([call(2.0, "me1x0", "me0x1")], entries).repeated == 1


def test_messages_are_lost_repeated_and_late_like_entries() -> None:
    sent = [SentMessage("md1x1", ME, 1.0, 1.1), SentMessage("md1x2", ME, 1.0, 1.1), SentMessage("md1x3", ME, 1.0, 1.1)]
    calls = [call(2.0, messages=["md1x1"]), call(5.0, messages=["md1x2", "md1x1"])]
    tally = count(calls, [], [], sent)
    assert (tally.lost, tally.repeated) == (1, 1)
    assert [round(value, 2) for value in tally.message_excess] == [0.0, 3.0]
    assert [round(value, 2) for value in tally.message_delays] == [1.01, 4.01]


def test_the_board_is_compared_with_what_its_writers_were_answered() -> None:
    tally = Tally()
    listing = [("me1x1", 1, 5.0), ("me1x2", 1, 6.0), ("me1x1", 1, 7.0)]
    entries = board_in_order(listing, {"me1x1": 5.2, "me1x3": 8.0}, tally)
    assert [(entry.marker, entry.answered_at) for entry in entries] == [("me1x1", 5.2), ("me1x2", 6.0)]
    assert (tally.lost, tally.repeated) == (1, 1)


@given(st.data())
def test_a_desk_that_keeps_its_promise_is_never_counted_wrong(data: st.DataObject) -> None:
    """A model of the desk: it shows some of what is pending, counts the rest, and a turn moves past everything."""
    total = data.draw(st.integers(0, 30))
    pending: list[int] = []
    calls: list[Call] = []
    prompts: list[Prompt] = []
    heard = 0
    for step in range(data.draw(st.integers(1, 12))):
        arrived = total if step == 11 else data.draw(st.integers(heard, total))
        pending += range(heard, arrived)
        heard = arrived
        take = data.draw(st.integers(min(1, len(pending)), len(pending)))
        chosen = sorted(data.draw(st.permutations(pending))[:take])
        pending = [index for index in pending if index not in chosen]
        names = [f"me1x{index}" for index in chosen]
        at = 100.0 + step
        if data.draw(st.booleans()):
            calls.append(call(at, *names, more=len(pending)))
        else:
            prompts.append(prompt(at, *names, more=len(pending)))
            pending = []
    tally = count(calls, board(total, every=0.01), prompts)
    assert (tally.lost, tally.repeated) == (total - heard, 0)


def test_quantiles() -> None:
    values = array("d", [float(n) for n in range(100)])
    assert Quantiles.of(values) == Quantiles(50.0, 99.0, 99.0)
    assert Quantiles.of(array("d")) == Quantiles(0.0, 0.0, 0.0)


def test_the_rates_of_all_kinds_make_the_rate_of_calls() -> None:
    rates = Rates().per_second()
    assert round(sum(rates.values()) + rates["merge"], 6) == round(1 / 20, 6)
    assert Rates(call=0, entry=0, message=0, post=0, merge=0).per_second()["look"] == 0.0


def told(at: float, *groups: Posts) -> Prompt:
    return Prompt(at, Seen(posts=groups))


AUTHORS = dict.fromkeys(range(1, 41), OTHER) | {5: ME, 30: ME}


def posts(prompts: Sequence[Prompt], calls: Sequence[Call] = ()) -> Tally:
    tally = Tally()
    count_posts(tally, ME, calls, prompts, AUTHORS)
    return tally


def test_posts_are_told_once_and_in_order() -> None:
    tally = posts([told(2.0, Posts(4, 25, 21)), told(1.0, Posts(1, 1, 1), Posts(2, 2, 1), Posts(3, 3, 1)), told(3.0)])
    assert (tally.lost, tally.repeated, tally.posts) == (0, 0, 24)


def test_a_post_that_is_left_out_is_lost() -> None:
    tally = posts([told(1.0, Posts(1, 1, 1), Posts(3, 3, 1)), told(2.0, Posts(4, 40, 32))])
    assert (tally.lost, tally.repeated) == (4, 0)
    assert tally.examples == [
        "worker 1 was not told of 1 posts between 0 and 3", "worker 1 was not told of 3 posts between 3 and 40",
    ]  # fmt: skip


def test_a_post_that_is_told_again_is_repeated() -> None:
    tally = posts([told(1.0, Posts(1, 4, 4)), told(2.0, Posts(4, 4, 1), Posts(6, 6, 1))])
    assert (tally.lost, tally.repeated) == (0, 1)


def test_what_the_worker_read_by_itself_need_not_be_told() -> None:
    reading = Call("chat_read", 0.5, 0.5, 0.6, True)
    tally = posts([told(1.0, Posts(3, 3, 1)), told(2.0, Posts(17, 17, 1))], [reading])
    assert (tally.lost, tally.repeated) == (4, 0), "14 of 16 others' posts are missing, and 10 of them were read"
