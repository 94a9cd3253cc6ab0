"""The administrator of a Gitea that runs in a container: Gitea makes its first account by its own command only.

That command takes the password as an argument, which others on the box can see in the process list. So it gets a
password for a moment, and the real one goes over HTTP right after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agensh.clients.gitea import GiteaClient
from agensh.clients.http import new_http_client
from agensh.errors import AgenshError, ServiceError
from agensh.identity import new_password
from agensh.rundir import RunDir

_THERE = "already exists"


def ensure_forge_admin(container: Any, url: str, run: RunDir, say: Callable[[str], None]) -> None:
    """Make the run's administrator in the container of Gitea, which answers at `url`, unless it is there already."""
    admin = run.secrets().forge_admin
    if asyncio.run(_accepts(url, admin.name, admin.password)):
        return
    passing = new_password()
    create = ["create", "--admin", "--must-change-password=false", "--username", admin.name]
    created = _gitea(container, [*create, "--email", f"{admin.name}@agensh.invalid", "--password", passing])
    if _THERE in created:
        # Left half-made by an earlier call, or by somebody who knows another password.
        change = ["change-password", "--must-change-password=false", "--username", admin.name]
        _gitea(container, [*change, "--password", passing])
    asyncio.run(_set_password(url, admin.name, passing, admin.password))
    say(f"gitea: administrator {admin.name}")


def _gitea(container: Any, arguments: list[str]) -> str:
    """Run `gitea admin user …` and return its output; AgenshError with its last line when it fails."""
    done = container.exec_run(["gitea", "admin", "user", *arguments], user="git")
    said = str(done.output.decode(errors="replace")).strip()
    if done.exit_code and _THERE not in said:
        raise AgenshError(f"gitea: its administrator cannot be made: {(said.splitlines() or ['it said nothing'])[-1]}")
    return said


async def _accepts(url: str, name: str, password: str) -> bool:
    async with new_http_client() as http:
        try:
            await GiteaClient(url, basic=(name, password), http=http).request("GET", "/user")
        except ServiceError as error:
            if error.status in {401, 403}:
                return False
            raise
    return True


async def _set_password(url: str, name: str, passing: str, password: str) -> None:
    async with new_http_client() as http:
        await GiteaClient(url, basic=(name, passing), http=http).set_password(name, password)
