"""The run folder of a Compose project: what the containers mount, with the variables and secrets the stack reads.

The folder has the same path in the containers as on the box, so that a path means the same to the node host, to the
engine that mounts workers' folders, and to a person. The task's files are copied in: nothing outside it is mounted.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from adapters.container_runtime import REFERENCE
from agensh.clock import Clock
from agensh.errors import AgenshError, SpecError, UsageError
from agensh.gateway.credential import read_credential
from agensh.identity import new_password, new_token, write_private
from agensh.rundir import AdminSecrets, ContainerInfo, RunDir, RunInfo, RunSecrets, ServiceUrls, new_run_dir
from agensh.spec import TeamSpec

SERVICE_IMAGE = "agensh/service:local"
SCRIPTED_IMAGE = "agensh/worker-scripted:local"
URLS = ServiceUrls(
    forge="http://gitea:3000",
    chat="http://mattermost:8065",
    board="http://board:8660",
    node="http://node:8700",
    gateway="http://gateway:8670",
)
"""Where the services answer inside the project's networks."""
ADMIN = "agensh-admin"
ENV_FILE = "compose.env"
_CHANGED = "$'\"\\"
"""What one of the Composes replaces, unquotes or cuts in a line of an environment file; there is no common escape."""
_CHANGED_IN_PATHS = re.compile(r"[:$\n\r]|\s#")
"""What Compose cuts or replaces in the path of the run folder, which is a variable and a part of volumes."""
ENDED = "ended"
"""File of a run folder that says: its time is over and the report is written, or its data was removed."""
ENDING = "ending"
"""File of a run folder that says: its time is over, and the node host collects, grades and writes the report."""
PLAYBOOK = "playbook"
"""Folder of the task's files that workers of the scripted harness see."""


def project_runs(root: Path, project: str) -> list[RunDir]:
    """Return the runs of a project below `root`, the oldest first."""
    found = []
    for file in root.glob("*/run.json"):
        run = RunDir(file.parent.absolute())
        info = run.info()
        if info.containers is not None and info.containers.project == project:
            found.append((info.created_at, run))
    return [run for _, run in sorted(found, key=lambda pair: pair[0])]


def create_project_run(
    spec: TeamSpec, root: Path, clock: Clock, *, images: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> RunDir:
    """Make the run folder of a project: `run.json`, `secrets.json`, the task's files, the stack's secret files.

    `images` names those that are not the default (`service`, `worker`). UsageError for a task that cannot be used.
    """
    credential = read_credential(spec.gateway, environment) if spec.gateway is not None else ""
    place = str(root.absolute())
    if found := _CHANGED_IN_PATHS.search(place):
        raise UsageError(
            f"runs: {place!r} has {found[0]!r}, which Compose changes in a path; name another folder with --runs."
        )
    now = clock.time()
    try:
        run = new_run_dir(root, spec.team.name, now)
    except OSError as error:
        raise AgenshError(f"runs: no folder can be made in {str(root)!r}: {error.strerror}.") from error
    try:
        _fill(run, spec, now, images, credential)
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise AgenshError(f"runs: {str(run.path)!r} cannot be written: {error.strerror or error}.") from error
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def renew_credential(run: RunDir, spec: TeamSpec, environment: Mapping[str, str]) -> None:
    """Take the provider's credential of `spec` anew into a run that goes on; the one it has stays when none is named.

    So a wrong key is put right by naming another one and calling `up` again.
    """
    kept = run.info().spec.gateway
    if kept is None or spec.gateway is None or not kept.api_key_env:
        return
    with suppress(SpecError):
        credential = read_credential(spec.gateway, environment)
        if credential:
            _write_env(run.path / "secrets" / "gateway.env", {kept.api_key_env: credential})


def _write_env(path: Path, values: Mapping[str, str]) -> None:
    """Write a file that Compose reads into a container's environment; UsageError names a value that it would change."""
    for key, value in values.items():
        changed = sorted({character for character in value if character in _CHANGED})
        if changed:
            raise UsageError(
                f"{key}: the value has {' '.join(map(repr, changed))}, which Compose changes on the way into a "
                "container; use another credential."
            )
    write_private(path, "".join(f"{key}={value}\n" for key, value in values.items()))


def _fill(run: RunDir, spec: TeamSpec, now: float, images: Mapping[str, str], credential: str) -> None:
    spec = _take_in(run, spec)
    service = images.get("service", SERVICE_IMAGE)
    worker = images.get("worker") or spec.container.image or worker_image(spec)
    run.write_info(
        RunInfo(
            run_id=run.run_id,
            created_at=now,
            spec=spec,
            urls=URLS if spec.gateway is not None else URLS.model_copy(update={"gateway": ""}),
            board=spec.team.name,
            owner=spec.team.name,
            repository="workspace",
            channel="task",
            chat_team=spec.team.name,
            containers=ContainerInfo(
                project=spec.team.name,
                image=worker,
                grader_image=service,
                reference=REFERENCE if spec.task.reference is not None else "",
            ),
        )
    )
    database = new_password()
    url = f"mysql+aiomysql://agensh:{database}@mysql:3306/agensh"
    run.write_secrets(
        RunSecrets(
            forge_admin=AdminSecrets(name=ADMIN, password=new_password()),
            chat_admin=AdminSecrets(name=ADMIN, password=new_password()),
            board_admin=new_token("agadmin"),
            node_admin=new_token("agnode"),
            gateway_admin=new_token("aggwadmin") if spec.gateway is not None else "",
            board_db=url,
            runtime_db=url,
            gateway_db=url if spec.gateway is not None else "",
        )
    )
    _write_secret_files(run, spec, database, credential)
    for folder in (run.logs, run.private, run.path / "record", run.path / "workers"):
        folder.mkdir(exist_ok=True, mode=0o700)
    # A worker's container mounts its own folder below; the engine, which is root, goes through these.
    (run.path / "workers").chmod(0o711)


def _take_in(run: RunDir, spec: TeamSpec) -> TeamSpec:
    """Copy the task's files into the run folder and return the spec that names the copies."""
    folder = run.path / "task"
    folder.mkdir()
    updates: dict[str, Path] = {}
    for key in ("goal", "repository", "cases"):
        source: Path | None = getattr(spec.task, key)
        if source is not None:
            updates[key] = _copy(source, folder / key / source.name)
    if spec.task.cases is not None and spec.task.cases.suffix == ".py":
        _copy_modules(spec.task.cases.parent, folder / "cases")
    if spec.task.reference is not None:
        updates["reference"] = reference = _copy(spec.task.reference, folder / "reference" / "executable")
        with reference.open("rb") as file:
            script = file.read(2) == b"#!"
        # Whoever may not read a script cannot run it either; only a binary can be execute-only.
        reference.chmod(0o555 if script else 0o111)
        if os.geteuid() == 0:
            os.chown(reference, 0, 0)
    options = dict(spec.worker.options)
    if "playbook" in options:
        playbook = Path(options["playbook"])
        options["playbook"] = str(_copy(playbook, folder / PLAYBOOK / playbook.name))
        _copy_modules(playbook.parent, folder / PLAYBOOK, leave_out=spec.task.cases)
    gateway = spec.gateway
    if gateway is not None:
        changes: dict[str, object] = {"api_key_file": None}
        if gateway.auth != "none":
            changes["api_key_env"] = gateway.api_key_env or "AGENSH_PROVIDER_KEY"
        if gateway.prices is not None:
            changes["prices"] = _copy(gateway.prices, folder / "prices.toml")
        gateway = gateway.model_copy(update=changes)
    return spec.model_copy(
        update={
            "task": spec.task.model_copy(update=updates),
            "worker": spec.worker.model_copy(update={"options": options}),
            "gateway": gateway,
        }
    )


def _copy_modules(source: Path, target: Path, leave_out: Path | None = None) -> None:
    """Copy the Python modules and packages of a folder, which a script of that folder may import."""
    for path in source.iterdir():
        module = path.suffix == ".py" if path.is_file() else (path / "__init__.py").is_file()
        if module and path != leave_out and not (target / path.name).exists():
            _copy(path, target / path.name)


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode & 0o777)
    except OSError as error:
        raise AgenshError(f"task: {str(source)!r} cannot be copied into the run folder: {error}.") from error
    return target


