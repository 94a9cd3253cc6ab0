"""What the forge answers, reduced to the fields Agensh uses; everything else in an answer is ignored.

Times are epoch seconds. The field names of the answers are those of Gitea's `modules/structs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]


def timestamp(value: object) -> float:
    """Return RFC 3339 text as epoch seconds; 0 for null, empty and for Go's zero time."""
    if not isinstance(value, str) or not value or value.startswith("0001-"):
        return 0.0
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _login(value: Json | None) -> str:
    return str((value or {}).get("login") or (value or {}).get("username") or "")


@dataclass(frozen=True, slots=True)
class User:
    id: int
    login: str

    @classmethod
    def of(cls, value: Json) -> User:
        return cls(int(value["id"]), _login(value))


@dataclass(frozen=True, slots=True)
class Repo:
    id: int
    name: str
    owner: str
    full_name: str
    clone_url: str
    default_branch: str
    empty: bool
    description: str

    @classmethod
    def of(cls, value: Json) -> Repo:
        return cls(
            id=int(value["id"]),
            name=str(value["name"]),
            owner=_login(value.get("owner")),
            full_name=str(value["full_name"]),
            clone_url=str(value.get("clone_url") or ""),
            default_branch=str(value.get("default_branch") or ""),
            empty=bool(value.get("empty")),
            description=str(value.get("description") or ""),
        )


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    sha: str

    @classmethod
    def of(cls, value: Json) -> Branch:
        return cls(str(value["name"]), str((value.get("commit") or {}).get("id") or ""))


@dataclass(frozen=True, slots=True)
class Issue:
    number: int
    title: str
    body: str
    state: str
    author: str
    labels: tuple[str, ...]
    assignees: tuple[str, ...]
    created_at: float
    updated_at: float
    is_pull: bool

    @classmethod
    def of(cls, value: Json) -> Issue:
        return cls(
            number=int(value["number"]),
            title=str(value.get("title") or ""),
            body=str(value.get("body") or ""),
            state=str(value.get("state") or ""),
            author=_login(value.get("user")),
            labels=tuple(str(label["name"]) for label in value.get("labels") or ()),
            assignees=tuple(_login(user) for user in value.get("assignees") or ()),
            created_at=timestamp(value.get("created_at")),
            updated_at=timestamp(value.get("updated_at")),
            is_pull=value.get("pull_request") is not None,
        )


@dataclass(frozen=True, slots=True)
class Comment:
    id: int
    author: str
    body: str
    created_at: float
    updated_at: float

    @classmethod
    def of(cls, value: Json) -> Comment:
        return cls(
            id=int(value["id"]),
            author=_login(value.get("user")),
            body=str(value.get("body") or ""),
            created_at=timestamp(value.get("created_at")),
            updated_at=timestamp(value.get("updated_at")),
        )


@dataclass(frozen=True, slots=True)
class Review:
    id: int
    author: str
    body: str
    state: str
    """`APPROVED`, `REQUEST_CHANGES`, `COMMENT`, `PENDING`."""
    submitted_at: float

    @classmethod
    def of(cls, value: Json) -> Review:
        return cls(
            id=int(value["id"]),
            author=_login(value.get("user")),
            body=str(value.get("body") or ""),
            state=str(value.get("state") or ""),
            submitted_at=timestamp(value.get("submitted_at")),
        )


@dataclass(frozen=True, slots=True)
class Happening:
    """An entry of an issue's timeline."""

    id: int
    kind: str
    """`comment`, `close`, `reopen`, `merge_pull`, `pull_push` and others."""
    author: str
    created_at: float

    @classmethod
    def of(cls, value: Json) -> Happening:
        return cls(
            id=int(value["id"]),
            kind=str(value.get("type") or ""),
            author=_login(value.get("user")),
            created_at=timestamp(value.get("created_at")),
        )


