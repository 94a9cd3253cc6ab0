"""`worker.options` of the adapters of real CLIs, and where their program is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.base import HarnessUnavailable, WorkerLaunch
from adapters.binary import program
from adapters.codex.adapter import PACKAGE, CodexAdapter
from agensh.errors import UsageError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": "many"}, r"worker\.options\.retries: 'many' is not allowed: give a number from 0 to 100\."),
        ({"retries": "-1"}, r"'-1' is not allowed"),
        ({"stall_seconds": "nan"}, r"'nan' is not allowed"),
        ({"binary": "codex"}, r"worker\.options\.binary: 'codex' is not allowed: give an absolute path"),
        ({"colour": "red"}, r"worker\.options\.colour: no such option of the codex harness; it has: binary, packages,"),
    ],
)
def test_a_wrong_option_is_a_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CodexAdapter.check("repo", options)


def test_right_options_pass() -> None:
    CodexAdapter.check("rebuild", {"binary": "/opt/codex", "retries": "0", "stall_seconds": "2.5"})


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def launch(folder: Path, **options: str) -> WorkerLaunch:
    env = {"PATH": str(folder / "bin")}
    return WorkerLaunch("demo-worker1", folder, folder, folder, folder / "log", "", "", options=options, env=env)


def test_a_program_is_named_or_on_the_path_or_below_the_prefix(tmp_path: Path) -> None:
    native = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    with pytest.raises(HarnessUnavailable, match=r"npm install -g @openai/codex@\d"):
        program(launch(tmp_path), PACKAGE, "codex")
    below = executable(tmp_path / "prefix" / native)
    assert program(launch(tmp_path, packages=str(tmp_path / "prefix")), PACKAGE, "codex") == below
    on_path = executable(tmp_path / "bin" / "codex")
    assert program(launch(tmp_path, packages=str(tmp_path / "prefix")), PACKAGE, "codex") == on_path
    named = executable(tmp_path / "elsewhere" / "codex")
    assert program(launch(tmp_path, binary=str(named)), PACKAGE, "codex") == named
    with pytest.raises(HarnessUnavailable, match=r"worker\.options\.binary: /nowhere is not a program"):
        program(launch(tmp_path, binary="/nowhere"), PACKAGE, "codex")


def test_a_wrapper_of_npm_stands_for_the_native_program(tmp_path: Path) -> None:
    root = tmp_path / "lib"
    native = executable(root / "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex")
    wrapper = executable(root / "node_modules/@openai/codex/bin/codex.js")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").symlink_to(wrapper)
    assert program(launch(tmp_path), PACKAGE, "codex") == native
