"""The disk is full, and has room again: what was acknowledged is there, the rest is refused and written once later."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from agensh.clients.board import BoardClient
from agensh.errors import ServiceError
from tests.contract.chat.world import make_world, ok
from tests.contract.forge.world import World, eventually, run_git
from tests.support.board_process import make_token, served
from tests.support.chaos import Line, either, lines_of, named_once, records_of
from tests.support.chaos_node import NumberedNode
from tests.support.chat_server import running_chat
from tests.support.servers import ForgeProcess
from tests.support.small_disk import Disk, small_disk

UPLOAD = {
    "branch": "main",
    "new_branch": "upload",
    "message": "Upload",
    "files": [{"operation": "create", "path": "upload", "content": base64.b64encode(os.urandom(200_000)).decode()}],
}
MOST = 3000  # writes after which a disk of that size must be full


@pytest.fixture(params=either(["full"], ["full", "quota"]))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", mounted=request.param == "full") as found:
        yield found


def told(lines: list[Line], again: str) -> None:
    """The log has one line for the fault and one for its end, and nothing else to complain of."""
    bad = [line for line in lines if line.level in {"warning", "error", "critical"}]
    named_once(bad, "the disk is full")
    named_once(bad, again)
    assert len(bad) == 2, [line.fields for line in bad]


async def test_the_board(disk: Disk) -> None:
    where = ["--data", str(disk.folder / "board")]
    token = make_token("w1", *where)
    detail = "d" * 30_000
    acknowledged: dict[str, int] = {}
    with served(*where, "--port", "0") as board:
        async with BoardClient(board.url, token, "main") as client:

            async def write(name: str) -> None:
                acknowledged[name] = (await client.write("FACT", name, detail, key=name.replace(" ", "-"))).seq

            async def write_many(names: list[str]) -> None:
                for name in names:
                    await write(name)

            await write_many([f"before {number}" for number in range(10)])
            disk.fill(board.process.pid)
            with pytest.raises(ServiceError) as refused:
                await write_many([f"while {number}" for number in range(MOST)])
            assert (refused.value.status, refused.value.retryable) == (507, False)
            assert "disk full" in refused.value.reason
            assert {entry.content: entry.seq for entry in await client.read()} == acknowledged
            assert len((await client.grep("before")).entries) == 10
            late = [f"late {number}" for number in range(5)]
            for name in late:  # refused again, in the same words
                with pytest.raises(ServiceError, match="507"):
                    await write(name)
            disk.free(board.process.pid)
            await write_many(late)
        board.end(signal.SIGKILL)
        told(lines_of("".join(board.lines)), "the database works again")
    with served(*where, "--port", "0") as again:
        async with BoardClient(again.url, token, "main") as client:
            entries = await client.read()
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert {entry.content: entry.seq for entry in entries} == acknowledged


def test_the_chat(disk: Disk, tmp_path: Path) -> None:
    with running_chat(disk.folder, log=tmp_path / "chat.log") as chat, make_world(chat) as world:
        worker, channel = world.worker(), world.channel["id"]
        assert chat.process is not None
        acknowledged = [worker.post(channel, f"before {number}")["id"] for number in range(5)]
        disk.fill(chat.process.pid)
        refused: httpx.Response | None = None
        for number in range(MOST):
            body = {"channel_id": channel, "message": f"{number}" + "x" * 10_000, "pending_post_id": f"{worker.id}:k"}
            body["pending_post_id"] += str(number)
            answer = worker.rest.post("posts", json=body)
            if answer.status_code != 201:
                refused = answer
                break
            acknowledged.append(answer.json()["id"])
        assert refused is not None
        assert refused.status_code == 500
        assert worker.rest.post("posts", json=body).status_code == 500
        shown = ok(worker.rest.get(f"channels/{channel}/posts"))
        assert acknowledged[-1] in shown["order"]
        assert {post_id for post_id in shown["order"] if shown["posts"][post_id]["type"] == ""} <= set(acknowledged)
        disk.free(chat.process.pid)
        acknowledged.append(ok(worker.rest.post("posts", json=body))["id"])
        assert ok(worker.rest.post("posts", json=body))["id"] == acknowledged[-1], "under its key it is there once"
        chat.kill()
        told(lines_of(chat.log()), "the database takes writes again")
        chat.start()
        stored: list[str] = []
        for page in range(MOST):
            query: dict[str, Any] = {"per_page": 200, "page": page}
            found = ok(worker.rest.get(f"channels/{channel}/posts", params=query))
            stored += [post_id for post_id in found["order"] if found["posts"][post_id]["type"] == ""]
            if len(found["order"]) < 200:
                break
        assert sorted(stored) == sorted(acknowledged)


def test_the_forge(disk: Disk, tmp_path: Path) -> None:
    log = tmp_path / "forge.log"
    with ForgeProcess(disk.folder / "forge", log=log) as process, World(process.start(), tmp_path, "disk") as world:
        number = world.ann.http.post(f"{world.at}/issues", json={"title": "Parser"}).json()["number"]
        say = f"{world.at}/issues/{number}/comments"
        acknowledged = [world.ann.http.post(say, json={"body": "before"}).json()["id"]]
        clone = world.clone(world.ann)
        clone.git("switch", "-q", "-c", "work")
        (clone.path / "noise").write_bytes(os.urandom(300_000))
        clone.git("add", "noise")
        clone.git("commit", "-qm", "noise")
        world.branch(world.ann, "short", {"short.txt": "short\n"})
        pull = f"{world.at}/pulls/{world.pull(world.ann, 'short')['number']}"
        disk.fill(process.pid)
        refused: httpx.Response | None = None
        for index in range(MOST):
            answer = world.ann.http.post(say, json={"body": f"{index}" + "x" * 10_000})
            if answer.status_code != 201:
                refused = answer
                break
            acknowledged.append(answer.json()["id"])
        assert refused is not None
        assert refused.status_code == 500
        assert "nothing of this request was kept" in refused.json()["message"]
        assert world.ann.http.post(say, json={"body": "x" * 10_000}).status_code == 500
        # The first use of a token is noted, where there is room for it.
        assert world.ben.http.get(say).status_code == 200
        assert clone.git("push", "-q", "origin", "work", check=False).returncode != 0
        assert world.ann.http.get(f"{world.at}/branches/work").status_code == 404
        made = world.ann.http.post(f"{world.at}/contents", json=UPLOAD)
        assert (made.status_code, made.json()["message"]) == (500, refused.json()["message"])
        assert world.ann.http.get(f"{world.at}/branches/upload").status_code == 404
        # What needs no room git does, and what the forge knows of it follows as soon as it can.
        clone.git("push", "-q", "origin", ":short")
        assert [comment["id"] for comment in world.ann.http.get(say).json()] == acknowledged
        disk.free(process.pid)
        eventually(lambda: world.ann.http.get(pull).json()["state"] == "closed", "the rows follow the deleted branch")
        acknowledged.append(world.ann.http.post(say, json={"body": "after"}).json()["id"])
        assert clone.git("push", "-q", "origin", "work", check=False).returncode == 0
        process.kill()
        told(lines_of(log.read_text(encoding="utf-8")), "the database takes writes again")
        process.start()
        assert [comment["id"] for comment in world.ann.http.get(say).json()] == acknowledged
        tip = world.ann.http.get(f"{world.at}/branches/work").json()["commit"]["id"]
        assert tip == clone.git("rev-parse", "HEAD").stdout.strip()


WAITS = """#!/bin/sh
# git calls this around every change of refs: when main has moved, nothing goes on before the disk is full.
while read -r old new ref; do
	if [ "$1 $ref" = "committed refs/heads/main" ]; then
		touch "{folder}/moved"
		while [ ! -e "{folder}/full" ]; do sleep 0.01; done
	fi
