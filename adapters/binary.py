"""Where the program of a CLI is.

`worker.options.binary` names the file; without it the name is looked up on the worker's PATH, and then among what npm
installed below `worker.options.packages`, an npm prefix. The native binary is wanted where a package has one: a wrapper
starts it as a child, which outlives a kill of the wrapper.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from adapters.base import HarnessUnavailable, WorkerLaunch
from agensh.harnesses import find_binary, package


def program(launch: WorkerLaunch, command: str, npm_package: str) -> str:
    """Return the path of a CLI's program; HarnessUnavailable says where it was looked for and how to get it."""
    named = launch.options.get("binary", "")
    if named:
        if not os.access(named, os.X_OK) or not Path(named).is_file():
            raise HarnessUnavailable(f"worker.options.binary: {named} is no program that can be started.")
        return str(Path(named).absolute())
    path = launch.env.get("PATH", os.defpath)
    if (found := shutil.which(command, path=path)) is not None:
        return found
    prefix = launch.options.get("packages", "")
    if prefix and (below := find_binary(package(npm_package), Path(prefix))) is not None:
        return str(below)
    where = "the worker's PATH" + (f" and below {prefix}/node_modules" if prefix else "")
    raise HarnessUnavailable(
        f"{command} is not on {where}. Install it (npm install --prefix DIR {npm_package}) and set "
        "worker.options.packages to DIR, or worker.options.binary to the program."
    )