@dataclass(frozen=True, slots=True)
class Pull:
    number: int
    title: str
    body: str
    state: str
    author: str
    head_branch: str
    head_sha: str
    base_branch: str
    base_sha: str
    merge_base: str
    mergeable: bool
    """False also means that the forge has not finished checking."""
    merged: bool
    merge_commit: str
    merged_at: float
    merged_by: str
    created_at: float
    updated_at: float
    closed_at: float

    @classmethod
    def of(cls, value: Json) -> Pull:
        head, base = value.get("head") or {}, value.get("base") or {}
        return cls(
            number=int(value["number"]),
            title=str(value.get("title") or ""),
            body=str(value.get("body") or ""),
            state=str(value.get("state") or ""),
            author=_login(value.get("user")),
            head_branch=str(head.get("ref") or ""),
            head_sha=str(head.get("sha") or ""),
            base_branch=str(base.get("ref") or ""),
            base_sha=str(base.get("sha") or ""),
            merge_base=str(value.get("merge_base") or ""),
            mergeable=bool(value.get("mergeable")),
            merged=bool(value.get("merged")),
            merge_commit=str(value.get("merge_commit_sha") or ""),
            merged_at=timestamp(value.get("merged_at")),
            merged_by=_login(value.get("merged_by")),
            created_at=timestamp(value.get("created_at")),
            updated_at=timestamp(value.get("updated_at")),
            closed_at=timestamp(value.get("closed_at")),
        )


@dataclass(frozen=True, slots=True)
class Commit:
    sha: str
    author: str
    """The account where the forge knows it, else the name in the commit."""
    message: str
    created_at: float
    parents: tuple[str, ...]

    @classmethod
    def of(cls, value: Json) -> Commit:
        commit = value.get("commit") or {}
        signature = commit.get("author") or {}
        return cls(
            sha=str(value["sha"]),
            author=_login(value.get("author")) or str(signature.get("name") or ""),
            message=str(commit.get("message") or ""),
            created_at=timestamp(value.get("created") or signature.get("date")),
            parents=tuple(str(parent["sha"]) for parent in value.get("parents") or ()),
        )


@dataclass(frozen=True, slots=True)
class Thread:
    """A notification: one row per account and issue, whatever the number of things that happened there."""

    id: int
    unread: bool
    updated_at: float
    subject_type: str
    """`Issue`, `Pull`, `Commit` or `Repository`; empty when access was revoked."""
    subject_title: str
    number: int
    """Of the issue or pull request; 0 when it is about neither."""
    state: str
    repo: str
    """`owner/name`; empty when access was revoked."""

    @classmethod
    def of(cls, value: Json) -> Thread:
        subject, repository = value.get("subject") or {}, value.get("repository") or {}
        last = str(subject.get("url") or "").rstrip("/").rpartition("/")[2]
        return cls(
            id=int(value["id"]),
            unread=bool(value.get("unread")),
            updated_at=timestamp(value.get("updated_at")),
            subject_type=str(subject.get("type") or ""),
            subject_title=str(subject.get("title") or ""),
            number=int(last) if last.isascii() and last.isdecimal() else 0,
            state=str(subject.get("state") or ""),
            repo=str(repository.get("full_name") or ""),
        )


class UpdateStatus(StrEnum):
    """How bringing a pull request up to date with its base ended."""

    UPDATED = "updated"
    UP_TO_DATE = "up_to_date"
    CONFLICT = "conflict"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class UpdateResult:
    status: UpdateStatus
    message: str = ""


class MergeStatus(StrEnum):
    """How an attempt to merge a pull request ended."""

    MERGED = "merged"
    TRY_LATER = "try_later"
    """Still being checked, in conflict, or in error: the forge answers all three alike."""
    HEAD_MOVED = "head_moved"
    """The branch has other commits than those that were looked at."""
    BASE_RACE = "base_race"
    """Somebody else's merge came first; the same call may work now."""
    CONFLICT = "conflict"
    REFUSED = "refused"
    """Permanent until something is changed."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class MergeResult:
    status: MergeStatus
    message: str = ""
    sha: str = ""
    """The merge commit, when merged and known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    commits: tuple[Commit, ...]
    """What the head has and the base has not."""
    total: int
