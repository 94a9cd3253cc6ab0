"""Plain git against the forge: clone, push, the refused push to main, concurrent pushes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.forge.world import World


def test_clone_push_and_merge(world: World) -> None:
    world.protect()
    clone = world.clone(world.ann)
    assert (clone.path / "README.md").exists()
    clone.git("switch", "-q", "-c", "feature")
    sha = clone.commit({"a.txt": "one\n"})
    clone.git("push", "-q", "origin", "feature")
    pull = world.pull(world.ann, "feature")
    assert pull["head"]["sha"] == sha
    assert pull["mergeable"] is True
    answer = world.merge(world.ann, pull["number"], head_commit_id=sha)
    assert answer.status_code == 200, answer.text
    merged = world.ann.http.get(f"{world.at}/pulls/{pull['number']}").json()
    assert merged["merged"] is True
    assert merged["merged_by"]["login"] == world.ann.name
    clone.git("fetch", "-q", "origin")
    assert clone.git("rev-parse", "origin/main").stdout.strip() == merged["merge_commit_sha"]
    assert clone.git("show", "-s", "--format=%an", "origin/main").stdout.strip() == world.ann.name


def test_push_to_protected_main_is_declined_with_the_reason(world: World) -> None:
    world.protect()
    clone = world.clone(world.ann)
    before = clone.git("rev-parse", "origin/main").stdout
    clone.commit({"a.txt": "one\n"})
    push = clone.git("push", "origin", "HEAD:main", check=False)
    assert push.returncode != 0
    assert "pre-receive hook declined" in push.stderr
    assert "Not allowed to push to protected branch main" in push.stderr
    clone.git("fetch", "-q")
    assert clone.git("rev-parse", "origin/main").stdout == before


def test_pushes_from_several_clones_at_once(world: World) -> None:
    clones = [world.clone(world.ann if i % 2 else world.ben, f"clone{i}") for i in range(6)]

    def work(i: int) -> str:
        clones[i].git("switch", "-q", "-c", f"branch{i}")
        sha = clones[i].commit({f"file{i}.txt": "text\n" * 500})
        clones[i].git("push", "-q", "origin", f"branch{i}")
        return sha

    with ThreadPoolExecutor(6) as pool:
        shas = list(pool.map(work, range(6)))
    for i, sha in enumerate(shas):
        assert world.ann.http.get(f"{world.at}/branches/branch{i}").json()["commit"]["id"] == sha


def test_own_branches_may_be_rewritten_and_deleted(world: World) -> None:
    world.protect()
    clone = world.clone(world.ann)
    clone.git("switch", "-q", "-c", "mine")
    clone.commit({"a.txt": "1\n"})
    clone.git("push", "-q", "origin", "mine")
    clone.git("commit", "-q", "--amend", "-m", "Reworded")
    assert clone.git("push", "origin", "mine", check=False).returncode != 0
    clone.git("push", "-q", "--force", "origin", "mine")
    clone.git("push", "-q", "origin", ":mine")
    assert world.ann.http.get(f"{world.at}/branches/mine").status_code == 404


@pytest.mark.parametrize(
    ("rule", "refspecs", "reason"),
    [
        ({"enable_push": True}, ["+HEAD~:main"], "protected from force push"),
        ({"enable_push": True, "enable_force_push": False}, [":rel"], "protected from deletion"),
        ({}, ["+HEAD:main", "HEAD:mine"], "Not allowed to push to protected branch main"),
        ({"enable_push": True, "enable_push_whitelist": True}, ["+HEAD:main"], "Not allowed to push"),
    ],
)
def test_what_the_rules_decline(world: World, rule: dict[str, Any], refspecs: list[str], reason: str) -> None:
    clone = world.clone(world.ann)
    clone.commit({"a.txt": "1\n"})
    clone.git("push", "-q", "origin", "HEAD:main", "HEAD:rel")
    world.protect(**rule)
    world.protect(**rule | {"rule_name": "re*"})
    clone.git("commit", "-q", "--amend", "-m", "Another")
    push = clone.git("push", "origin", *refspecs, check=False)
    assert push.returncode != 0
    assert reason in push.stderr
    assert world.ann.http.get(f"{world.at}/branches/mine").status_code == 404  # one bad ref, none is taken


def test_a_rule_may_allow_pushes(world: World) -> None:
    world.protect(enable_push=True, enable_push_whitelist=True, push_whitelist_usernames=[world.ann.name])
    for member, allowed in ((world.ann, True), (world.ben, False)):
        clone = world.clone(member)
        clone.commit({f"{member.name}.txt": "1\n"})
        assert (clone.git("push", "origin", "HEAD:main", check=False).returncode == 0) is allowed


def test_refs_of_pull_requests_are_not_a_clients(world: World) -> None:
    clone = world.clone(world.ann)
    clone.commit({"a.txt": "1\n"})
    assert clone.git("push", "origin", "HEAD:refs/pull/1/head", check=False).returncode != 0


def test_large_pushes_and_long_negotiations(world: World) -> None:
    """A body beyond git's buffer comes in chunks; one with many wants comes compressed."""
    clone = world.clone(world.ann)
    clone.git("config", "http.postBuffer", "65536")
    (clone.path / "blob.bin").write_bytes(os.urandom(3_000_000))
    clone.commit({"a.txt": "1\n"})
    for i in range(60):
        clone.git("branch", f"many/{i}", clone.git("commit-tree", "HEAD^{tree}", "-m", f"{i}").stdout.strip())
    clone.git("push", "-q", "origin", "--all")
    other = world.clone(world.ben)
    assert (other.path / "blob.bin").read_bytes() == (clone.path / "blob.bin").read_bytes()
    assert len(other.git("branch", "-r", "--list", "origin/many/*").stdout.split()) == 60


def test_two_pushes_of_one_branch_keep_one_whole(world: World) -> None:
    clones = [world.clone(world.ann if i % 2 else world.ben, f"rival{i}") for i in range(4)]
    shas = [clone.commit({"same.txt": f"{i}\n"}) for i, clone in enumerate(clones)]
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda c: c.git("push", "-q", "origin", "HEAD:shared", check=False).returncode, clones))
    assert codes.count(0) == 1
    tip = world.ann.http.get(f"{world.at}/branches/shared").json()["commit"]["id"]
    assert tip == shas[codes.index(0)]


def test_a_client_that_goes_in_the_middle_of_a_push_leaves_nothing(world: World) -> None:
    """Half a push, then the connection is cut, again and again: no ref moves, and the forge still serves."""
    head = world.ann.http.get(f"{world.at}/branches/main").json()["commit"]["id"]
    command = f"{'0' * 40} {head} refs/heads/half\0 report-status"
    body = f"{len(command) + 4:04x}{command}0000PACK".encode()
    for _ in range(40):  # more than may be served at once: each must give its place back
        world.begin_git(world.ann, "git-receive-pack", body, 1_000_000).close()
    clone = world.clone(world.ann)
    clone.git("push", "-q", "origin", "HEAD:whole")
    assert world.ann.http.get(f"{world.at}/branches/half").status_code == 404