done
"""


def test_a_merge_whose_commit_was_the_last_that_had_room(disk: Disk, tmp_path: Path) -> None:
    """The ref has moved: the merge is done and its answer says so; rows and branch follow."""
    log = tmp_path / "forge.log"
    with ForgeProcess(disk.folder / "forge", log=log) as process, World(process.start(), tmp_path, "merge") as world:
        world.branch(world.ann, "work", {"work.txt": "1\n"})
        number = world.pull(world.ann, "work")["number"]
        world.mergeable(number)
        bare = process.data / "repos" / world.owner.name / f"{world.name}.git"
        # With as many packed refs, deleting one needs more room than the quota leaves.
        tip = run_git(bare, "rev-parse", "work").stdout.strip()
        many = "".join(f"create refs/tags/{number:040} {tip}\n" for number in range(1500))
        subprocess.run(["git", "update-ref", "--stdin"], cwd=bare, input=many, text=True, check=True, timeout=60)
        run_git(bare, "pack-refs", "--all")
        hook = bare / "hooks" / "reference-transaction"
        hook.write_text(WAITS.format(folder=tmp_path))
        hook.chmod(0o755)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(world.merge, world.ann, number, delete_branch_after_merge=True)
            eventually((tmp_path / "moved").exists, "main has moved")
            disk.fill(process.pid)
            (tmp_path / "full").touch()
            answer = asked.result(60)
        assert answer.status_code == 200, answer.text
        assert world.ann.http.get(f"{world.at}/branches/work").status_code == 200
        hook.unlink()
        disk.free(process.pid)
        gone = f"{world.at}/branches/work"
        eventually(lambda: world.ann.http.get(gone).status_code == 404, "the branch is deleted")
        pull = world.ann.http.get(f"{world.at}/pulls/{number}").json()
        assert (pull["merged"], pull["state"]) == (True, "closed")
        kinds = [event["type"] for event in world.ann.http.get(f"{world.at}/issues/{number}/timeline").json()]
        assert kinds.count("merge_pull") == 1
        assert "close" not in kinds
    lines = lines_of(log.read_text(encoding="utf-8"))
    told(lines, "the database takes writes again")
    named_once(lines, "a merged branch waits to be deleted")


def test_a_merge_whose_branch_was_to_be_deleted_on_a_full_disk(tmp_path: Path) -> None:
    """The row of the merge found room, the next one does not."""
    log = tmp_path / "forge.log"
    most = 8 * 1024 * 1024  # bytes a file may have
    with ForgeProcess(tmp_path / "forge", log=log) as process, World(process.start(), tmp_path, "after") as world:
        world.branch(world.ann, "work", {"work.txt": "1\n"})
        world.branch(world.ann, "more", {"more.txt": "1\n"}, base="work")
        number, onto = world.pull(world.ann, "work")["number"], world.pull(world.ann, "more")["number"]
        body = {"base": "work"}
        assert world.ann.http.patch(f"{world.at}/pulls/{onto}", json=body).status_code == 201
        world.mergeable(number)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        with closing(sqlite3.connect(process.data / "forge.sqlite3", timeout=20)) as rows:
            rows.execute("CREATE TABLE ballast (bytes BLOB)")
            rows.execute(
                "CREATE TRIGGER ballast AFTER UPDATE OF base_branch ON pulls "
                f"BEGIN INSERT INTO ballast VALUES (zeroblob({most * 2})); END"
            )
            answer = world.merge(world.ann, number, delete_branch_after_merge=True)
            assert answer.status_code == 200, answer.text
            assert world.ann.http.get(f"{world.at}/pulls/{number}").json()["merged"]
            assert world.ann.http.get(f"{world.at}/branches/work").status_code == 200
            eventually(lambda: "the disk is full" in log.read_text(encoding="utf-8"), "it is told")
            rows.execute("DROP TRIGGER ballast")
        gone = f"{world.at}/branches/work"
        eventually(lambda: world.ann.http.get(gone).status_code == 404, "the branch is deleted")
        pull = world.ann.http.get(f"{world.at}/pulls/{onto}").json()
        assert (pull["base"]["ref"], pull["state"]) == ("main", "open")
    named_once(lines_of(log.read_text(encoding="utf-8")), "a merged branch waits to be deleted")


async def test_the_runtime_of_a_node_host(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = NumberedNode(disk.folder / "run", workers=4, count=either(120, 600))
    task = asyncio.create_task(node.host.run())
    try:
        await node.stage.until(lambda: node.shown > node.count // 2, 60)
        disk.fill(os.getpid())
        try:
            assert not node.complete
            await node.stage.until(lambda: "the disk is full" in caplog.text, 60)
        finally:
            disk.free(os.getpid())
        await node.stage.until(lambda: node.complete and all(r.state == "idle" for r in node.host.routers.values()), 90)
    finally:
        node.host.stop()
        await task
    assert {count for seen in node.seen.values() for count in seen.values()} == {1}
    told(records_of(caplog.records), "the runtime database works again")
