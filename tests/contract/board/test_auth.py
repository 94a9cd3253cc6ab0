"""Who may do what."""

from __future__ import annotations

import asyncio
import itertools

import httpx

from tests.contract.board.conftest import Api, Serve, eventually

CALLS = [
    ("POST", "/board/main/note"),
    ("GET", "/board/main"),
    ("GET", "/board/main/grep?q=x"),
    ("GET", "/board/main/note/G1"),
    ("POST", "/board/main/note/G1/release"),
    ("GET", "/board/main/stream"),
    ("GET", "/pending/w1"),
    ("POST", "/tokens"),
    ("GET", "/tokens/self"),
    ("DELETE", "/tokens/w1"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
]
HEADERS = (None, "Bearer", "Bearer wrong", "Basic dTpw", f"Bearer {'x' * 5000}", "wrong")


async def test_without_a_valid_token_everything_is_401(api: Api) -> None:
    for (method, path), header in itertools.product(CALLS, HEADERS):
        headers = {} if header is None else {"Authorization": header}
        sent = {"type": "FACT", "content": "x"}
        answer = await api.http.request(method, path, headers=headers, json=sent)
        assert (path, header, answer.status_code) == (path, header, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["errors"] == [{"code": "unauthorised", "message": answer.json()["reason"]}]


async def test_health_needs_none(api: Api) -> None:
    assert (await api.http.get("/healthz")).json() == {"status": "ok"}
    assert (await api.http.get("/readyz")).json() == {"status": "ready"}


async def test_the_author_is_the_tokens_owner(api: Api) -> None:
    body = {"type": "FACT", "content": "x"}
    assert (await api.post("/board/main/note", json=body | {"thread_id": "w1"})).status_code == 200
    for forged in ("w2", "", 7, ["w1"]):
        answer = await api.post("/board/main/note", json=body | {"thread_id": forged, "worker": "w2"})
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "thread_id")
    answer = await api.post("/board/main/note", "admin", json=body | {"thread_id": "w1"})
    assert answer.status_code == 403
    await api.post("/board/main/note", json=body | {"worker": "w2"})
    assert [entry["worker"] for entry in (await api.get("/board/main")).json()["entries"]] == ["w1", "w1"]


async def test_a_token_is_for_its_board(api: Api) -> None:
    for path in ("/board/other", "/board/other/grep?q=x", "/board/other/note/G1", "/board/other/stream"):
        answer = await api.http.get(path, headers=await api.auth("w1"))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "other_board")
    body = {"type": "FACT", "content": "x"}
    assert (await api.post("/board/other/note", json=body)).status_code == 403
    assert (await api.post("/board/other/note", "admin", json=body)).status_code == 200


