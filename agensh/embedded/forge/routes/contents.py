"""Reading and committing files without a clone."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from pathlib import Path

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from agensh.embedded.forge import files, history
from agensh.embedded.forge.errors import ApiError, forbidden, not_found, unprocessable
from agensh.embedded.forge.files import Change, Entry
from agensh.embedded.forge.git import Person, branch_tip
from agensh.embedded.forge.objects import ZERO, object_hash
from agensh.embedded.forge.routes.history import UNVERIFIED, commit_shapes
from agensh.embedded.forge.shapes_base import quoted, stamp
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import protections
from agensh.embedded.forge.store.database import Row
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import branches_moved

router = APIRouter(prefix="/api/v1")


class Identity(BaseModel):
    name: str = ""
    email: str = ""


class Commit(BaseModel):
    branch: str = ""
    new_branch: str = ""
    message: str = ""
    author: Identity | None = None
    committer: Identity | None = None


class NewFile(Commit):
    content: str = ""


class FileUpdate(NewFile):
    sha: str = ""
    from_path: str = ""


class FileOperation(BaseModel):
    operation: str = ""
    path: str = ""
    content: str = ""
    sha: str = ""
    from_path: str = ""


class ChangeFiles(Commit):
    model_config = ConfigDict(populate_by_name=True)

    changes: list[FileOperation] = Field(default_factory=list, alias="files")


def _decode(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise unprocessable(f"content of {path} is not base64") from error


def _person(call: ApiCall, given: Identity | None) -> Person:
    own = call.forge.person(call.user)
    if given is None:
        return own
    return Person(given.name or own.name, given.email or own.email, own.when)


async def _shape(
    call: ApiCall,
    repo: Row,
    path: Path,
    revision: str,
    sha: str,
    entry: Entry,
    *,
    full: bool,
    made: tuple[history.CommitInfo, bytes] | None = None,
) -> Json:
    """The API's view of an entry; `made` has the commit and content of a file that was made just now."""
    git = call.forge.git
    html, api = await call.read(lambda tx: (call.shapes(tx).html(repo["id"]), call.shapes(tx).api(repo["id"])))
    kind = {"tree": "dir", "commit": "submodule"}.get(entry.kind, "symlink" if entry.mode == "120000" else "file")
    name = quoted(entry.path)
    url = f"{api}/contents/{name}?ref={quoted(revision)}"
    page = f"{html}/src/branch/{quoted(revision)}/{name}"
    git_url = f"{api}/git/{'trees' if kind == 'dir' else 'blobs'}/{entry.sha}"
    body: bytes | None
    if made is not None:
        last, body = [made[0]], made[1]
    else:
        last = await history.commits(git, path, sha, limit=1, path=entry.path)
        body = await files.content(git, path, entry.sha) if full and kind in {"file", "symlink"} else None
    return {
        "name": entry.path.rsplit("/", 1)[-1],
        "path": entry.path,
        "sha": entry.sha,
        "last_commit_sha": last[0].sha if last else sha,
        "last_committer_date": stamp(last[0].committer.when) if last else None,
        "last_author_date": stamp(last[0].author.when) if last else None,
        "last_commit_message": last[0].message if last else "",
        "type": kind,
        "size": entry.size,
        "encoding": "base64" if body is not None and kind == "file" else None,
        "content": base64.b64encode(body).decode() if body is not None and kind == "file" else None,
        "target": body.decode(errors="replace") if body is not None and kind == "symlink" else None,
        "url": url,
        "html_url": page,
        "git_url": git_url,
        "download_url": f"{html}/raw/branch/{quoted(revision)}/{name}" if kind == "file" else None,
        "submodule_git_url": None,
        "lfs_oid": None,
        "lfs_size": None,
        "_links": {"self": url, "git": git_url, "html": page},
    }


async def _revision(call: ApiCall, repo: Row, path: Path) -> tuple[str, str]:
    revision = call.request.query_params.get("ref") or repo["default_branch"]
    sha = await call.forge.git.resolve(path, revision.removeprefix("refs/heads/"))
    if sha is None:
        raise not_found()
    return revision, sha


@router.get("/repos/{owner}/{name}/contents")
async def root(call: ApiCall, owner: str, name: str) -> list[Json]:
    """The top folder."""
    repo, path = await call.repo(owner, name)
    revision, sha = await _revision(call, repo, path)
    entries = await files.tree(call.forge.git, path, sha)
    return [await _shape(call, repo, path, revision, sha, entry, full=False) for entry in entries]


@router.get("/repos/{owner}/{name}/contents/{file:path}", response_model=None)
async def get(call: ApiCall, owner: str, name: str, file: str) -> Json | list[Json]:
    """A file with its content, or the list of a folder."""
    if not file.strip("/"):
        return await root(call, owner, name)
    repo, path = await call.repo(owner, name)
    revision, sha = await _revision(call, repo, path)
    entry = await files.lookup(call.forge.git, path, sha, files.clean_path(file))
    if entry is None:
        raise ApiError(404, f"object does not exist [id: , rel_path: {file}]")
    if entry.kind == "tree":
        below = await files.tree(call.forge.git, path, entry.sha)
        full = [Entry(e.mode, e.kind, e.sha, e.size, f"{entry.path}/{e.path}") for e in below]
        return [await _shape(call, repo, path, revision, sha, e, full=False) for e in full]
    return await _shape(call, repo, path, revision, sha, entry, full=True)


