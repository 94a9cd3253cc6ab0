"""The forge of a run: accounts, tokens, the team's repository with its protected `main`, and issue 1.

The repository belongs to `info.owner`: an account that nobody logs into, so that no worker is more than a collaborator.
"""

from __future__ import annotations

from pathlib import Path

from agensh.clients.gitea import GiteaClient
from agensh.errors import AgenshError, ServiceError
from agensh.identity import new_password
from agensh.provision.job import Job, together
from agensh.provision.seed import SeedFailed, push_main

WORKER_SCOPES = ("write:repository", "write:issue", "write:notification", "read:user")
ADMIN_SCOPES = ("all",)
ISSUE_TITLE = 120  # characters
ALREADY = frozenset({403, 409, 422})
"""What the forge answers to a second creation of the same thing."""


async def provision_forge(job: Job) -> None:
    """Bring the forge into the state the run needs; what is there already is left alone."""
    admin = job.secrets.forge_admin
    url = job.info.urls.forge
    by_password = GiteaClient(url, basic=(admin.name, admin.password), http=job.http)
    await _admin_token(job, by_password)
    forge = GiteaClient(url, token=admin.token, http=job.http)
    job.progress(f"forge: signed in to Gitea {await forge.version()} as {admin.name}")
    if job.info.owner != admin.name:
        await _ensure_account(forge, job.info.owner, new_password())

    async def account(name: str) -> None:
        password = job.secrets.workers[name].forge_password
        if not await _ensure_account(forge, name, password):
            await _ensure_password(job, forge, name, password)

    async def token(name: str) -> None:
        worker = job.secrets.workers[name]
        if not await _token_works(job, worker.forge_token, name):
            await by_password.delete_token(name, job.label)
            worker.forge_token = await by_password.create_token(name, job.label, WORKER_SCOPES)

    await job.each("forge: accounts", job.workers, account)
    await job.each("forge: tokens", job.workers, token)
    await _repository(job, forge)


async def _admin_token(job: Job, by_password: GiteaClient) -> None:
    admin = job.secrets.forge_admin
    try:
        await by_password.request("GET", "/user")
    except ServiceError as error:
        if error.status in {401, 403}:
            raise AgenshError(f"The forge does not accept the password of its administrator {admin.name!r}.") from error
        raise
    if not await _token_works(job, admin.token, admin.name):
        await by_password.delete_token(admin.name, job.label)
        admin.token = await by_password.create_token(admin.name, job.label, ADMIN_SCOPES)
        await job.save()


async def _token_works(job: Job, token: str, name: str) -> bool:
    if not token:
        return False
    try:
        return (await GiteaClient(job.info.urls.forge, token=token, http=job.http).me()).login == name
    except ServiceError as error:
        if error.status in {401, 403}:
            return False
        raise


async def _ensure_account(forge: GiteaClient, name: str, password: str) -> bool:
    """Return whether the account was created now."""
    if await forge.user(name) is not None:
        return False
    try:
        await forge.create_user(name, password, f"{name}@agensh.invalid")
    except ServiceError as error:
        if error.status >= 500 or await forge.user(name) is None:
            raise
        return False
    return True


async def _ensure_password(job: Job, forge: GiteaClient, name: str, password: str) -> None:
    """Give an account that an earlier run left behind this run's password."""
    own = GiteaClient(job.info.urls.forge, basic=(name, password), http=job.http)
    try:
        await own.request("GET", "/user")
    except ServiceError as error:
        if error.status not in {401, 403}:
            raise
        await forge.set_password(name, password)


async def _repository(job: Job, forge: GiteaClient) -> None:
    info = job.info
    owner, name = info.owner, info.repository
    mark = f"Agensh run {info.run_id}"
    repo = await forge.repo(owner, name)
    if repo is None:
        try:
            repo = await forge.create_repo(owner, name, description=mark)
        except ServiceError as error:
            repo = await forge.repo(owner, name)
            if repo is None or error.status >= 500:
                raise
    if repo.description != mark:
        raise AgenshError(
            f"repository: {owner}/{name} exists on the forge and is not of this run; rename or remove it there, or "
            "give the team another name."
        )
    goal = info.spec.task.goal.read_text(encoding="utf-8")
    title = issue_title(goal, info.spec.task.goal)
    if not await _has_main(forge, owner, name):
        await _push(job, forge, title)
    job.progress(f"forge: repository {owner}/{name}")

    there = await forge.collaborators(owner, name)
    missing = [worker for worker in job.workers if worker not in there]

    async def add(worker: str) -> None:
        await forge.add_collaborator(owner, name, worker)

    await together(missing, add, job.concurrency)
    job.progress(f"forge: collaborators: {len(job.workers)}")
    await _first_issue(forge, owner, name, title, goal)
    if not await forge.branch_protected(owner, name, "main"):
        try:
            await forge.protect_branch(owner, name, "main")
        except ServiceError as error:
            if error.status not in ALREADY or not await forge.branch_protected(owner, name, "main"):
                raise
    job.progress("forge: issue 1, main is protected")
    await _unwatch(job, forge, owner, name)


async def _has_main(forge: GiteaClient, owner: str, name: str) -> bool:
    try:
        await forge.branch(owner, name, "main")
    except ServiceError as error:
        if error.status in {404, 409}:
            return False
        raise
    return True


async def _push(job: Job, forge: GiteaClient, title: str) -> None:
    info = job.info
    admin = job.secrets.forge_admin
    url = f"{info.urls.forge}/{info.owner}/{info.repository}.git"
    source = info.spec.task.repository
    readme = f"# {title}\n\nThe goal is issue 1.\n"
    try:
        await push_main(source, url, admin.name, admin.token, readme=readme, at=info.created_at)
    except SeedFailed:
        # A push may have landed although its answer was lost.
        if not await _has_main(forge, info.owner, info.repository):
            raise


async def _first_issue(forge: GiteaClient, owner: str, name: str, title: str, goal: str) -> None:
    try:
        issue = await forge.issue(owner, name, 1)
    except ServiceError as error:
        if error.status != 404:
            raise
        issue = await forge.create_issue(owner, name, title, goal)
    if issue.number != 1 or issue.title != title:
        raise AgenshError(f"repository: issue 1 of {owner}/{name} is not the goal ({issue.title!r}).")


async def _unwatch(job: Job, forge: GiteaClient, owner: str, name: str) -> None:
    """Leave nobody watching: each comment would go to every watcher, and what concerns a worker reaches it anyway."""
    watchers = await forge.watchers(owner, name)

    async def stop(worker: str) -> None:
        token = job.secrets.workers[worker].forge_token
        await GiteaClient(job.info.urls.forge, token=token, http=job.http).unwatch(owner, name)

    await together([worker for worker in job.workers if worker in watchers], stop, job.concurrency)
    if job.secrets.forge_admin.name in watchers:
        await forge.unwatch(owner, name)


def issue_title(goal: str, path: Path) -> str:
    """Return the first heading or line of the goal text."""
    for line in goal.splitlines():
        text = line.strip().lstrip("#").strip()
        if text:
            return text[:ISSUE_TITLE].rstrip()  # as the forge keeps it
    raise AgenshError(f"task.goal: {str(path)!r} is empty; write down what the team is to reach.")
