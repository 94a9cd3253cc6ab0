"""`DELAY_CHECK_FOR_INACTIVE_DAYS=0`: a moved base only marks; looking at the pull request has it checked."""

from __future__ import annotations

from pathlib import Path

from agensh.embedded.forge.settings import ForgeSettings
from tests.contract.forge.world import World
from tests.support.servers import running_forge


def test_a_listing_leaves_it_and_a_view_checks_it(tmp_path: Path) -> None:
    settings = ForgeSettings(password_rounds=1000, delay_check_for_inactive_days=0)
    with running_forge(tmp_path / "forge", settings=settings) as forge, World(forge, tmp_path, "delay") as world:
        for name in ("one", "two", "three"):
            world.branch(world.ann, name, {f"{name}.txt": "1\n"})
        one, two, three = (world.pull(world.ann, name)["number"] for name in ("one", "two", "three"))
        assert world.merge(world.ann, one).status_code == 200

        def listed() -> dict[int, bool]:
            return {p["number"]: p["mergeable"] for p in world.ann.http.get(f"{world.at}/pulls").json()}

        assert listed() == {two: False, three: False}
        world.mergeable(two)
        assert listed() == {two: True, three: False}
        refused = world.merge(world.ann, three)
        assert (refused.status_code, refused.json()["message"]) == (405, "Please try again later")
        world.mergeable(three)
