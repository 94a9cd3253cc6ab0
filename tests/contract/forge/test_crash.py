"""kill -9 in the middle of merges: after the restart rows and refs agree, and nothing that was told is lost."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import httpx
import pytest

from agensh.embedded.forge import app as forge_app
from agensh.embedded.forge.server import serve
from agensh.embedded.forge.settings import ForgeSettings
from agensh.errors import UsageError
from agensh.serving import open_socket
from tests.contract.forge.world import PASSWORD, World, eventually, run_git
from tests.support.servers import ForgeProcess, running_forge


@pytest.mark.parametrize("after", [1, 3])
def test_kill_during_merges(tmp_path: Path, after: int) -> None:
    """Three workers merge six pull requests; the forge is killed after some answers and started again."""
    with ForgeProcess(tmp_path / "forge") as process, World(process.start(), tmp_path, "crash") as world:
        count = 6
        for i in range(count):
            world.branch(world.ann, f"b{i}", {f"f{i}.txt": f"{i}\n"})
        numbers = [world.pull(world.ann, f"b{i}")["number"] for i in range(count)]
        told: dict[int, int] = {}
        enough = threading.Event()
        over = threading.Event()

        def work(mine: list[int]) -> None:
            while mine and not over.is_set():
                number = mine[0]
                try:
                    answer = world.merge(world.ann, number)
                    world.ann.http.get(f"{world.at}/pulls/{number}")
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    told[number] = answer.status_code
                    mine.pop(0)
                    if len(told) >= after:
                        enough.set()

        threads = [threading.Thread(target=work, args=(numbers[i::3],)) for i in range(3)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        process.kill()
        over.set()
        for thread in threads:
            thread.join(60)
        process.start()
        pulls = {n: world.ann.http.get(f"{world.at}/pulls/{n}").json() for n in numbers}
        clone = world.clone(world.ben)
        history = set(clone.git("rev-list", "HEAD").stdout.split())
        listed = set(clone.git("ls-files").stdout.split())
        for i, number in enumerate(numbers):
            pull = pulls[number]
            # A row says merged exactly when main has the commit; a client that was told is right.
            assert pull["merged"] is (f"f{i}.txt" in listed), number
            assert (pull["merge_commit_sha"] in history) is pull["merged"]
            assert pull["merged"] or number not in told
            if pull["merged"]:
                assert (pull["state"], pull["merged_by"]["login"]) == ("closed", world.ann.name)
        for number in numbers:  # and what is left merges
            if not pulls[number]["merged"]:
                world.mergeable(number)
                assert world.merge(world.ann, number).status_code == 200
        assert process.stop() == 0


KILLER = """#!/bin/sh
# git calls this around every change of refs; the forge dies at exactly this point, with no chance to write a row.
while read -r old new ref; do
	if [ "$1 $ref" = "{state} {ref}" ]; then
		kill -9 {pid}
		[ "$1" = committed ] || exit 1
	fi
