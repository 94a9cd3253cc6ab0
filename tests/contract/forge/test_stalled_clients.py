"""A client of a clone or a push that is gone without a word does not keep its git process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agensh.embedded.forge.settings import ForgeSettings
from tests.contract.forge.world import World
from tests.support.servers import running_forge

# One git at a time: who keeps it keeps everybody waiting.
SETTINGS = ForgeSettings(password_rounds=1000, git_processes=1, transfer_idle=3.0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with running_forge(tmp_path / "forge", settings=SETTINGS) as forge, World(forge, tmp_path, "stall") as world:
        yield world


def packet(text: str) -> bytes:
    return f"{len(text.encode()) + 4:04x}{text}".encode()


def test_a_push_that_comes_to_a_stop_is_given_up(world: World) -> None:
    head = world.ann.http.get(f"{world.at}/branches/main").json()["commit"]["id"]
    body = packet(f"{'0' * 40} {head} refs/heads/half\0 report-status") + b"0000PACK"
    with world.begin_git(world.ann, "git-receive-pack", body, 1_000_000):
        assert (world.clone(world.ben).path / "README.md").exists()
    assert world.ann.http.get(f"{world.at}/branches/half").status_code == 404


def test_a_list_of_refs_that_does_not_end_is_refused(world: World) -> None:
    with world.begin_git(world.ann, "git-receive-pack", b"00", 1_000_000) as connection:
        connection.settimeout(60)
        assert connection.recv(64).startswith(b"HTTP/1.1 400 ")


def test_a_clone_that_nobody_reads_is_given_up(world: World) -> None:
    clone = world.clone(world.ann)
    (clone.path / "large").write_bytes(os.urandom(16_000_000))  # more than the buffers on the way hold
    sha = clone.commit({"a.txt": "1\n"})
    clone.git("push", "-q", "origin", "HEAD:large")
    body = packet(f"want {sha} no-progress\n") + b"0000" + packet("done\n")
    with world.begin_git(world.ben, "git-upload-pack", body, len(body)) as connection:
        connection.settimeout(60)
        assert connection.recv(64).startswith(b"HTTP/1.1 200 ")
        assert (world.clone(world.ben).path / "README.md").exists()
