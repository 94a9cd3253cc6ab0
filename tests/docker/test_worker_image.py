"""The image of workers with a real CLI, laid on a task's image."""

from __future__ import annotations

import docker

from agensh.harnesses import package_of
from agensh.launch.compose.worker_image import build_worker_image
from agensh.spec import parse_spec
from tests.docker.images import BASE

IMAGE = "agensh-test/worker-codex:new"


def test_a_cli_runs_as_the_worker_on_a_read_only_file_system(images: dict[str, str]) -> None:
    spec = parse_spec(
        {
            "team": {"name": "demo"},
            "task": {"kind": "repo", "goal": "goal.md", "acceptance": "true"},
            "worker": {"harness": "codex"},
            "container": {"task_image": BASE},
        }
    )
    build_worker_image(IMAGE, spec)
    client = docker.from_env()
    try:
        script = ["sh", "-c", "id -u && codex --version 2>/dev/null && git --version && curl --version"]
        said = client.containers.run(
            IMAGE, script, read_only=True, tmpfs={"/tmp": ""}, remove=True, network_mode="none"
        ).decode()
        assert said.startswith("10000\n")
        assert package_of("codex").newest in said
    finally:
        client.images.remove(IMAGE)
        client.close()
