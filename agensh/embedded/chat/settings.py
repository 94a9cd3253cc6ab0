"""Settings of the embedded chat, named after Mattermost's configuration keys."""

from __future__ import annotations

from dataclasses import dataclass

SERVER_VERSION = "11.7.0"
POST_MAX_RUNES = 16_383
"""Longest message, in Unicode code points (schema of version 11)."""
BODY_LIMIT = 300_000
"""Largest JSON body in bytes (`MaximumPayloadSizeBytes`)."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What can be configured; the defaults are the environment that Agensh gives a real server.

    `ChatSettings.stock()` has Mattermost's own defaults, under which provisioning meets every refusal.
    """

    max_users_per_team: int = 2000
    """Members of a team, bots included (`TeamSettings.MaxUsersPerTeam`)."""
    max_channels_per_team: int = 2000
    max_notifications_per_channel: int = 1000
    """From this many members on, @all, @channel and @here notify nobody."""
    enable_bot_account_creation: bool = True
    enable_user_access_tokens: bool = False
    """Personal access tokens of ordinary users; bots are exempt."""
    enable_open_server: bool = False
    """Accounts without an invitation, by anybody."""
    default_channel_join_messages: bool = True
    """Whether joining town-square and off-topic makes a post (other channels always do)."""
    users_soft_limit: int = 200
    """Active ordinary users from which an unlicensed server warns; bots do not count."""
    users_hard_limit: int = 250
    """Active ordinary users from which an unlicensed server refuses more; bots do not count."""
    session_days: int = 30
    rate_limit: bool = False
    rate_limit_per_second: int = 10
    rate_limit_burst: int = 100
    site_name: str = "Agensh chat"
    site_url: str = ""

    @classmethod
    def stock(cls) -> ChatSettings:
        """Return Mattermost's own defaults."""
        return cls(max_users_per_team=50, enable_bot_account_creation=False)
