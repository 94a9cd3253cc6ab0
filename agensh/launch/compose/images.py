"""The images of a project: ours are built when they are missing, those that somebody named are pulled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import docker
from docker.errors import APIError, DockerException

from agensh.errors import AgenshError
from agensh.launch.compose.engine import build_image, compose_file, has_image
from agensh.launch.compose.project import SCRIPTED_IMAGE, SERVICE_IMAGE, worker_image
from agensh.launch.compose.worker_image import build_worker_image
from agensh.rundir import ContainerInfo
from agensh.spec import TeamSpec

_REASON = 300  # characters of the engine's own words


def ensure_images(
    client: docker.DockerClient,
    containers: ContainerInfo,
    spec: TeamSpec,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Have the images of the services and of the workers; AgenshError names the one that cannot be had."""
    root = compose_file().parent.parent
    base = environment.get("AGENSH_IMAGE_PYTHON", "")
    arguments = {"BASE": base} if base else {}
    wanted = {containers.grader_image: "AGENSH_IMAGE_SERVICE"}
    wanted.setdefault(containers.image, "container.image or AGENSH_IMAGE_WORKER")
    for name, setting in wanted.items():
        if has_image(client, name):
            continue
        if name == SERVICE_IMAGE:
            say(f"building {name}")
            build_image(name, "service.Dockerfile", target="service", arguments=arguments, context=root)
        elif name == SCRIPTED_IMAGE:
            say(f"building {name}")
            build_image(name, "service.Dockerfile", target="worker-scripted", arguments=arguments, context=root)
        elif name == worker_image(spec):
            say(f"building {name}")
            build_worker_image(name, spec)
        else:
            say(f"pulling {name}")
            _pull(client, name, setting)


def _pull(client: docker.DockerClient, name: str, setting: str) -> None:
    try:
        client.images.pull(name) if ":" in name.rpartition("/")[2] else client.images.pull(name, tag="latest")
    except DockerException as error:
        said = error.explanation if isinstance(error, APIError) and error.explanation else error
        reason = " ".join(str(said).split()).rstrip(".")[:_REASON]
        raise AgenshError(
            f"{setting}: the image {name!r} is not on this box and cannot be pulled ({reason}); build it under that "
            "name, or name another."
        ) from error
