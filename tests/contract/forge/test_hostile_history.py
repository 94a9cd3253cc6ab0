"""What git lets a worker write into commits and names of branches breaks no answer of the forge."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import quote

import httpx
import pytest

from tests.contract.forge.world import World

SEPARATORS = "a\x1eb\x1fc\x0cd\x85e\u2028f\x1cg"


def write_commit(world: World, author: str, message: str) -> str:
    """Commit onto main as the author line says, byte for byte; return the commit."""
    clone = world.clone(world.ann)
    tree, parent = clone.git("rev-parse", "HEAD^{tree}", "HEAD").stdout.split()
    text = f"tree {tree}\nparent {parent}\nauthor {author}\ncommitter {author}\n\n{message}\n"
    command = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    done = subprocess.run(command, cwd=clone.path, input=text.encode(), capture_output=True, check=True)
    sha = done.stdout.decode().strip()
    clone.git("push", "-q", "origin", f"{sha}:refs/heads/strange")
    return sha


@pytest.mark.parametrize(
    ("author", "message"),
    [
        (f"A{SEPARATORS} <ann@example.org> 1700000000 +0000", f"subject {SEPARATORS}\n\nbody {SEPARATORS}"),
        ("Ann <ann@example.org> never +0000", "no time"),
        ("Ann <ann@example.org> 99999999999999999 +0000", "the far future"),
        ("Ann <ann@example.org> -5 +0000", "before time"),
    ],
)
def test_a_commit_is_shown_whatever_stands_in_it(world: World, author: str, message: str) -> None:
    sha = write_commit(world, author, message)
    pull = world.pull(world.ann, "strange")["number"]
    for path in (
        "/commits?sha=strange",
        "/commits?sha=strange&path=README.md&stat=true&files=true",
        f"/git/commits/{sha}",
        "/branches",
        "/branches/strange",
        "/compare/main...strange",
        f"/pulls/{pull}",
        f"/pulls/{pull}/commits",
    ):
        answer = world.ben.http.get(world.at + path)
        assert answer.status_code < 500, f"{path}: {answer.text}"
    (newest, *_) = world.ben.http.get(f"{world.at}/commits?sha=strange").json()
    assert (newest["sha"], newest["commit"]["message"]) == (sha, f"{message}\n")


def test_a_name_of_a_branch_hides_no_other(world: World) -> None:
    clone = world.clone(world.ann)
    names = ["a\u2028b", "c\x85d", os.fsdecode(b"e\xfff")]
    for name in names:
        clone.git("push", "-q", "origin", f"HEAD:refs/heads/{name}", check=False)
    listed = world.ben.http.get(f"{world.at}/branches")
    assert listed.status_code == 200, listed.text
    assert {"main", *names[:2]} <= {branch["name"] for branch in listed.json()}
    assert world.ben.http.get(f"{world.at}/branches/main").status_code == 200
    assert world.ben.http.get(f"{world.at}/git/refs").status_code == 200
    world.branch(world.ben, "after", {"x": "1\n"})


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "/".join(["y" * 100] * 60), sys.executable, "../../HEAD"])
def test_a_name_that_no_branch_can_have_is_refused(world: World, name: str) -> None:
    """Neither a path that reaches out of the repository, nor one that the system does not take."""
    at, query = world.at, str(httpx.QueryParams(ref=name, sha=name))
    file = {"operation": "upload", "path": "a.txt", "content": ""}
    answers = [
        world.ann.http.post(f"{at}/branches", json={"new_branch_name": name}),
        world.ann.http.post(f"{at}/branches", json={"new_branch_name": "new", "old_branch_name": name}),
        world.ann.http.post(f"{at}/contents", json={"branch": name, "new_branch": "new", "files": [file]}),
        world.ann.http.post(f"{at}/contents", json={"branch": "main", "new_branch": name, "files": [file]}),
        world.ann.http.post(f"{at}/pulls", json={"title": "t", "head": name, "base": "main"}),
        world.ann.http.get(f"{at}/commits?{query}"),
        world.ann.http.get(f"{at}/contents?{query}"),
        world.ann.http.get(f"{at}/git/trees/{quote(name, safe='')}"),
    ]
    assert {answer.status_code for answer in answers} <= {404, 422}
