"""The images of the Docker tests, made from Debian packages: there may be no image registry.

`python -m tests.docker.images` makes what is missing and prints the variables that name them for `agensh up`.
AGENSH_TEST_IMAGES is what their names begin with: under a new one everything is made from nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import docker
from docker.errors import APIError

from tests.docker.engine import ready_engine, run

ROOT = Path(__file__).parents[2]
IMAGES = Path(__file__).parent / "images"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
SUITE = "bookworm"
INCLUDED = "ca-certificates,git,curl,python3,python3-venv"
KEPT = 86_400.0  # seconds that images of other sources stay: somebody may be at work with them


def _digest(*parts: Path | str) -> str:
    """Return what names texts and the content of files and folders, in a few characters."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode() + b"\0")
            continue
        files = sorted(part.rglob("*")) if part.is_dir() else [part]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:12]


PREFIX = os.environ.get("AGENSH_TEST_IMAGES") or "agensh-test"
DEBIAN = f"{PREFIX}/debian:{_digest(SUITE, INCLUDED)}"
BASE = f"{PREFIX}/base:{_digest(DEBIAN, IMAGES / 'base.Dockerfile')}"


def build_all() -> dict[str, str]:
    """Make the images that are missing or of another source; return the variables that name them."""
    if not _has(DEBIAN):
        _make_debian()
    if not _has(BASE):
        _build(BASE, "-f", str(IMAGES / "base.Dockerfile"), "--build-arg", f"DEBIAN={DEBIAN}", str(IMAGES))
    sources = _digest(
        BASE,
        ROOT / "requirements.lock",
        ROOT / "pyproject.toml",
        ROOT / "compose/images",
        *(ROOT / name for name in ("adapters", "agensh", "board_service", "examples", "prompts", "router")),
    )
    service, worker = f"{PREFIX}/service:{sources}", f"{PREFIX}/worker:{sources}"
    dockerfile = str(ROOT / "compose/images/service.Dockerfile")
    if not _has(service):
        _build(service, "-f", dockerfile, "--build-arg", f"BASE={BASE}", "--target", "service", str(ROOT))
    if not _has(worker):
        _build(worker, "-f", dockerfile, "--build-arg", f"BASE={BASE}", "--target", "worker-scripted", str(ROOT))
    variables = {"AGENSH_IMAGE_SERVICE": service, "AGENSH_IMAGE_WORKER": worker}
    own = _digest(BASE, IMAGES)
    for name, base in (("mysql", BASE), ("postgres", BASE), ("gitea", service), ("mattermost", service)):
        image = f"{PREFIX}/{name}:{own if base == BASE else f'{own}-{sources}'}"
        if not _has(image):
            argument = "BASE" if base == BASE else "SERVICE"
            _build(image, "-f", str(IMAGES / f"{name}.Dockerfile"), "--build-arg", f"{argument}={base}", str(IMAGES))
        variables[f"AGENSH_IMAGE_{name.upper()}"] = image
    return variables


def remove_old(kept: Collection[str], now: datetime, prefix: str = PREFIX) -> list[str]:
    """Remove the tests' images of other sources that nobody has named or made for a day; return their names.

    Those in `kept` stay, and those that a container was made from.
    """
    client = docker.from_env()
    try:
        used = {each["Image"] for each in client.api.containers(all=True)}
        old: list[str] = []
        for image in client.images.list(filters={"reference": f"{prefix}/*"}):
            times = (image.attrs["Created"], image.attrs["Metadata"]["LastTagTime"])
            young = any((now - _time(text)).total_seconds() < KEPT for text in times)
            names = {name for name in image.tags if name.startswith(f"{prefix}/")}
            old += [] if young else sorted(names - used - set(kept))
        return [name for name in old if _removed(client, name)]
    finally:
        client.close()


def _removed(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.remove(image)
    except APIError as error:
        # Somebody was faster: made a container of it, or removed it.
        if error.status_code not in {404, 409}:
            raise
        return False
    return True


def _time(text: str) -> datetime:
    """Return a time of the engine (RFC 3339, to the nanosecond), to the second."""
    return datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)


def _make_debian() -> None:
    """A small Debian with Python, and this machine's certificates, so that builds reach the package registries."""
    with tempfile.TemporaryDirectory(prefix="agensh-base-") as temporary:
        tree = Path(temporary) / "tree"
        run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(tree))
        shutil.copyfile(CERTIFICATES, tree / CERTIFICATES.relative_to("/"))
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        changes = [f"ENV PATH={path}", f"ENV PIP_CERT={CERTIFICATES} SSL_CERT_FILE={CERTIFICATES}"]
        with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as archive:
            options = [part for change in changes for part in ("--change", change)]
            run("docker", "import", *options, "-", DEBIAN, stdin=archive.stdout)


def _has(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def _build(image: str, *arguments: str) -> None:
    run("docker", "build", "--quiet", "-t", image, *arguments, env=os.environ | {"DOCKER_BUILDKIT": "0"})


if __name__ == "__main__":
    ready_engine()
    for name, value in build_all().items():
        sys.stdout.write(f"{name}={value}\n")