@router.get("/repos/{owner}/{name}/raw/{file:path}")
async def raw(call: ApiCall, owner: str, name: str, file: str) -> Response:
    """The bytes of a file."""
    repo, path = await call.repo(owner, name)
    _, sha = await _revision(call, repo, path)
    entry = await files.lookup(call.forge.git, path, sha, files.clean_path(file))
    if entry is None or entry.kind != "blob":
        raise not_found()
    kind = mimetypes.guess_type(file)[0] or "text/plain"
    safe = kind if kind.startswith(("text/plain", "image/png", "image/jpeg")) else "application/octet-stream"
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(await files.content(call.forge.git, path, entry.sha), headers=headers, media_type=safe)


async def _write(
    call: ApiCall, owner: str, name: str, new: Commit, changes: list[Change]
) -> tuple[Json, list[Json | None]]:
    repo, path = await call.repo(owner, name, Mode.WRITE)
    git = call.forge.git
    source = new.branch or repo["default_branch"]
    target = new.new_branch or source
    if not changes:
        raise unprocessable("[Files]: Required")
    if not await git.valid_branch(path, target):
        raise unprocessable(f"branch: {target!r} is not a valid branch name")
    rule = await call.read(lambda tx: protections.rule_for(tx, repo["id"], target))
    if rule is not None and not rule.may_push(call.user):
        raise forbidden(f"branch is protected [name: {target}]")
    parent = branch_tip(path, source)
    if parent is None and await git.branches(path):
        raise ApiError(404, f"branch does not exist [name: {source}]")
    if target != source and branch_tip(path, target) is not None:
        raise ApiError(422, f"branch already exists [name: {target}]")
    message = new.message or f"{changes[0].operation.capitalize()} {', '.join(c.path for c in changes[:3])}"
    author = _person(call, new.author)
    committer = _person(call, new.committer) if new.committer else author
    sha = await files.write_files(git, path, parent, changes, message, author, committer)
    old = ZERO if target != source or parent is None else parent
    if not await git.update_ref(path, f"refs/heads/{target}", sha, old):
        raise ApiError(409, f"the branch {target} moved while the commit was made; try again")
    await branches_moved(call.forge, repo, path, {target}, call.user)
    made = await history.commit(git, path, sha)
    shown: list[Json | None] = []
    for change in changes:
        where = files.clean_path(change.path)
        if change.operation == "create" and len(changes) == 1:
            new_file = Entry("100644", "blob", object_hash("blob", change.content), len(change.content), where)
            known = (made, change.content)
            shown.append(await _shape(call, repo, path, target, sha, new_file, full=True, made=known))
            continue
        entry = await files.lookup(git, path, sha, where)
        shown.append(None if entry is None else await _shape(call, repo, path, target, sha, entry, full=True))
    shape = (await commit_shapes(call, repo, [made]))[0]
    inner = shape["commit"]
    commit = {key: shape[key] for key in ("url", "sha", "created", "html_url", "parents")}
    commit |= {key: inner[key] for key in ("author", "committer", "message", "tree")}
    return {"commit": commit, "verification": UNVERIFIED}, shown


@router.post("/repos/{owner}/{name}/contents", status_code=201)
async def change_many(call: ApiCall, owner: str, name: str, new: ChangeFiles) -> Json:
    """Change several files in one commit."""
    changes = [Change(c.operation, c.path, _decode(c.content, c.path), c.sha, c.from_path) for c in new.changes]
    answer, shown = await _write(call, owner, name, new, changes)
    return {**answer, "files": [shape for shape in shown if shape is not None]}


@router.post("/repos/{owner}/{name}/contents/{file:path}", status_code=201)
async def create(call: ApiCall, owner: str, name: str, file: str, new: NewFile) -> Json:
    """Create a file."""
    answer, shown = await _write(call, owner, name, new, [Change("create", file, _decode(new.content, file))])
    return {**answer, "content": shown[0]}


@router.put("/repos/{owner}/{name}/contents/{file:path}")
async def update(call: ApiCall, owner: str, name: str, file: str, new: FileUpdate) -> Json:
    """Change a file whose present blob is `sha`; without `sha` it is created (201)."""
    operation = "update" if new.sha else "create"
    change = Change(operation, file, _decode(new.content, file), new.sha, new.from_path)
    answer, shown = await _write(call, owner, name, new, [change])
    if operation == "create":
        call.response.status_code = 201
    return {**answer, "content": shown[0]}


@router.delete("/repos/{owner}/{name}/contents/{file:path}")
async def delete(call: ApiCall, owner: str, name: str, file: str, new: FileUpdate) -> Json:
    """Delete a file whose present blob is `sha`."""
    answer, _ = await _write(call, owner, name, new, [Change("delete", file, sha=new.sha)])
    return {**answer, "content": None}
