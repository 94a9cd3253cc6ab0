"""What provisioning says of the limits of a chat, before it makes anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from agensh.clients.mattermost import MattermostClient
from agensh.errors import AgenshError
from agensh.provision.chat import _check_limits

WORKERS = [f"demo-worker{number}" for number in range(1, 1025)]


async def look(limits: dict[str, int], config: dict[str, Any]) -> list[str]:
    """Return what is said of a chat with these limits to a team of 1,024."""
    asked = {"/api/v4/limits/server": limits, "/api/v4/config": config}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=asked[request.url.path])

    said: list[str] = []
    job = SimpleNamespace(workers=WORKERS, progress=said.append)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        await _check_limits(cast("Any", job), MattermostClient("http://chat.invalid", token="t", http=http))
    return said


BOTS = {"EnableBotAccountCreation": True}


async def test_a_chat_that_hides_old_posts_is_told_of_and_used() -> None:
    """Posts that matter are in the run's own database; the chat is where people look them up."""
    room = {"ServiceSettings": BOTS, "TeamSettings": {"MaxUsersPerTeam": 1025}}
    (said,) = await look({"postHistoryLimit": 10_000}, room)
    assert "hides posts beyond the newest 10000; use the team edition" in said
    assert await look({"postHistoryLimit": 0}, room) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"ServiceSettings": BOTS, "TeamSettings": {"MaxUsersPerTeam": 50}}, "may have 50 members.* needs 1025; set"),
        (
            {"ServiceSettings": {"EnableBotAccountCreation": False}, "TeamSettings": {"MaxUsersPerTeam": 2000}},
            "bot accounts are switched off; set ServiceSettings.EnableBotAccountCreation",
        ),
    ],
)
async def test_a_chat_without_room_for_the_team_is_refused(config: dict[str, Any], words: str) -> None:
    # 250 people are all that an unlicensed server takes; bots are not counted among them.
    with pytest.raises(AgenshError, match=words):
        await look({"maxUsersLimit": 200, "maxUsersHardLimit": 250}, config)
