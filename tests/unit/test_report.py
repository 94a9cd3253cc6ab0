from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from agensh.entries import EntryType
from agensh.runs.checkpoints import spread
from agensh.runs.collect import MainCommit
from agensh.runs.html import render_html
from agensh.runs.report import Percentiles, build_report, percentiles, words
from tests.support.records import call, checkpoint, entry, event, notice, pull, record, turn


def test_an_empty_run_has_zeros_and_no_pass_rate():
    report = build_report(record(t0=None, stopped_at=None, state="new"))
    assert report.wall_s == 0
    assert report.pass_rate_final is None
    assert report.pass_rate_curve == []
    assert report.merges == report.events_delivered == report.notices_mid_turn == 0
    assert report.entries == {"OBSERVED": 0, "FACT": 0, "FAIL": 0, "CLAIM": 0, "PATCH_SUMMARY": 0}
    assert report.notice_delay_s == Percentiles(None, None)


def test_the_curve_is_in_seconds_since_t0_and_ends_with_the_final_rate():
    report = build_report(record(grades=[checkpoint(-3, 0), checkpoint(20, 40), checkpoint(80, 97)]))
    assert report.pass_rate_curve == [(0.0, 0.0), (20.0, 0.4), (80.0, 0.97)]
    assert report.pass_rate_final == 0.97


def test_entries_are_counted_by_type():
    entries = [
        entry(1, 1, EntryType.CLAIM, "wc", 1),
        entry(2, 2, EntryType.CLAIM, "cut", 2),
        entry(3, 1, EntryType.FAIL, "tabs", 3),
    ]
    report = build_report(record(entries=entries))
    assert report.entries == {"OBSERVED": 0, "FACT": 0, "FAIL": 1, "CLAIM": 2, "PATCH_SUMMARY": 0}
    assert report.claims == 2


def test_a_conflict_counts_as_resolved_only_when_that_pull_request_was_merged_later():
    calls = [
        call("forge_pull_merge", "status=conflict pull=1 files=src/dispatch.py\nMerge main.", ok=False),
        call("forge_pull_merge", "status=conflict pull=1\nMerge main.", ok=False),
        call("forge_pull_merge", "status=conflict pull=2\nMerge main.", ok=False),
        call("forge_pull_merge", "status=head_moved pull=3\nRead it again.", ok=False),
        call("forge_pull_merge", "status=merged sha=abc pull=1"),
    ]
    report = build_report(record(tool_calls=calls, pulls=[pull(1, 30), pull(2, None), pull(3, 40)]))
    assert report.merges == 2
    assert report.merge_refusals == 4
    assert report.conflicts_resolved == 1


def test_a_conflict_in_a_clone_counts_for_the_pull_request_its_worker_merges_next():
    conflict = "$ git merge --no-edit origin/main\nCONFLICT (content): Merge conflict in src/dispatch.py"
    calls = [
        call("shell", conflict, ok=False, kind="shell"),
        call("shell", conflict, ok=False, kind="shell"),
        call("forge_pull_merge", "status=merged sha=abc pull=7"),
        call("forge_pull_merge", "status=merged sha=def pull=8"),
        call("shell", "$ git log\nCONFLICT (content)", kind="shell"),
        call("forge_pull_merge", "status=merged sha=012 pull=9"),
        call("shell", conflict, ok=False, kind="shell"),
    ]
    report = build_report(record(tool_calls=calls, pulls=[pull(7, 1), pull(8, 2), pull(9, 3)]))
    assert report.conflicts_resolved == 1


def test_a_claim_that_met_another_is_a_duplicate():
    calls = [
        call("board_write", "status=admitted label=G1 overlaps=0"),
        call("board_write", "status=admitted label=G2 overlaps=2\nG1 looks alike."),
        call("board_write", "status=rejected overlaps=1", ok=False),
    ]
    assert build_report(record(tool_calls=calls)).duplicate_claims == 1


