"""The single-agent CLIs that Agensh is tested with, and their installation from npm.

`TESTED` is the one table of packages and versions. An installation is kept in a cache that all runs and tests share,
one folder a version, made whole or not at all; processes that want the same one wait for each other. What is returned
is the native binary where the package has one: the npm wrappers start it as a child, which outlives a kill of the
wrapper.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agensh.errors import AgenshError, UsageError

INSTALL_LIMIT = 900.0  # seconds; the largest package is 840 MB on the disk
_SAID = 300  # characters of npm's last words in an error
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?")


@dataclass(frozen=True, slots=True)
class Package:
    """A CLI on npm."""

    name: str
    versions: tuple[str, ...]
    """The versions that the tests run, newest last."""
    binaries: tuple[str, ...]
    """Patterns of the file to run, below node_modules, best first."""
    harness: str
    """The adapter that drives it."""
    command: str = ""
    """Its program's name on the PATH; empty where the spec names the command."""

    @property
    def newest(self) -> str:
        """The version to take when nobody names one."""
        return self.versions[-1]


TESTED = (
    Package("@github/copilot", ("1.0.70", "1.0.102"), ("@github/copilot-*-*/copilot",), "copilot", "copilot"),
    Package(
        "@anthropic-ai/claude-code",
        ("2.1.332",),
        ("@anthropic-ai/claude-code-*-*/claude", "@anthropic-ai/claude-code/bin/claude.exe"),
        "claude-code",
        "claude",
    ),
    Package("@openai/codex", ("0.171.0",), ("@openai/codex-*-*/vendor/*/bin/codex",), "codex", "codex"),
    Package("@agentclientprotocol/claude-agent-acp", ("0.101.0",), (".bin/claude-agent-acp",), "acp"),
    Package("@agentclientprotocol/codex-acp", ("2.6.0",), (".bin/codex-acp",), "acp"),
)


class InstallFailed(AgenshError):
    """A CLI could not be installed from npm."""


def package(name: str) -> Package:
    """Return the row of a package; UsageError lists those there are."""
    for row in TESTED:
        if row.name == name:
            return row
    raise UsageError(f"package: {name!r} is not one Agensh knows; it knows {', '.join(row.name for row in TESTED)}.")


def package_of(harness: str) -> Package:
    """Return the package of a harness that has exactly one; UsageError lists those there are."""
    rows = [row for row in TESTED if row.harness == harness]
    if len(rows) == 1:
        return rows[0]
    single = [row.harness for row in TESTED if [other.harness for other in TESTED].count(row.harness) == 1]
    raise UsageError(f"harness: {harness!r} is not installed by Agensh; it installs {', '.join(single)}.")


def cache() -> Path:
    """Return where installations are kept: `AGENSH_NPM_DIR`, else below the user's cache."""
    named = os.environ.get("AGENSH_NPM_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(named) if named else Path(base) / "agensh" / "npm"


def install(name: str, version: str = "") -> Path:
    """Return the file to run of a package, installed now when the cache lacks it (blocking, minutes at most).

    Without a version the newest tested one. InstallFailed when npm is missing, the registry cannot be reached or the
    package has nothing for this machine.
    """
    row = package(name)
    chosen = version or row.newest
    if not _VERSION.fullmatch(chosen):
        raise UsageError(f"version: {chosen!r} of {name} is not a version; expected one such as {row.newest}.")
    folder = cache() / f"{name.removeprefix('@').replace('/', '-')}-{chosen}"
    if (binary := find_binary(row, folder)) is not None:
        return binary
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _held(folder.with_name(f"{folder.name}.lock")):
            if (binary := find_binary(row, folder)) is None:
                _fill(folder, f"{name}@{chosen}")
                binary = find_binary(row, folder)
    except OSError as error:
        raise InstallFailed(f"{name} {chosen} cannot be kept in {folder}: {error}; set AGENSH_NPM_DIR.") from error
    if binary is None:
        raise InstallFailed(f"{name} {chosen} has no program for this machine (looked below {folder}).")
    return binary


def find_binary(row: Package, folder: Path) -> Path | None:
    """Return the file to run of a package that is installed below an npm prefix, None when there is none."""
    for pattern in row.binaries:
        # Where a package brings a build for each C library, the one for glibc has the shorter name.
        found = sorted((folder / "node_modules").glob(pattern), key=lambda path: (len(path.parts), len(str(path))))
        for path in found:
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None


def _fill(folder: Path, wanted: str) -> None:
    """Install into a folder beside and move it, so that one that was cut off is never taken for a whole one."""
    npm = shutil.which("npm")
    if npm is None:
        raise InstallFailed(
            f"npm is missing, which installs {wanted}: install Node.js 20 or newer, or name an installed CLI in "
            "worker.options.binary."
        )
    shutil.rmtree(folder, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        code, said = _run([npm, "install", "--prefix", str(fresh), "--no-audit", "--no-fund", wanted], fresh)
        if code:
            raise InstallFailed(
                f"npm could not install {wanted} (exit code {code}): {said}. Is the registry within reach? "
                "`npm ping` tells."
            )
        fresh.chmod(0o755)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    """Run npm with all it starts, bounded; return its exit code and its last words."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(INSTALL_LIMIT)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").split("\n")
    said = [line for line in lines if line.startswith("npm error") and "complete log" not in line] or lines
    return code, " ".join(" ".join(said).replace("npm error", "").split())[:_SAID]


@contextmanager
def _held(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
