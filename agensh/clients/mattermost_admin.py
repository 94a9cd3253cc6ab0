"""What provisioning asks of the chat: bots, tokens, a team, a channel, members. Needs an administrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agensh.clients.http import read_json
from agensh.clients.mattermost_core import SERVICE, MattermostCore
from agensh.clients.mattermost_models import Channel, ChatUser, ServerLimits, Team, UserToken

BATCH = 200  # members a request: the team route takes 256, the channel route 1,000


class AdminCalls(MattermostCore):
    """Calls of an administrator."""

    async def login(self, name: str, password: str) -> str:
        """Log in; use the session from now on, and return its token. ServiceError 401 for a wrong password."""
        self._token = ""
        self._me = None
        body = {"login_id": name, "password": password}
        response = await self.request("POST", "/users/login", json=body, idempotent=True)
        self._token = response.headers["token"]
        return self._token

    async def create_first_user(self, name: str, password: str, email: str) -> ChatUser:
        """Create an account without a login: the server takes only the very first one, and makes it administrator."""
        body = {"username": name, "password": password, "email": email}
        return ChatUser.of(read_json(await self.request("POST", "/users", json=body), SERVICE))

    async def limits(self) -> ServerLimits:
        """Return what the server's edition allows."""
        response = await self.request("GET", "/limits/server", expect=(200, 403, 404, 501))
        return ServerLimits.of(read_json(response, SERVICE) if response.status_code == 200 else {})

    async def config(self) -> dict[str, Any]:
        """Return the server's configuration; empty when this account may not see it."""
        response = await self.request("GET", "/config", expect=(200, 403, 404, 501))
        return dict(read_json(response, SERVICE)) if response.status_code == 200 else {}

    async def create_bot(self, username: str, *, description: str = "") -> ChatUser:
        """Create a bot account; ServiceError 400 when the name is taken, 403 or 501 when bots are switched off."""
        body = {"username": username, "display_name": username, "description": description}
        value = read_json(await self.request("POST", "/bots", json=body), SERVICE)
        return ChatUser(str(value["user_id"]), str(value.get("username") or username), True)

    async def create_user_token(self, user_id: str, description: str = "agensh") -> str:
        """Mint a token for an account and return its secret, which the chat shows once."""
        response = await self.request("POST", f"/users/{user_id}/tokens", json={"description": description})
        return str(read_json(response, SERVICE)["token"])

    async def user_tokens(self, user_id: str) -> list[UserToken]:
        """Return an account's tokens, without their secrets."""
        return [
            UserToken(str(item["id"]), str(item.get("description") or ""))
            for item in await self.get_pages(f"/users/{user_id}/tokens")
        ]

    async def revoke_token(self, token_id: str) -> None:
        """End a token; one that is gone already is no error."""
        body = {"token_id": token_id}
        await self.request("POST", "/users/tokens/revoke", json=body, idempotent=True, expect=(200, 404))

    async def create_team(self, name: str, display_name: str = "") -> Team:
        """Create a team; ServiceError 400 when the name is taken."""
        body = {"name": name, "display_name": display_name or name, "type": "I"}
        return Team.of(read_json(await self.request("POST", "/teams", json=body), SERVICE))

    async def team_member_ids(self, team_id: str) -> list[str]:
        """Return the ids of a team's members."""
        return [str(item["user_id"]) for item in await self.get_pages(f"/teams/{team_id}/members")]

    async def add_team_members(self, team_id: str, user_ids: Sequence[str]) -> None:
        """Add accounts to a team, in batches."""
        for start in range(0, len(user_ids), BATCH):
            part = [{"team_id": team_id, "user_id": user_id} for user_id in user_ids[start : start + BATCH]]
            await self.request("POST", f"/teams/{team_id}/members/batch", json=part, idempotent=True)

    async def create_channel(self, team_id: str, name: str, display_name: str = "", *, purpose: str = "") -> Channel:
        """Create an open channel in a team; ServiceError 400 when the name is taken."""
        body = {
            "team_id": team_id,
            "name": name,
            "display_name": display_name or name,
            "purpose": purpose,
            "type": "O",
        }
        return Channel.of(read_json(await self.request("POST", "/channels", json=body), SERVICE))

    async def add_channel_members(self, channel_id: str, user_ids: Sequence[str]) -> None:
        """Add accounts to a channel, in batches."""
        for start in range(0, len(user_ids), BATCH):
            body = {"user_ids": list(user_ids[start : start + BATCH])}
            await self.request("POST", f"/channels/{channel_id}/members", json=body, idempotent=True)
