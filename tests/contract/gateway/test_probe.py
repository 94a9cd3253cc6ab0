"""`GET /provider`: what the provider says to the credential, and nothing of the credential itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import ADMIN, CREDENTIAL, Served, serving_gateway
from tests.support.provider import Answer, Received, provider


async def ask(gateway: Served) -> dict[str, Any]:
    answer = await gateway.http.get("/provider", headers={"Authorization": f"Bearer {ADMIN}"})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_the_list_of_models_is_asked_for_with_the_credential(tmp_path: Path) -> None:
    async def models(request: Received, answer: Answer) -> None:
        known = request.headers["authorization"] == f"Bearer {CREDENTIAL}"
        await answer.json({"data": []}, 200 if known else 401)

    async with provider(models) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        assert await ask(gateway) == {"status": 200, "said": ""}
        assert [(each.method, each.path) for each in upstream.requests] == [("GET", "/v1/models")]
        assert (await gateway.rows()) == [], "it costs nothing and is nobody's"


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_refusal_is_told_without_the_credential(tmp_path: Path, status: int) -> None:
    async def refuse(request: Received, answer: Answer) -> None:
        await answer.json({"error": {"message": f"Incorrect API key: {CREDENTIAL}."}}, status)

    async with provider(refuse) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        found = await ask(gateway)
    assert found["status"] == status
    assert "Incorrect API key: ***." in found["said"]


async def test_a_provider_that_is_not_there_or_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_gateway(tmp_path / "gone", "http://127.0.0.1:1/v1") as gateway:
        found = await ask(gateway)
    assert found["status"] == 0
    assert "127.0.0.1" in found["said"]

    async def silent(request: Received, answer: Answer) -> None:
        await answer.gone()

    monkeypatch.setattr("agensh.gateway.probe.ANSWER_SECONDS", 0.2)
    async with provider(silent) as upstream, serving_gateway(tmp_path / "silent", upstream) as gateway:
        assert await ask(gateway) == {"status": 0, "said": "no answer within 0.2 s"}
