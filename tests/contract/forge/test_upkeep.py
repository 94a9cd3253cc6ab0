"""Packing beside pushes loses nothing, and what was cut off is taken up again."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agensh.embedded.forge.settings import ForgeSettings
from agensh.embedded.forge.store.database import Database, Tx
from tests.contract.forge.world import World, eventually, run_git
from tests.support.servers import running_forge


def test_maintenance_packs_while_clients_push(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = ForgeSettings(event_source_update_time=0.05, password_rounds=1000, maintenance_interval=0.05)
    with running_forge(tmp_path / "forge", settings=settings) as forge, World(forge, tmp_path, "pack") as world:
        bare = tmp_path / "forge" / "repos" / world.owner.name / f"{world.name}.git"
        for i in range(4):
            world.branch(world.ann, f"b{i}", {f"f{i}.txt": f"{i}\n"})
            assert world.merge(world.ann, world.pull(world.ann, f"b{i}")["number"]).status_code == 200
        eventually(lambda: any(bare.glob("objects/pack/*.pack")), "loose objects are packed")
        eventually(lambda: "refs/heads/b3" in (bare / "packed-refs").read_text(), "refs are packed")
        assert not (bare / "refs/heads/b0").exists()
        names = [b["name"] for b in world.ann.http.get(f"{world.at}/branches").json()]
        assert set(names) == {"main", "b0", "b1", "b2", "b3"}
        clone = world.clone(world.ben)
        assert "f3.txt" in clone.git("ls-files").stdout
        clone.git("push", "-q", "origin", "HEAD:again")
        assert world.ann.http.get(f"{world.at}/branches/again").status_code == 200
    assert "maintenance failed" not in caplog.text


def test_packing_leaves_the_folders_of_objects(tmp_path: Path) -> None:
    """git makes such a folder and then a file in it: it fails when the folder goes in between."""
    settings = ForgeSettings(event_source_update_time=0.05, password_rounds=1000, maintenance_interval=0.05)
    with running_forge(tmp_path / "forge", settings=settings) as forge, World(forge, tmp_path, "pack") as world:
        objects = tmp_path / "forge" / "repos" / world.owner.name / f"{world.name}.git" / "objects"
        sha = world.branch(world.ann, "work", {"a.txt": "1\n"})
        eventually(lambda: not (objects / sha[:2] / sha[2:]).exists(), "its objects are packed")
        assert len([*objects.glob("??")]) == 256
        assert run_git(objects.parent, "fsck", "--full", "--strict").stderr == ""


def test_a_new_repository_does_not_go_with_the_deleted_one_of_its_name(tmp_path: Path) -> None:
    with running_forge(tmp_path / "forge") as forge, World(forge, tmp_path, "twin") as world:
        many = tmp_path / "forge" / "repos" / world.owner.name / f"{world.name}.git" / "objects" / "zz"
        many.mkdir()
        for number in range(5000):
            (many / f"{number}").touch()
        with ThreadPoolExecutor(1) as pool:
            deleting = pool.submit(world.owner.http.delete, world.at)
            eventually(lambda: world.admin_http.get(f"{world.at}/issues").status_code == 404, "its row is gone")
            made = world.admin_http.post(
                f"/admin/users/{world.owner.name}/repos", json={"name": world.name, "auto_init": True}
            )
            assert (deleting.result(60).status_code, made.status_code) == (204, 201)
        assert world.owner.http.get(f"{world.at}/contents/README.md").status_code == 200


class Leaving(Future[None]):
    """Cancelled right after the first look at it."""

    def done(self) -> bool:
        done = super().done()
        self.cancel()
        return done


async def test_a_caller_that_goes_while_the_disk_fills_up_does_not_end_the_writer(tmp_path: Path) -> None:
    database = Database(tmp_path / "forge.sqlite3")
    database.open()
    begun, both = threading.Event(), threading.Event()

    def wait(tx: Tx) -> None:
        begun.set()
        both.wait(60)

    def fail(tx: Tx) -> None:
        tx.run("ROLLBACK")  # as SQLite does by itself when the disk is full
        raise sqlite3.OperationalError("database or disk is full")

    try:
        waiting = asyncio.create_task(database.write(wait))
        await asyncio.to_thread(begun.wait, 60)
        failing = asyncio.create_task(database.write(fail))
        await asyncio.sleep(0)
        database._jobs.put_nowait((fail, Leaving()))
        both.set()
        await waiting
        with pytest.raises(sqlite3.OperationalError):
            await failing
        async with asyncio.timeout(30):
            assert await database.write(lambda tx: tx.value("SELECT 1")) == 1
    finally:
        both.set()
        await asyncio.to_thread(database.close)


def test_a_creation_that_was_cut_off_does_not_block_the_name(tmp_path: Path) -> None:
    with running_forge(tmp_path / "forge") as forge, World(forge, tmp_path, "cut") as world:
        left = tmp_path / "forge" / "repos" / world.ann.name / "half.git"
        left.mkdir(parents=True)
        (left / "HEAD").write_text("half")
        made = world.ann.http.post("/user/repos", json={"name": "half", "auto_init": True})
        assert made.status_code == 201
        assert world.ann.http.get(f"/repos/{world.ann.name}/half/contents/README.md").status_code == 200
