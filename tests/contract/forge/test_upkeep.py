"""Packing beside pushes loses nothing, and what was cut off is taken up again."""

from __future__ import annotations

from pathlib import Path

import pytest

from agensh.embedded.forge.settings import ForgeSettings
from tests.contract.forge.world import World, eventually
from tests.support.servers import running_forge


def test_maintenance_packs_while_clients_push(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = ForgeSettings(event_source_update_time=0.05, password_rounds=1000, maintenance_interval=0.05)
    with running_forge(tmp_path / "forge", settings=settings) as forge:
        world = World(forge, tmp_path, "pack")
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
        world.close()
    assert "maintenance failed" not in caplog.text


def test_a_creation_that_was_cut_off_does_not_block_the_name(tmp_path: Path) -> None:
    with running_forge(tmp_path / "forge") as forge:
        world = World(forge, tmp_path, "cut")
        left = tmp_path / "forge" / "repos" / world.ann.name / "half.git"
        left.mkdir(parents=True)
        (left / "HEAD").write_text("half")
        made = world.ann.http.post("/user/repos", json={"name": "half", "auto_init": True})
        assert made.status_code == 201
        assert world.ann.http.get(f"/repos/{world.ann.name}/half/contents/README.md").status_code == 200
        world.close()
