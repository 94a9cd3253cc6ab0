"""One process a node host: a lock of the kernel, which ends with its holder, whatever number or machine name it had."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agensh.errors import AgenshError


@contextmanager
def node_lock(folder: Path, name: str = "node") -> Iterator[None]:
    """Hold `<folder>/<name>.lock`; AgenshError that names the holder while another host of that name is alive."""
    path = folder / f"{name}.lock"
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AgenshError(f"node: another node host runs this run ({_holder(path)}); stop it first.") from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        file.flush()
        yield


def _holder(path: Path) -> str:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return f"pid {value['pid']} on {value['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its number is not known"
