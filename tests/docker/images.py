"""The images of the Docker tests, made from Debian packages: there may be no image registry.

`python -m tests.docker.images` makes what is missing and prints the variables that name them for `agensh up`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGES = Path(__file__).parent / "images"
DEBIAN = "agensh-test/debian:1"
BASE = "agensh-test/base:1"
SUITE = "bookworm"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ENGINE_START = 60.0  # seconds the engine may take to answer


def ready_engine() -> None:
    """Have a Docker engine answer: installed from Debian and started when there is none (root only)."""
    if _answers():
        return
    missing = [name for name in ("dockerd", "docker-compose", "debootstrap") if shutil.which(name) is None]
    if missing:
        _run("apt-get", "update", "-qq")
        packages = ["docker.io", "docker-compose", "debootstrap"]
        _run(
            "apt-get",
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            *packages,
            env={"DEBIAN_FRONTEND": "noninteractive"},
        )
    if _answers():
        return
    log = Path(tempfile.gettempdir()) / "agensh-test-dockerd.log"
    with log.open("ab") as output:
        subprocess.Popen(["dockerd"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    until = time.monotonic() + ENGINE_START
    while not _answers():
        if time.monotonic() > until:
            raise SystemExit(f"the Docker engine did not answer in {ENGINE_START:g} s; see {log}")
        time.sleep(0.2)


def build_all() -> dict[str, str]:
    """Make the images that are missing or of another source; return the variables that name them."""
    if not _has(DEBIAN):
        _make_debian()
    if not _has(BASE):
        _build(BASE, "-f", str(IMAGES / "base.Dockerfile"), "--build-arg", f"DEBIAN={DEBIAN}", str(IMAGES))
    sources = _digest(
        ROOT / "requirements.lock",
        ROOT / "pyproject.toml",
        ROOT / "compose/images",
        *(ROOT / name for name in ("adapters", "agensh", "board_service", "examples", "prompts", "router")),
    )
    service, worker = f"agensh-test/service:{sources}", f"agensh-test/worker:{sources}"
    dockerfile = str(ROOT / "compose/images/service.Dockerfile")
    if not _has(service):
        _build(service, "-f", dockerfile, "--build-arg", f"BASE={BASE}", "--target", "service", str(ROOT))
    if not _has(worker):
        _build(worker, "-f", dockerfile, "--build-arg", f"BASE={BASE}", "--target", "worker-scripted", str(ROOT))
    variables = {"AGENSH_IMAGE_SERVICE": service, "AGENSH_IMAGE_WORKER": worker}
    own = _digest(IMAGES)
    for name, base in (("mysql", BASE), ("postgres", BASE), ("gitea", service), ("mattermost", service)):
        image = f"agensh-test/{name}:{own if base == BASE else f'{own}-{sources}'}"
        if not _has(image):
            argument = "BASE" if base == BASE else "SERVICE"
            _build(image, "-f", str(IMAGES / f"{name}.Dockerfile"), "--build-arg", f"{argument}={base}", str(IMAGES))
        variables[f"AGENSH_IMAGE_{name.upper()}"] = image
    return variables


def _make_debian() -> None:
    """A small Debian with Python, and this machine's certificates, so that builds reach the package registries."""
    with tempfile.TemporaryDirectory(prefix="agensh-base-") as temporary:
        tree = Path(temporary) / "tree"
        include = "--include=ca-certificates,git,curl,python3,python3-venv"
        _run("debootstrap", "--variant=minbase", include, SUITE, str(tree))
        shutil.copyfile(CERTIFICATES, tree / CERTIFICATES.relative_to("/"))
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        changes = [f"ENV PATH={path}", f"ENV PIP_CERT={CERTIFICATES} SSL_CERT_FILE={CERTIFICATES}"]
        with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as archive:
            options = [part for change in changes for part in ("--change", change)]
            _run("docker", "import", *options, "-", DEBIAN, stdin=archive.stdout)


def _digest(*paths: Path) -> str:
    """Return what names the content of files and folders, in a few characters."""
    found = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:12]


def _has(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def _build(image: str, *arguments: str) -> None:
    _run("docker", "build", "--quiet", "-t", image, *arguments, env={"DOCKER_BUILDKIT": "0"})


def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _run(*command: str, env: dict[str, str] | None = None, stdin: object = subprocess.DEVNULL) -> None:
    done = subprocess.run(
        command,
        stdin=stdin,  # type: ignore[call-overload]
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | (env or {}),
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed ({done.returncode}): {(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    ready_engine()
    for name, value in build_all().items():
        sys.stdout.write(f"{name}={value}\n")
