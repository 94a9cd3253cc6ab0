"""Plain git against the forge: clone, push, the refused push to main, concurrent pushes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

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
