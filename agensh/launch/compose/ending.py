"""What the containers of a project do around the workers' time: provisioning before it, record and grades after it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

import httpx
from sqlalchemy import insert, select, update

from adapters.container_runtime import connect, remove_containers
from agensh.db import migrate, open_engine
from agensh.errors import AgenshError
from agensh.identity import write_private_json
from agensh.launch.compose.grading import grade_in_containers
from agensh.launch.compose.project import ENDED, ENDING
from agensh.launch.export import export_submission
from agensh.launch.local import write_report
from agensh.provision.all import provision
from agensh.rundir import RunDir, RunInfo
from agensh.runs.checkpoints import prepare_cases
from agensh.runs.collect import Collector
from agensh.runs.record import RUNTIME_COPY, load_record, read_runtime
from agensh.runs.report import build_report
from router.tables import MIGRATIONS, VERSION_TABLE, runs

log = logging.getLogger(__name__)


async def provision_run(run: RunDir) -> None:
    """Make what the run needs on its services and ask the reference for the hidden cases' answers."""
    info = run.info()
    secrets = await provision(run, info, run.secrets(), progress=_say)
    run.write_secrets(secrets)
    if info.spec.task.cases is not None:
        if not (run.private / "cases.jsonl").exists():
            _say("asking the reference for the answers of the hidden cases")
        _say(f"{await asyncio.to_thread(prepare_cases, run, info)} hidden cases answered")
    give_back(run)


async def collect(run: RunDir, info: RunInfo) -> None:
    """Copy the record from the services, export main and write the report as far as grades are there."""
    await _collect(run, info)
    await export_submission(run, info)
    write_report(run, build_report(await load_record(run)))
    give_back(run)


async def finish(run: RunDir, info: RunInfo) -> None:
    """End a run whose time is over: record, workers' containers, submission, grades, report.

    Does nothing for a run that was only stopped; it goes on with the next start.
    """
    if [row["state"] for row in (await read_runtime(run))["runs"]] != ["finished"]:
        return
    assert info.containers is not None
    # The node host answers nobody from now on: whoever waits for it sees why.
    (run.path / ENDING).touch()
    await _collect(run, info)
    await asyncio.to_thread(remove_containers, connect(), info.containers.project)
    await export_submission(run, info)
    try:
        await grade_in_containers(run, info)
    except AgenshError as error:
        log.error("grading failed", extra={"error": str(error)})
    report = build_report(await load_record(run))
    write_report(run, report)
    (run.path / ENDED).touch()
    (run.path / ENDING).unlink(missing_ok=True)
    log.info("run is finished", extra={"report": json.dumps(report.to_json())[:2000]})
    give_back(run)


async def abort(run: RunDir, info: RunInfo, now: float) -> bool:
    """End a run as `aborted`, at `now` (epoch seconds): record, workers' containers, report, no grades.

    False, and nothing done, when its time was over before.
    """
    assert info.containers is not None
    if not await _mark_aborted(run, info, now):
        return False
    await asyncio.to_thread(remove_containers, connect(), info.containers.project)
    try:
        await _collect(run, info)
        await export_submission(run, info)
    except AgenshError as error:
        # A service that does not come back after a reboot must not keep the run from its end.
        log.error("the record is not complete", extra={"error": str(error)})
        write_private_json(run.path / "record" / RUNTIME_COPY, await read_runtime(run))
    write_report(run, build_report(await load_record(run)))
    (run.path / ENDED).touch()
    log.warning("run is aborted: the box was rebooted", extra={"on_reboot": info.spec.container.on_reboot})
    give_back(run)
    return True


async def _mark_aborted(run: RunDir, info: RunInfo, now: float) -> bool:
    await asyncio.to_thread(migrate, run.runtime_url, MIGRATIONS, version_table=VERSION_TABLE)
    engine = open_engine(run.runtime_url, pool_size=1)
    try:
        async with engine.begin() as connection:
            state = await connection.scalar(select(runs.c.state).where(runs.c.run_id == info.run_id))
            if state == "finished":
                return False
            if state is None:
                await connection.execute(insert(runs).values(run_id=info.run_id, t0=now, state="aborted"))
            change = update(runs).where(runs.c.run_id == info.run_id).values(state="aborted", stopped_at=now)
            await connection.execute(change)
    finally:
        await engine.dispose()
    return True


async def unpark(run: RunDir, info: RunInfo) -> list[str]:
    """Let the parked workers of the run's node hosts go on, and return who was parked."""
    headers = {"Authorization": f"Bearer {run.secrets().node_admin}"}
    try:
        async with httpx.AsyncClient(headers=headers, timeout=5.0, trust_env=False) as http:
            answers = [await http.post(f"{place.url}/unpark") for place in info.places]
            return [worker for answer in answers for worker in answer.raise_for_status().json()["workers"]]
    except httpx.HTTPError as error:
        raise AgenshError(f"the node host does not answer: {error!r}") from error


async def _collect(run: RunDir, info: RunInfo) -> None:
    # The node host makes the tables at its start, and may have got no further than that.
    await asyncio.to_thread(migrate, run.runtime_url, MIGRATIONS, version_table=VERSION_TABLE)
    await Collector(run, info, run.secrets()).collect()
    write_private_json(run.path / "record" / RUNTIME_COPY, await read_runtime(run))


def give_back(run: RunDir) -> None:
    """Give the files that a container, as root, has made in the run folder to the folder's owner on the box."""
    owner = run.path.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    skipped = run.path / "workers"  # those belong to the workers' own account
    for folder, folders, files in os.walk(run.path):
        if Path(folder) == run.path:
            folders[:] = [name for name in folders if run.path / name != skipped]
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            with suppress(FileNotFoundError):  # another process was making it, under a name for the moment
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _say(message: str) -> None:
    sys.stdout.write(message + "\n")
    sys.stdout.flush()
