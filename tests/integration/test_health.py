"""Asking the node hosts how they are, also while they cannot say."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agensh.cli import showing
from agensh.clock import SystemClock
from agensh.db import DatabaseUnavailable
from agensh.launch import local
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.launch.health import Health, NodeSilent, ask_nodes, read_health
from agensh.spec import load_spec
from router.status import status_routes
from tests.support.uvicorn_server import serving

WELL = {"t0": 0.0, "deadline": 1.0, "workers": []}


class Watcher:
    def __init__(self) -> None:
        self.seen = asyncio.Event()

    def say(self, message: str) -> None:
        raise AssertionError(message)

    def grading(self, done: int, total: int) -> None:
        raise AssertionError((done, total))

    def health(self, health: Health) -> None:
        assert health.workers == {}
        self.seen.set()


async def test_progress_goes_on_after_answers_that_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WATCH_EVERY", 0.01)
    answers: list[Response] = [
        PlainTextResponse("Internal Server Error", 500),
        JSONResponse({"error": "away"}, 503),
        PlainTextResponse("[", 200),
    ]

    async def status(_request: Request) -> Response:
        return answers.pop(0) if answers else JSONResponse(WELL)

    run = create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())
    async with serving(Starlette(routes=[Route("/status", status)])) as url:
        info = run.info()
        info = info.model_copy(update={"urls": info.urls.model_copy(update={"node": url}), "nodes": ()})
        with pytest.raises(NodeSilent, match="does not answer"):
            await ask_nodes(run, info)
        watcher = Watcher()
        watching = asyncio.create_task(local.LocalRun(run, watcher)._watch(info))
        async with asyncio.timeout(20):
            await asyncio.wait((watching, asyncio.create_task(watcher.seen.wait())), return_when="FIRST_COMPLETED")
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        assert watcher.seen.is_set()
        assert answers == []


async def test_a_node_host_whose_database_is_away_says_so(tmp_path: Path) -> None:
    async def read() -> dict[str, object]:
        raise DatabaseUnavailable("The runtime database cannot be read: locked")

    app = Starlette(routes=status_routes({}, "token", "run", read, list))
    async with serving(app) as url, httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{url}/status", headers={"Authorization": "Bearer token"})
    assert (answer.status_code, answer.json()) == (503, {"error": "The runtime database cannot be read: locked"})


def told(worker: str, unseen_at: float | None) -> dict[str, object]:
    about = {"worker": worker, "state": "busy", "turns": 1, "queued": 0, "reason": ""}
    return about | {"oldest_unseen_at": unseen_at}


def test_the_status_tells_how_long_a_worker_has_not_been_shown_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = WELL | {"workers": [told("demo-worker1", 35.5), told("demo-worker2", None), told("demo-worker3", 200.0)]}
    health = read_health([answer], 100.0)
    assert health.unseen == {"demo-worker1": 64.5, "demo-worker3": 0.0}  # a node's clock may be ahead of ours
    run = create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())
    monkeypatch.setattr(showing, "_local", lambda *_given: showing.Standing("running", "running", health, {}))
    showing.show_status(run, as_json=True)
    assert json.loads(capsys.readouterr().out)["oldest_unseen_s"] == health.unseen
    showing.show_status(run, as_json=False)
    rows = {words[1]: words[3:] for line in capsys.readouterr().out.splitlines() if len(words := line.split("│")) > 3}
    shown = {name.strip(): rest[0].strip() for name, rest in rows.items()}
    assert shown == {"demo-worker1": "1:04", "demo-worker2": "", "demo-worker3": "0:00"}