done
"""


def arm(world: World, process: ForgeProcess, state: str, ref: str) -> Path:
    """Have the forge killed when git is about to move (prepared) or has moved (committed) a ref."""
    hook = process.data / "repos" / world.owner.name / f"{world.name}.git" / "hooks" / "reference-transaction"
    hook.write_text(KILLER.format(state=state, ref=ref, pid=process.pid))
    hook.chmod(0o755)
    return hook


@pytest.mark.parametrize("state", ["prepared", "committed"])
def test_killed_around_the_moment_of_a_merge(tmp_path: Path, state: str) -> None:
    """Between the ref and the row of a merge: the restart finds it merged if main moved, and open if not."""
    with ForgeProcess(tmp_path / "forge") as process, World(process.start(), tmp_path, "moment") as world:
        world.branch(world.ann, "work", {"a.txt": "1\n"})
        number = world.pull(world.ann, "work")["number"]
        world.ben.http.post(f"{world.at}/issues/{number}/comments", json={"body": "I follow this"})
        before = world.ben.http.get("/notifications/new").json()["new"]
        hook = arm(world, process, state, "refs/heads/main")
        with pytest.raises(httpx.TransportError):
            world.merge(world.ann, number)
        hook.unlink()
        process.kill()
        # What a forge leaves that is killed while it moves a ref by itself.
        (hook.parents[1] / "refs" / "heads" / "main.lock").touch()
        process.start()
        pull = world.ann.http.get(f"{world.at}/pulls/{number}").json()
        tip = world.ann.http.get(f"{world.at}/branches/main").json()["commit"]["id"]
        if state == "committed":
            assert (pull["merged"], pull["merge_commit_sha"], pull["merged_by"]["login"]) == (
                True, tip, world.ann.name,
            )  # fmt: skip
            assert world.ben.http.get("/notifications/new").json()["new"] == before + 1
            again = world.merge(world.ann, number)
            assert (again.status_code, again.json()["message"]) == (405, "The PR is already merged")
        else:
            assert (pull["merged"], pull["state"], pull["base"]["sha"]) == (False, "open", tip)
            world.mergeable(number)
            assert world.merge(world.ann, number).status_code == 200


def test_killed_right_after_a_push(tmp_path: Path) -> None:
    """The branch moved and no row says so: the restart synchronises the pull request."""
    with ForgeProcess(tmp_path / "forge") as process, World(process.start(), tmp_path, "push") as world:
        world.branch(world.ann, "work", {"a.txt": "1\n"})
        number = world.pull(world.ann, "work")["number"]
        clone = world.clone(world.ann)
        clone.git("switch", "-q", "work")
        sha = clone.commit({"a.txt": "2\n"})
        hook = arm(world, process, "committed", "refs/heads/work")
        assert clone.git("push", "origin", "work", check=False).returncode != 0
        hook.unlink()
        process.kill()
        # What a forge leaves that is killed while it moves a ref by itself.
        (hook.parents[1] / "refs" / "heads" / "main.lock").touch()
        process.start()
        pull = world.mergeable(number)
        assert pull["head"]["sha"] == sha
        events = [e["type"] for e in world.ann.http.get(f"{world.at}/issues/{number}/timeline").json()]
        assert events == ["pull_push"]


def test_refs_that_moved_unseen_are_taken_note_of(tmp_path: Path) -> None:
    """A push and a merge whose rows were never written: the next start completes both."""
    data = tmp_path / "forge"
    with running_forge(data) as forge, World(forge, tmp_path, "rec") as world:
        first = world.branch(world.ann, "one", {"a.txt": "1\n"})
        world.branch(world.ann, "two", {"b.txt": "1\n"})
        world.branch(world.ann, "three", {"c.txt": "1\n"})
        one, two = world.pull(world.ann, "one")["number"], world.pull(world.ann, "two")["number"]
        three = world.pull(world.ann, "three")["number"]
    bare = data / "repos" / world.owner.name / f"{world.name}.git"

    def git(*arguments: str) -> str:
        return run_git(bare, "-c", "user.name=x", "-c", "user.email=x@x.org", *arguments).stdout.strip()

    tree = git("merge-tree", "--write-tree", "main", "one")
    merge = git("commit-tree", tree, "-p", "main", "-p", "one", "-m", "merge")
    lost = git("commit-tree", tree, "-p", "main", "-m", "never became main")
    rows = sqlite3.connect(data / "forge.sqlite3")
    sql = (
        "UPDATE pulls SET pending_sha = ?, pending_by = (SELECT id FROM users WHERE name = ?) "
        "WHERE issue_id = (SELECT id FROM issues WHERE number = ?)"
    )
    rows.execute(sql, (merge, world.ben.name, one))
    rows.execute(sql, (lost, world.ben.name, two))
    rows.commit()
    rows.close()
    git("update-ref", "refs/heads/main", merge)
    moved = git("commit-tree", f"{first}^{{tree}}", "-p", "two", "-m", "pushed")
    git("update-ref", "refs/heads/two", moved)
    git("update-ref", "-d", "refs/heads/three")
    with running_forge(data) as forge, httpx.Client(base_url=forge.api, auth=(world.ann.name, PASSWORD)) as http:
        pull = http.get(f"{world.at}/pulls/{one}").json()
        assert (pull["merged"], pull["merge_commit_sha"], pull["merged_by"]["login"]) == (
            True, merge, world.ben.name,
        )  # fmt: skip
        open_ = eventually(
            lambda: (p := http.get(f"{world.at}/pulls/{two}").json())["mergeable"] and p, "it is checked again"
        )
        assert (open_["merged"], open_["head"]["sha"]) == (False, moved)
        types = [e["type"] for e in http.get(f"{world.at}/issues/{two}/timeline").json()]
        assert types == ["pull_push"]
        assert http.get(f"{world.at}/pulls/{three}").json()["state"] == "closed"


def test_sessions_tokens_and_rows_outlive_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "forge"
    with running_forge(data) as forge, World(forge, tmp_path, "stay") as world:
        login = httpx.post(f"{forge.url}/user/login", data={"user_name": world.ann.name, "password": PASSWORD})
        cookie = login.cookies["i_like_gitea"]
        world.ann.http.post(f"{world.at}/issues", json={"title": "stays"})
    secrets = [world.ann.token.encode(), PASSWORD.encode(), cookie.encode()]
    stored = b"".join(path.read_bytes() for path in data.glob("forge.sqlite3*"))
    assert not any(secret in stored for secret in secrets)
    with running_forge(data) as forge:
        headers = {"Authorization": f"token {world.ann.token}"}
        found = httpx.get(f"{forge.api}{world.at}/issues", headers=headers).json()
        assert [issue["title"] for issue in found] == ["stays"]
        with httpx.stream("GET", f"{forge.url}/user/events", cookies={"i_like_gitea": cookie}) as stream:
            assert next(stream.iter_raw()) == b"\n"


def test_a_stop_does_not_wait_for_open_streams(tmp_path: Path) -> None:
    with ForgeProcess(tmp_path / "forge") as process, World(process.start(), tmp_path, "open") as world:
        login = httpx.post(f"{world.forge.url}/user/login", data={"user_name": world.ann.name, "password": PASSWORD})
        with httpx.stream("GET", f"{world.forge.url}/user/events", cookies=dict(login.cookies)) as stream:
            parts = stream.iter_raw()
            assert next(parts) == b"\n"
            assert process.stop() == 0
            assert list(parts) == []  # the stream ended in order, not by a broken connection


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with open_socket("127.0.0.1", 0, "other") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port: {port} on 127.0.0.1 is already in use .* for the forge\."):
            serve(tmp_path, "127.0.0.1", port)


def test_data_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    rows = sqlite3.connect(tmp_path / "forge.sqlite3")
    rows.execute("PRAGMA user_version = 99")
    rows.close()
    forge = forge_app.create_app(tmp_path, settings=ForgeSettings()).state.forge
    with pytest.raises(Exception, match="newer than this Agensh knows"):
        forge.db.open()
