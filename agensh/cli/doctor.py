"""`agensh doctor`: is this machine ready for a local run? Each finding names its remedy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from agensh.cli.findings import Finding, Verdict
from agensh.errors import UsageError
from agensh.launch.ports import free_ports
from agensh.text import printable_line

MIN_GIT = (2, 38)
"""`git merge-tree --write-tree`, which the embedded forge merges with, came with 2.38."""
MIN_SQLITE = (3, 35)
"""RETURNING came with 3.35."""
MIN_FREE = 1 << 30  # bytes of free disk
MIN_FILES = 1024  # open files a process may have


def doctor(
    runs: Annotated[Path, typer.Option("--runs", envvar="AGENSH_RUNS", help="Folder that will hold the runs.")] = Path(
        "runs"
    ),
    harness: Annotated[str | None, typer.Option(help="Check that the workers of this harness can run here.")] = None,
    run: Annotated[
        str | None, typer.Option(help="With --harness: ask the gateway and the node host of this run.")
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="With --harness: take worker.options, such as binary, from this file.")
    ] = None,
) -> None:
    """Check that this machine can run a team; ends with 1 when something is missing.

    With --harness: that the CLI is there in a tested version, and, with --run or with AGENSH_GATEWAY_URL,
    AGENSH_GATEWAY_KEY, AGENSH_MCP_URL and AGENSH_MCP_TOKEN, that its model and its tools answer.
    """
    if harness is not None:
        from agensh.cli.doctor_harness import look, subject_of

        findings = look(subject_of(harness, runs, run=run, spec=spec, environment=os.environ))
    elif run is not None or spec is not None:
        raise UsageError(f"{'--run' if run is not None else '--spec'}: give --harness as well.")
    else:
        findings = [check() for check in (_python, _git, _http_backend, _sqlite, _coreutils, _ports, _files)]
        findings.append(_disk(runs))
    console = Console(highlight=False)
    marks = {
        Verdict.OK: "[green]ok[/]",
        Verdict.NO: "[red]no[/]",
        Verdict.UNSURE: "[yellow]??[/]",
        Verdict.SKIPPED: "--",
    }
    for finding in findings:
        console.print(
            f"{marks[finding.verdict]}  {escape(printable_line(f'{finding.what}: {finding.found}'))}", soft_wrap=True
        )
        if finding.remedy and finding.verdict is not Verdict.OK:
            console.print(f"    {escape(printable_line(finding.remedy))}", soft_wrap=True)
    if any(finding.verdict is Verdict.NO for finding in findings):
        raise typer.Exit(1)


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding.of("python", sys.version_info >= (3, 11), found, "Install Python 3.11 or newer.")


def _git() -> Finding:
    remedy = f"Install git {'.'.join(map(str, MIN_GIT))} or newer with your package manager."
    try:
        text = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return Finding.of("git", False, "not found", remedy)
    words = text.split()[2].split(".")
    return Finding.of("git", (int(words[0]), int(words[1])) >= MIN_GIT, text.split()[2], remedy)


def _http_backend() -> Finding:
    remedy = "Install the full git package (git-http-backend serves clones and pushes)."
    try:
        folder = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return Finding.of("git http-backend", False, "git not found", remedy)
    path = Path(folder.strip()) / "git-http-backend"
    return Finding.of("git http-backend", os.access(path, os.X_OK), str(path) if path.exists() else "not found", remedy)


def _sqlite() -> Finding:
    remedy = f"Use a Python built with SQLite {'.'.join(map(str, MIN_SQLITE))} or newer."
    return Finding.of("sqlite", sqlite3.sqlite_version_info >= MIN_SQLITE, sqlite3.sqlite_version, remedy)


def _coreutils() -> Finding:
    missing = [tool for tool in ("wc", "tr", "numfmt", "factor", "od") if shutil.which(tool) is None]
    found = f"missing: {', '.join(missing)}" if missing else "found"
    return Finding.of("coreutils (the demo's reference)", not missing, found, "Install GNU coreutils.")


def _ports() -> Finding:
    try:
        free_ports(4)
    except OSError as error:
        return Finding.of("loopback ports", False, str(error), "Let this user open listening ports on 127.0.0.1.")
    return Finding.of("loopback ports", True, "free")


def _files() -> Finding:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Finding.of("open files", soft >= MIN_FILES, str(soft), f"Raise the limit: ulimit -n {MIN_FILES}.")


def _disk(runs: Path) -> Finding:
    folder = next(path for path in (runs.absolute(), *runs.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    found = f"{free / (1 << 30):.1f} GiB free in {folder}" + ("" if writable else ", not writable")
    return Finding.of(
        "disk", free >= MIN_FREE and writable, found, "Free at least 1 GiB, or name another folder with --runs."
    )
