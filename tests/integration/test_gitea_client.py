"""The forge's client against the embedded forge: creates once, merges by the table of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from agensh.clients.gitea import GiteaClient, MergeResult, Pull
from agensh.errors import ServiceError
from agensh.provision import provision
from agensh.rundir import RunInfo, RunSecrets
from tests.support.lossy import lossy_http
from tests.support.services import Services, running_services, set_state

TEAMS = count(1)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


class Shop:
    """A provisioned team, its clone, and pull requests of it."""

    def __init__(self, info: RunInfo, secrets: RunSecrets, folder: Path) -> None:
        self.info = info
        self.secrets = secrets
        self.clone = folder / "clone"
        self.place = (info.owner, info.repository)
        self.worker = info.spec.worker_names[0]
        self.client = GiteaClient(info.urls.forge, token=self.token)

    @property
    def token(self) -> str:
        return self.secrets.workers[self.worker].forge_token

    async def git(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "git",
            *("-c", "user.name=w", "-c", "user.email=w@x"),
            *(("-C", str(self.clone)) if self.clone.exists() else ()),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, arguments
        return output.decode().strip()

    async def start(self) -> None:
        url = self.info.urls.forge.replace("://", f"://{self.worker}:{self.token}@")
        await self.git("clone", "--quiet", f"{url}/{'/'.join(self.place)}.git", str(self.clone))

    async def branch(self, name: str, **files: str) -> str:
        """Push a branch from the clone's origin/main with these files changed; return its commit."""
        await self.git("fetch", "--quiet", "origin")
        await self.git("checkout", "--quiet", "-B", name, "origin/main")
        return await self.commit(name, **files)

    async def commit(self, name: str, **files: str) -> str:
        for file, text in files.items():
            (self.clone / file).write_text(text)
        await self.git("add", "--all")
        await self.git("commit", "--quiet", "--message", name)
        await self.git("push", "--quiet", "origin", f"HEAD:refs/heads/{name}")
        return await self.git("rev-parse", "HEAD")

    async def pull(self, name: str, **files: str) -> Pull:
        await self.branch(name, **files)
        return await self.client.create_pull(*self.place, head=name, base="main", title=name)

    async def merge(self, pull: Pull, *, patience: float = 15.0, client: GiteaClient | None = None) -> MergeResult:
        return await (client or self.client).merge_when_ready(
            *self.place, pull.number, head_sha=pull.head_sha, patience=patience
        )


@pytest_asyncio.fixture
async def shop(services: Services, tmp_path: Path) -> AsyncIterator[Shop]:
    run = services.new_run(tmp_path / "run", f"shop{next(TEAMS)}", workers=1)
    secrets = await provision(run, run.info(), run.secrets(), progress=lambda _line: None)
    shop = Shop(run.info(), secrets, tmp_path)
    await shop.start()
    async with shop.client:
        yield shop


async def test_nothing_is_created_twice_when_the_answer_is_lost(shop: Shop) -> None:
    await shop.branch("work/a", a="a")
    http, transport = lossy_http("POST", r"/(issues|comments|pulls)$", times=3)
    async with http:
        client = GiteaClient(shop.info.urls.forge, token=shop.token, http=http)
        issue = await client.create_issue(*shop.place, "Tabs", "who takes them?")
        comment = await client.create_comment(*shop.place, issue.number, "I do")
        pull = await client.create_pull(*shop.place, head="work/a", base="main", title="A")
        assert len(transport.lost) == 3
        # The same words again are meant, and a second thing.
        again = await client.create_comment(*shop.place, issue.number, "I do")
        assert again.id != comment.id
    assert [comment.id, again.id] == [each.id for each in await shop.client.comments(*shop.place, issue.number)]
    titles = [each.title for each in await shop.client.issues(*shop.place, kind=None, state="all")]
    assert sorted(titles) == ["A", "Rebuild the thing", "Tabs"]
    assert [each.number for each in await shop.client.pulls(*shop.place)] == [pull.number]


async def test_a_repeated_comment_whose_answer_is_lost_is_written_again(shop: Shop) -> None:
    http, transport = lossy_http("POST", "/comments$", times=1)
    async with http:
        client = GiteaClient(shop.info.urls.forge, token=shop.token, http=http)
        first = await client.create_comment(*shop.place, 1, "+1")
        second = await client.create_comment(*shop.place, 1, "+1")
    assert len(transport.lost) == 1
    assert [first.id, second.id] == [each.id for each in await shop.client.comments(*shop.place, 1)]


