"""Budgets, keys, the stampede after a pause, and what is left of a gateway that was killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agensh.clients.gateway import GatewayClient
from agensh.errors import ServiceError
from agensh.gateway.ledger import read_requests
from tests.support.gateway import ADMIN, CREDENTIAL, ONE, TWO, serving_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.provider import EVENTS, USAGE, Answer, Received, messages_events, provider, usual

WIRES = list(EVENTS)
COST = (400 * 2.5 + 600 * 0.25 + 50 * 15) / 1e6  # dollars of one answer of gpt-5.4
WAIT = 30.0  # seconds for what has to happen


@pytest.mark.parametrize("path", WIRES)
async def test_a_spent_budget_refuses_everybody_and_the_next_gateway_remembers(tmp_path: Path, path: str) -> None:
    body = {"model": "gpt-5.4", "stream": True}
    async with provider(usual) as upstream:
        async with serving_gateway(tmp_path, upstream, budget_usd=2.5 * COST) as gateway:
            for worker in (ONE, TWO, ONE):
                assert (await gateway.ask(path, body, worker)).status_code == 200
            for worker in (ONE, TWO):
                refused = await gateway.ask(path, body, worker)
                assert refused.status_code == 402
                assert refused.headers["x-should-retry"] == "false"
                error = refused.json()["error"]
                assert error["code"] == "agensh_budget_spent"
                assert error["message"].startswith("agensh_budget_spent: the team's budget of $")
            assert len(upstream.requests) == 3
            usage = await gateway.usage()
            assert usage["team"]["share"] == 1.2
            assert [row["stopped"] for row in usage["workers"].values()] == [True, True]
        async with serving_gateway(tmp_path, upstream, budget_usd=2.5 * COST) as gateway:
            assert (await gateway.ask(path, body)).status_code == 402
            assert (await gateway.usage())["workers"][ONE]["spent_usd"] == pytest.approx(2 * COST)
        assert len(upstream.requests) == 3


async def test_a_worker_has_a_budget_of_its_own(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream, worker_budget_usd=COST) as gateway:
        body = {"model": "gpt-5.4"}
        assert [(await gateway.ask("/v1/responses", body)).status_code for _ in range(3)] == [200, 402, 402]
        assert (await gateway.ask("/v1/responses", body, TWO)).status_code == 200
        assert [row["reason"] for row in await gateway.rows() if row["state"] == "refused"] == [
            "agensh_budget_spent worker"
        ] * 2


async def test_five_cents_stop_a_team_within_one_request_a_worker(tmp_path: Path) -> None:
    """Workers that each wait for their answer: what goes beyond the budget is at most one request of each."""
    workers = [f"demo-worker{number}" for number in range(1, 25)]
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream, budget_usd=0.05) as gateway:
        for worker in workers:
            made = await gateway.http.post(
                "/keys", json={"worker": worker}, headers={"Authorization": f"Bearer {ADMIN}"}
            )
            gateway.keys[worker] = made.json()["key"]
        answered: Counter[str] = Counter()

        async def work(worker: str) -> None:
            while (await gateway.ask("/v1/responses", {"model": "gpt-5.4", "stream": True}, worker)).status_code == 200:
                answered[worker] += 1

        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(work(worker))
        rows = await gateway.rows()
        refused = Counter(row["worker"] for row in rows if row["state"] == "refused")
        assert refused == Counter(workers), "each is refused once, and stops"
        assert 0.05 <= answered.total() * COST < 0.05 + len(workers) * COST
        assert len(upstream.requests) == answered.total()


async def test_a_budget_that_is_spent_while_one_waits_refuses_it(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def held(received: Received, answer: Answer) -> None:
        await go.wait()
        await usual(received, answer)

    values = {"concurrency": 1, "budget_usd": COST / 2}
    async with provider(held) as upstream, serving_gateway(tmp_path, upstream, **values) as gateway:
        asking = [asyncio.create_task(gateway.ask("/v1/responses", {"model": "gpt-5.4"}, who)) for who in (ONE, TWO)]
        async with asyncio.timeout(WAIT):
            while gateway.gateway.waiting < 1:  # noqa: ASYNC110 - the gate tells nobody
                await asyncio.sleep(0.01)
        go.set()
        statuses = sorted([(await task).status_code for task in asking])
        assert statuses == [200, 402]


async def test_keys_are_hashed_replaced_and_revoked(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        admin = GatewayClient(gateway.url, ADMIN)
        first = gateway.keys[ONE]
        assert await admin.key_works(first)
        second = await admin.new_key(ONE)
        assert not await admin.key_works(first)
        assert await admin.key_works(second)
        await admin.revoke(ONE)
        assert not await admin.key_works(second)
        with pytest.raises(ServiceError, match="has no key"):
            await admin.revoke(ONE)
        with pytest.raises(ServiceError, match="full name"):
            await admin.new_key("somebody")
        refused = await gateway.http.post("/v1/responses", json={"model": "m"}, headers={"x-api-key": second})
        assert refused.status_code == 401
        assert await admin.key_works(gateway.keys[TWO])
        await admin.aclose()
        stored = b"".join([file.read_bytes() for file in await asyncio.to_thread(lambda: list(tmp_path.iterdir()))])
        for secret in (first, second, gateway.keys[TWO], CREDENTIAL, ADMIN):
            assert secret.encode() not in stored
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        refused = await gateway.http.post("/v1/responses", json={"model": "m"}, headers={"x-api-key": second})
        assert refused.status_code == 401, "revoked for the next gateway as well"


async def test_hundreds_of_workers_do_not_stampede(tmp_path: Path) -> None:
    """The provider asks for a pause; nothing comes before it is over, and never more than the places at once."""
    loop = asyncio.get_running_loop()
    until = 0.0
    early = 0

    async def limited(received: Received, answer: Answer) -> None:
        nonlocal until, early
        if not until:
            until = loop.time() + 1.0
            await answer.json({"error": {"message": "slow down"}}, 429, {"retry-after": "1"})
            return
        early += loop.time() < until - 0.05
        await usual(received, answer)

    values = {"concurrency": 16}
    async with provider(limited) as upstream, serving_gateway(tmp_path, upstream, **values) as gateway:
        first = await gateway.ask("/v1/responses", {"model": "m"})
        assert (first.status_code, first.headers["retry-after"]) == (429, "1")
        limits = httpx.Limits(max_connections=300)
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=60, limits=limits) as http:
            asking = [
                http.post("/v1/responses", json={"model": "m", "stream": True}, headers=gateway.auth())
                for _ in range(300)
            ]
            answers = await asyncio.gather(*asking)
        assert {answer.status_code for answer in answers} == {200}
        assert early == 0
        assert upstream.most_under_way <= 16


@pytest.fixture
def processes() -> Iterator[list[GatewayProcess]]:
    started: list[GatewayProcess] = []
    yield started
    for process in started:
        process.kill()


async def test_a_killed_gateway_has_lost_nothing_that_a_worker_saw(
    tmp_path: Path, processes: list[GatewayProcess]
) -> None:
    """SIGKILL when the last event is seen, and in the middle of a stream; then the same port again."""

    async def answering(received: Received, answer: Answer) -> None:
        if received.json["model"] == "half":
            await answer.stream()
            for event in messages_events()[:4]:
                await answer.write(event)
            await answer.gone()
            return
        await usual(received, answer)

    async with provider(answering) as upstream:
        process = GatewayProcess(tmp_path, upstream.url)
        processes.append(process)
        await asyncio.to_thread(process.start)
        admin = GatewayClient(process.url, ADMIN)
        key = await admin.new_key(ONE)
        whole = 0
        for _ in range(3):
            async with httpx.AsyncClient(base_url=process.url, trust_env=False, timeout=30) as http:
                headers = {"x-api-key": key}
                half = http.build_request(
                    "POST", "/v1/messages", json={"model": "half", "stream": True}, headers=headers
                )
                cut = await http.send(half, stream=True)
                reading: Any = cut.aiter_raw()
                got = b""
                while b"content_block_delta" not in got:
                    got += await anext(reading)
                body = {"model": "gpt-5.4", "stream": True}
                async with http.stream("POST", "/v1/responses", json=body, headers=headers) as answered:
                    seen = b""
                    async for piece in answered.aiter_raw():
                        seen += piece
                        if b'"response.completed"' in seen:
                            process.kill()
                            whole += 1
                            break
                await reading.aclose()
                await cut.aclose()
            await asyncio.to_thread(process.start)
            assert await admin.key_works(key), "keys outlive it"
            row = (await admin.usage())["workers"][ONE]
            # Of the one that was cut: what its beginning had told, the prompt and the first token.
            assert row["output_tokens"] == whole * (USAGE["output"] + 1)
            assert row["input_tokens"] == whole * 2 * USAGE["input"]
            told = (400 * 3.0 + 600 * 0.3 + 1 * 15) / 1e6  # at the price of the model that answered
            assert row["spent_usd"] == pytest.approx(whole * (COST + told))
        rows = [row async for row in read_requests(process.database)]
        assert Counter(row["state"] for row in rows) == {"metered": 3, "unmetered": 3}
        assert {row["reason"] for row in rows if row["state"] == "unmetered"} == {"the gateway was killed"}
        await admin.aclose()
        assert await asyncio.to_thread(process.stop) == 0
        log = process.log.read_bytes()
        for secret in (key, CREDENTIAL, ADMIN):
            assert secret.encode() not in log


async def test_the_command_line_makes_and_revokes_keys(tmp_path: Path, processes: list[GatewayProcess]) -> None:
    def agensh(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agensh", "gateway", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    async with provider(usual) as upstream:
        process = GatewayProcess(tmp_path, upstream.url)
        processes.append(process)
        made = await asyncio.to_thread(agensh, "key", ONE)
        assert made.returncode == 0, made.stderr
        await asyncio.to_thread(process.start)
        admin = GatewayClient(process.url, ADMIN)
        assert await admin.key_works(made.stdout.strip())
        assert process.stop() == 0
        await admin.aclose()
        assert (await asyncio.to_thread(agensh, "revoke", ONE)).returncode == 0
        again = await asyncio.to_thread(agensh, "revoke", ONE)
        assert (again.returncode, again.stderr) == (2, f"agensh: worker: '{ONE}' has no key.\n")
        nobody = await asyncio.to_thread(agensh, "key", "nobody")
        assert nobody.returncode == 2
        assert "Traceback" not in nobody.stderr
