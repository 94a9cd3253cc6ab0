"""The rules of a note as tables of cases."""

from __future__ import annotations

from typing import Any

import pytest

from agensh.entries import EntryType
from board_service.board import (
    PLACEHOLDERS,
    check_note,
    client_key,
    folded,
    grep_terms,
    is_placeholder,
    named_labels,
    parse_label,
    summary_fields,
)
from board_service.errors import Refusal

SUMMARY = "files=a.c | idea=short | evidence=make test passes"


def codes(body: dict[str, Any]) -> tuple[int, list[str]]:
    with pytest.raises(Refusal) as refused:
        check_note(body, "demo-worker1", "k:1")
    return refused.value.status, [mistake.code for mistake in refused.value.mistakes]


def note(content: Any, type_: str = "FACT", detail: Any = "") -> dict[str, Any]:
    return {"type": type_, "content": content, "detail": detail}


@pytest.mark.parametrize(
    "body",
    [
        note("x"),
        note("x" * 100),
        note("😀" * 100),
        note("e\u0301" * 50),
        note("👩‍👩‍👧‍👦" * 14),  # 98 code points
        note("✅→ 🫠 𠜎"),
        note("  kept as it is  "),
        note("שלום עולם"),
        note(SUMMARY, "PATCH_SUMMARY"),
        note(SUMMARY + "x" * (300 - len(SUMMARY)), "PATCH_SUMMARY"),
        note("x", detail="d" * 65536),
        note("x", detail="€" * 21845 + "d"),
        note("x", detail="line\n\x1b[31mcolour\ttab\r\n"),
        {"type": "FACT", "content": "no detail"},
        {"type": "FACT", "content": "no detail", "detail": None, "unknown": 1},
    ],
)
def test_these_notes_are_admitted_as_they_are(body: dict[str, Any]) -> None:
    admitted = check_note(body, "demo-worker1", "k:1")
    assert admitted.content == body["content"]
    assert admitted.detail == (body.get("detail") or "")
    assert (admitted.worker, admitted.type) == ("demo-worker1", EntryType(body["type"]))


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (note("x" * 101), 422, ["content_too_long"]),
        (note("😀" * 101), 422, ["content_too_long"]),
        (note(SUMMARY + "x" * (301 - len(SUMMARY)), "PATCH_SUMMARY"), 422, ["content_too_long"]),
        (note(""), 422, ["content_empty"]),
        (note(" \u00a0\u200b "), 422, ["content_empty"]),
        ({"type": "FACT"}, 422, ["content_empty"]),
        (note(7), 422, ["content_not_text"]),
        (note("x", detail=["d"]), 422, ["detail_not_text"]),
        (note("a\nb"), 422, ["content_control"]),
        (note("a\tb"), 422, ["content_control"]),
        (note("a\x1b[2Jb"), 422, ["content_control"]),
        (note("a\x9bb"), 422, ["content_control"]),
        (note("a\x7fb"), 422, ["content_control"]),
        (note("a\u2028b"), 422, ["content_control"]),
        (note("a\0b"), 422, ["content_control"]),
        (note("a\ud800b"), 422, ["content_surrogate"]),
        (note("x", detail="a\0b"), 422, ["detail_nul"]),
        (note("x", detail="\udfff"), 422, ["detail_surrogate"]),
        (note("x", detail="d" * 65537), 413, ["detail_too_long"]),
        (note("x", detail="€" * 21845 + "dd"), 413, ["detail_too_long"]),
        (note("x", "fact"), 422, ["type_unknown"]),
        (note("x", "NOTE"), 422, ["type_unknown"]),
        ({"content": "x"}, 422, ["type_missing"]),
        ({"content": "x", "type": ["FACT"]}, 422, ["type_unknown"]),
        ({}, 422, ["type_missing", "content_empty"]),
        (note("files=a | idea=b", "PATCH_SUMMARY"), 422, ["evidence_missing"]),
        (note("files= | idea=b | evidence=c", "PATCH_SUMMARY"), 422, ["files_empty"]),
        (note("files=a | idea= | evidence= ", "PATCH_SUMMARY"), 422, ["idea_empty", "evidence_empty"]),
        (note("files=a | files=b | idea=c | evidence=d", "PATCH_SUMMARY"), 422, ["files_repeated"]),
        (note("done", "PATCH_SUMMARY"), 422, ["files_missing", "idea_missing", "evidence_missing"]),
        (note("files=a idea=b evidence=c", "PATCH_SUMMARY"), 422, ["idea_missing", "evidence_missing"]),
        # Everything that is wrong at once.
        (
            note("files=a | idea=\n" + "x" * 300 + " | evidence=TBD", "PATCH_SUMMARY", "\0" + "d" * 65536),
            413,
            ["content_control", "content_too_long", "evidence_placeholder", "detail_nul", "detail_too_long"],
        ),
        (note("x" * 101, "nope", "\0"), 422, ["type_unknown", "detail_nul"]),
    ],
)
def test_these_notes_are_refused_with_every_mistake(body: dict[str, Any], status: int, expected: list[str]) -> None:
    assert codes(body) == (status, expected)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (note("😀" * 101), ["101", "100", "FACT"]),
        (note("files=a|idea=b|evidence=" + "c" * 300, "PATCH_SUMMARY"), ["324", "300", "PATCH_SUMMARY"]),
        (note("x", detail="d" * 65537), ["65537", "65536", "bytes"]),
        (note("x", "note"), ["'note'", "OBSERVED", "FACT", "FAIL", "CLAIM", "PATCH_SUMMARY"]),
        (note("ab\x1b[0m"), ["character 3", "U+001B"]),
        (note("x", detail="ab\0"), ["detail", "character 3", "NUL"]),
        (note("files=a | idea=b | evidence=tbd", "PATCH_SUMMARY"), ["evidence", "'tbd'", "placeholder"]),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_is_allowed(body: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(Refusal) as refused:
        check_note(body, "demo-worker1", "k:1")
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_refusal_never_carries_a_raw_control_character() -> None:
    with pytest.raises(Refusal) as refused:
        check_note(note("a\x1b]0;x\x07", "\x1b[31m\ud800"), "demo-worker1", "k:1")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "evidence",
    [
        *sorted(PLACEHOLDERS),
        *(word.upper() for word in sorted(PLACEHOLDERS)),
        "n/a", "N/A", "(n/a)", "n.a.", "TBD.", "<tbd>", "[todo]", "T.B.D.", "to-do", "…", "...", "?", "??", "-", "--",
        "—", "todo, pending", "*unverified*", "ｔｂｄ", "'later'", "pending…", "WIP!",
    ],
)  # fmt: skip
def test_placeholders_are_no_evidence(evidence: str) -> None:
    assert is_placeholder(evidence)
    assert codes(note(f"files=a | idea=b | evidence={evidence}", "PATCH_SUMMARY")) == (422, ["evidence_placeholder"])


