"""What `agensh up` would make, as lines for a person."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from adapters.container_runtime import connect
from agensh.launch.compose.engine import choose_subnets, compose_file, has_image
from agensh.launch.compose.preflight import loopback_ports
from agensh.launch.compose.project import SERVICE_IMAGE, worker_image
from agensh.launch.compose.stack import SERVICES
from agensh.rundir import RunDir
from agensh.spec import TeamSpec

VOLUMES = ("mysql", "postgres", "gitea", "mattermost", "mattermost-config")
OFFICIAL = ("mysql", "postgres", "gitea", "mattermost")
"""Services whose images are others' work."""


def default_image(service: str) -> str:
    """Return the image that compose.yaml names for a service."""
    found = re.search(rf"AGENSH_IMAGE_{service.upper()}:-([^}}]+)}}", compose_file().read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def plan_lines(spec: TeamSpec, root: Path, run: RunDir | None, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the plan; needs the engine, changes nothing."""
    client = connect()
    project = spec.team.name
    ports = loopback_ports(environment)
    subnets = choose_subnets(client, project, environment.get("AGENSH_NETWORKS", ""))
    yield f"project {project}: " + (f"goes on with {run.path}" if run else f"a new run below {root.absolute()}")
    for name in ("services", "team", "egress"):
        yield f"network {project}_{name}: {getattr(subnets, name)}"
    for name in VOLUMES:
        yield f"volume {project}_{name}"
    services = [*SERVICES, *(["gateway"] if spec.gateway is not None else []), "provision (once)", "node"]
    for name in services:
        yield f"service {name}"
    for service in OFFICIAL:
        named = environment.get(f"AGENSH_IMAGE_{service.upper()}") or default_image(service)
        yield f"image of {service}: {named}" + ("" if has_image(client, named) else " (would be pulled)")
    images = {
        "services": environment.get("AGENSH_IMAGE_SERVICE") or SERVICE_IMAGE,
        "workers": environment.get("AGENSH_IMAGE_WORKER") or spec.container.image or worker_image(spec),
    }
    for use, image in images.items():
        yield f"image of {use}: {image}" + ("" if has_image(client, image) else " (would be built or pulled)")
    for variable, port in ports.items():
        yield f"port 127.0.0.1:{port} ({variable})"
    limits = spec.container
    cores = f"{limits.cpus:g} cores" if limits.cpus else "all cores"
    memory = f"{limits.memory / 2**30:g} GiB" if limits.memory else "all memory"
    for name in spec.worker_names:
        yield f"container {project}_{name}: {spec.worker.harness}, {cores}, {memory}, {limits.pids} processes"
