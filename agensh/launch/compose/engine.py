"""The Docker engine and Compose of this box, asked and told by their own commands and API."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

import agensh
from agensh.errors import AgenshError, UsageError
from agensh.launch.compose.calls import call

POOL = ipaddress.IPv4Network("10.213.0.0/16")
"""Where the networks of projects are cut from; AGENSH_NETWORKS names another one."""
_BLOCK = 23
"""Prefix of one project's share: a /24 for workers, and two small networks."""
_CALL = 600.0  # seconds one call of compose may take
_BUILD = 1800.0  # seconds the build of an image may take
_TAIL = 400  # characters of a failed call's output that are shown


@dataclass(frozen=True, slots=True)
class Subnets:
    """The networks of one project."""

    services: str
    egress: str
    team: str


def compose_file() -> Path:
    """Return compose.yaml: beside the package when installed, at the root of a checkout otherwise."""
    package = Path(agensh.__file__).parent
    for candidate in (package / "compose/compose.yaml", package.parent / "compose/compose.yaml"):
        if candidate.is_file():
            return candidate
    raise AgenshError("compose: compose.yaml is missing; install Agensh anew.")


def compose_command() -> list[str]:
    """Return how Compose is called on this box: the plugin of the docker command, or docker-compose."""
    if shutil.which("docker") is not None:
        found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False, timeout=30)
        if found.returncode == 0:
            return ["docker", "compose"]
    if shutil.which("docker-compose") is not None:
        return ["docker-compose"]
    raise AgenshError("Docker Compose is not installed: apt install docker-compose, or the plugin docker-compose-v2.")


@dataclass(frozen=True, slots=True)
class Compose:
    """Compose for one project and one run folder."""

    project: str
    env_file: Path
    command: tuple[str, ...]

    def arguments(self, *arguments: str) -> list[str]:
        """Return the whole command line of a call."""
        files = ["--env-file", str(self.env_file), "-f", str(compose_file()), "-p", self.project]
        return [*self.command, *files, *arguments]

    def call(self, *arguments: str, profiles: Sequence[str] = (), check: bool = True, show: bool = False) -> str:
        """Run one call; AgenshError with the end of its output when it fails. `show` lets it write to the terminal."""
        env = _environment({"COMPOSE_PROFILES": ",".join(profiles)})
        try:
            command = self.arguments(*arguments)
            code, said = call(command, env=env, timeout=_CALL, out=sys.stderr if show else None)
        except subprocess.TimeoutExpired as error:
            raise AgenshError(f"compose {arguments[0]} did not end in {_CALL:g} s; call the command again.") from error
        if check and code:
            raise AgenshError(f"compose {arguments[0]} failed ({code}): {_end(said) or 'see above'}")
        return said


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    # Variables of the person's shell must not change a project whose values stand in its own file.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENSH_", "COMPOSE_"))}
    return kept | {name: value for name, value in more.items() if value}


def choose_subnets(client: docker.DockerClient, project: str, pool: str = "") -> Subnets:
    """Return networks that no other project and no route of this box uses; those the project has are kept.

    `pool` is the value of AGENSH_NETWORKS, empty for the default.
    """
    base = _pool(pool)
    taken: list[ipaddress.IPv4Network] = list(_routes())
    mine: dict[str, str] = {}
    for network in client.networks.list():
        subnets = [config.get("Subnet", "") for config in (network.attrs["IPAM"].get("Config") or [])]
        if network.name in {f"{project}_{part}" for part in ("services", "egress", "team")} and subnets:
            mine[network.name.removeprefix(f"{project}_")] = subnets[0]
        taken += [ipaddress.IPv4Network(subnet) for subnet in subnets if subnet and ":" not in subnet]
    if len(mine) == 3:
        return Subnets(**mine)
    for block in base.subnets(new_prefix=_BLOCK):
        if not any(block.overlaps(other) for other in taken):
            small, team = block.subnets(new_prefix=24)
            first, second, *_ = small.subnets(new_prefix=26)
            return Subnets(services=str(first), egress=str(second), team=str(team))
    raise AgenshError(f"networks: no free /{_BLOCK} is left in {base}; name another range with AGENSH_NETWORKS.")


def _pool(text: str) -> ipaddress.IPv4Network:
    if not text:
        return POOL
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"AGENSH_NETWORKS: {text!r} is not a network such as {POOL}: {error}.") from None
    if found.prefixlen > _BLOCK:
        raise UsageError(f"AGENSH_NETWORKS: {text!r} is too small; a project needs a /{_BLOCK}.")
    return found


def _routes() -> Iterator[ipaddress.IPv4Network]:
    """Yield the networks that this box has a route to (proc(5): little-endian hexadecimal)."""
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[index]), "little") for index in (1, 7))
        if mask:
            yield ipaddress.IPv4Network((address, bin(mask).count("1")), strict=False)


def check_ports(ports: Mapping[str, int]) -> None:
    """UsageError that names the variable of a loopback port that somebody else listens on."""
    for variable, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise UsageError(
                    f"{variable}: port {port} on 127.0.0.1 cannot be used ({error.strerror}); "
                    f"choose another: {variable}=PORT agensh up …"
                ) from None


def has_image(client: docker.DockerClient, name: str) -> bool:
    """Say whether the engine has the image."""
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def build_image(name: str, dockerfile: str, *, target: str = "", arguments: Mapping[str, str], context: Path) -> None:
    """Build an image from compose/images; AgenshError with the end of the output."""
    command = ["docker", "build", "--quiet", "-t", name, "-f", str(compose_file().parent / "images" / dockerfile)]
    if target:
        command += ["--target", target]
    for key, value in arguments.items():
        command += ["--build-arg", f"{key}={value}"]
    try:
        env = os.environ | {"DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0")}
        code, said = call([*command, str(context)], env=env, timeout=_BUILD)
    except FileNotFoundError as error:
        raise AgenshError(
            f"image {name} cannot be built: the docker command is missing: apt install docker.io"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise AgenshError(f"image {name} cannot be built: it took longer than {_BUILD:g} s.") from error
    if code:
        raise AgenshError(f"image {name} cannot be built: {_end(said)}")


def _end(output: str) -> str:
    """Return the end of a command's output as one line."""
    return " ".join(output.split())[-_TAIL:]
