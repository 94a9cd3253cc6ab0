"""The folders and the environment of one worker: all that its CLI may see of the run, and nothing of anybody else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from adapters.base import WorkerLaunch
from agensh.inside import make_folder_inside, write_private_inside
from agensh.rundir import RunDir, RunInfo, WorkerSecrets

TOKEN_FILE = ".config/agensh/forge-token"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Git runs the helper in a shell with the worker's HOME; the token is in no argument list, no URL and no clone.
_HELPER = r"!f() {{ test \"$1\" = get && echo username={worker} && echo \"password=$(cat \"$HOME/{token}\")\"; }}; f"
_GITCONFIG = """\
[user]
	name = {worker}
	email = {worker}@{domain}
[init]
	defaultBranch = main
[pull]
	rebase = false
[advice]
	detachedHead = false
"""
_CREDENTIALS = f"""\
[credential "{{forge}}"]
	helper =
	helper = "{_HELPER}"
"""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where one worker lives."""

    worker: str
    home: Path
    work: Path
    tmp: Path
    log: Path


def clone_url(info: RunInfo) -> str:
    """Return the address of the team's repository on the forge, without credentials."""
    return f"{info.urls.forge}/{info.owner}/{info.repository}.git"


def prepare(run: RunDir, info: RunInfo, worker: str, secrets: WorkerSecrets) -> Workspace:
    """Create the worker's folders and its Git configuration; what is in them already stays."""
    folder = run.worker(worker)
    space = Workspace(worker, folder / "home", folder / "work", folder / "tmp", run.logs / f"{worker}.log")
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in (space.home, space.work, space.tmp):
        make_folder_inside(folder, path.name)
    space.log.parent.mkdir(parents=True, exist_ok=True)
    domain = urlsplit(info.urls.forge).hostname or "localhost"
    config = _GITCONFIG.format(worker=worker, domain=domain)
    if info.urls.forge:
        write_private_inside(space.home, TOKEN_FILE, secrets.forge_token + "\n")
        config += _CREDENTIALS.format(worker=worker, forge=info.urls.forge, token=TOKEN_FILE)
    write_private_inside(space.home, ".gitconfig", config)
    return space


def environment(info: RunInfo, space: Workspace, secrets: WorkerSecrets) -> dict[str, str]:
    """Return the whole environment of the worker's CLI; of the host's own only PATH is taken over.

    In a container it comes on top of the image's, whose PATH leads to the tools of the task.
    """
    path = {} if info.containers is not None else {"PATH": os.environ.get("PATH", DEFAULT_PATH)}
    alone = {
        **path,
        "HOME": str(space.home),
        "TMPDIR": str(space.tmp),
        "LANG": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "AGENSH_RUN": info.run_id,
        "AGENSH_WORKER": space.worker,
        "AGENSH_REFERENCE": info.reference,
    }
    if info.baseline:
        return alone
    return alone | {
        "AGENSH_MCP_URL": mcp_url(info, space.worker),
        "AGENSH_MCP_TOKEN": secrets.mcp_token,
        "AGENSH_FORGE_URL": clone_url(info),
    }


def mcp_url(info: RunInfo, worker: str) -> str:
    """Return the worker's MCP endpoint."""
    return f"{info.node_url(worker)}/mcp/{worker}"


def hooks_url(info: RunInfo, worker: str) -> str:
    """Return the worker's hook endpoint, or nothing where the spec wants no hooks."""
    wanted = "hooks" in info.spec.delivery.paths.split("+")
    return f"{info.node_url(worker)}/hooks/{worker}" if wanted else ""


def launch(info: RunInfo, space: Workspace, secrets: WorkerSecrets) -> WorkerLaunch:
    """Return what an adapter needs to run the worker's CLI."""
    options = info.spec.worker
    return WorkerLaunch(
        worker=space.worker,
        home=space.home,
        work=space.work,
        tmp=space.tmp,
        log=space.log,
        mcp_url="" if info.baseline else mcp_url(info, space.worker),
        mcp_token=secrets.mcp_token,
        hooks_url="" if info.baseline else hooks_url(info, space.worker),
        model=options.model,
        effort=options.effort,
        max_prompt_tokens=options.max_prompt_tokens,
        max_output_tokens=options.max_output_tokens,
        model_url=info.urls.gateway,
        model_key=secrets.gateway_key,
        options=options.options,
        contained=info.containers is not None,
        env=environment(info, space, secrets),
    )
