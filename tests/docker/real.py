"""Teams with real CLIs: the workers' images, and the scripted model in a provider's place."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

from agensh.harnesses import package_of
from agensh.launch.compose.engine import compose_file, has_image
from agensh.launch.compose.worker_image import build_worker_image
from agensh.spec import parse_spec
from tests.docker.conftest import Box, make_box, until
from tests.docker.images import BASE, ROOT

RIGHT, WRONG = "sk-right-0123456789abcdef", "sk-wrong-0123456789abcdef"
PORT = 9001
BUDGET = "24h"  # twelve minutes at the speed of the example; the teams are stopped when they have done what is asked


@dataclass(frozen=True, slots=True)
class Provider:
    """The scripted model in a container; only what reaches this box's own addresses reaches it."""

    container: Container
    host: str
    port: str

    @property
    def url(self) -> str:
        """Root of its API."""
        return f"http://{self.host}:{self.port}/v1"


@contextmanager
def running_provider(image: str) -> Iterator[Provider]:
    """Run a provider, which takes one key."""
    client = docker.from_env()
    host = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    container = client.containers.run(
        image,
        ["agensh", "model", "/playbook", "--host", "0.0.0.0", "--port", str(PORT), "--data", "/tmp/minds"],
        detach=True,
        labels={"agensh.project": "provider"},  # so that it counts for no team
        environment={"AGENSH_SCRIPTED_KEY": RIGHT},
        ports={f"{PORT}/tcp": (host, 0)},
        volumes={str(ROOT / "examples/textutils/playbook"): {"bind": "/playbook", "mode": "ro"}},
    )
    try:
        until(lambda: container.exec_run(["curl", "-fsS", f"http://127.0.0.1:{PORT}/healthz"]).exit_code == 0, "it")
        container.reload()
        (published,) = container.ports[f"{PORT}/tcp"] or []
        yield Provider(container, host, published["HostPort"])
    finally:
        container.remove(force=True, v=True)
        client.close()


def cli_image(harness: str) -> str:
    """Return the workers' image with a real CLI, built when it is missing."""
    source = hashlib.sha256((compose_file().parent / "images/worker.Dockerfile").read_bytes()).hexdigest()[:12]
    image = f"agensh-test/worker-{harness}:{package_of(harness).newest}-{source}"
    client = docker.from_env()
    known = has_image(client, image)
    client.close()
    if not known:
        task = {"kind": "repo", "goal": "goal.md", "acceptance": "true"}
        container = {"task_image": BASE}
        described = {"team": {"name": "demo"}, "task": task, "worker": {"harness": harness}, "container": container}
        build_worker_image(image, parse_spec(described))
    return image


def make_team(
    harness: str, workers: int, images: dict[str, str], reference: Path, provider: Provider, folder: Path, project: str
) -> Generator[Box]:
    """Yield a folder with the spec of a team with a real CLI, not up yet, and clean it up."""
    made = make_box(images | {"AGENSH_IMAGE_WORKER": cli_image(harness)}, reference, folder, project)
    box = next(made)
    text = box.spec.read_text()
    text = text.replace("workers = 8", f"workers = {workers}").replace('budget = "6h"', f'budget = "{BUDGET}"')
    text = text.replace('harness = "scripted"', f'harness = "{harness}"\nmodel = "scripted"')
    text = text.replace('options = { playbook = "playbook" }', "max_prompt_tokens = 1000000")
    prices = ROOT / "agensh/embedded/model/prices.toml"
    text += f'\n[gateway]\nbase_url = "{provider.url}"\napi_key_env = "AGENSH_PROVIDER_KEY"\nprices = "{prices}"\n'
    box.spec.write_text(text)
    try:
        yield box
    finally:
        made.close()


def name_key(box: Box, key: str) -> None:
    """Name a key as a user does."""
    (box.folder / ".env").write_text(f"AGENSH_PROVIDER_KEY={key}\n")


def holders_of(key: str, box: Box) -> list[Path]:
    """Return the files of a run that a key stands in, but the one that it is to stand in."""
    run = box.run()
    files = (path for path in run.path.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if path != run.path / "secrets/gateway.env" and key.encode() in path.read_bytes()]
