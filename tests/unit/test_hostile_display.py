"""Nobody's text steers the terminal of `agensh report`, or becomes a part of its page."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from rich.console import Console

from agensh.cli.progress import Progress
from agensh.cli.showing import print_report
from agensh.entries import EntryType
from agensh.rundir import RunDir
from agensh.runs.html import render_html
from agensh.runs.record import Record
from agensh.runs.report import build_report
from tests.support.hostile import HOSTILE, texts, unsafe
from tests.support.records import entry, pull, record, turn

every_text = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def hostile_record(text: str) -> Record:
    return record(
        entries=[entry(1, 1, EntryType.FAIL, text, 5)],
        turns=[turn(1, 0, 50, text or "completed")],
        pulls=[pull(1, 30)],
        sessions=[{"worker": "demo-worker1", "parked_reason": text or "x", "session_id": "s"}],
    )


class Page(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))


def tags(html: str) -> list[tuple[str, tuple[str, ...]]]:
    page = Page()
    page.feed(html)
    page.close()
    return page.tags


def check_page(text: str) -> None:
    html = render_html(hostile_record(text))
    assert tags(html) == tags(render_html(hostile_record("plain")))
    assert not unsafe(html, lines=True)
    for svg in html.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")


@every_text
def test_the_page_keeps_its_shape(text: str) -> None:
    check_page(text)


@settings(deadline=None)
@given(texts)
def test_no_text_changes_the_shape_of_the_page(text: str) -> None:
    check_page(text)


@every_text
def test_the_report_on_a_terminal_obeys_nobody(text: str, tmp_path: Path) -> None:
    shown = io.StringIO()
    print_report(Console(file=shown, width=200), RunDir(tmp_path), build_report(hostile_record(text)))
    assert not unsafe(shown.getvalue().replace("\u200d", ""), lines=True)
    assert "parked: demo-worker1" in shown.getvalue()


@every_text
def test_progress_lines_obey_nobody(text: str) -> None:
    shown = io.StringIO()
    Progress(Console(file=shown, width=200)).say(text)
    assert not unsafe(shown.getvalue().replace("\u200d", "").replace("\t", " "), lines=True)
