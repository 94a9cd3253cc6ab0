"""The three services of a run, embedded, each in a process or thread of its own, and a run folder over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agensh.clients.gitea import GiteaClient
from agensh.rundir import AdminSecrets, RunDir, RunInfo, RunSecrets, ServiceUrls
from agensh.spec import parse_spec
from tests.support.board_server import running_board
from tests.support.chat_server import ADMIN as CHAT_ADMIN
from tests.support.chat_server import PASSWORD as CHAT_PASSWORD
from tests.support.chat_server import RunningChat, running_chat
from tests.support.servers import ADMIN as FORGE_ADMIN
from tests.support.servers import ForgeProcess

CREATED = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Services:
    """Running services."""

    forge: ForgeProcess
    chat: RunningChat
    board_url: str
    board_admin: str

    def new_run(self, folder: Path, team: str, *, workers: int = 2, repository: Path | None = None) -> RunDir:
        """Return a run folder over these services, not provisioned yet."""
        folder.mkdir(parents=True)
        goal = folder / "goal.md"
        goal.write_text("# Rebuild the thing\n\nEverything it does, exactly.\n", encoding="utf-8")
        task = {"kind": "repo", "goal": goal, "acceptance": "true", "repository": repository}
        spec = parse_spec(
            {
                "team": {"name": team, "workers": workers},
                "task": {key: value for key, value in task.items() if value is not None},
            }
        )
        run = RunDir(folder)
        run.write_info(
            RunInfo(
                run_id=folder.name,
                created_at=CREATED,
                spec=spec,
                urls=ServiceUrls(
                    forge=self.forge.forge.url, chat=self.chat.url, board=self.board_url, node="http://127.0.0.1:1"
                ),
                board=team,
                owner=team,
                repository="work",
                channel="task",
                chat_team=team,
            )
        )
        run.write_secrets(
            RunSecrets(
                forge_admin=AdminSecrets(name=FORGE_ADMIN[0], password=FORGE_ADMIN[1]),
                chat_admin=AdminSecrets(name=CHAT_ADMIN, password=CHAT_PASSWORD),
                board_admin=self.board_admin,
            )
        )
        return run


@contextmanager
def running_services(folder: Path, **board_settings: Any) -> Iterator[Services]:
    """Run a forge, a chat and a board over `folder`; `board_settings` are those of BoardSettings."""
    forge = ForgeProcess(folder / "forge")
    with running_chat(folder) as chat, running_board(folder, **board_settings) as board:
        forge.start()
        try:
            yield Services(forge, chat, board.url, board.admin_token)
        finally:
            forge.stop()


async def set_state(client: GiteaClient, place: tuple[str, str], number: int, state: str) -> None:
    """Close or reopen an issue or a pull request, as its page on the forge does."""
    await client.request("PATCH", f"/repos/{place[0]}/{place[1]}/issues/{number}", json={"state": state})
