"""Names and tokens of workers.

A worker is one identity `<team>-worker<n>` on every service (n counts from 1). Tokens are random, shown once and stored
as SHA-256 hashes: they carry 256 bits, so a slow password hash would buy nothing and cost milliseconds a request.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Any

from agensh.errors import UsageError

TEAM_NAME = re.compile(r"[a-z][a-z0-9-]{0,38}[a-z0-9]")
_WORKER_NAME = re.compile(r"(?P<team>[a-z][a-z0-9-]*)-worker(?P<number>[1-9][0-9]{0,3})")


def worker_name(team: str, number: int) -> str:
    """Return the full handle of worker `number` (1 to 9999), the only form that reaches anybody."""
    return f"{team}-worker{number}"


def parse_worker_name(name: str) -> tuple[str, int]:
    """Return team and number of a worker's handle; UsageError when it is none."""
    match = _WORKER_NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"worker: {name!r} is not a worker's full name; expected <team>-worker<n>, e.g. demo-worker1.")
    return match["team"], int(match["number"])


def new_token(prefix: str = "ag") -> str:
    """Return a fresh token: a readable prefix (for secret scanners) and 256 random bits."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def new_password() -> str:
    """Return a fresh password of 192 random bits that needs no quoting: not as an argument, in an address or in SQL."""
    return secrets.token_hex(24)


def token_hash(token: str) -> str:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_matches(token: str, stored_hash: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(token_hash(token), stored_hash)


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 600, whole or not at all; it is there to stay when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.chmod(0o600)
        put_in_place(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_private_json(path: Path, value: Any) -> None:
    """Write JSON into a file of mode 600, whole or not at all; it is there to stay when this returns."""
    write_private(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a file that is written; also a power cut leaves the old one or the new one whole, and then the new one."""
    _sync(temporary)
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Let what was made or renamed in a folder survive a power cut; a file's own sync says nothing of its name."""
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # of a file system that knows no such thing
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