async def test_a_merge_whose_answer_is_lost_is_known_to_be_merged(shop: Shop) -> None:
    pull = await shop.pull("work/a", a="a")
    http, transport = lossy_http("POST", "/merge$", times=1)
    async with http:
        result = await shop.merge(pull, client=GiteaClient(shop.info.urls.forge, token=shop.token, http=http))
    assert transport.lost
    assert result.status == "merged"
    assert result.sha == (await shop.client.branch(*shop.place, "main")).sha


async def test_many_merge_at_once_and_all_get_in(shop: Shop) -> None:
    pulls = [await shop.pull(f"work/{number}", **{f"f{number}": "x"}) for number in range(6)]
    results = await asyncio.gather(*(shop.merge(pull, patience=60) for pull in pulls))
    assert {result.status for result in results} == {"merged"}
    await shop.git("fetch", "--quiet", "origin")
    files = (await shop.git("ls-tree", "--name-only", "origin/main")).split()
    assert {f"f{number}" for number in range(6)} <= set(files)


async def test_a_conflict_is_told_from_a_check_that_takes_its_time(shop: Shop) -> None:
    ours, theirs = await shop.pull("work/ours", same="ours\n"), await shop.pull("work/theirs", same="theirs\n")
    assert (await shop.merge(theirs)).status == "merged"
    result = await shop.merge(ours, patience=6.0)
    assert result.status == "conflict", result
    pull = await shop.client.pull(*shop.place, ours.number)
    assert (pull.state, pull.head_sha) == ("open", ours.head_sha)
    assert (await shop.client.update_pull(*shop.place, ours.number)).status == "conflict"


async def test_the_commits_that_were_looked_at_are_the_ones_that_are_merged(shop: Shop) -> None:
    pull = await shop.pull("work/a", a="a")
    moved = await shop.commit("work/a", b="b")
    result = await shop.merge(pull)
    assert result.status == "head_moved"
    assert moved in result.message
    once = await shop.client.merge_pull(*shop.place, pull.number, head_sha=pull.head_sha)
    assert once.status in {"head_moved", "try_later"}
    assert not (await shop.client.pull(*shop.place, pull.number)).merged


async def test_update_says_what_it_did(shop: Shop) -> None:
    first, second = await shop.pull("work/1", one="1"), await shop.pull("work/2", two="2")
    assert (await shop.client.update_pull(*shop.place, first.number)).status == "up_to_date"
    assert (await shop.merge(first)).status == "merged"
    assert (await shop.client.update_pull(*shop.place, second.number)).status == "updated"
    assert (await shop.client.update_pull(*shop.place, second.number)).status == "up_to_date"
    refused = await shop.client.update_pull(*shop.place, first.number)
    assert (refused.status, refused.message) == ("refused", f"Pull request {first.number} is merged.")
    compared = await shop.client.compare(*shop.place, "main", "work/2")
    assert compared.total >= 1


async def test_a_closed_pull_request_is_closed_and_a_merged_one_merged(shop: Shop) -> None:
    pull = await shop.pull("work/a", a="a")
    await set_state(shop.client, shop.place, pull.number, "closed")
    assert (await shop.merge(pull)).status == "closed"
    assert (await shop.client.merge_pull(*shop.place, pull.number, head_sha=pull.head_sha)).status == "closed"
    await set_state(shop.client, shop.place, pull.number, "open")
    assert (await shop.merge(pull)).status == "merged"
    assert (await shop.client.merge_pull(*shop.place, pull.number, head_sha=pull.head_sha)).status == "merged"


async def test_listings_are_read_to_their_end(shop: Shop) -> None:
    for number in range(55):
        await shop.client.create_issue(*shop.place, f"issue {number}")
    assert len(await shop.client.issues(*shop.place, limit=500)) == 56
    newest = await shop.client.issues(*shop.place, limit=3)
    assert [issue.title for issue in newest] == ["issue 54", "issue 53", "issue 52"]


async def test_an_unknown_thing_is_the_forges_own_404(shop: Shop) -> None:
    with pytest.raises(ServiceError) as caught:
        await shop.client.issue(*shop.place, 4711)
    assert caught.value.status == 404
    async with GiteaClient(shop.info.urls.forge, token="0" * 40) as stranger:
        with pytest.raises(ServiceError) as refused:
            await stranger.me()
    assert refused.value.status == 401
