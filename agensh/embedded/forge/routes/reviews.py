"""Reviews of pull requests and requests for them."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from agensh.embedded.forge.errors import ApiError, forbidden, not_found, unprocessable
from agensh.embedded.forge.shapes_base import stamp
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import issues as store
from agensh.embedded.forge.store import notifications, protections, repos, users
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import add_event

router = APIRouter(prefix="/api/v1")

STATES = {"APPROVED", "REQUEST_CHANGES", "COMMENT", "PENDING"}
WORDS = {"APPROVE": "APPROVED", "REJECTED": "REQUEST_CHANGES", "": "PENDING"}


class LineComment(BaseModel):
    path: str = ""
    body: str = ""
    new_position: int = 0
    old_position: int = 0


class NewReview(BaseModel):
    event: str = ""
    body: str = ""
    commit_id: str = ""
    comments: list[LineComment] | None = None


class Reviewers(BaseModel):
    reviewers: list[str] | None = None
    team_reviewers: list[str] | None = None


def _state(event: str) -> str:
    state = WORDS.get(event, event)
    if state not in STATES:
        raise unprocessable(f"event: {event!r} is not known; allowed are {', '.join(sorted(STATES))}")
    return state


def _find(tx: Tx, issue: Row, review_id: int) -> Row:
    row = tx.one("SELECT * FROM reviews WHERE id = ? AND issue_id = ?", review_id, issue["id"])
    if row is None:
        raise not_found()
    return row


def _check(call: ApiCall, issue: Row, state: str, body: str, *, commented: bool) -> None:
    if state in {"APPROVED", "REQUEST_CHANGES"} and issue["poster_id"] == call.user["id"]:
        verb = "approve" if state == "APPROVED" else "reject"
        raise unprocessable(f"{verb} your own pull is not allowed")
    if issue["closed"] and state != "COMMENT":
        raise unprocessable("the pull request is closed")
    if state in {"COMMENT", "REQUEST_CHANGES"} and not body and not commented:
        raise unprocessable("review event requires a body" if state == "COMMENT" else "a rejection needs a body")


def _submit(call: ApiCall, tx: Tx, repo: Row, issue: Row, pull: Row, review: Row) -> None:
    """Write what a review that is no longer pending brings about."""
    now, state = call.forge.now(), review["state"]
    rule = protections.rule_for(tx, repo["id"], pull["base_branch"])
    writer = repos.mode_of(tx, call.user, repo) >= Mode.WRITE
    official = writer and state != "COMMENT" and (rule is None or rule.may_approve(call.user))
    if official:
        tx.run(
            "UPDATE reviews SET official = 0 WHERE issue_id = ? AND user_id = ? AND id != ?",
            issue["id"], call.user["id"], review["id"],
        )  # fmt: skip
    asked = "DELETE FROM reviews WHERE issue_id = ? AND user_id = ? AND state = 'REQUEST_REVIEW'"
    tx.run(asked, issue["id"], call.user["id"])
    stale = review["commit_id"] != pull["head_sha"]
    tx.update("reviews", "id", review["id"], official=official, stale=stale, created=now, updated=now)
    event = add_event(tx, now, issue, call.user, "review", body=review["body"])
    tx.update("comments", "id", event, review_id=review["id"])
    tx.update("issues", "id", issue["id"], updated=now)
    notifications.broadcast(tx, now, issue, call.user, event)
    texts = [review["body"]] + [
        row["body"]
        for row in tx.all(
            "SELECT c.body FROM comments c JOIN review_comments r ON r.id = c.id WHERE r.review_id = ?", review["id"]
        )
    ]
    told = notifications.mentioned(tx, issue, call.user, "\n".join(texts))
    notifications.notify(tx, now, issue, call.user, told, event)


@router.get("/repos/{owner}/{name}/pulls/{number}/reviews")
async def listing(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """The reviews and requests, oldest first; a pending one shows to its author only."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> list[Json]:
        issue, _ = store.require_pull(tx, repo, number)
        sql = "SELECT * FROM reviews WHERE issue_id = ? AND (state != 'PENDING' OR user_id = ?) ORDER BY id"
        shapes = call.shapes(tx)
        return [shapes.review(row, issue) for row in call.slice(tx.all(sql, issue["id"], call.user["id"]))]

    return await call.read(find)