def test_only_a_refused_git_push_is_a_rejected_push():
    calls = [
        call("shell", "git push origin x\n ! [rejected] x -> x (fetch first)", ok=False, kind="shell"),
        call("shell", "git push origin main\n ! [remote rejected] main -> main", ok=False, kind="shell"),
        call("shell", "git push origin x\nCould not resolve host", ok=False, kind="shell"),
        call("shell", "echo rejected; git push origin x", kind="shell"),
        call("forge_pull_merge", "git push rejected", ok=False),
    ]
    assert build_report(record(tool_calls=calls)).push_rejections == 2


def test_notices_of_a_prompt_are_not_mid_turn():
    report = build_report(record(notices=[notice(1, 2), notice(1, 4), notice(1, 9, via="turn"), notice(1, None)]))
    assert report.notices_mid_turn == 2
    assert report.notice_delay_s == Percentiles(1.0, 3.0)


def test_events_turns_tokens_and_stranded_commits():
    report = build_report(
        record(
            events=[event("sent"), event("sent", attempts=3), event("dead", attempts=8), event("queued", attempts=0)],
            turns=[turn(1, 0, 10, input_tokens=100, cost_usd=0.25), turn(2, 0, 5, "crashed", output_tokens=7)],
            stranded=[{"sha": "a", "where": "branch"}],
        )
    )
    assert (report.events_delivered, report.events_redelivered, report.events_dead) == (2, 1, 1)
    assert (report.turns, report.turns_failed) == (2, 1)
    assert report.tokens == {"input": 100, "cached": 0, "output": 7, "reasoning": 0}
    assert report.cost_usd == 0.25
    assert report.commits_stranded == 1


def test_the_report_is_json():
    data = json.loads(json.dumps(build_report(record(grades=[checkpoint(20, 40)])).to_json()))
    assert data["pass_rate_curve"] == [[20.0, 0.4]]
    assert data["notice_delay_s"] == {"p50": None, "p99": None}


@pytest.mark.parametrize(
    ("values", "p50", "p99"),
    [([5.0], 5.0, 5.0), ([1.0, 2.0], 1.0, 2.0), ([float(n) for n in range(1, 101)], 50.0, 99.0)],
)
def test_percentiles_are_nearest_rank(values, p50, p99):
    assert percentiles(values) == Percentiles(p50, p99)


def test_words_of_the_first_line_only():
    assert words("status=merged sha=ab12 then prose\npull=9") == {"status": "merged", "sha": "ab12"}


def commits(*times: float) -> list[MainCommit]:
    return [MainCommit(sha=str(index), at=at, author="w", subject="s") for index, at in enumerate(times)]


def test_spread_keeps_first_last_and_the_evenly_spaced():
    chosen = spread(commits(*range(101)), 5)
    assert [commit.at for commit in chosen] == [0, 25, 50, 75, 100]


def test_spread_fills_up_when_commits_lie_close_together():
    chosen = spread(commits(0, 1, 2, 3, 4, 100), 4)
    assert len(chosen) == 4
    assert chosen[0].at == 0
    assert chosen[-1].at == 100


@pytest.mark.parametrize("most", [2, 6, 10])
def test_spread_never_takes_more_than_there_are(most):
    assert len(spread(commits(0, 1, 2, 3, 4, 5), most)) == min(most, 6)


def test_one_checkpoint_is_the_last_commit():
    assert [commit.at for commit in spread(commits(0, 1, 2), 1)] == [2]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "data"}]


def test_the_page_is_self_contained_and_hostile_text_stays_text():
    hostile = "</title><script>alert(1)</script>"
    html = render_html(
        record(
            entries=[entry(1, 1, EntryType.FAIL, hostile, 5)],
            turns=[turn(1, 0, 50), turn(2, 1, 60, "crashed")],
            pulls=[pull(1, 30)],
            grades=[checkpoint(20, 40), checkpoint(90, 99)],
        )
    )
    page = _Page()
    page.feed(html)
    assert page.links == []
    assert "script" not in page.tags
    assert hostile not in html
    assert "99.0 %" in html
    for svg in html.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
