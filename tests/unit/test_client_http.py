"""When a request is sent again, and how long is waited before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from agensh.clients import http
from agensh.errors import ServiceError


class Waits:
    """Waits that take no time and are remembered."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


def client(answers: Iterator[httpx.Response | Exception]) -> httpx.AsyncClient:
    def handle(request: httpx.Request) -> httpx.Response:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://service")


async def ask(
    answers: list[httpx.Response | Exception], *, idempotent: bool, waits: Waits | None = None
) -> tuple[httpx.Response, int]:
    left = iter(answers)
    async with client(left) as connection:
        response = await http.send(
            connection,
            "GET" if idempotent else "POST",
            "/x",
            service="The service",
            idempotent=idempotent,
            sleep=(waits or Waits()).sleep,
        )
    return response, len(answers) - len(list(left))


OK = httpx.Response(200, text="ok")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_an_idempotent_request_is_repeated(status: int) -> None:
    response, sent = await ask([httpx.Response(status), httpx.Response(status), OK], idempotent=True)
    assert (response.status_code, sent) == (200, 3)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_another_one_is_not(status: int) -> None:
    with pytest.raises(ServiceError) as caught:
        await ask([httpx.Response(status, text="boom"), OK], idempotent=False)
    assert (caught.value.status, caught.value.reason, caught.value.retryable) == (status, "boom", False)
    assert http.unsure(caught.value)


@pytest.mark.parametrize(
    ("failure", "repeated"),
    [
        (httpx.ConnectError("refused"), True),
        (httpx.ReadError("cut"), False),
        (httpx.ReadTimeout("slow"), False),
        (httpx.RemoteProtocolError("gone"), False),
    ],
)
async def test_only_what_did_not_leave_is_sent_again(failure: Exception, repeated: bool) -> None:
    if repeated:
        assert (await ask([failure, OK], idempotent=False))[1] == 2
    else:
        with pytest.raises(ServiceError, match="The service did not answer"):
            await ask([failure, OK], idempotent=False)


async def test_a_client_error_is_final() -> None:
    with pytest.raises(ServiceError) as caught:
        await ask([httpx.Response(404, text="no such thing"), OK], idempotent=True)
    assert caught.value.status == 404
    assert not http.unsure(caught.value)


async def test_attempts_are_bounded() -> None:
    waits = Waits()
    with pytest.raises(ServiceError) as caught:
        await ask([httpx.Response(503)] * 20, idempotent=True, waits=waits)
    assert caught.value.retryable
    assert len(waits.seconds) == http.ATTEMPTS - 1


async def test_the_asked_wait_is_kept() -> None:
    waits = Waits()
    await ask([httpx.Response(429, headers={"Retry-After": "7"}), OK], idempotent=False, waits=waits)
    assert 7 <= waits.seconds[0] <= 7 + http.FIRST_WAIT


async def test_a_wait_that_is_too_long_is_the_callers_business() -> None:
    with pytest.raises(ServiceError) as caught:
        await ask([httpx.Response(429, headers={"Retry-After": "600"}), OK], idempotent=True)
    assert caught.value.retry_after == 600


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"X-RateLimit-Reset": "2"}, 2.0),
        (
            {"Retry-After": "Wed, 21 Oct 2026 07:28:10 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            10.0,
        ),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:10 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2126 07:28:10 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"Retry-After": "Wed, 21 Oct 2020 07:28:10 GMT"}, 0.0),  # without a Date it counts from now
        ({"Retry-After": "86401"}, None),
        ({"Retry-After": "soon"}, None),
        ({"X-RateLimit-Reset": "1790000000"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert http.retry_after(httpx.Headers(headers)) == seconds


def test_a_digit_that_is_no_number_is_no_wish() -> None:
    assert http.retry_after({"retry-after": "²"}) is None


async def test_an_answer_without_an_end_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_ANSWER", 0.05)

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.001)
                yield b"x"

    def handle(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Endless())

    waits = Waits()
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://service") as connection:
        with pytest.raises(ServiceError, match="The service did not answer: TimeoutError at GET /x"):
            await http.send(connection, "GET", "/x", service="The service", idempotent=True, sleep=waits.sleep)
    assert len(waits.seconds) == http.ATTEMPTS - 1


async def test_an_answer_that_cannot_be_unpacked_counts_as_none() -> None:
    broken = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"\x1f\x8b\x08xyz"))
    assert (await ask([broken, OK], idempotent=True))[1] == 2


def test_backoff_has_full_jitter_and_a_ceiling() -> None:
    for attempt in (0, 1, 5, 10, 10_000):
        ceiling = min(http.LONGEST_WAIT, http.FIRST_WAIT * 2 ** min(attempt, 32))
        waits = [http.backoff(attempt) for _ in range(200)]
        assert all(0 <= wait <= ceiling for wait in waits)
        assert min(waits) < ceiling / 4, "full jitter: short waits are as likely as long ones"
        assert max(waits) > ceiling / 2


async def test_cookies_are_refused() -> None:
    seen: list[str | None] = []

    def set_cookie(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie"))
        return httpx.Response(200, headers={"set-cookie": "MMAUTHTOKEN=x"})

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(set_cookie), base_url="http://service", cookies=http.no_cookies()
    ) as connection:
        await connection.get("/")
        await connection.get("/")
        assert seen == [None, None]
        assert len(connection.cookies.jar) == 0


async def test_a_page_of_a_proxy_is_no_answer() -> None:
    with pytest.raises(ServiceError, match="The service answered 200: the answer is not JSON"):
        http.read_json(httpx.Response(200, text="<html>"), "The service")