async def test_readers_read_and_workers_do_not_administer(api: Api) -> None:
    await api.auth("r1", role="reader")
    answer = await api.post("/board/main/note", "r1", json={"type": "FACT", "content": "x"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "read_only")
    assert (await api.get("/board/main", "r1")).status_code == 200
    assert (await api.get("/metrics", "r1")).status_code == 200
    for who in ("w1", "r1"):
        assert (await api.post("/tokens", who, json={"worker": "x"})).status_code == 403
        revoked = await api.http.delete("/tokens/w1", headers=await api.auth(who))
        assert revoked.status_code == 403
    assert (await api.get("/metrics", "w1")).status_code == 403


async def test_a_revoked_token_is_worth_nothing(api: Api) -> None:
    header = await api.auth("w1")
    assert (await api.http.get("/board/main", headers=header)).status_code == 200
    revoked = await api.http.delete("/tokens/w1", headers=await api.auth("admin"))
    assert revoked.json() == {"worker": "w1", "revoked": 1}
    assert (await api.http.get("/board/main", headers=header)).status_code == 401
    again = await api.http.delete("/tokens/w1", headers=await api.auth("admin"))
    assert again.status_code == 404


async def test_a_revoked_token_ends_its_streams(serve: Serve) -> None:
    async with (
        serve(heartbeat_seconds=0.05) as api,
        asyncio.timeout(60),
        api.http.stream("GET", "/board/main/stream", headers=await api.auth("w1")) as answer,
    ):
        await api.http.delete("/tokens/w1", headers=await api.auth("admin"))
        async for _ in answer.aiter_lines():
            pass


async def test_another_process_revokes(serve: Serve) -> None:
    async with serve(follow_seconds=0.05) as one, serve() as two:
        header = await one.auth("w1")
        assert (await two.http.get("/board/main", headers=header)).status_code == 200
        assert (await one.http.get("/board/main", headers=header)).status_code == 200
        await two.http.delete("/tokens/w1", headers=await two.auth("admin"))

        async def refused() -> bool:
            return (await one.http.get("/board/main", headers=header)).status_code == 401

        await eventually(refused)


async def test_a_token_made_and_revoked_between_two_looks_is_forgotten(serve: Serve) -> None:
    async with serve(follow_seconds=600) as one, serve(follow_seconds=600) as two:
        await one.service.tokens.refresh()
        header = await two.auth("w1")
        assert (await one.http.get("/board/main", headers=header)).status_code == 200
        await two.http.delete("/tokens/w1", headers=await two.auth("admin"))
        await one.service.tokens.refresh()
        assert (await one.http.get("/board/main", headers=header)).status_code == 401


async def test_tokens_are_stored_as_hashes_only(api: Api) -> None:
    header = await api.auth("w1")
    token = header["Authorization"].removeprefix("Bearer ")
    async with api.service.store.engine.connect() as connection:
        rows = (await connection.exec_driver_sql("SELECT * FROM board_tokens")).all()
    assert len(rows) == 1
    assert token not in repr(rows)


async def test_an_admin_token_may_be_stored_too(api: Api) -> None:
    made = await api.post("/tokens", "admin", json={"worker": "boss", "role": "admin"})
    header = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await api.http.get("/board/anything", headers=header)).status_code == 200
    for body in (
        {"worker": "a b"},
        {"worker": "x", "role": "god"},
        {"worker": "x", "board": "/"},
        {},
        {"y": 1},
    ):
        assert (await api.post("/tokens", "admin", json=body)).status_code == 422


async def test_a_token_tells_whose_it_is(api: Api) -> None:
    assert (await api.get("/tokens/self", "w1")).json() == {"worker": "w1", "board": "main", "role": "worker"}
    assert (await api.get("/tokens/self", "admin")).json() == {"worker": "admin", "board": "", "role": "admin"}


async def test_the_description_names_every_path_its_token_and_its_errors(api: Api) -> None:
    described = (await api.get("/openapi.json")).json()
    assert set(described["paths"]) == {
        "/board/{board}", "/board/{board}/grep", "/board/{board}/note", "/board/{board}/note/{label}",
        "/board/{board}/note/{label}/release", "/board/{board}/stream", "/pending/{agent}", "/tokens",
        "/tokens/self", "/tokens/{worker}", "/board/{board}/workers", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    note = described["paths"]["/board/{board}/note"]["post"]
    assert note["security"]
    assert {"200", "401", "403", "413", "422", "503"} <= set(note["responses"])
    schema = note["responses"]["422"]["content"]["application/json"]["schema"]["$ref"]
    schemas = described["components"]["schemas"]
    assert set(schemas[schema.rsplit("/")[-1]]["properties"]) == {"status", "reason", "errors"}
    assert "HTTPValidationError" not in schemas


async def test_metrics_count(api: Api) -> None:
    await api.note("FAIL", "x", key="k")
    await api.note("FAIL", "x", key="k")
    await api.post("/board/main/note", json={"type": "FACT", "content": ""})
    await api.get("/pending/w2", "w2")
    text = (await api.get("/metrics", "admin")).text
    for line in (
        'agensh_board_entries_total{type="FAIL"} 1',
        "agensh_board_repeated_notes_total 1",
        'agensh_board_rejections_total{code="content_empty"} 1',
        'agensh_board_write_seconds_bucket{le="+Inf"} 2',
        "agensh_board_write_seconds_count 2",
        "agensh_board_stream_subscribers 0",
        "agensh_board_pending_calls_total 1",
    ):
        assert f"{line}\n" in text


async def test_unknown_paths_and_methods_have_the_same_shape(api: Api) -> None:
    for answer, status in (
        (await api.get("/nowhere"), 404),
        (await api.http.put("/board/main", headers=await api.auth("w1")), 405),
    ):
        assert isinstance(answer, httpx.Response)
        assert (answer.status_code, set(answer.json())) == (status, {"status", "reason", "errors"})
