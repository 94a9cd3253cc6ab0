"""The forge's tools: issues, pull requests, merging, the state of main."""

from __future__ import annotations

from agensh.clients.gitea import Commit, Issue, MergeStatus, Pull, UpdateStatus
from agensh.errors import ServiceError
from agensh.text import BLOCK_INDENT, block, handle, one_line
from router.ports import WorkerPort
from router.tools.registry import Argument, Call, Refused, Tool
from router.tools.texts import ROW_ROOM, TEXT_ROOM, clip, clip_oldest, minutes

MAIN = "main"
MERGE_PATIENCE = 40.0  # seconds; below the time limit of a call
LISTED = 50
CONFLICT_COMMITS = 8
FILES_SHOWN = 100
RESOLVE = (
    f"Resolve it in your clone: git fetch origin && git merge origin/{MAIN}, keep what both sides meant, "
    "run the tests, git push, then forge_pull_merge again."
)


async def issues(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    found = await call.port.forge.issues(owner, repo, state=call["state"], q=call["query"], limit=LISTED)
    now = call.clock.time()
    rows = [
        f"#{issue.number} [{handle(issue.author)}, {issue.state}, {minutes(issue.updated_at, now)}] {_title(issue)}"
        for issue in found
    ]
    return _listing("issues", rows, len(found) >= LISTED)


def _listing(kind: str, rows: list[str], full: bool) -> str:
    if not rows:
        return f"status=ok {kind}=0\nThere are none."
    note = [f"Only the newest {len(rows)} are listed; narrow the search for others."] if full else []
    return "\n".join([f"status=ok {kind}={len(rows)}", *rows, *note])


async def issue(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    found = await call.port.forge.issue(owner, repo, call["number"])
    return f"status=ok issue={found.number} state={found.state}\n{await _thread(call, found)}"


async def _thread(call: Call[WorkerPort], found: Issue) -> str:
    """Return title, body and comments as text."""
    owner, repo = call.port.repository
    now = call.clock.time()
    comments = await call.port.forge.comments(owner, repo, found.number)
    rows = [
        f"[{handle(item.author)}, {minutes(item.created_at, now)}] {clip(block(item.body), ROW_ROOM)}"
        for item in comments
    ]
    kept, dropped = clip_oldest(rows, TEXT_ROOM // 2)
    count = f"{len(comments)} comment{'' if len(comments) == 1 else 's'}"
    lines = [
        f"#{found.number} {_title(found)}",
        f"by {handle(found.author)}, {minutes(found.created_at, now)}",
        f"{BLOCK_INDENT}{clip(text, TEXT_ROOM // 2)}" if (text := block(found.body)) else "(no text)",
        f"{count}{f', the last {len(kept)}' if dropped else ''}{':' if kept else '.'}",
    ]
    return "\n".join(lines + kept)


def _title(found: Issue | Pull) -> str:
    return one_line(found.title, TITLE_CAP)


def _branch(found: Pull) -> str:
    return one_line(found.head_branch, BRANCH_CAP)


async def issue_open(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    title = call["title"].strip()
    for known in await call.port.forge.issues(owner, repo, state="open", limit=LISTED):
        if known.title == title:
            return (
                f"status=exists issue={known.number}\n"
                f"Issue #{known.number} of {handle(known.author)} has this title and is open; "
                "nothing new was opened. Comment on it with forge_comment."
            )
    opened = await call.port.forge.create_issue(owner, repo, title, call["body"])
    number = opened.number
    return (
        f"status=opened issue={number}\n"
        f"Issue #{number} is open. A pull request closes it with `Closes #{number}` in its body."
    )


async def comment(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    forge, number = call.port.forge, call["number"]
    comments = await forge.comments(owner, repo, number)
    if comments and (comments[-1].author, comments[-1].body) == (call.port.name, call["body"]):
        return f"status=exists comment={comments[-1].id}\nYour last comment on #{number} says exactly this already."
    written = await forge.create_comment(owner, repo, number, call["body"])
    return f"status=commented comment={written.id}\nYour comment stands under #{number}; its participants are told."


async def pulls(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    found = await call.port.forge.pulls(owner, repo, state=call["state"], limit=LISTED)
    now = call.clock.time()
    rows = [
        f"#{pull.number} [{handle(pull.author)}, {_state(pull)}, {minutes(pull.updated_at, now)}] "
        f"{_title(pull)} ({_branch(pull)})"
        for pull in found
    ]
    return _listing("pulls", rows, len(found) >= LISTED)


def _state(pull: Pull) -> str:
    if pull.merged:
        return "merged"
    if pull.state != "open":
        return "closed without merge"
    return "open, can be merged" if pull.mergeable else "open, being checked or in conflict"


async def pull(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    forge, number = call.port.forge, call["number"]
    found = await forge.pull(owner, repo, number)
    files = await forge.pull_files(owner, repo, number)
    return "\n".join(
        [
            f"status=ok pull={number} state={'merged' if found.merged else found.state} head={found.head_sha}",
            f"{_branch(found)} into {one_line(found.base_branch, BRANCH_CAP)}: {_state(found)}.",
            f"{len(files)} files: {_some(files, FILES_SHOWN)}",
            await _thread(call, await forge.issue(owner, repo, number)),
        ]
    )


async def pull_open(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    forge, branch = call.port.forge, call["branch"].strip().removeprefix("origin/").removeprefix("refs/heads/")
    if branch == MAIN:
        raise Refused(f"branch is {MAIN} itself; push your work to a branch of your own and name that.")
    try:
        head = await forge.branch(owner, repo, branch)
    except ServiceError as error:
        if error.status != 404:
            raise
        raise Refused(
            f"There is no branch {branch!r} on the forge; push it first: git push origin HEAD:{branch}",
            first_line="status=missing_branch",
        ) from error
    opened = await forge.create_pull(
        owner, repo, head=branch, base=MAIN, title=call["title"].strip(), body=call["body"]
    )
    return (
        f"status=opened pull={opened.number} head={head.sha}\nPull request #{opened.number} brings {branch} into {MAIN}"
        f"{'' if opened.title == call['title'].strip() else f' (it was open before, as {_title(opened)!r})'}. "
        f"When the tests pass: forge_pull_merge number={opened.number}."
    )


async def pull_update(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    number = call["number"]
    result = await call.port.forge.update_pull(owner, repo, number)
    if result.status is UpdateStatus.UPDATED:
        return f"status=updated pull={number}\nThe branch now contains {MAIN}; git pull it before you commit more."
    if result.status is UpdateStatus.UP_TO_DATE:
        return f"status=up_to_date pull={number}\nThe branch contains {MAIN} already."
    if result.status is UpdateStatus.CONFLICT:
        raise await _conflict(call, await call.port.forge.pull(owner, repo, number))
    raise Refused(
        f"The forge refused the update: {_said(result.message) or 'it gave no reason'}",
        first_line=f"status=refused pull={number}",
    )


async def pull_merge(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    forge, number = call.port.forge, call["number"]
    found = await forge.pull(owner, repo, number)
    result = await forge.merge_when_ready(
        owner, repo, number, head_sha=found.head_sha, patience=MERGE_PATIENCE, clock=call.clock
    )
    at = f"pull={number}"
    match result.status:
        case MergeStatus.MERGED:
            return (
                f"status=merged sha={result.sha or 'unknown'} {at}\n"
                f"merged as {result.sha or 'a commit the forge has not named'} into {MAIN}. "
                "Tell the others with a PATCH_SUMMARY that names the files, the idea and the evidence."
            )
        case MergeStatus.CONFLICT:
            raise await _conflict(call, found)
        case MergeStatus.HEAD_MOVED:
            text = (
                f"refused: the branch got new commits meanwhile. {_said(result.message)} Look at them, then call again."
            )
            raise Refused(text, first_line=f"status=head_moved {at}")
        case MergeStatus.TRY_LATER | MergeStatus.BASE_RACE:
            reason = _said(result.message) or "others merge at the same time"
            text = (
                f"refused: not merged within {MERGE_PATIENCE:g} s: {reason} "
                "Nothing is wrong with your branch as far as the forge says; call again in a minute."
            )
            raise Refused(text, first_line=f"status=try_later {at}")
        case MergeStatus.CLOSED:
            reason = _said(result.message) or f"pull request {number} is closed"
            text = f"refused: {reason} Open a new one with forge_pull_open."
            raise Refused(text, first_line=f"status=closed {at}")
        case MergeStatus.REFUSED:
            raise Refused(
                f"refused: {_said(result.message) or 'the forge gave no reason'}", first_line=f"status=refused {at}"
            )


def _subject(commit: Commit) -> str:
    return one_line(commit.message.strip().split("\n", 1)[0], 100)


def _author(commit: Commit) -> str:
    # Not always an account: whoever commits chooses the name, and it stands in brackets.
    return one_line(commit.author, 80).replace("[", "(").replace("]", ")")


def _said(message: str) -> str:
    return one_line(message, 500)


def _some(names: list[str], most: int) -> str:
    return ", ".join(one_line(name, BRANCH_CAP) for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )


async def _conflict(call: Call[WorkerPort], found: Pull) -> Refused:
    """Return the refusal of a conflict: whose commits came first, which files are at stake, what to do."""
    owner, repo = call.port.repository
    forge = call.port.forge
    comparison = await forge.compare(owner, repo, found.merge_base or found.head_sha, found.base_branch)
    files = await forge.pull_files(owner, repo, found.number)
    newest = sorted(comparison.commits, key=lambda item: item.created_at, reverse=True)[:CONFLICT_COMMITS]
    authors = ", ".join(sorted({_author(item) for item in newest})) or "others"
    lines = [
        f"refused: conflict with {found.base_branch}, which {authors} changed first. You changed {_some(files, 20)}.",
        f"New on {found.base_branch} since your branch left it:",
        *(f"  {item.sha[:10]} {_author(item)}: {_subject(item)}" for item in newest),
        RESOLVE,
    ]
    return Refused("\n".join(lines), first_line=f"status=conflict pull={found.number}")


async def main(call: Call[WorkerPort]) -> str:
    owner, repo = call.port.repository
    forge, now = call.port.forge, call.clock.time()
    head = await forge.branch(owner, repo, MAIN)
    commits = await forge.commits(owner, repo, sha=head.sha, limit=10)
    waiting = await forge.pulls(owner, repo, state="open", limit=LISTED)
    lines = [f"status=ok sha={head.sha} open_pulls={len(waiting)}", f"{MAIN} is at {head.sha}. Newest commits:"]
    lines += [
        f"  {item.sha[:10]} [{_author(item)}, {minutes(item.created_at, now)}] {_subject(item)}" for item in commits
    ]
    if waiting:
        lines.append(f"Open pull requests{' (the newest)' if len(waiting) >= LISTED else ''}:")
        lines += [f"  #{item.number} [{handle(item.author)}] {_title(item)} ({_branch(item)})" for item in waiting]
    return "\n".join(lines)


NUMBER = Argument("number", "Number of the pull request.", int, minimum=1)
ISSUE_NUMBER = Argument("number", "Number of the issue (or pull request).", int, minimum=1)
TITLE_CAP = 255  # characters, the forge's column
BRANCH_CAP = 255  # characters of a branch's or a file's name
BODY_CAP = 60_000  # characters

TOOLS: tuple[Tool[WorkerPort], ...] = (
    Tool(
        "forge_issues",
        """List issues of the team's repository, newest first. Example: forge_issues(query="sort").""",
        (
            Argument("state", "Which ones.", default="open", allowed=("open", "closed", "all")),
            Argument("query", "Only issues with these words; empty for all.", default="", maximum=200),
        ),
        issues,
    ),
    Tool("forge_issue", "Show one issue with its comments. Example: forge_issue(number=7).", (ISSUE_NUMBER,), issue),
    Tool(
        "forge_issue_open",
        """Open an issue: work that somebody has to do and that is too long for a line on the board. Look first
(forge_issues): an open issue of the same title is not opened twice. Title at most 255 characters, body 60,000.""",
        (
            Argument("title", "One line that says what is wrong or wanted.", minimum=1, maximum=TITLE_CAP),
            Argument("body", "Details: how to reproduce, expected, observed; Markdown.", default="", maximum=BODY_CAP),
        ),
        issue_open,
        writes=True,
    ),
    Tool(
        "forge_comment",
        """Comment on an issue or a pull request; its author and everybody mentioned (@full-name) are told. At most
60,000 characters. Example: forge_comment(number=12, body="`sort -k2` still fails on empty lines").""",
        (ISSUE_NUMBER, Argument("body", "The comment; Markdown.", minimum=1, maximum=BODY_CAP)),
        comment,
        writes=True,
    ),
    Tool(
        "forge_pulls",
        """List pull requests, newest first, with author, state and branch.""",
        (Argument("state", "Which ones.", default="open", allowed=("open", "closed", "all")),),
        pulls,
    ),
    Tool(
        "forge_pull",
        "Show one pull request: branch, state, changed files, text and comments. Example: forge_pull(number=12).",
        (NUMBER,),
        pull,
    ),
    Tool(
        "forge_pull_open",
        """Open a pull request that brings a pushed branch into main; the only way into main. Push first
(`git push origin HEAD:<branch>`). An open pull request of the same branch is returned, not opened twice.
Example: forge_pull_open(branch="demo-worker3/sort", title="sort: -k with -t", body="Closes #7").""",
        (
            Argument("branch", "The pushed branch.", minimum=1, maximum=200),
            Argument("title", "One line that says what it does.", minimum=1, maximum=TITLE_CAP),
            Argument("body", "What and why, how it was tested; Markdown.", default="", maximum=BODY_CAP),
        ),
        pull_open,
        writes=True,
    ),
    Tool(
        "forge_pull_update",
        """Merge main into the branch of a pull request on the forge. Use it when main moved and there is no conflict;
git pull the branch afterwards.""",
        (NUMBER,),
        pull_update,
        writes=True,
    ),
    Tool(
        "forge_pull_merge",
        """Merge a pull request into main. Waits up to 40 seconds while the forge checks it. The first line of the
answer is `status=merged sha=…`, or `status=conflict` (with the commits that came first and how to resolve it),
`status=try_later`, `status=head_moved`, `status=closed`, `status=refused`. Merge as soon as the tests pass: work that
is not on main does not count.
Example: forge_pull_merge(number=12).""",
        (NUMBER,),
        pull_merge,
        writes=True,
    ),
    Tool("forge_main", "Show where main is, its newest commits with authors, and the open pull requests.", (), main),
)
