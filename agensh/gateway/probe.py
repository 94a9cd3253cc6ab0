"""Does the provider take the credential? Asked before a team starts, with a question that costs nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from agensh.gateway.upstream import Upstream

ANSWER_SECONDS = 10.0
SAID = 2000  # bytes of the answer that are told


async def ask_provider(upstream: Upstream) -> dict[str, Any]:
    """Ask for the list of models; return `status`, 0 when the provider was not reached, and `said`: what it answered.

    Only 401 says that the credential is wrong: some providers have no list, or keep it from keys that may do the work.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS), upstream.request("GET", "/models", b"", (), b"", "") as answer:
            said = upstream.without_credential(await answer.content.read(SAID)) if answer.status >= 400 else b""
            return {"status": answer.status, "said": said.decode("utf-8", "replace")}
    except TimeoutError:
        return {"status": 0, "said": f"no answer within {ANSWER_SECONDS:g} s"}
    except aiohttp.ClientError as error:
        return {"status": 0, "said": str(error) or type(error).__name__}