@router.post("/repos/{owner}/{name}/pulls/{number}/reviews")
async def create(call: ApiCall, owner: str, name: str, number: int, new: NewReview) -> Json:
    """Review: approve, request changes, comment, or begin one that is submitted later."""
    repo, _ = await call.repo(owner, name)
    state, now = _state(new.event), call.forge.now()

    def insert(tx: Tx) -> Json:
        issue, pull = store.require_pull(tx, repo, number)
        _check(call, issue, state, new.body.strip(), commented=bool(new.comments))
        commit = new.commit_id or pull["head_sha"]
        review_id = tx.insert(
            "reviews", issue_id=issue["id"], user_id=call.user["id"], state=state, body=new.body.strip(),
            commit_id=commit, created=now, updated=now,
        )  # fmt: skip
        for line in new.comments or []:
            comment_id = tx.insert(
                "comments", issue_id=issue["id"], poster_id=call.user["id"], kind="code", body=line.body,
                review_id=review_id, created=now, updated=now,
            )  # fmt: skip
            tx.insert(
                "review_comments", id=comment_id, review_id=review_id, path=line.path, position=line.new_position,
                old_position=line.old_position, commit_id=commit,
            )  # fmt: skip
        if state != "PENDING":
            _submit(call, tx, repo, issue, pull, _find(tx, issue, review_id))
        return call.shapes(tx).review(_find(tx, issue, review_id), issue)

    return await call.write(insert)


@router.get("/repos/{owner}/{name}/pulls/{number}/reviews/{review_id}")
async def get(call: ApiCall, owner: str, name: str, number: int, review_id: int) -> Json:
    """A review."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> Json:
        issue, _ = store.require_pull(tx, repo, number)
        return call.shapes(tx).review(_find(tx, issue, review_id), issue)

    return await call.read(find)


@router.post("/repos/{owner}/{name}/pulls/{number}/reviews/{review_id}")
async def submit(call: ApiCall, owner: str, name: str, number: int, review_id: int, new: NewReview) -> Json:
    """Submit one's pending review."""
    repo, _ = await call.repo(owner, name)
    state = _state(new.event)

    def save(tx: Tx) -> Json:
        issue, pull = store.require_pull(tx, repo, number)
        review = _find(tx, issue, review_id)
        if review["user_id"] != call.user["id"]:
            raise not_found()
        if review["state"] != "PENDING" or state == "PENDING":
            raise unprocessable("only a pending review can be submitted, and not as pending")
        count = tx.value("SELECT count(*) FROM review_comments WHERE review_id = ?", review_id)
        body = new.body.strip() or review["body"]
        _check(call, issue, state, body, commented=bool(count))
        tx.update("reviews", "id", review_id, state=state, body=body)
        _submit(call, tx, repo, issue, pull, _find(tx, issue, review_id))
        return call.shapes(tx).review(_find(tx, issue, review_id), issue)

    return await call.write(save)


