"""Requests to the chat: authentication, errors, pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Self

import httpx

from agensh.clients.http import new_http_client, read_json, send
from agensh.clients.mattermost_models import Channel, ChatUser, Team
from agensh.clock import Clock, SystemClock

SERVICE = "The chat"
PAGE = 200  # the most the chat gives
MOST_PAGES = 500
IDS_PER_REQUEST = 200


def describe(response: httpx.Response) -> str:
    """Return the chat's own words for an error, with its id (a 429 is plain text)."""
    try:
        value = response.json()
    except ValueError:
        return response.text[:500].strip() or response.reason_phrase
    if not isinstance(value, dict):
        return str(value)[:500]
    message, error_id = str(value.get("message") or "").strip(), str(value.get("id") or "")
    return f"{message} ({error_id})" if message and error_id else message or error_id or str(value)[:500]


class MattermostCore:
    """One account's authenticated access to `/api/v4`."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        http: httpx.AsyncClient | None = None,
        clock: Clock | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        """`http` may be shared between accounts, if it refuses cookies as `new_http_client` makes it.

        `known` (bot account's name → id) saves asking for accounts that the run made itself.
        """
        self.url = url.rstrip("/")
        self.clock = clock or SystemClock()
        self._http = http or new_http_client()
        self._owns_http = http is None
        self._token = token
        self._me: ChatUser | None = None
        self._known = known or {}
        self._dated = ("", 0.0)
        """The `Date` of the last answer, and when it came."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, if they are this client's own."""
        if self._owns_http:
            await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        idempotent: bool | None = None,
        expect: Collection[int] = (200, 201),
        **arguments: Any,
    ) -> httpx.Response:
        """Send one request below `/api/v4`; ServiceError for every status that is not expected."""
        response = await send(
            self._http,
            method,
            f"{self.url}/api/v4{path}",
            service=SERVICE,
            idempotent=method in {"GET", "PUT", "DELETE"} if idempotent is None else idempotent,
            expect=expect,
            describe=describe,
            sleep=self.clock.sleep,
            headers={"Authorization": f"Bearer {self._token}"} if self._token else {},
            **arguments,
        )
        self._dated = (response.headers.get("date", ""), self.clock.monotonic())
        return response

    def server_time(self) -> float:
        """Return the chat's own time (epoch seconds) by the date of its last answer; 0 when that had none."""
        date, at = self._dated
        try:
            return parsedate_to_datetime(date).timestamp() + self.clock.monotonic() - at
        except (ValueError, TypeError):
            return 0.0

    async def get(self, path: str, **arguments: Any) -> Any:
        """Return the JSON of a GET."""
        return read_json(await self.request("GET", path, **arguments), SERVICE)

    async def get_pages(self, path: str) -> list[Any]:
        """Return all items of a paged listing."""
        items: list[Any] = []
        for page in range(MOST_PAGES):
            got = await self.get(path, params={"page": page, "per_page": PAGE}) or []
            items += got
            if len(got) < PAGE:
                break
        return items

    async def me(self) -> ChatUser:
        """Return the account whose token this is."""
        if self._me is None:
            self._me = ChatUser.of(await self.get("/users/me"))
        return self._me

    async def find_user(self, name: str) -> ChatUser | None:
        """Return an account by its name, or None."""
        response = await self.request("GET", f"/users/username/{name}", expect=(200, 404))
        return ChatUser.of(read_json(response, SERVICE)) if response.status_code == 200 else None

    async def user_by_name(self, name: str) -> ChatUser:
        """Return an account by its name; ServiceError 404 when there is none."""
        if name in self._known:
            return ChatUser(self._known[name], name, is_bot=True)
        return ChatUser.of(await self.get(f"/users/username/{name}"))

    async def users_by_ids(self, ids: Collection[str]) -> list[ChatUser]:
        """Return the accounts of these ids; unknown ids are left out."""
        return await self._users("/users/ids", ids)

    async def users_by_names(self, names: Collection[str]) -> list[ChatUser]:
        """Return the accounts of these names; unknown names are left out."""
        return await self._users("/users/usernames", names)

    async def _users(self, path: str, keys: Collection[str]) -> list[ChatUser]:
        wanted, found = list(keys), []
        for start in range(0, len(wanted), IDS_PER_REQUEST):
            part = wanted[start : start + IDS_PER_REQUEST]
            response = await self.request("POST", path, json=part, idempotent=True)
            found += [ChatUser.of(item) for item in read_json(response, SERVICE)]
        return found

    async def find_team(self, name: str) -> Team | None:
        """Return a team by its name, or None."""
        response = await self.request("GET", f"/teams/name/{name}", expect=(200, 404))
        return Team.of(read_json(response, SERVICE)) if response.status_code == 200 else None

    async def team_by_name(self, name: str) -> Team:
        """Return a team by its name; ServiceError 404 when there is none."""
        return Team.of(await self.get(f"/teams/name/{name}"))

    async def channel(self, channel_id: str) -> Channel:
        """Return a channel by its id."""
        return Channel.of(await self.get(f"/channels/{channel_id}"))

    async def find_channel(self, team_id: str, name: str) -> Channel | None:
        """Return a team's channel by its name, or None."""
        response = await self.request("GET", f"/teams/{team_id}/channels/name/{name}", expect=(200, 404))
        return Channel.of(read_json(response, SERVICE)) if response.status_code == 200 else None

    async def channel_by_name(self, team_id: str, name: str) -> Channel:
        """Return a team's channel by its name; ServiceError 404 when there is none."""
        return Channel.of(await self.get(f"/teams/{team_id}/channels/name/{name}"))

    async def my_channels(self) -> list[Channel]:
        """Return all channels the account is in, direct ones included; the chat answers 404 for none."""
        response = await self.request("GET", "/users/me/channels", expect=(200, 404))
        return [Channel.of(item) for item in read_json(response, SERVICE)] if response.status_code == 200 else []

    async def member_ids(self, channel_id: str) -> list[str]:
        """Return the ids of a channel's members."""
        return [str(item["user_id"]) for item in await self.get_pages(f"/channels/{channel_id}/members")]

    async def members(self, channel_id: str) -> list[ChatUser]:
        """Return the accounts in a channel."""
        return await self.users_by_ids(await self.member_ids(channel_id))
