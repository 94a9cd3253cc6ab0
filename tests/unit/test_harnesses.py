"""Installing CLIs: a stand-in for npm fills the folder, so that no registry is asked."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agensh.errors import UsageError
from agensh.harnesses import TESTED, InstallFailed, install, package, package_of

_NPM = """#!/bin/sh
echo run >> "$CALLS"
place="$3/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin"
mkdir -p "$place" && printf '#!/bin/sh\\n' > "$place/codex" && chmod +x "$place/codex"
"""


def _npm(folder: Path, script: str) -> None:
    file = folder / "npm"
    file.write_text(script)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder in front of PATH, an empty cache, and the file in which the stand-in notes its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AGENSH_NPM_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return folder


def test_two_who_want_the_same_share_one_installation(tools, tmp_path):
    _npm(tools, _NPM)
    with ThreadPoolExecutor() as pool:
        paths = set(pool.map(lambda _: install("@openai/codex", "0.171.0"), range(4)))
    assert len(paths) == 1
    binary = paths.pop()
    assert binary.is_relative_to(tmp_path / "cache" / "openai-codex-0.171.0")
    assert os.access(binary, os.X_OK)
    assert (tmp_path / "calls").read_text().splitlines() == ["run"]


def test_a_failed_installation_says_why_and_leaves_nothing(tools, tmp_path):
    _npm(tools, "#!/bin/sh\necho 'npm error network request to the registry failed' >&2\nexit 7\n")
    with pytest.raises(InstallFailed, match=r"@openai/codex@0\.171\.0 \(exit code 7\): network request to the reg"):
        install("@openai/codex")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["openai-codex-0.171.0.lock"]


def test_a_package_without_a_program_for_this_machine(tools):
    _npm(tools, '#!/bin/sh\nmkdir -p "$3/node_modules"\n')
    with pytest.raises(InstallFailed, match="no program for this machine"):
        install("@github/copilot", "1.0.70")


def test_without_npm_the_way_out_is_named(tools, monkeypatch):
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(InstallFailed, match=r"install Node\.js 20 or newer"):
        install("@anthropic-ai/claude-code")


def test_what_is_not_known_is_refused():
    with pytest.raises(UsageError, match="left-pad"):
        package("left-pad")
    with pytest.raises(UsageError, match="it installs copilot, claude-code, codex"):
        package_of("acp")
    with pytest.raises(UsageError, match=r"expected one such as 0\.171\.0"):
        install("@openai/codex", "../0.1.0")


def test_each_harness_with_one_cli_has_its_newest_version():
    assert {row.harness: row.newest for row in TESTED if row.harness != "acp"} == {
        "copilot": "1.0.102",
        "claude-code": "2.1.332",
        "codex": "0.171.0",
    }