@pytest.mark.parametrize(
    "evidence",
    [
        "make test: 12 passed", "0 failures", "none of the 40 cases fails", "todo.txt parsed", "diff is empty",
        "pending queue drains in 2 s", "✅ 14/14", "8/8", "unknown option now exits 2", "cmp a b | wc -c gives 0",
    ],
)  # fmt: skip
def test_evidence_that_only_contains_such_a_word_counts(evidence: str) -> None:
    assert not is_placeholder(evidence)
    check_note(note(f"files=a | idea=b | evidence={evidence}", "PATCH_SUMMARY"), "demo-worker1", "k:1")


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("files=a | idea=b | evidence=c", {"files": ["a"], "idea": ["b"], "evidence": ["c"]}),
        ("FILES=a|Idea = b|evidence= c ", {"files": ["a"], "idea": ["b"], "evidence": ["c"]}),
        ("evidence=a | b | wc | files=x | idea=y=z", {"evidence": ["a | b | wc"], "files": ["x"], "idea": ["y=z"]}),
        ("G12 | files=a | idea=b | evidence=c", {"files": ["a"], "idea": ["b"], "evidence": ["c"]}),
        ("files= | idea=b", {"files": [""], "idea": ["b"]}),
        ("myfiles=a", {}),
    ],
)
def test_the_fields_of_a_patch_summary(content: str, fields: dict[str, list[str]]) -> None:
    assert summary_fields(content) == fields


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("closes G12", {12}),
        ("G1, G2;G3.", {1, 2, 3}),
        ("xG12 G12x G012 _G4 G5_ g6", set()),
        ("(G7)", {7}),
        ("G", set()),
        ("G0", set()),
    ],
)
def test_labels_count_as_words_only(content: str, labels: set[int]) -> None:
    assert named_labels(content) == labels


@pytest.mark.parametrize(
    ("q", "terms"),
    [
        ("a&b,c&d", [["a", "b"], ["c", "d"]]),
        (" Sort -K , wc ", [["sort -k"], ["wc"]]),
        ("100%", [["100%"]]),
        ("C:\\tmp", [["c:\\tmp"]]),
        ("a,,&b,", [["a"], ["b"]]),
        ("(a+)+$", [["(a+)+$"]]),
        ("STRASSE", [["strasse"]]),
        ("Straße", [["strasse"]]),
    ],
)
def test_grep_terms(q: str, terms: list[list[str]]) -> None:
    assert grep_terms(q) == terms


@pytest.mark.parametrize(
    ("q", "code", "words"),
    [
        ("", "q_empty", "empty"),
        (" , & ", "q_empty", "empty"),
        ("x" * 10_000, "q_too_long", "10000 characters; at most 500"),
        ("a\0b", "q_control", "control"),
        (",".join("x" * 33), "q_terms", "33 terms; at most 32"),
    ],
)
def test_grep_refuses(q: str, code: str, words: str) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        grep_terms(q)
    assert (refused.value.status, refused.value.mistakes[0].code) == (422, code)


def test_what_grep_looks_through_ignores_case() -> None:
    assert folded("Straße ÄÖ", "Demo-Worker1") == "strasse äö\ndemo-worker1"


@pytest.mark.parametrize("label", ["", "12", "G", "G0", "Gx", "G1 ", "GG1", "G" + "9" * 20])
def test_what_is_no_label(label: str) -> None:
    with pytest.raises(Refusal, match="labels look like G12"):
        parse_label(label)


def test_labels_and_keys() -> None:
    assert (parse_label("G12"), parse_label("g12")) == (12, 12)
    assert (client_key("a-1"), client_key(None)) == ("k:a-1", None)
    for bad in ("", " ", "a b", "x" * 129, "é"):
        with pytest.raises(Refusal, match="Idempotency-Key"):
            client_key(bad)
