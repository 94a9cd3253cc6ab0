"""Makes the folder of a new local run: free ports, fresh credentials, the spec as it will be used."""

from __future__ import annotations

import secrets
from pathlib import Path

from agensh.clock import Clock
from agensh.identity import new_token
from agensh.launch.ports import HOST, free_ports
from agensh.rundir import AdminSecrets, RunDir, RunInfo, RunSecrets, ServiceUrls, new_run_dir
from agensh.spec import TeamSpec


def create_run(spec: TeamSpec, root: Path, clock: Clock) -> RunDir:
    """Create the run folder below `root` with `run.json` and `secrets.json`."""
    now = clock.time()
    run = new_run_dir(root, spec.team.name, now)
    forge, chat, board, node = (f"http://{HOST}:{port}" for port in free_ports(4))
    run.write_info(
        RunInfo(
            run_id=run.run_id,
            created_at=now,
            spec=spec,
            urls=ServiceUrls(forge=forge, chat=chat, board=board, node=node),
            board=spec.team.name,
            owner=spec.team.name,
            repository="workspace",
            channel="task",
            chat_team=spec.team.name,
        )
    )
    run.write_secrets(
        RunSecrets(
            forge_admin=AdminSecrets(name="agensh-admin", password=secrets.token_urlsafe(24)),
            chat_admin=AdminSecrets(name="agensh-admin", password=secrets.token_urlsafe(24)),
            board_admin=new_token("agadmin"),
            node_admin=new_token("agnode"),
        )
    )
    return run
