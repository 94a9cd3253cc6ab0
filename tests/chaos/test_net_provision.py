"""Provisioning under faults of the network: it gets through or says why in one sentence, and may be run again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest

from agensh.clients import http as client_http
from agensh.clients.http import new_http_client
from agensh.errors import AgenshError, ServiceError
from agensh.provision import provision
from agensh.rundir import RunDir, RunInfo
from tests.integration.test_provision import check
from tests.support.chaos import either
from tests.support.services import Services, running_services
from tests.support.tcp_proxy import Mode, TcpProxy, tcp_proxy

TEAMS = count(1)
KINDS = ("forge", "chat", "board")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


@asynccontextmanager
async def behind_proxies(services: Services, folder: Path) -> AsyncIterator[tuple[RunDir, dict[str, TcpProxy]]]:
    """A run that is not provisioned, whose services are behind proxies."""
    run = services.new_run(folder / "run", f"net{next(TEAMS)}")
    info = run.info()
    ports = {kind: int(getattr(info.urls, kind).rsplit(":", 1)[1]) for kind in KINDS}
    async with (
        tcp_proxy(ports["forge"]) as forge,
        tcp_proxy(ports["chat"]) as chat,
        tcp_proxy(ports["board"]) as board,
    ):
        proxies = {"forge": forge, "chat": chat, "board": board}
        yield run, proxies


async def provision_through(run: RunDir, proxies: dict[str, TcpProxy], timeout: float = 30.0) -> None:
    """Provision as a command does, once."""
    info = run.info()
    urls = info.urls.model_copy(update={kind: proxy.url for kind, proxy in proxies.items()})
    async with new_http_client() as http:
        http.timeout = httpx.Timeout(timeout)
        behind: RunInfo = info.model_copy(update={"urls": urls})
        await provision(run, behind, run.secrets(), progress=lambda _line: None, http=http)


@pytest.mark.parametrize("every", either([5], [3, 5, 8, 13]))
async def test_answers_that_are_cut_leave_nothing_doubled_and_nothing_missing(
    services: Services, tmp_path: Path, every: int
) -> None:
    async with behind_proxies(services, tmp_path) as (run, proxies):
        for proxy in proxies.values():
            for number in range(200):
                proxy.cut_within(*[None] * (every - 1), (number * 37) % 300)
        refused: list[str] = []
        async with asyncio.timeout(100):
            while True:
                try:
                    await provision_through(run, proxies)
                    break
                except AgenshError as error:
                    refused.append(str(error))
        said = re.compile(r"(The forge|The chat|board) did not answer: .*|The starting repository could .*", re.DOTALL)
        assert all(said.fullmatch(text) for text in refused), refused
        await check(run)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_that_is_too_busy_is_waited_for(
    services: Services, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def hasty(seconds: float) -> None:
        if seconds >= 7:
            waits.append(seconds)
        await real(min(seconds, 0.01))

    defaults = {**(client_http.send.__kwdefaults__ or {}), "sleep": hasty}
    monkeypatch.setattr(client_http.send, "__kwdefaults__", defaults)
    monkeypatch.setattr("agensh.clock.SystemClock.sleep", lambda _self, seconds: hasty(seconds))
    busy = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy"
    async with behind_proxies(services, tmp_path) as (run, proxies):
        proxies[kind].answers.extend([busy] * 3)
        await provision_through(run, proxies)
        assert len(waits) == 3
        await check(run)


async def test_a_service_that_stands_still_is_named_in_time_and_the_next_try_goes_on(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_http, "ATTEMPTS", 2)
    async with behind_proxies(services, tmp_path) as (run, proxies):
        proxies["chat"].mode = Mode.STALL
        with pytest.raises(ServiceError, match=r"^The chat did not answer: ReadTimeout at (GET|POST) http://\S+$"):
            async with asyncio.timeout(60):
                await provision_through(run, proxies, timeout=0.5)
        proxies["chat"].mode = Mode.PASS
        await provision_through(run, proxies)
        await check(run)
