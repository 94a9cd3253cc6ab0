"""Writes a run out as plain files: what leaves the box, without any credential."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from agensh.errors import AgenshError
from agensh.identity import write_private_json
from agensh.launch.export import export_submission
from agensh.launch.local import write_report
from agensh.rundir import RunDir, RunInfo
from agensh.runs.collect import Collector
from agensh.runs.record import RUNTIME_COPY, load_record, read_runtime
from agensh.runs.report import build_report

FILES = ("run.json", "report.json", "grades.json", "submission.tar.gz", "workspace.bundle")
FOLDERS = ("record", "logs")


async def take_out(run: RunDir, info: RunInfo, target: Path, *, collect: bool) -> list[str]:
    """Copy a run's results, record and logs to `target`, a new or empty folder; return a line for each.

    `collect` asks the services of a local run first, which must be running. AgenshError when nothing was
    ever collected.
    """
    if collect:
        await Collector(run, info, run.secrets()).collect()
    record = run.path / "record"
    if not (record / "entries.json").exists():
        raise AgenshError(f"{run.run_id} has no record yet; it is collected while the run's services are there.")
    if (record / "workspace.git" / "HEAD").exists():
        await export_submission(run, info)
    write_report(run, build_report(await load_record(run)))
    lines = await asyncio.to_thread(_copy, run, target)
    if (run.path / "runtime.sqlite3").exists():
        write_private_json(target / "record" / RUNTIME_COPY, await read_runtime(run))
    return [*lines, f"{target}"]


def _copy(run: RunDir, target: Path) -> list[str]:
    lines = []
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in FILES:
        if (run.path / name).exists():
            shutil.copyfile(run.path / name, target / name)
            lines.append(f"  {name}")
    for name in FOLDERS:
        if (run.path / name).is_dir():
            # The mirror of the workspace is in the bundle. Files in the making have a name with a dot before it.
            left_out = shutil.ignore_patterns("*.git", "*.partial", ".*")
            shutil.copytree(run.path / name, target / name, dirs_exist_ok=True, ignore=left_out)
            lines.append(f"  {name}/")
    return lines
