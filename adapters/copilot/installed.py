"""Which Copilot CLI is installed, and where it unpacks itself.

The binary unpacks 140 to 240 MB at its first start. One folder a version is shared by all workers of a machine, for
any version that finds a newer one unpacked beside it starts that instead of itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.base import HarnessUnavailable
from agensh.filelock import locked

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# ACP with a provider of one's own wants a login in these: "Authentication required" (1.0.77 was not to be had).
_LOGIN = range(69, 78)
_TOLD = (1, 0, 102)
"""The first version known to tell its client of tokens; 1.0.70 does not, and those between were not looked at."""


def version_of(binary: Path) -> str:
    """Return the version in the package that the binary belongs to; empty where there is none (blocking)."""
    for folder in binary.resolve().parents[:2]:
        try:
            package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(package, dict) and str(package.get("name", "")).startswith("@github/copilot"):
            return str(package.get("version", ""))
    return ""


def wants_login(version: str) -> bool:
    """Say whether a version refuses ACP with a provider of one's own unless it is told of another; True if unknown."""
    found = _VERSION.match(version)
    if found is None:
        return True
    major, minor, patch = map(int, found.groups())
    return (major, minor) == (1, 0) and patch in _LOGIN


def tells_tokens(version: str) -> bool:
    """Say whether a version reports the tokens of a prompt over ACP; False if unknown."""
    found = _VERSION.match(version)
    return found is not None and tuple(map(int, found.groups())) >= _TOLD


def cache_of(binary: Path, version: str) -> Path:
    """Return the folder of this machine that a binary unpacks itself into, made where it is missing (blocking)."""
    name = version
    if not name:
        facts = binary.resolve().stat()
        name = hashlib.sha256(f"{binary.resolve()}:{facts.st_size}:{facts.st_mtime_ns}".encode()).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "agensh" / "copilot" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarnessUnavailable(
            f"{folder}: cannot be made ({error.strerror}); set worker.options.cache to a folder for Copilot to unpack "
            "itself into."
        ) from error
    return folder


@asynccontextmanager
async def first_start(cache: Path) -> AsyncIterator[None]:
    """Let one worker of the machine at a time start a binary that has not unpacked itself yet."""
    if await asyncio.to_thread(_unpacked, cache):
        yield
        return
    async with locked(os.open(cache / "first-start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)):
        yield


def _unpacked(cache: Path) -> bool:
    # Made by whoever held the lock to the end of a start.
    return (cache / "started").exists() or not os.access(cache, os.W_OK)


def mark_started(cache: Path) -> None:
    """Note that the binary has unpacked itself (blocking)."""
    if os.access(cache, os.W_OK):
        (cache / "started").touch()
