"""Commits, comparison, trees and refs."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from agensh.embedded.forge import files, history
from agensh.embedded.forge.errors import not_found
from agensh.embedded.forge.git import Person
from agensh.embedded.forge.history import CommitInfo
from agensh.embedded.forge.shapes import Shapes
from agensh.embedded.forge.shapes_base import stamp
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store.database import Row, Tx

router = APIRouter(prefix="/api/v1")

UNVERIFIED = {
    "verified": False,
    "reason": "gpg.error.not_signed_commit",
    "signature": "",
    "signer": None,
    "payload": "",
}


def _user_of(tx: Tx, shapes: Shapes, person: Person) -> Json | None:
    row = tx.one("SELECT * FROM users WHERE email = ?", person.email)
    return None if row is None else shapes.user_row(row)


def _signature(person: Person) -> Json:
    return {"name": person.name, "email": person.email, "date": stamp(person.when)}


def _commit(tx: Tx, shapes: Shapes, repo_id: int, info: CommitInfo) -> Json:
    api, html = shapes.api(repo_id), shapes.html(repo_id)
    created = stamp(info.committer.when)
    return {
        "url": f"{api}/git/commits/{info.sha}",
        "sha": info.sha,
        "created": created,
        "html_url": f"{html}/commit/{info.sha}",
        "commit": {
            "url": f"{api}/git/commits/{info.sha}",
            "author": _signature(info.author),
            "committer": _signature(info.committer),
            "message": info.message,
            "tree": {"url": f"{api}/git/trees/{info.tree}", "sha": info.tree, "created": created},
            "verification": UNVERIFIED,
        },
        "author": _user_of(tx, shapes, info.author),
        "committer": _user_of(tx, shapes, info.committer),
        "parents": [
            {"url": f"{api}/git/commits/{sha}", "sha": sha, "created": "0001-01-01T00:00:00Z"} for sha in info.parents
        ],
        "files": [{"filename": path, "status": status} for path, status in info.files],
        "stats": {
            "total": info.additions + info.deletions,
            "additions": info.additions,
            "deletions": info.deletions,
        },
    }


async def commit_shapes(call: ApiCall, repo: Row, found: list[CommitInfo]) -> list[Json]:
    """Commits as the API shows them."""

    def shape(tx: Tx) -> list[Json]:
        shapes = call.shapes(tx)
        return [_commit(tx, shapes, repo["id"], info) for info in found]

    return await call.read(shape)


@router.get("/repos/{owner}/{name}/commits")
async def listing(call: ApiCall, owner: str, name: str) -> list[Json]:
    """The history of a branch (`sha`), newest first; `path`, `stat`, `not` as in Gitea."""
    repo, path = await call.repo(owner, name)
    query = call.request.query_params
    tip = await call.forge.git.resolve(path, query.get("sha") or repo["default_branch"])
    if tip is None:
        raise not_found()
    revisions = [tip]
    if (exclude := query.get("not")) and (other := await call.forge.git.resolve(path, exclude)):
        revisions.append(f"^{other}")
    only = files.clean_path(query["path"]) if query.get("path") else ""
    done = await call.forge.git.run(
        path, "rev-list", "--count", *revisions, "--", *([only] if only else []), env={"GIT_LITERAL_PATHSPECS": "1"}
    )
    call.paged(int(done.text))
    details = call.flag("stat") is not False
    found = await history.commits(
        call.forge.git, path, *revisions, skip=call.offset, limit=call.limit, path=only, details=details
    )
    return await commit_shapes(call, repo, found)


@router.get("/repos/{owner}/{name}/git/commits/{sha}.{kind}")
async def as_text(call: ApiCall, owner: str, name: str, sha: str, kind: str) -> Response:
    """A commit as diff or patch."""
    _, path = await call.repo(owner, name)
    tip = await call.forge.git.resolve(path, sha)
    if tip is None or kind not in {"diff", "patch"}:
        raise not_found()
    if kind == "patch":
        done = await call.forge.git.run(path, "format-patch", "-1", "--stdout", tip)
    else:
        done = await call.forge.git.run(path, "diff-tree", "-p", "-M", "--root", "--no-commit-id", tip)
    return PlainTextResponse(done.out)


@router.get("/repos/{owner}/{name}/git/commits/{sha}")
async def one(call: ApiCall, owner: str, name: str, sha: str) -> Json:
    """A commit, by hash, branch or tag."""
    repo, path = await call.repo(owner, name)
    tip = await call.forge.git.resolve(path, sha)
    if tip is None:
        raise not_found()
    info = await history.commit(call.forge.git, path, tip, details=True)
    return (await commit_shapes(call, repo, [info]))[0]


@router.get("/repos/{owner}/{name}/compare/{span:path}")
async def compare(call: ApiCall, owner: str, name: str, span: str) -> Json:
    """The commits of the second that the first has not (`a...b` or `a..b`)."""
    repo, path = await call.repo(owner, name)
    one, dots, other = span.partition("...") if "..." in span else span.partition("..")
    if not dots:
        one, other = repo["default_branch"], span
    git = call.forge.git
    base, head = await git.resolve(path, one), await git.resolve(path, other)
    if base is None or head is None:
        raise not_found()
    found = await history.commits(git, path, f"{base}..{head}", details=True)
    return {"total_commits": len(found), "commits": await commit_shapes(call, repo, found)}


@router.get("/repos/{owner}/{name}/git/trees/{sha}")
async def tree(call: ApiCall, owner: str, name: str, sha: str) -> Json:
    """A tree, with `recursive` all that is below."""
    repo, path = await call.repo(owner, name)
    git = call.forge.git
    tip = await git.resolve(path, sha)
    if tip is None:
        if not sha.isalnum():
            raise not_found()
        done = await git.run(
            path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{sha}^{{tree}}", ok=(0, 1, 128)
        )
        if done.code:
            raise not_found()
        tip = done.text
    entries = await files.tree(git, path, tip, recursive=bool(call.flag("recursive")))
    api = await call.read(lambda tx: call.shapes(tx).api(repo["id"]))
    shown = call.slice(entries)
    return {
        "sha": tip,
        "url": f"{api}/git/trees/{tip}",
        "page": call.page,
        "total_count": len(entries),
        "truncated": len(shown) + call.offset < len(entries),
        "tree": [
            {
                "path": entry.path,
                "mode": entry.mode,
                "type": entry.kind,
                "size": entry.size,
                "sha": entry.sha,
                "url": f"{api}/git/{'trees' if entry.kind == 'tree' else 'blobs'}/{entry.sha}",
            }
            for entry in shown
        ],
    }


@router.get("/repos/{owner}/{name}/git/refs")
@router.get("/repos/{owner}/{name}/git/refs/{ref:path}")
async def refs(call: ApiCall, owner: str, name: str, ref: str = "") -> list[Json]:
    """The refs that begin with a name; 404 when there is none."""
    repo, path = await call.repo(owner, name)
    done = await call.forge.git.run(path, "for-each-ref", "--format=%(objectname) %(objecttype) %(refname)")
    lines = [line.split(" ", 2) for line in done.text.split("\n") if line]
    found = [line for line in lines if line[2].startswith(f"refs/{ref}")]
    if not found:
        raise not_found()
    api = await call.read(lambda tx: call.shapes(tx).api(repo["id"]))
    return [
        {
            "ref": full,
            "url": f"{api}/git/{full}",
            "object": {"type": kind, "sha": sha, "url": f"{api}/git/{kind}s/{sha}"},
        }
        for sha, kind, full in found
    ]
