"""Exports what a run made: main as a submission archive, the whole workspace as a Git bundle."""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
import tempfile
from pathlib import Path

from agensh.rundir import RunDir, RunInfo
from agensh.runs.alone import alone_at
from agensh.runs.collect import Collector, git, main_history
from agensh.runs.grader import export


async def export_submission(run: RunDir, info: RunInfo) -> Path | None:
    """Write `submission.tar.gz` (main as it stands) and `workspace.bundle`; return the former, None without a main.

    The archive has `./` entries owned by root and the commit's time, so the same commit gives the same bytes.
    """
    collector = Collector(run, info, run.secrets())
    async with alone_at(collector.folder):
        return await _export(run, collector.mirror)


async def _export(run: RunDir, mirror: Path) -> Path | None:
    commits = await main_history(mirror)
    if not commits:
        return None
    last = commits[-1]
    target = run.path / "submission.tar.gz"
    with tempfile.TemporaryDirectory(prefix="agensh-export-") as temporary:
        source = Path(temporary) / "source"
        await asyncio.to_thread(export, mirror, last.sha, source)
        await asyncio.to_thread(pack, source, target, int(last.at))
    bundle = run.path / "workspace.bundle"
    # A git that was killed has left it, and the next would refuse to write.
    bundle.with_name(f"{bundle.name}.lock").unlink(missing_ok=True)
    await git("bundle", "create", "--quiet", str(bundle), "--branches", cwd=mirror)
    return target


def pack(source: Path, target: Path, mtime: int) -> None:
    """Pack a folder reproducibly: sorted, root-owned, one time stamp for all."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = mtime
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(source, arcname=".", recursive=False, filter=plain)
        for path in sorted(source.rglob("*")):
            archive.add(path, arcname=f"./{path.relative_to(source)}", recursive=False, filter=plain)
    temporary = target.with_suffix(".partial")
    with temporary.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
        stream.write(buffer.getvalue())
    temporary.replace(target)
