"""The collector reads each channel of the chat once, however many workers are in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agensh.clients.mattermost_models import Channel, Post
from agensh.clock import SystemClock
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.rundir import WorkerSecrets
from agensh.runs import collect
from agensh.spec import load_spec

WORKERS = [f"demo-worker{number}" for number in range(1, 5)]


async def test_each_channel_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())
    info, secrets = run.info(), run.secrets()
    for name in WORKERS:
        tokens = dict.fromkeys(("forge_password", "forge_token", "board_token", "mcp_token"), "x")
        secrets.workers[name] = WorkerSecrets(**tokens, chat_token=name, chat_user_id=f"id of {name}")
    channels = {
        "task": Channel("task", info.channel, "O", "", "team", 0),
        "other": Channel("other", "town-square", "O", "", "team", 0),
        "direct": Channel("direct", "a__b", "D", "", "", 0),
    }
    reads: list[str] = []

    class Chat:
        def __init__(self, _url: str, *, token: str) -> None:
            self.name = token

        async def __aenter__(self) -> Chat:
            return self

        async def __aexit__(self, *_error: object) -> None:
            pass

        async def my_channels(self) -> list[Channel]:
            direct = [channels["direct"]] if self.name in WORKERS[:2] else []
            return [channels["task"], channels["other"], *direct]

        async def posts(self, channel_id: str, *, limit: int) -> list[Post]:
            assert limit
            reads.append(channel_id)
            return [Post(f"{channel_id} 1", channel_id, f"id of {WORKERS[0]}", "said", "", 1, "", "")]

    monkeypatch.setattr(collect, "MattermostClient", Chat)
    assert await collect.Collector(run, info, secrets).posts() == 2
    assert sorted(reads) == ["direct", "task"]
    kept = json.loads((run.path / "record" / "posts.json").read_text())
    assert [(post["id"], post["direct"]) for post in kept] == [("task 1", False), ("direct 1", True)]
