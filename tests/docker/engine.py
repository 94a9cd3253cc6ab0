"""The Docker engine of the tests: the one that answers, or one that they install, start, and stop again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ENGINE = {"docker": "docker.io", "dockerd": "docker.io"}
TOOLS = {"docker-compose": "docker-compose", "debootstrap": "debootstrap", "ip": "iproute2", "curl": "curl"}
"""Commands, and the packages that have them."""
RECOMMENDED = ("apparmor", "ca-certificates", "cgroupfs-mount", "debian-archive-keyring", "iptables")
"""What those do not go without and may only recommend: certificates and keys for the Debian that is built, and what the
engine asks of the machine."""
START = 60.0  # seconds the engine may take to answer
STOP = 60.0  # seconds it may take to end, with its containers
LOOK = 0.2  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that was started here."""

    process: subprocess.Popen[bytes]
    host: str = ""
    """What DOCKER_HOST is for it; empty for the one that every client finds."""

    def stop(self) -> bool:
        """Stop it with all that it has started; False, and nothing done, while containers run in it."""
        found = subprocess.run([*_docker(self.host), "ps", "-q"], capture_output=True, check=False)
        if found.stdout.strip():
            return False
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.kill()
        return True

    def kill(self) -> None:
        """End it at once; its containerd too, which would outlive it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def ready_engine() -> Engine | None:
    """Have an engine answer, and all tools: installed from Debian and started when missing (root).

    Returns the engine when it was started here.
    """
    wanted = TOOLS if answers() else TOOLS | ENGINE
    missing = {package for command, package in wanted.items() if shutil.which(command) is None}
    if missing:
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *sorted(missing), *RECOMMENDED, env=quiet)
    if answers():  # where there is a service manager, installing has started it
        return None
    return start_engine(Path(tempfile.gettempdir()) / "agensh-test-dockerd.log")


def start_engine(log: Path, host: str = "", command: Sequence[str] = ("dockerd",)) -> Engine:
    """Start an engine, at `host` or where every client looks, and wait until it answers."""
    command = [*command, *(["--host", host] if host else [])]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    engine = Engine(process, host)
    until = time.monotonic() + START
    while not answers(host):
        if process.poll() is not None or time.monotonic() > until:
            engine.kill()
            raise SystemExit(f"the Docker engine did not answer in {START:g} s; see {log}")
        time.sleep(LOOK)
    return engine


def answers(host: str = "") -> bool:
    """Say whether the engine answers."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run([*_docker(host), "info"], capture_output=True, check=False).returncode == 0


def run(*command: str, env: dict[str, str] | None = None, stdin: object = subprocess.DEVNULL) -> None:
    """Run a command that must succeed; SystemExit with the end of what it said."""
    done = subprocess.run(
        command,
        stdin=stdin,  # type: ignore[call-overload]
        capture_output=True,
        text=True,
        errors="replace",
        env=env,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed ({done.returncode}): {(done.stdout + done.stderr)[-2000:]}")


def _docker(host: str) -> list[str]:
    return ["docker", *(["--host", host] if host else [])]
