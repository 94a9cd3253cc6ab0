"""The model that plays the work cycle, through a CLI of a few lines that does what the model asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agensh.clock import SystemClock
from agensh.embedded.model.team import ASIDE, Team
from tests.support.router_stage import until
from tests.support.scripted_model import Model, scripted_model
from tests.support.scripted_team import TOKEN, WORKER, Endpoint, Task, make_task, serving
from tests.support.wire_cli import WireCli

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path, "cut")


@pytest.fixture
async def endpoint(task: Task) -> AsyncIterator[Endpoint]:
    async with serving(Endpoint(task.repository)) as running:
        yield running


@asynccontextmanager
async def cli_of(endpoint: Endpoint, model: Model, folder: Path) -> AsyncIterator[WireCli]:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        transport = streamable_http_client(endpoint.url, http_client=http)
        async with Client(transport, mode="auto") as tools:
            yield WireCli(model.url, work, tools)


def team_of(task: Task, folder: Path) -> Team:
    return Team(task.playbook, folder / "minds", SystemClock())


async def test_the_work_cycle_over_the_wire(task: Task, endpoint: Endpoint, tmp_path: Path) -> None:
    async with scripted_model(team_of(task, tmp_path)) as model, cli_of(endpoint, model, tmp_path) as cli:
        said = await cli.turn(task.prompt())
        assert "The core is on main." in said
        for number in range(1, 5):
            if task.has("src/tools/cut.py"):
                break
            said = await cli.turn(f"[event] event_id=e{number} source=control kind=idle summary: go on")
        assert task.has("src/tools/cut.py"), said
        assert task.has("tests/cut.jsonl"), said
        assert len(endpoint.contents("PATCH_SUMMARY")) >= 2
        assert any(text.startswith("cut: ") for text in endpoint.contents("FAIL"))
        # What it did is what a person would type.
        assert any("git push --quiet origin" in command for command in cli.commands)
        figures = [each.figures for each in model.turns]
        assert all(figure is not None and figure.output > 0 for figure in figures)


async def test_a_turn_that_the_model_forgot_is_begun_anew(task: Task, endpoint: Endpoint, tmp_path: Path) -> None:
    """The model is restarted in the middle: the CLI's next request finds a mind that knows its last finished step."""
    release = endpoint.hold("forge_pull_open")
    async with scripted_model(team_of(task, tmp_path)) as model, cli_of(endpoint, model, tmp_path) as cli:
        first = model.url
        running = asyncio.ensure_future(cli.turn(task.prompt()))
        await until(lambda: "forge_pull_open" in endpoint.calls or running.done())
        running.cancel()
        await asyncio.wait([running])
        history, cli.history = cli.history, []
    release.set()
    async with scripted_model(team_of(task, tmp_path)) as model, cli_of(endpoint, model, tmp_path) as cli:
        assert model.url != first
        # A call whose result never came, and the prompt of the resumed session.
        cli.history = [
            *history,
            {"type": "function_call_output", "call_id": history[-1]["call_id"], "output": "aborted"},
        ]
        said = await cli.turn(task.prompt("[event] event_id=e9 source=control kind=resumed summary: go on"))
        assert "The core is on main." in said
        assert endpoint.contents("CLAIM")[0].startswith("core: ")
        assert sum(text.startswith("core: ") for text in endpoint.contents("CLAIM")) == 1


async def test_notices_come_with_any_result(task: Task, endpoint: Endpoint, tmp_path: Path) -> None:
    said = ["PostToolUse hook: [agensh notices]\n[demo-worker2/DM +0.1m] cut: when is it there?"]
    async with scripted_model(team_of(task, tmp_path)) as model, cli_of(endpoint, model, tmp_path) as cli:
        cli.hook = lambda command: said.pop() if said and "git commit" in command else ""
        await cli.turn(task.prompt())
    assert not said
    assert ("demo-worker2", endpoint.messages[0][1]) == endpoint.messages[0]
    assert endpoint.messages[0][1].startswith("Thanks for asking")


async def test_questions_beside_the_work_and_a_request_that_comes_twice(
    task: Task, endpoint: Endpoint, tmp_path: Path
) -> None:
    async with scripted_model(team_of(task, tmp_path)) as model, httpx2.AsyncClient(timeout=60) as http:
        aside = {"model": "m", "input": "A title for this, please."}
        answer = (await http.post(f"{model.url}/v1/responses", json=aside)).json()
        assert answer["output"][0]["content"][0]["text"] == ASIDE
        tools = [{"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}}]
        nobody = {"model": "m", "input": "Who am I?", "tools": tools}
        assert (await http.post(f"{model.url}/v1/responses", json=nobody)).status_code == 400
        asked = {"model": "m", "input": task.prompt(), "tools": tools}
        first, second = [(await http.post(f"{model.url}/v1/responses", json=asked)).json() for _ in range(2)]
        assert first["output"][0]["call_id"] == second["output"][0]["call_id"]
        named = await http.post(f"{model.url}/v1/responses", json=nobody, headers={"x-agensh-worker": WORKER})
        # Named by the gateway it is known, but this prompt tells it nothing new.
        assert named.status_code == 200