@router.delete("/repos/{owner}/{name}/pulls/{number}/reviews/{review_id}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str, number: int, review_id: int) -> None:
    """Delete a review; its author or a repository administrator."""
    repo, _ = await call.repo(owner, name)

    def remove(tx: Tx) -> None:
        issue, _ = store.require_pull(tx, repo, number)
        review = _find(tx, issue, review_id)
        if review["user_id"] != call.user["id"] and repos.mode_of(tx, call.user, repo) < Mode.ADMIN:
            raise forbidden()
        tx.run("DELETE FROM comments WHERE review_id = ?", review_id)
        tx.run("DELETE FROM reviews WHERE id = ?", review_id)

    await call.write(remove)


@router.post("/repos/{owner}/{name}/pulls/{number}/reviews/{review_id}/dismissals")
async def dismiss(call: ApiCall, owner: str, name: str, number: int, review_id: int) -> Json:
    """Make a review count no more; repository administrators."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)
    now = call.forge.now()

    def save(tx: Tx) -> Json:
        issue, _ = store.require_pull(tx, repo, number)
        review = _find(tx, issue, review_id)
        if review["state"] not in {"APPROVED", "REQUEST_CHANGES"}:
            raise forbidden("not need to dismiss this review because it's type is not Approve or change request")
        tx.update("reviews", "id", review_id, dismissed=True, updated=now)
        event = add_event(tx, now, issue, call.user, "dismiss_review")
        notifications.broadcast(tx, now, issue, call.user, event)
        return call.shapes(tx).review(_find(tx, issue, review_id), issue)

    return await call.write(save)


@router.get("/repos/{owner}/{name}/pulls/{number}/reviews/{review_id}/comments")
async def comments(call: ApiCall, owner: str, name: str, number: int, review_id: int) -> list[Json]:
    """The comments on lines that belong to a review."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> list[Json]:
        issue, _ = store.require_pull(tx, repo, number)
        _find(tx, issue, review_id)
        rows = tx.all(
            "SELECT c.*, r.path, r.position, r.old_position, r.commit_id, r.diff_hunk FROM comments c "
            "JOIN review_comments r ON r.id = c.id WHERE r.review_id = ? ORDER BY c.id",
            review_id,
        )
        shapes = call.shapes(tx)
        page = shapes.issue_html(issue)
        return [
            {
                "id": row["id"],
                "body": row["body"],
                "user": shapes.user(row["poster_id"]),
                "resolver": None,
                "pull_request_review_id": review_id,
                "created_at": stamp(row["created"]),
                "updated_at": stamp(row["updated"]),
                "path": row["path"],
                "commit_id": row["commit_id"],
                "original_commit_id": "",
                "diff_hunk": row["diff_hunk"],
                "position": row["position"],
                "original_position": row["old_position"],
                "html_url": f"{page}#issuecomment-{row['id']}",
                "pull_request_url": page,
            }
            for row in rows
        ]

    return await call.read(find)


@router.post("/repos/{owner}/{name}/pulls/{number}/requested_reviewers", status_code=201)
async def request(call: ApiCall, owner: str, name: str, number: int, new: Reviewers) -> list[Json]:
    """Ask users for a review; each of them is notified."""
    repo, _ = await call.repo(owner, name)
    now = call.forge.now()

    def save(tx: Tx) -> list[Json]:
        issue, pull = store.require_pull(tx, repo, number)
        writer = repos.mode_of(tx, call.user, repo) >= Mode.WRITE
        if not writer and issue["poster_id"] != call.user["id"]:
            raise forbidden()
        made = []
        for name_ in new.reviewers or []:
            user = users.require(tx, name_)
            if user["id"] == issue["poster_id"]:
                raise unprocessable("poster of pr can't be reviewer")
            if repos.mode_of(tx, user, repo) is Mode.NONE:
                raise unprocessable(f"reviewer can't read the repository [user: {name_}]")
            asked = "SELECT 1 FROM reviews WHERE issue_id = ? AND user_id = ? AND state = 'REQUEST_REVIEW'"
            if tx.value(asked, issue["id"], user["id"]):
                continue
            official = repos.mode_of(tx, user, repo) >= Mode.WRITE
            review_id = tx.insert(
                "reviews", issue_id=issue["id"], user_id=user["id"], state="REQUEST_REVIEW",
                commit_id=pull["head_sha"], official=official, created=now, updated=now,
            )  # fmt: skip
            event = add_event(tx, now, issue, call.user, "review_request", details=f'{{"assignee": {user["id"]}}}')
            if user["id"] != call.user["id"]:
                notifications.notify(tx, now, issue, call.user, {user["id"]}, event)
            made.append(call.shapes(tx).review(_find(tx, issue, review_id), issue))
        return made

    if new.team_reviewers:
        raise ApiError(422, "team_reviewers: this forge has no teams; name the users")
    return await call.write(save)


@router.delete("/repos/{owner}/{name}/pulls/{number}/requested_reviewers", status_code=204)
async def withdraw(call: ApiCall, owner: str, name: str, number: int, new: Reviewers) -> None:
    """Take requests for reviews back."""
    repo, _ = await call.repo(owner, name)

    def remove(tx: Tx) -> None:
        issue, _ = store.require_pull(tx, repo, number)
        if repos.mode_of(tx, call.user, repo) < Mode.WRITE and issue["poster_id"] != call.user["id"]:
            raise forbidden()
        for name_ in new.reviewers or []:
            user = users.require(tx, name_)
            sql = "DELETE FROM reviews WHERE issue_id = ? AND user_id = ? AND state = 'REQUEST_REVIEW'"
            tx.run(sql, issue["id"], user["id"])

    await call.write(remove)
