"""Grades what a team made in containers of its own: no network, no secret, and nothing of the run but the sources.

The answered cases go into the container as one file that the grader takes away before it builds anything.
"""

from __future__ import annotations

import io
import json
import logging
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from adapters.container_runtime import LABEL, UID, WORKER_USER, connect
from agensh.errors import AgenshError
from agensh.rundir import RunDir, RunInfo
from agensh.runs import DEFAULT_CHECKPOINTS
from agensh.runs.checkpoints import Checkpoint, Grader
from agensh.runs.grader import export

MEMORY = 8 << 30  # bytes for building and running a submission
PIDS = 4096
CASES_TIME = 3600.0  # seconds that running all cases may take, the build apart
LOG_CAP = 2000  # characters
log = logging.getLogger(__name__)


async def grade_in_containers(run: RunDir, info: RunInfo, *, most: int = DEFAULT_CHECKPOINTS) -> list[Checkpoint]:
    """Grade up to `most` commits of the collected main; nothing is graded for a task without cases or acceptance."""
    if info.spec.task.cases is None and info.spec.task.acceptance is None:
        return []
    client = connect()
    grader = Grader(run, info, grade=lambda sha: _grade(client, run, info, sha))
    return await grader.grade_main(most=most, progress=_tell)


def _tell(done: int, count: int) -> None:
    log.info("grading", extra={"done": done, "count": count})


def _grade(client: docker.DockerClient, run: RunDir, info: RunInfo, sha: str) -> tuple[int, int, bool, str]:
    """Return passed, total, whether it was built, and why not (blocking)."""
    task, containers = info.spec.task, info.containers
    assert containers is not None
    with tempfile.TemporaryDirectory(prefix="agensh-grade-") as temporary:
        source = Path(temporary) / "source"
        export(run.path / "record" / "workspace.git", sha, source)
        if task.acceptance is not None:
            command, image, folder = ["/bin/sh", "-c", task.acceptance], containers.image, "/grade/source"
            content = _archive(source)
        else:
            command = ["python3", "-m", "agensh.runs.grader", "--source", "/grade/source", "--json"]
            command += ["--cases", "/grade/cases.jsonl", "--take-cases"]
            command += ["--build-timeout", f"{task.build_timeout:g}"]
            image, folder = containers.grader_image, "/grade"
            content = _archive(source, run.private / "cases.jsonl")
    code, out, err = _run(client, containers.project, image, command, folder, content, task.build_timeout)
    if task.acceptance is not None:
        return int(code == 0), 1, True, (out + err)[-LOG_CAP:]
    try:
        grade = json.loads(out)
    except json.JSONDecodeError:
        raise AgenshError(f"The grader of {sha[:10]} gave no grade ({code}): {(err or out).strip()[-300:]}") from None
    built = bool(grade["build_ok"])
    return int(grade["passed"]), int(grade["total"]), built, "" if built else str(grade["build_log"])[-LOG_CAP:]


def _archive(source: Path, cases: Path | None = None) -> bytes:
    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = UID
        member.uname = member.gname = ""
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("grade")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(owned(folder))
        archive.add(source, arcname="grade/source", filter=owned)
        if cases is not None:
            archive.add(cases, arcname="grade/cases.jsonl", filter=owned)
    return buffer.getvalue()


def _run(
    client: docker.DockerClient,
    project: str,
    image: str,
    command: list[str],
    folder: str,
    content: bytes,
    build_timeout: float,
) -> tuple[int, str, str]:
    """Run one command on `content` and return its exit code, output and errors; AgenshError when it cannot be run."""
    container: Any = None
    try:
        container = client.containers.create(
            image,
            command,
            user=WORKER_USER,
            working_dir=folder,
            init=True,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=MEMORY,
            memswap_limit=MEMORY,
            pids_limit=PIDS,
            labels={LABEL: project},
            environment={"HOME": "/tmp", "LC_ALL": "C"},
        )
        container.put_archive("/", content)
        container.start()
        code = int(container.wait(timeout=build_timeout + CASES_TIME)["StatusCode"])
        out = container.logs(stdout=True, stderr=False).decode(errors="replace")
        return code, out, container.logs(stdout=False, stderr=True).decode(errors="replace")
    except requests.exceptions.RequestException as error:
        raise AgenshError(f"The grader did not end in {build_timeout + CASES_TIME:g} s.") from error
    except (APIError, DockerException) as error:
        raise AgenshError(f"The grader's container cannot be used: {error}") from error
    finally:
        if container is not None:
            with suppress(NotFound):
                container.remove(force=True, v=True)
