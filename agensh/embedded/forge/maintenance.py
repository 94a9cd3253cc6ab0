"""Keeping repositories quick to read: loose objects and refs are packed at intervals, beside running pushes.

A day of small pushes leaves tens of thousands of loose objects and a ref file a branch; `git maintenance` packs them
with the tasks that are safe while others write, and deletes nothing that is not packed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agensh.embedded.forge.git import GitError

if TYPE_CHECKING:
    from agensh.embedded.forge.state import Forge

log = logging.getLogger(__name__)

TASKS = ("loose-objects", "pack-refs")
OF_PACKS = "incremental-repack"  # fails where there is no pack


async def run(forge: Forge) -> None:
    """Maintain all repositories, again and again, until cancelled."""
    while True:
        await forge.clock.sleep(forge.settings.maintenance_interval)
        await once(forge)


async def once(forge: Forge) -> None:
    """Maintain each repository once; a failure is logged and the others follow."""
    sql = "SELECT u.name AS owner, r.name FROM repos r JOIN users u ON u.id = r.owner_id"
    for row in await forge.db.read(lambda tx: tx.all(sql)):
        path = forge.path(row["owner"], row["name"])
        await forge.git.leftovers.free(path)  # git passes over a repository that another maintenance has locked
        tasks = [*TASKS, OF_PACKS] if any(path.glob("objects/pack/*.pack")) else TASKS
        try:
            await forge.git.run(path, "maintenance", "run", "--quiet", *(f"--task={task}" for task in tasks))
        except (GitError, OSError) as error:
            log.warning("maintenance failed", extra={"repository": str(path), "error": str(error)})
