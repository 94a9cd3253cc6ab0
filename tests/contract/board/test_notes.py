"""Writing and unfolding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from tests.contract.board.conftest import Api, Serve


async def test_an_admitted_note(api: Api) -> None:
    answer = await api.post("/board/main/note", json={"type": "FAIL", "content": "tabs break wc", "detail": "how"})
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "admitted", "reason": None, "gist_id": 1, "label": "G1", "repeated": False, "overlaps": [],
    }  # fmt: skip
    listing = (await api.get("/board/main")).json()
    assert (listing["board"], listing["head"]) == ("main", 1)
    (entry,) = listing["entries"]
    assert entry | {"created_at": 0} == {
        "seq": 1, "label": "G1", "worker": "w1", "type": "FAIL", "content": "tabs break wc", "created_at": 0,
        "expires_at": None, "has_detail": True, "active": True,
    }  # fmt: skip
    assert (await api.get("/board/main/note/G1", "w2")).json() == entry | {"detail": "how"}


async def test_a_rejected_note_names_every_mistake_and_writes_nothing(api: Api) -> None:
    body = {"type": "PATCH_SUMMARY", "content": "files= | idea=x | evidence=tbd", "detail": "\0"}
    answer = await api.post("/board/main/note", json=body)
    value = answer.json()
    assert (answer.status_code, value["status"]) == (422, "rejected")
    assert [error["code"] for error in value["errors"]] == ["files_empty", "evidence_placeholder", "detail_nul"]
    assert value["reason"] == " ".join(error["message"] for error in value["errors"])
    assert (await api.get("/board/main")).json()["head"] == 0


NO_NOTES = [
    (b"", "not_json"),
    (b"{", "not_json"),
    (b"\xff\xfe", "not_json"),
    (b"[" * 100_000, "not_json"),
    (b"[]", "not_an_object"),
    (b'{"type":"FACT","content":"a\\ud800b"}', "content_surrogate"),
    (b'{"type":"FACT","content":"a","detail":"\\ud800"}', "detail_surrogate"),
    (b'{"type":"FACT","content":"a\\u0000"}', "content_control"),
]


async def test_a_body_that_is_no_note(api: Api) -> None:
    for raw, code in NO_NOTES:
        answer = await api.post("/board/main/note", content=raw)
        assert (raw, answer.status_code, [error["code"] for error in answer.json()["errors"]]) == (raw, 422, [code])


async def test_the_caps_of_content_and_detail(api: Api) -> None:
    await api.note("FACT", "😀" * 100, "€" * 21845 + "d")
    answer = await api.post("/board/main/note", json={"type": "FACT", "content": "😀" * 101})
    assert answer.status_code == 422
    assert "101 characters; at most 100" in answer.json()["reason"]
    answer = await api.post("/board/main/note", json={"type": "FACT", "content": "x", "detail": "d" * 65537})
    assert answer.status_code == 413
    assert "65537 bytes of UTF-8; at most 65536" in answer.json()["reason"]
    assert (await api.get("/board/main/note/G1")).json()["detail"] == "€" * 21845 + "d"


async def test_a_huge_body_is_refused_and_the_cap_named(api: Api) -> None:
    for size in (1 << 20, 16 << 20):
        body = json.dumps({"type": "FACT", "content": "x", "detail": "d" * size}).encode()
        answer = await api.post("/board/main/note", content=body)
        assert answer.status_code == 413
        assert "65536 bytes" in answer.json()["reason"]

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    answer = await api.post("/board/main/note", content=pieces())
    assert answer.status_code == 413
    assert "65536 bytes" in answer.json()["reason"]


async def test_emoji_and_rare_characters_come_back_as_they_went(api: Api) -> None:
    content, detail = "✅→ 🫠 𠜎 e\u0301 שלום", "🫠\x1b[31m\r\n\t𠜎"
    await api.note("FACT", content, detail)
    assert (await api.get("/board/main")).json()["entries"][0]["content"] == content
    unfolded = (await api.get("/board/main/note/G1")).json()
    assert (unfolded["content"], unfolded["detail"]) == (content, detail)
    assert await api.labels("/board/main/grep", q="🫠") == ["G1"]


async def test_the_same_key_answers_with_the_first_entry(serve: Serve) -> None:
    async with serve() as api:
        first = await api.note("FACT", "one", key="k")
        again = await api.note("FACT", "two", key="k")
        assert again == first | {"repeated": True}
        other = await api.note("FACT", "three", who="w2", key="k")  # a key is its worker's own
        assert (other["label"], other["repeated"]) == ("G2", False)
        token = await api.auth("w1")
    async with serve() as api:  # after a restart
        headers = token | {"Idempotency-Key": "k"}
        answer = await api.http.post("/board/main/note", json={"type": "FACT", "content": "x"}, headers=headers)
        assert answer.json() == first | {"repeated": True}
        assert (await api.get("/board/main")).json()["head"] == 2


async def test_the_same_key_many_times_at_once_writes_one_row(api: Api) -> None:
    await api.auth("w1")
    answers = await asyncio.gather(*(api.note("FACT", f"n{index}", key=f"k{index % 3}") for index in range(30)))
    assert sorted({answer["label"] for answer in answers}) == ["G1", "G2", "G3"]
    assert sum(not answer["repeated"] for answer in answers) == 3
    assert (await api.get("/board/main")).json()["head"] == 3


async def test_a_bad_key_and_bad_names(api: Api) -> None:
    body = {"type": "FACT", "content": "x"}
    answer = await api.post("/board/main/note", json=body, headers={"Idempotency-Key": "a b"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "key")
    for board in ("%20", "a" * 65, "-x", "é"):
        answer = await api.post(f"/board/{board}/note", "admin", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "board_name")


async def test_unfolding_what_is_not_there(api: Api) -> None:
    assert (await api.get("/board/main/note/G7")).status_code == 404
    answer = await api.get("/board/main/note/7")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "label")


async def test_boards_count_for_themselves(api: Api) -> None:
    for board in ("b1", "b2", "B1"):
        answer = await api.post(f"/board/{board}/note", "admin", json={"type": "FACT", "content": board})
        assert answer.json()["label"] == "G1"
    assert [entry["content"] for entry in (await api.get("/board/B1", "admin")).json()["entries"]] == ["B1"]
