"""What can be set about the embedded forge; names and defaults follow Gitea's app.ini where it has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForgeSettings:
    """Settings of one forge. Times are seconds unless a name says otherwise."""

    event_source_update_time: float = 1.0
    """`[ui.notification] EVENT_SOURCE_UPDATE_TIME`: how often counts are pushed to `/user/events`. Gitea's default is
    10; a rehearsal on one machine wants to be quicker."""
    ping_interval: float = 30.0
    """How often an event stream says `ping`."""
    session_life_time: float = 7 * 86400.0
    """`[session] SESSION_LIFE_TIME`."""
    default_paging_num: int = 30
    """`[api] DEFAULT_PAGING_NUM`: rows of a page when `limit` is not given."""
    max_response_items: int = 50
    """`[api] MAX_RESPONSE_ITEMS`: the cap of `limit`."""
    delay_check_for_inactive_days: int = 7
    """`[repository.pull-request]`: -1 rechecks every open pull request when its base moves, 0 only when it is viewed,
    n those that were active within n days."""
    check_workers: int = 2
    """`[queue.pr_patch_checker] MAX_WORKERS`: conflict checks at once."""
    git_processes: int = 16
    """git processes at once that serve clones and pushes; others wait."""
    git_timeout: float = 300.0
    """The longest a git command of the forge's own may take."""
    transfer_idle: float = 300.0
    """How long the client of a clone or a push may send and take nothing before it is given up: one that is gone
    without a word would keep its git process for ever."""
    password_rounds: int = 50_000
    """Rounds of PBKDF2-SHA256 for passwords (Gitea's `pbkdf2$50000$50`)."""
    auto_watch_new_repos: bool = False
    """`[service] AUTO_WATCH_NEW_REPOS`: off here (Gitea: on), as a fleet must set it."""
    maintenance_interval: float = 1800.0
    """How often loose objects and refs are packed."""
    max_body: int = 32 * 1024 * 1024
    """Bytes of a JSON request."""
