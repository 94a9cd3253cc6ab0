"""A team that spends five cents: warned in time, stopped within a request a worker, and the report says so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.base import Outcome, Text, TurnItem
from adapters.provider_errors import read_error
from agensh.clients.gateway import GatewayClient
from agensh.clock import SystemClock
from agensh.rundir import RunDir
from agensh.runs.record import load_record
from agensh.runs.report import build_report
from router.budget import UsageSource
from router.dispatcher import State
from tests.integration.test_router_node import host_of, rows, running
from tests.support.gateway import ADMIN, serving_gateway
from tests.support.provider import provider, usual
from tests.support.router_stage import MemoryBoard, Stage, StageAdapter, StageBackends, new_run

BUDGET = 0.05
COST = (400 * 2.5 + 600 * 0.25 + 50 * 15) / 1e6  # dollars of one answer of the provider
WORKERS = 4


class BudgetBackends(StageBackends):
    """A stage that has a gateway."""

    def __init__(self, board: MemoryBoard, source: GatewayClient) -> None:
        super().__init__(board)
        self._source = source

    def usage(self) -> UsageSource:  # type: ignore[override]
        """Return the gateway's client."""
        return self._source


def with_gateway(run: RunDir, url: str, keys: dict[str, str], section: Any) -> None:
    """Write the gateway into the run's two files."""
    info, secrets = run.info(), run.secrets()
    spec = info.spec.model_copy(update={"gateway": section})
    run.write_info(info.model_copy(update={"spec": spec, "urls": info.urls.model_copy(update={"gateway": url})}))
    for name, key in keys.items():
        secrets.workers[name].gateway_key = key
    run.write_secrets(secrets)


async def test_five_cents_stop_a_team_and_the_report_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.budget.LOOK_EVERY", 0.02)
    run = new_run(tmp_path / "r1", workers=WORKERS, stagger="0s", budget="1h", wind_down="1m", last_call="1s")
    names = run.info().spec.worker_names
    answered: Counter[str] = Counter()

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        """Ask the model until it refuses, as a CLI does that has much to do."""
        launch = adapter.launch
        async with httpx.AsyncClient(base_url=launch.model_url, trust_env=False, timeout=30) as http:
            while True:
                headers = {"x-api-key": launch.model_key}
                answer = await http.post("/v1/messages", json={"model": "gpt-5.4", "stream": True}, headers=headers)
                if answer.status_code != 200:
                    yield read_error(answer.text, answer.status_code).turn_end()
                    return
                answered[launch.worker] += 1
                yield Text("worked")

    async with (
        provider(usual) as upstream,
        serving_gateway(run.path, upstream, budget_usd=BUDGET) as gateway,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http,
    ):
        for name in names:
            made = await http.post("/keys", json={"worker": name}, headers={"Authorization": f"Bearer {ADMIN}"})
            gateway.keys[name] = made.json()["key"]
        with_gateway(run, gateway.url, {name: gateway.keys[name] for name in names}, gateway.gateway.section)
        stage, source = Stage(turn), GatewayClient(gateway.url, ADMIN)
        host = host_of(run, stage, BudgetBackends(MemoryBoard(SystemClock()), source))
        async with running(host):
            await stage.until(
                lambda: bool(host.routers) and all(router.state is State.PARKED for router in host.routers.values())
            )
            warned = "select worker from events where kind = 'budget_95'"
            await stage.until(lambda: len(rows(run, warned)) == WORKERS)
            reasons = [host.routers[name].reason for name in names]
        await source.aclose()
        assert all("the team's budget of $0.05 is spent" in reason for reason in reasons), reasons
        assert BUDGET <= answered.total() * COST < BUDGET + WORKERS * COST
        assert len(upstream.requests) == answered.total()

    report = build_report(await load_record(run))
    assert report.cost is not None
    assert {stop.worker for stop in report.cost.stops} == set(names)
    assert {(stop.budget, stop.refusals) for stop in report.cost.stops} == {("team", 1)}
    assert report.cost_usd == pytest.approx(answered.total() * COST, abs=1e-4)
    assert set(report.parked) == set(names)
    value = json.loads(json.dumps(report.to_json()))["cost"]
    assert value["total"]["requests"] == answered.total()
    assert sum(used["requests"] for used in value["turns"]) == answered.total(), "each belongs to a turn"
    assert Outcome.QUOTA_SPENT in {turn["outcome"] for turn in (await load_record(run)).turns}
