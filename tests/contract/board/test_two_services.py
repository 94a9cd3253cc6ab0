"""Two services on one database: one sequence, one order, and each hears of the other."""

from __future__ import annotations

import asyncio

from agensh.clients.board import BoardClient
from tests.contract.board.conftest import Api, Serve, eventually


async def test_many_writers_share_one_gapless_sequence_in_commit_order(serve: Serve) -> None:
    writers, each = 16, 12
    total = writers * each
    async with serve(follow_seconds=0.05, batch_notes=4) as one, serve(follow_seconds=0.05, batch_notes=4) as two:
        async with asyncio.timeout(110):
            names = [f"w{index}" for index in range(writers)]
            tokens = [(await one.auth(name))["Authorization"][7:] for name in names]
            reading = [asyncio.create_task(follow(api, tokens[0], total)) for api in (one, two)]
            polling = asyncio.create_task(poll(two, tokens[0], total))

            async def write(index: int) -> list[int]:
                api = (one, two)[index % 2]
                async with BoardClient(api.url, tokens[index], "main") as client:
                    return [(await client.write("FACT", f"{index}-{part}")).seq for part in range(each)]

            seqs = await asyncio.gather(*(write(index) for index in range(writers)))
            assert sorted(seq for mine in seqs for seq in mine) == list(range(1, total + 1))
            assert all(mine == sorted(mine) for mine in seqs)
            for task in [*reading, polling]:
                assert await task == list(range(1, total + 1))  # a cursor never skipped one


async def follow(api: Api, token: str, total: int) -> list[int]:
    seen: list[int] = []
    async with BoardClient(api.url, token, "main") as client:
        async for entry in client.stream(0):
            seen.append(entry.seq)
            if len(seen) == total:
                break
    return seen


async def poll(api: Api, token: str, total: int) -> list[int]:
    seen: list[int] = []
    async with BoardClient(api.url, token, "main") as client:

        async def done() -> bool:
            seen.extend(entry.seq for entry in await client.read(after=seen[-1] if seen else 0))
            return len(seen) >= total

        await eventually(done, 100)
    return seen


async def test_claims_and_releases_of_the_other_count(serve: Serve) -> None:
    async with serve(follow_seconds=0.05) as one, serve(follow_seconds=3600) as two:
        await one.note("CLAIM", "implement wc")
        # `two` has not looked yet: its own write makes it catch up before it compares.
        body = {"type": "CLAIM", "content": "wc"}
        token = (await one.auth("w2"))["Authorization"]
        answer = await two.http.post("/board/main/note", json=body, headers={"Authorization": token})
        assert [overlap["label"] for overlap in answer.json()["overlaps"]] == ["G1"]
        released = await two.http.post("/board/main/note/G2/release", headers={"Authorization": token})
        assert released.status_code == 200

        async def gone() -> bool:
            return await one.labels() == ["G1"]

        await eventually(gone)


async def test_the_same_key_on_both(serve: Serve) -> None:
    async with serve() as one, serve() as two:
        header = await one.auth("w1")
        body = {"type": "FACT", "content": "x"}
        headers = header | {"Idempotency-Key": "k"}
        answers = await asyncio.gather(
            *(api.http.post("/board/main/note", json=body, headers=headers) for api in (one, two) for _ in range(5))
        )
        assert {answer.json()["label"] for answer in answers} == {"G1"}
        assert sum(not answer.json()["repeated"] for answer in answers) == 1
