"""Where the program of a CLI is: named in the spec, on the worker's PATH, or below an npm prefix."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from adapters.base import HarnessUnavailable, WorkerLaunch
from agensh.harnesses import Package, find_binary

BINARY, PACKAGES = "binary", "packages"
"""The `worker.options` that name the program, or the npm prefix it is installed below."""


def program(launch: WorkerLaunch, package: Package, command: str) -> Path:
    """Return the file to run for a worker; see `find_program`."""
    if launch.contained:
        # Its file system is not ours to look into; the worker image has each CLI there.
        return Path(launch.options.get(BINARY, "") or f"/usr/local/bin/{command}")
    return find_program(launch.options, launch.env.get("PATH", os.defpath), package, command)


def find_program(options: Mapping[str, str], search_path: str, package: Package, command: str) -> Path:
    """Return the file to run; HarnessUnavailable says what is missing and what to do.

    `worker.options.binary` goes first, then `command` on the PATH, then `worker.options.packages`. A wrapper of npm's
    is replaced by the native program behind it: a wrapper that is killed leaves the program running.
    """
    named = options.get(BINARY, "")
    if named:
        path = Path(named)
        if path.is_file() and os.access(path, os.X_OK):
            return path
        raise HarnessUnavailable(f"worker.options.binary: {named} is not a program.")
    found = shutil.which(command, path=search_path)
    if found is not None:
        return _native(Path(found), package)
    prefix = options.get(PACKAGES, "")
    if prefix and (path_below := find_binary(package, Path(prefix))) is not None:
        return path_below
    raise HarnessUnavailable(
        f"{command}: no such program on the worker's PATH{f' or below {prefix}' if prefix else ''}; "
        f"`npm install -g {package.name}@{package.newest}` installs it."
    )


def _native(path: Path, package: Package) -> Path:
    """Return the native program of an npm installation that `path` is the wrapper of; `path` when it is none."""
    for folder in path.resolve().parents:
        if folder.name == "node_modules" and (found := find_binary(package, folder.parent)) is not None:
            return found
    return path
