"""Pull requests and the traps of merging them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.forge.world import World, eventually


def get(world: World, number: int) -> dict[str, Any]:
    pull: dict[str, Any] = world.ann.http.get(f"{world.at}/pulls/{number}").json()
    return pull


def main_of(world: World) -> str:
    return str(world.ann.http.get(f"{world.at}/branches/main").json()["commit"]["id"])


@pytest.mark.parametrize("style", ["merge", "rebase", "rebase-merge", "squash", "fast-forward-only"])
def test_each_style_leaves_the_history_it_promises(world: World, style: str) -> None:
    clone = world.clone(world.ann)
    clone.git("switch", "-q", "-c", "work")
    clone.commit({"a.txt": "1\n"}, "First\n\nwith a body")
    head = clone.commit({"b.txt": "2\n"}, "Second")
    clone.git("push", "-q", "origin", "work")
    base = main_of(world)
    if style != "fast-forward-only":  # main has moved on, with a change elsewhere
        world.branch(world.ben, "other", {"c.txt": "3\n"})
        assert world.merge(world.ben, world.pull(world.ben, "other")["number"]).status_code == 200
        base = main_of(world)
    number = world.pull(world.ann, "work", "The title", body="The body")["number"]
    world.mergeable(number)
    answer = world.merge(world.ben, number, Do=style)
    assert answer.status_code == 200, answer.text
    clone.git("fetch", "-q")
    tip = main_of(world)
    log = clone.git("log", "--format=%s|%an", f"{base}..origin/main").stdout.splitlines()
    merge_line = f"Merge pull request 'The title' (#{number}) from work into main|{world.ben.name}"
    ann = world.ann.name
    assert (
        log
        == {
            "merge": [merge_line, f"Second|{ann}", f"First|{ann}"],
            "rebase": [f"Second|{ann}", f"First|{ann}"],
            "rebase-merge": [merge_line, f"Second|{ann}", f"First|{ann}"],
            "squash": [f"The title (#{number})|{ann}"],
            "fast-forward-only": [f"Second|{ann}", f"First|{ann}"],
        }[style]
    )
    assert clone.git("ls-tree", "--name-only", "origin/main").stdout.split()[:3] == ["README.md", "a.txt", "b.txt"]
    parents = clone.git("show", "-s", "--format=%P", "origin/main").stdout.split()
    assert len(parents) == (2 if "merge" in style else 1)
    if style in {"merge", "rebase-merge"}:
        assert parents[0] == base
    if style == "fast-forward-only":
        assert tip == head
    pull = get(world, number)
    assert (pull["merged"], pull["state"], pull["merge_commit_sha"], pull["merged_by"]["login"]) == (
        True, "closed", tip, world.ben.name,
    )  # fmt: skip
    assert pull["merged_at"] == pull["closed_at"]
    assert pull["head"]["sha"] == head


def test_diverged_fast_forward_is_409(world: World) -> None:
    world.branch(world.ann, "one", {"a.txt": "1\n"})
    world.branch(world.ann, "two", {"b.txt": "2\n"})
    one, two = world.pull(world.ann, "one"), world.pull(world.ann, "two")
    assert world.merge(world.ann, one["number"], Do="fast-forward-only").status_code == 200
    world.mergeable(two["number"])
    answer = world.merge(world.ann, two["number"], Do="fast-forward-only")
    assert answer.status_code == 409
    assert get(world, two["number"])["merged"] is False


def test_conflict_looks_like_checking_and_update_tells_it(world: World) -> None:
    world.branch(world.ann, "one", {"README.md": "one\n"})
    world.branch(world.ben, "two", {"README.md": "two\n"})
    one, two = world.pull(world.ann, "one")["number"], world.pull(world.ben, "two")["number"]
    assert world.merge(world.ann, one).status_code == 200
    refused = world.merge(world.ben, two)
    assert (refused.status_code, refused.json()["message"]) == (405, "Please try again later")
    update = world.ben.http.post(f"{world.at}/pulls/{two}/update")
    assert update.status_code == 409, update.text

    def still() -> bool:
        pull = get(world, two)
        return pull["mergeable"] is False and world.merge(world.ben, two).status_code == 405

    eventually(still, "the conflict is found")
    # Resolved by hand in a clone, as a worker does, it merges.
    clone = world.clone(world.ben)
    clone.git("switch", "-q", "two")
    clone.git("merge", "-q", "origin/main", check=False)
    clone.commit({"README.md": "one and two\n"}, "Resolve")
    clone.git("push", "-q", "origin", "two")
    world.mergeable(two)
    assert world.merge(world.ben, two).status_code == 200
    clone.git("fetch", "-q")
    assert clone.git("show", "origin/main:README.md").stdout == "one and two\n"


def test_update_merges_or_rebases_and_is_500_when_up_to_date(world: World) -> None:
    for style in ("merge", "rebase"):
        world.branch(world.ann, f"late-{style}", {f"late-{style}.txt": "x\n"})
        number = world.pull(world.ann, f"late-{style}")["number"]
        up_to_date = world.ann.http.post(f"{world.at}/pulls/{number}/update?style={style}")
        assert up_to_date.status_code == 500
        assert f"HeadBranch of PR {number} is up to date" in up_to_date.json()["message"]
        world.branch(world.ben, f"first-{style}", {f"first-{style}.txt": "y\n"})
        assert world.merge(world.ben, world.pull(world.ben, f"first-{style}")["number"]).status_code == 200
        done = world.ann.http.post(f"{world.at}/pulls/{number}/update?style={style}")
        assert done.status_code == 200, done.text
        commits = world.ann.http.get(f"{world.at}/pulls/{number}/commits").json()
        assert len(commits[0]["parents"]) == (2 if style == "merge" else 1)
        world.mergeable(number)
        assert world.merge(world.ann, number).status_code == 200
        closed = world.ann.http.post(f"{world.at}/pulls/{number}/update")
        assert closed.status_code == 422


def test_moved_head_and_repeated_merge(world: World) -> None:
    old = world.branch(world.ann, "work", {"a.txt": "1\n"})
    number = world.pull(world.ann, "work")["number"]
    clone = world.clone(world.ann)
    clone.git("switch", "-q", "work")
    new = clone.commit({"a.txt": "2\n"})
    clone.git("push", "-q")
    assert world.mergeable(number)["head"]["sha"] == new
    stale = world.merge(world.ann, number, head_commit_id=old)
    assert (stale.status_code, stale.json()["message"]) == (409, "head out of date")
    assert world.merge(world.ann, number, head_commit_id=new).status_code == 200
    again = world.merge(world.ann, number, head_commit_id=new)
    assert (again.status_code, again.json()["message"]) == (405, "The PR is already merged")
    assert world.ann.http.get(f"{world.at}/pulls/{number}/merge").status_code == 204


def test_merges_into_one_base_race_and_every_loser_is_told(world: World) -> None:
    """Eight at once: each answer is 200, 405 "try again later" or 409, and 200 is true of main."""
    count = 8
    for i in range(count):
        world.branch(world.ann, f"b{i}", {f"f{i}.txt": f"{i}\n"})
    numbers = [world.pull(world.ann, f"b{i}")["number"] for i in range(count)]
    seen: set[tuple[int, str]] = set()

    def work(number: int) -> None:
        def attempt() -> bool:
            answer = world.merge(world.ann, number)
            message = answer.json()["message"] if answer.content else ""
            seen.add((answer.status_code, message))
            if answer.status_code != 200:
                get(world, number)
            return answer.status_code == 200

        eventually(attempt, f"pull request {number} merges")

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, numbers))
    assert seen <= {(200, ""), (405, "Please try again later"), (409, "merge push out of date")}
    assert len(seen) > 1, "eight merges at once never raced"
    clone = world.clone(world.ben)
    assert {f"f{i}.txt" for i in range(count)} <= set(clone.git("ls-files").stdout.split())
    for number in numbers:
        assert clone.git("merge-base", "--is-ancestor", get(world, number)["merge_commit_sha"], "HEAD").returncode == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"title": "x", "head": "work", "base": "main"}, 409),
        ({"title": "x", "head": "main", "base": "main"}, 422),
        ({"title": "x", "head": "same", "base": "main"}, 422),
        ({"title": "x", "head": "absent", "base": "main"}, 404),
        ({"title": "x", "head": "work", "base": "absent"}, 404),
        ({"title": " ", "head": "other", "base": "main"}, 422),
    ],
)
def test_refused_creations(world: World, body: dict[str, str], status: int) -> None:
    world.branch(world.ann, "work", {"a.txt": "1\n"})
    world.branch(world.ann, "other", {"b.txt": "1\n"})
    world.ann.http.post(f"{world.at}/branches", json={"new_branch_name": "same"})
    world.pull(world.ann, "work")
    answer = world.ben.http.post(f"{world.at}/pulls", json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) >= {"message", "url"}


def test_closing_reopening_and_deleting_the_branch(world: World) -> None:
    world.branch(world.ann, "work", {"a.txt": "1\n"})
    number = world.pull(world.ann, "work")["number"]
    closed = world.ann.http.patch(f"{world.at}/pulls/{number}", json={"state": "closed"})
    assert (closed.status_code, closed.json()["state"]) == (201, "closed")
    assert world.merge(world.ann, number).status_code == 404
    second = world.pull(world.ann, "work")["number"]
    twin = world.ann.http.patch(f"{world.at}/pulls/{number}", json={"state": "open"})
    assert twin.status_code == 409
    assert world.ann.http.delete(f"{world.at}/branches/work").status_code == 204
    pull = get(world, second)
    assert (pull["state"], pull["merged"], pull["head"]["ref"]) == ("closed", False, f"refs/pull/{second}/head")
    clone = world.clone(world.ben)
    clone.git("fetch", "-q", "origin", f"refs/pull/{second}/head")
    assert clone.git("show", "FETCH_HEAD:a.txt").stdout == "1\n"


@pytest.mark.parametrize(
    ("rule", "title", "message"),
    [
        ({"required_approvals": 1}, "x", "Does not have enough approvals"),
        ({"enable_status_check": True, "status_check_contexts": ["ci/*"]}, "x", "Not all required status checks"),
        ({"enable_merge_whitelist": True}, "x", "User not allowed to merge PR"),
        ({}, "WIP: x", "Work in progress"),
    ],
)
def test_protection_refuses_and_then_lets_pass(world: World, rule: dict[str, Any], title: str, message: str) -> None:
    world.protect(**rule)
    sha = world.branch(world.ann, "work", {"a.txt": "1\n"})
    number = world.pull(world.ann, "work", title)["number"]
    refused = world.merge(world.ann, number)
    assert refused.status_code == 405
    assert message in refused.json()["message"]
    review = world.ben.http.post(f"{world.at}/pulls/{number}/reviews", json={"event": "APPROVED"})
    assert review.status_code == 200, review.text
    status = {"state": "success", "context": "ci/test"}
    assert world.ann.http.post(f"{world.at}/statuses/{sha}", json=status).status_code == 201
    allow = {"merge_whitelist_usernames": [world.ann.name]}
    assert world.owner.http.patch(f"{world.at}/branch_protections/main", json=allow).status_code == 200
    world.ann.http.patch(f"{world.at}/pulls/{number}", json={"title": "ready"})
    assert world.merge(world.ann, number).status_code == 200


def test_outdated_branch_is_blocked_when_the_rule_says_so(world: World) -> None:
    world.protect(block_on_outdated_branch=True)
    world.branch(world.ann, "one", {"a.txt": "1\n"})
    world.branch(world.ann, "two", {"b.txt": "1\n"})
    one, two = world.pull(world.ann, "one")["number"], world.pull(world.ann, "two")["number"]
    assert world.merge(world.ann, one).status_code == 200
    world.mergeable(two)
    behind = world.merge(world.ann, two)
    assert (behind.status_code, behind.json()["message"]) == (405, "The head branch is behind the base branch")
    assert world.ann.http.post(f"{world.at}/pulls/{two}/update").status_code == 200
    world.mergeable(two)
    assert world.merge(world.ann, two).status_code == 200


def test_own_approval_and_outsiders(world: World) -> None:
    world.branch(world.ann, "work", {"a.txt": "1\n"})
    number = world.pull(world.ann, "work")["number"]
    own = world.ann.http.post(f"{world.at}/pulls/{number}/reviews", json={"event": "APPROVED"})
    assert own.status_code == 422
    outsider = world.member(f"eve{world.tag}")
    assert outsider.http.get(f"{world.at}/pulls/{number}").status_code == 200  # the repository is public
    refused = world.merge(outsider, number)
    assert (refused.status_code, refused.json()["message"]) == (405, "User not allowed to merge PR")
    assert outsider.http.post(f"{world.at}/branches", json={"new_branch_name": "x"}).status_code == 403


def test_a_deleted_head_retargets_what_was_built_on_it(world: World) -> None:
    world.branch(world.ann, "one", {"a.txt": "1\n"})
    world.branch(world.ben, "two", {"b.txt": "1\n"}, base="one")
    one = world.pull(world.ann, "one")["number"]
    body = {"title": "two", "head": "two", "base": "one"}
    two = world.ben.http.post(f"{world.at}/pulls", json=body).json()["number"]
    assert world.merge(world.ann, one, delete_branch_after_merge=True).status_code == 200
    assert world.ann.http.get(f"{world.at}/branches/one").status_code == 404
    pull = world.mergeable(two)
    assert (pull["state"], pull["base"]["ref"]) == ("open", "main")
    assert [f["filename"] for f in world.ann.http.get(f"{world.at}/pulls/{two}/files").json()] == ["b.txt"]
    assert world.merge(world.ben, two).status_code == 200


def test_a_merge_closes_the_issues_it_names(world: World) -> None:
    for title in ("first", "second", "third"):
        world.ben.http.post(f"{world.at}/issues", json={"title": title})
    world.branch(world.ann, "work", {"a.txt": "1\n"})
    number = world.pull(world.ann, "work", "Fixes #1", body="closes: #2, see #3, prefixes #3")["number"]
    assert world.merge(world.ann, number).status_code == 200
    states = [world.ann.http.get(f"{world.at}/issues/{n}").json()["state"] for n in (1, 2, 3)]
    assert states == ["closed", "closed", "open"]
    assert world.ben.http.get("/notifications/new").json()["new"] == 2


def test_a_rebase_names_the_commit_that_does_not_apply(world: World) -> None:
    """The sum merges, a step of it does not: a rebase conflict where a merge has none."""
    clone = world.clone(world.ann)
    clone.git("switch", "-q", "-c", "work")
    first = clone.commit({"README.md": "mine\n"}, "Rewrite")
    clone.git("revert", "--no-edit", "HEAD")
    clone.commit({"a.txt": "1\n"}, "Add")
    clone.git("push", "-q", "origin", "work")
    number = world.pull(world.ann, "work")["number"]
    world.branch(world.ben, "other", {"README.md": "theirs\n"})
    assert world.merge(world.ben, world.pull(world.ben, "other")["number"]).status_code == 200
    world.mergeable(number)
    refused = world.merge(world.ann, number, Do="rebase")
    assert refused.status_code == 409
    assert "Rebase Conflict" in refused.json()["message"]
    if "conflicts" in refused.json():
        assert (refused.json()["conflicts"], refused.json()["commit"]) == (["README.md"], first)
    assert world.merge(world.ann, number, Do="squash").status_code == 200
