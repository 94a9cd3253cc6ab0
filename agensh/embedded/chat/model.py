"""The things the chat stores. Times are milliseconds since the epoch, 0 for never."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OPEN, PRIVATE, DIRECT, GROUP = "O", "P", "D", "G"
"""Channel types."""
ADMIN_ROLES = "system_user system_admin"


@dataclass(slots=True)
class User:
    """An account; `owner_id` is set for bots only."""

    id: str
    create_at: int
    update_at: int
    username: str
    email: str
    roles: str
    delete_at: int = 0
    password_hash: str = ""
    nickname: str = ""
    first_name: str = ""
    last_name: str = ""
    position: str = ""
    locale: str = "en"
    props: dict[str, Any] = field(default_factory=dict)
    notify_props: dict[str, Any] = field(default_factory=dict)
    last_password_update: int = 0
    is_bot: bool = False
    owner_id: str = ""
    description: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether every permission is granted."""
        return "system_admin" in self.roles.split()


@dataclass(slots=True)
class Token:
    """A login session or a personal access token, stored under the hash of its secret."""

    hash: str
    id: str
    user_id: str
    create_at: int
    expires_at: int = 0
    personal: bool = False
    description: str = ""
    is_active: bool = True
    csrf: str = ""


@dataclass(slots=True)
class Team:
    """A team of users with channels of its own."""

    id: str
    create_at: int
    update_at: int
    name: str
    display_name: str
    type: str = OPEN
    delete_at: int = 0
    description: str = ""
    email: str = ""
    invite_id: str = ""
    allow_open_invite: bool = False


@dataclass(slots=True)
class TeamMember:
    """Membership of a user in a team."""

    team_id: str
    user_id: str
    create_at: int
    scheme_admin: bool = False
    delete_at: int = 0


@dataclass(slots=True)
class Channel:
    """A channel; `team_id` is empty for direct and group channels."""

    id: str
    create_at: int
    update_at: int
    team_id: str
    type: str
    name: str
    display_name: str
    creator_id: str
    delete_at: int = 0
    header: str = ""
    purpose: str = ""
    last_post_at: int = 0
    last_root_post_at: int = 0
    total_msg_count: int = 0
    total_msg_count_root: int = 0


@dataclass(slots=True)
class ChannelMember:
    """Membership of a user in a channel, with what the user has read."""

    channel_id: str
    user_id: str
    last_update_at: int
    scheme_admin: bool = False
    last_viewed_at: int = 0
    msg_count: int = 0
    msg_count_root: int = 0
    mention_count: int = 0
    mention_count_root: int = 0
    notify_props: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Post:
    """A message. An edited post leaves its former text as a deleted row whose `original_id` names it."""

    id: str
    create_at: int
    update_at: int
    user_id: str
    channel_id: str
    message: str
    root_id: str = ""
    original_id: str = ""
    type: str = ""
    edit_at: int = 0
    delete_at: int = 0
    is_pinned: bool = False
    has_reactions: bool = False
    props: dict[str, Any] = field(default_factory=dict)
    reply_count: int = 0
    """Live replies of the thread; counted on reading, not stored."""
    pending_post_id: str = ""
    """The sender's key; echoed, not stored."""


@dataclass(slots=True)
class Reaction:
    """An emoji a user put on a post."""

    user_id: str
    post_id: str
    emoji_name: str
    create_at: int


@dataclass(slots=True)
class Preference:
    """One stored preference of a user."""

    user_id: str
    category: str
    name: str
    value: str
