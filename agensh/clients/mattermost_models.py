"""What the chat answers, reduced to the fields Agensh uses; everything else in an answer is ignored.

`create_at` and `last_post_at` are milliseconds since the epoch, as on the chat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

KEY_PROP = "agensh_key"
"""Property of a post that holds the key under which it was sent: `pending_post_id` is not stored by the chat."""


@dataclass(frozen=True, slots=True)
class ChatUser:
    id: str
    username: str
    is_bot: bool

    @classmethod
    def of(cls, value: Json) -> ChatUser:
        return cls(str(value["id"]), str(value.get("username") or ""), bool(value.get("is_bot")))


@dataclass(frozen=True, slots=True)
class Team:
    id: str
    name: str

    @classmethod
    def of(cls, value: Json) -> Team:
        return cls(str(value["id"]), str(value.get("name") or ""))


@dataclass(frozen=True, slots=True)
class Channel:
    id: str
    name: str
    type: str
    """`O` open, `P` private, `D` direct, `G` group."""
    display_name: str
    team_id: str
    """Empty for direct channels."""
    last_post_at: int
    total_msg_count: int = 0
    """Posts ever made in it, without the system's."""

    @classmethod
    def of(cls, value: Json) -> Channel:
        return cls(
            id=str(value["id"]),
            name=str(value.get("name") or ""),
            type=str(value.get("type") or ""),
            display_name=str(value.get("display_name") or ""),
            team_id=str(value.get("team_id") or ""),
            last_post_at=int(value.get("last_post_at") or 0),
            total_msg_count=int(value.get("total_msg_count") or 0),
        )


@dataclass(frozen=True, slots=True)
class Post:
    id: str
    channel_id: str
    user_id: str
    message: str
    root_id: str
    create_at: int
    type: str
    """Empty for what people write; `system_…` for what the chat writes about them."""
    pending_post_id: str
    key: str = ""
    """The key under which Agensh sent it, when it did."""

    @classmethod
    def of(cls, value: Json) -> Post:
        return cls(
            id=str(value["id"]),
            channel_id=str(value.get("channel_id") or ""),
            user_id=str(value.get("user_id") or ""),
            message=str(value.get("message") or ""),
            root_id=str(value.get("root_id") or ""),
            create_at=int(value.get("create_at") or 0),
            type=str(value.get("type") or ""),
            pending_post_id=str(value.get("pending_post_id") or ""),
            key=str((value.get("props") or {}).get(KEY_PROP) or ""),
        )


@dataclass(frozen=True, slots=True)
class UserToken:
    id: str
    description: str


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """`/limits/server`; zeros where the server does not say."""

    active_users: int
    max_users: int
    """Above this the server refuses ordinary accounts; bots are not counted."""
    post_history: int
    """Posts above this number are hidden (the unlicensed enterprise image); 0 for no limit."""

    @classmethod
    def of(cls, value: Json) -> ServerLimits:
        return cls(
            active_users=int(value.get("activeUserCount") or 0),
            max_users=int(value.get("maxUsersHardLimit") or value.get("maxUsersLimit") or 0),
            post_history=int(value.get("postHistoryLimit") or 0),
        )
