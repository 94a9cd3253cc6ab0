"""How the worker containers of a run are made, from its spec."""

from __future__ import annotations

from adapters.container_runtime import ContainerPlan
from agensh.errors import AgenshError
from agensh.launch.compose.project import PLAYBOOK
from agensh.rundir import RunDir, RunInfo


def container_plan(run: RunDir, info: RunInfo) -> ContainerPlan:
    """Return the plan of a run's worker containers; AgenshError for a run without containers."""
    containers, limits = info.containers, info.spec.container
    if containers is None:
        raise AgenshError(f"{run.run_id} has no containers; it was not made by `agensh up`.")
    playbook = run.path / "task" / PLAYBOOK
    return ContainerPlan(
        project=containers.project,
        run_id=info.run_id,
        image=containers.image,
        network=containers.network,
        memory=limits.memory,
        cpus=limits.cpus,
        pids=limits.pids,
        reference=info.spec.task.reference,
        files={str(playbook): playbook} if playbook.is_dir() else {},
    )
