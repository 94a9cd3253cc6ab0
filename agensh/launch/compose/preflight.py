"""What a box must have before a team is brought up on it, looked at before anything is made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from agensh.errors import AgenshError, UsageError
from agensh.launch.compose.engine import check_ports, compose_command

PORTS = {"AGENSH_PORT_GITEA": 3000, "AGENSH_PORT_MATTERMOST": 8065, "AGENSH_PORT_BOARD": 8660}
"""What a person reaches on 127.0.0.1, by the variable that moves it."""
MOST_WORKERS = 249
"""Addresses of a project's team network, a /24, but for its gateway and the four services on it."""
MIN_FREE = 5 << 30  # bytes of free disk

_FORGE = re.compile(
    "admin|api|assets|attachments|avatars?|captcha|commits|debug|error|explore|ghost|issues|login|metrics|milestones|"
    "new|notifications|org|pulls|raw|repo|repo-avatars|search|user|v2|gitea-actions"
)
"""Names that Gitea keeps for its own pages (models/user), as far as a team may be called so."""
_CHAT = re.compile("admin|api|boards|channel|claim|error|files|help|landing|login|mfa|oauth|playbooks|plug|post|signup")
"""What Mattermost lets no team's name begin with (model/utils.go)."""


def loopback_ports(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the loopback ports by their variables; UsageError for what is no port, or one that is used twice."""
    ports: dict[str, int] = {}
    for variable, default in PORTS.items():
        text = environment.get(variable) or str(default)
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16):
            raise UsageError(f"{variable}: {text!r} is not a port; expected 1 to 65535.")
        port = int(text)
        if port in ports.values():
            raise UsageError(f"{variable}: {port} is already the port of another service; choose another.")
        ports[variable] = port
    return ports


def check_size(workers: int) -> None:
    """UsageError for more workers than a project has addresses for."""
    if workers > MOST_WORKERS:
        raise UsageError(f"team.workers: {workers} is not allowed: a project in containers has at most {MOST_WORKERS}.")


def check_name(name: str) -> None:
    """UsageError for a team's name that Gitea or Mattermost keeps for itself: the team has an account on both."""
    if _FORGE.fullmatch(name):
        raise UsageError(f"team.name: {name!r} is not allowed: Gitea keeps it for itself; choose another.")
    if found := _CHAT.match(name):
        raise UsageError(
            f"team.name: {name!r} is not allowed: Mattermost keeps names that begin with {found[0]!r} for itself; "
            "choose another."
        )


def check_disk(folder: Path) -> None:
    """AgenshError when the disk of `folder`, which need not be there yet, has too little room for a team."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE:
        raise AgenshError(
            f"disk: {free / 2**30:.1f} GiB are free in {folder}, and a team needs {MIN_FREE / 2**30:.0f}. Free some, "
            "or name another folder with --runs."
        )


def check_box(root: Path, environment: Mapping[str, str]) -> None:
    """AgenshError in one sentence for whatever keeps a new team from being brought up here."""
    compose_command()
    check_disk(root)
    check_ports(loopback_ports(environment))
