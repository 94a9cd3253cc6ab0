"""Makes the folder of a new local run: free ports, fresh credentials, the spec as it will be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agensh.clock import Clock
from agensh.embedded.model import PRICES
from agensh.identity import new_password, new_token
from agensh.launch.ports import HOST, free_ports
from agensh.rundir import AdminSecrets, NodePlace, RunDir, RunInfo, RunSecrets, ServiceUrls, new_run_dir
from agensh.spec import GatewaySection, TeamSpec


def create_run(spec: TeamSpec, root: Path, clock: Clock, *, hosts: int = 1, playbook: Path | None = None) -> RunDir:
    """Create the run folder below `root` with `run.json` and `secrets.json`; `hosts` node hosts share the workers.

    With a playbook the scripted model plays it, behind a gateway, to whatever CLI the spec names.
    """
    now = clock.time()
    run = new_run_dir(root, spec.team.name, now)
    forge, chat, board, gateway, model, *nodes = (f"http://{HOST}:{port}" for port in free_ports(5 + hosts))
    if playbook is not None:
        spec = spec.model_copy(update={"gateway": _to_scripted_model(model)})
    with_gateway = spec.gateway is not None
    run.write_info(
        RunInfo(
            run_id=run.run_id,
            created_at=now,
            spec=spec,
            urls=ServiceUrls(
                forge=forge,
                chat=chat,
                board=board,
                node=nodes[0],
                gateway=gateway if with_gateway else "",
                model=model if playbook is not None else "",
            ),
            playbook=playbook,
            board=spec.team.name,
            owner=spec.team.name,
            repository="workspace",
            channel="task",
            chat_team=spec.team.name,
            nodes=share_workers(spec.team.workers, nodes) if hosts > 1 else (),
        )
    )
    run.write_secrets(
        RunSecrets(
            forge_admin=AdminSecrets(name="agensh-admin", password=new_password()),
            chat_admin=AdminSecrets(name="agensh-admin", password=new_password()),
            board_admin=new_token("agadmin"),
            node_admin=new_token("agnode"),
            gateway_admin=new_token("aggwadmin") if with_gateway else "",
        )
    )
    return run


def create_baseline(spec: TeamSpec, root: Path, clock: Clock) -> RunDir:
    """Create the run folder of a baseline: the spec's task for one worker alone, behind the gateway if it has one."""
    now = clock.time()
    run = new_run_dir(root, spec.team.name, now)
    (gateway,) = free_ports(1)
    with_gateway = spec.gateway is not None
    run.write_info(
        RunInfo(
            run_id=run.run_id,
            created_at=now,
            spec=spec.model_copy(update={"team": spec.team.model_copy(update={"workers": 1})}),
            urls=ServiceUrls(
                forge="", chat="", board="", node="", gateway=f"http://{HOST}:{gateway}" if with_gateway else ""
            ),
            board="",
            owner="",
            repository="workspace",
            channel="",
            chat_team="",
            baseline=True,
        )
    )
    nobody = AdminSecrets(name="", password="")
    run.write_secrets(
        RunSecrets(
            forge_admin=nobody,
            chat_admin=nobody,
            board_admin="",
            gateway_admin=new_token("aggwadmin") if with_gateway else "",
        )
    )
    return run


def _to_scripted_model(url: str) -> GatewaySection:
    return GatewaySection(base_url=f"{url}/v1", auth="none", prices=PRICES, forward_worker=True)


def share_workers(workers: int, urls: Sequence[str]) -> tuple[NodePlace, ...]:
    """Give every node host an equal share of the workers, neighbours together."""
    bounds = [round(workers * number / len(urls)) for number in range(len(urls) + 1)]
    return tuple(
        NodePlace(name=f"node-{number}", url=url, first=first, count=after - first)
        for number, (url, first, after) in enumerate(zip(urls, bounds, bounds[1:], strict=False), start=1)
    )