def _write_secret_files(run: RunDir, spec: TeamSpec, database: str, credential: str) -> None:
    folder = run.path / "secrets"
    folder.mkdir(mode=0o700)
    postgres, gitea, mattermost = (new_password() for _ in range(3))
    files = {
        "mysql.env": {
            "MYSQL_DATABASE": "agensh",
            "MYSQL_USER": "agensh",
            "MYSQL_PASSWORD": database,
            "MYSQL_ROOT_PASSWORD": new_password(),
        },
        "postgres.env": {"POSTGRES_USER": "postgres", "POSTGRES_DB": "postgres", "POSTGRES_PASSWORD": postgres},
        "gitea.env": {
            "GITEA__database__PASSWD": gitea,
            "GITEA__security__SECRET_KEY": new_password(),
        },
        "mattermost.env": {
            "MM_SQLSETTINGS_DATASOURCE": f"postgres://mattermost:{mattermost}@postgres:5432/mattermost"
            "?sslmode=disable&connect_timeout=10"
        },
        "gateway.env": {},
    }
    if spec.gateway is not None and credential:
        files["gateway.env"] = {spec.gateway.api_key_env or "AGENSH_PROVIDER_KEY": credential}
    for name, values in files.items():
        _write_env(folder / name, values)
    statements = "".join(
        f"CREATE ROLE {name} LOGIN PASSWORD '{password}';\nCREATE DATABASE {name} OWNER {name};\n"
        for name, password in (("gitea", gitea), ("mattermost", mattermost))
    )
    # Read by the server's own account inside its container; the folder above it is the box's owner's alone.
    write_private(folder / "postgres.sql", statements)
    (folder / "postgres.sql").chmod(0o644)


def worker_image(spec: TeamSpec) -> str:
    """Return the name of the image that `agensh up` builds for this spec's workers, after what it is made of."""
    worker = spec.worker
    if worker.harness == "scripted":
        return SCRIPTED_IMAGE
    made_of = f"{worker.options.get('version', '')} {spec.container.task_image}"
    return f"agensh/worker-{worker.harness}:local-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def write_compose_env(run: RunDir, variables: Mapping[str, str]) -> Path:
    """Write the variables that compose.yaml reads (no secret among them) and return the file."""
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise UsageError(f"{name}: {value!r} is not allowed: it has a line break.")
    path = run.path / ENV_FILE
    write_private(path, "".join(f"{name}={value}\n" for name, value in sorted(variables.items())))
    return path
