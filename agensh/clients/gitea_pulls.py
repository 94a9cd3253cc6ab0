"""Pull requests: reading, opening, bringing up to date, merging.

The forge's answers to a merge are ambiguous (facts of routers/api/v1/repo/pull.go): 405 stands for "being checked",
"in conflict" and "not allowed" alike, 409 for a lost race, a moved head and a conflict, 500 for anything else, and
after a time-out the merge may have happened. `merge_pull` gives each its name; `merge_when_ready` is the bounded loop.
"""

from __future__ import annotations

import logging
from typing import Literal

import httpx

from agensh.clients.gitea_core import SERVICE, GiteaCore, describe
from agensh.clients.gitea_models import (
    Commit,
    Comparison,
    MergeResult,
    MergeStatus,
    Pull,
    Review,
    UpdateResult,
    UpdateStatus,
)
from agensh.clients.http import backoff, read_json, unsure
from agensh.clock import Clock
from agensh.errors import ServiceError

log = logging.getLogger(__name__)

MergeStyle = Literal["merge", "rebase", "rebase-merge", "squash", "fast-forward-only"]

UPDATE_ATTEMPTS = 3
CHECK_GRACE = 3.0  # seconds a pull request may stay unmergeable before an update is asked whether it is in conflict


class PullCalls(GiteaCore):
    """Calls on pull requests."""

    async def pulls(self, owner: str, repo: str, *, state: str = "open", limit: int = 50, page: int = 1) -> list[Pull]:
        """Return pull requests, most recently created first; `limit` over 50 reads several pages from `page` on."""
        found = await self.get_pages(
            f"/repos/{owner}/{repo}/pulls", params={"state": state}, most=limit, first_page=page
        )
        return [Pull.of(item) for item in found]

    async def pull(self, owner: str, repo: str, number: int) -> Pull:
        """Return one pull request; reading it makes the forge check it anew if that is due."""
        return Pull.of(await self.get(f"/repos/{owner}/{repo}/pulls/{number}"))

    async def pull_files(self, owner: str, repo: str, number: int) -> list[str]:
        """Return the paths a pull request changes."""
        found = await self.get_pages(f"/repos/{owner}/{repo}/pulls/{number}/files")
        return [str(item["filename"]) for item in found]

    async def pull_reviews(self, owner: str, repo: str, number: int) -> list[Review]:
        """Return the reviews of a pull request, oldest first."""
        found = await self.get_pages(f"/repos/{owner}/{repo}/pulls/{number}/reviews")
        return [Review.of(item) for item in found]

    async def create_pull(self, owner: str, repo: str, *, head: str, base: str, title: str, body: str = "") -> Pull:
        """Open a pull request, or return the open one of the same branches."""

        async def post() -> Pull:
            response = await self.request(
                "POST",
                f"/repos/{owner}/{repo}/pulls",
                json={"head": head, "base": base, "title": title, "body": body},
                expect=(201, 409),
            )
            if response.status_code == 201:
                return Pull.of(read_json(response, SERVICE))
            found = await find()
            if found is None:
                raise ServiceError("The forge", 409, describe(response))
            return found

        async def find() -> Pull | None:
            for pull in await self.pulls(owner, repo, limit=10_000):
                if pull.head_branch == head and pull.base_branch == base:
                    return pull
            return None

        return await self.create("pull", post, find, lambda pull: pull.number)

    async def update_pull(self, owner: str, repo: str, number: int) -> UpdateResult:
        """Merge the base into the pull request's branch."""
        for attempt in range(UPDATE_ATTEMPTS):
            pull = await self.pull(owner, repo, number)
            if pull.merged or pull.state != "open":
                state = "merged" if pull.merged else pull.state
                return UpdateResult(UpdateStatus.REFUSED, f"Pull request {number} is {state}.")
            if pull.merge_base and pull.merge_base == pull.base_sha:
                return UpdateResult(UpdateStatus.UP_TO_DATE)
            response = await self.request(
                "POST",
                f"/repos/{owner}/{repo}/pulls/{number}/update",
                params={"style": "merge"},
                expect=(200, 403, 409, 422, 500),
            )
            message = describe(response) if response.content else ""
            if response.status_code == 200:
                return UpdateResult(UpdateStatus.UPDATED)
            if response.status_code == 409:
                return UpdateResult(UpdateStatus.CONFLICT, message)
            if response.status_code in {403, 422}:
                return UpdateResult(UpdateStatus.REFUSED, message)
            # Gitea answers 500 when there is nothing to update, and when another push came in between.
            if "up to date" in message:
                return UpdateResult(UpdateStatus.UP_TO_DATE, message)
            await self.clock.sleep(backoff(attempt))
        raise ServiceError("The forge", 500, f"updating pull request {number}: {message}", retryable=True)

    async def merge_pull(
        self,
        owner: str,
        repo: str,
        number: int,
        *,
        head_sha: str,
        style: MergeStyle = "merge",
        title: str = "",
        message: str = "",
    ) -> MergeResult:
        """Try once to merge the pull request as it was at `head_sha`."""
        body = {"Do": style, "head_commit_id": head_sha, "MergeTitleField": title, "MergeMessageField": message}
        try:
            response = await self.request(
                "POST",
                f"/repos/{owner}/{repo}/pulls/{number}/merge",
                json={key: value for key, value in body.items() if value},
                expect=(200, 201, 204, 401, 403, 404, 405, 409, 413, 422, 423, 500),
            )
        except ServiceError as error:
            if not unsure(error):
                raise
            return await self._after_unsure_merge(owner, repo, number, str(error))
        if response.status_code == 500:
            return await self._after_unsure_merge(owner, repo, number, describe(response))
        result = read_merge_answer(response)
        if result.status is MergeStatus.MERGED:
            pull = await self.pull(owner, repo, number)
            return MergeResult(MergeStatus.MERGED, result.message, pull.merge_commit)
        if response.status_code == 404:
            pull = await self.pull(owner, repo, number)
            if pull.merged:
                return MergeResult(MergeStatus.MERGED, "It was merged already.", pull.merge_commit)
        return result

    async def _after_unsure_merge(self, owner: str, repo: str, number: int, message: str) -> MergeResult:
        pull = await self.pull(owner, repo, number)
        if pull.merged:
            return MergeResult(MergeStatus.MERGED, "", pull.merge_commit)
        return MergeResult(MergeStatus.TRY_LATER, message)

    async def merge_when_ready(
        self,
        owner: str,
        repo: str,
        number: int,
        *,
        head_sha: str,
        patience: float,
        clock: Clock | None = None,
        style: MergeStyle = "merge",
        title: str = "",
        message: str = "",
    ) -> MergeResult:
        """Merge the pull request as it was at `head_sha`, waiting at most about `patience` seconds for the forge.

        A pull request that stays unmergeable is updated once: that tells a conflict from a check that is still waiting.
        Where the update succeeds the branch gained only a merge of the base, and the loop goes on with that commit.
        """
        clock = clock or self.clock
        started = clock.monotonic()
        grace = min(CHECK_GRACE, patience / 3)
        last = MergeResult(MergeStatus.TRY_LATER, "The forge is still checking whether it can be merged.")
        updated = False
        attempt = 0
        while True:
            pull = await self.pull(owner, repo, number)
            if pull.merged:
                return MergeResult(MergeStatus.MERGED, "", pull.merge_commit)
            if pull.state != "open":
                return MergeResult(MergeStatus.CLOSED, f"Pull request {number} is {pull.state}.")
            if pull.head_sha != head_sha:
                return MergeResult(
                    MergeStatus.HEAD_MOVED, f"The branch is at {pull.head_sha}, no longer at {head_sha}."
                )
            if pull.mergeable:
                last = await self.merge_pull(
                    owner, repo, number, head_sha=head_sha, style=style, title=title, message=message
                )
                if last.status not in {MergeStatus.TRY_LATER, MergeStatus.BASE_RACE}:
                    return last
            waited = clock.monotonic() - started
            if not updated and not pull.mergeable and attempt >= 2 and waited >= grace:
                updated = True
                result = await self.update_pull(owner, repo, number)
                if result.status is UpdateStatus.CONFLICT:
                    return MergeResult(MergeStatus.CONFLICT, result.message or f"It conflicts with {pull.base_branch}.")
                if result.status is UpdateStatus.REFUSED:
                    return MergeResult(MergeStatus.REFUSED, result.message)
                if result.status is UpdateStatus.UPDATED:
                    head_sha = await self._own_update(owner, repo, number, head_sha)
            if waited >= patience:
                return last
            await clock.sleep(min(0.1 + backoff(attempt, longest=3.0), max(0.05, patience - waited)))
            attempt += 1

    async def _own_update(self, owner: str, repo: str, number: int, head_sha: str) -> str:
        """Return the head after our update if it is exactly the old head merged with the base, else the old one."""
        pull = await self.pull(owner, repo, number)
        if pull.head_sha == head_sha:
            return head_sha
        newest = await self.commits(owner, repo, sha=pull.head_sha, limit=1)
        if newest and len(newest[0].parents) == 2 and newest[0].parents[0] == head_sha:
            return pull.head_sha
        return head_sha

    async def commits(self, owner: str, repo: str, *, sha: str = "", limit: int = 50, page: int = 1) -> list[Commit]:
        """Return commits reachable from `sha` (a branch or a commit; empty: the default branch), newest first."""
        params = {"stat": "false", "verification": "false", "files": "false"} | ({"sha": sha} if sha else {})
        found = await self.get_pages(f"/repos/{owner}/{repo}/commits", params=params, most=limit, first_page=page)
        return [Commit.of(item) for item in found]

    async def compare(self, owner: str, repo: str, base: str, head: str) -> Comparison:
        """Return what `head` has and `base` has not."""
        value = await self.get(f"/repos/{owner}/{repo}/compare/{base}...{head}")
        commits = tuple(Commit.of(item) for item in value.get("commits") or ())
        return Comparison(commits, int(value.get("total_commits") or len(commits)))


def read_merge_answer(response: httpx.Response) -> MergeResult:
    """Give the forge's answer to a merge its name; 500 is not for this function, the pull request must be read."""
    text = describe(response) if response.content else ""
    lowered = text.lower()
    match response.status_code:
        case 200 | 204:
            return MergeResult(MergeStatus.MERGED)
        case 201:
            return MergeResult(MergeStatus.TRY_LATER, "The forge merges it once its checks succeed.")
        case 404:
            return MergeResult(MergeStatus.CLOSED, text)
        case 405 if "already merged" in lowered:
            return MergeResult(MergeStatus.MERGED, "It was merged already.")
        case 405 if "try again later" in lowered:
            return MergeResult(MergeStatus.TRY_LATER, text)
        case 409 if "merge push out of date" in lowered:
            return MergeResult(MergeStatus.BASE_RACE, text)
        case 409 if "head out of date" in lowered:
            return MergeResult(MergeStatus.HEAD_MOVED, text)
        case 409 if "pushrejected" in lowered.replace(" ", ""):
            return MergeResult(MergeStatus.REFUSED, text)
        case 409:
            return MergeResult(MergeStatus.CONFLICT, text)
    return MergeResult(MergeStatus.REFUSED, text)
