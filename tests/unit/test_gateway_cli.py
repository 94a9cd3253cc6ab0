"""`agensh gateway`: what is wrong is one sentence that names it, before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agensh.cli.app import app
from agensh.errors import AgenshError

SPEC = """
[team]
name = "demo"
workers = 2
[task]
kind = "rebuild"
goal = "goal.md"
reference = "/usr/bin/true"
"""
GATEWAY = SPEC + '[gateway]\nbase_url = "http://127.0.0.1:1/v1"\nauth = "none"\n'
ONE = "demo-worker1"


def refused(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the sentence of a call that fails."""
    found = CliRunner().invoke(app, ["gateway", *arguments])
    assert isinstance(found.exception, AgenshError), found.output
    assert "http://" not in found.output  # it never said that it listens
    return found.exception.exit_code, str(found.exception)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "goal.md").write_text("Rebuild it.\n")
    path = tmp_path / "team.toml"
    path.write_text(GATEWAY)
    return path


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agensh.db_setup.WAIT", 0)


@pytest.mark.parametrize("command", ["serve", "key", "revoke"])
def test_a_database_that_is_none_or_cannot_be_used(command: str, spec: Path, tmp_path: Path) -> None:
    first = [command, *([str(spec), "--port", "0"] if command == "serve" else [ONE])]
    code, said = refused(*first, "--db", "nonsense")
    assert (code, said.split(":")[0]) == (2, "db")
    code, said = refused(*first, "--db", "postgresql://h/n")
    assert (code, said) == (2, "db: 'postgresql' is not supported; use sqlite or mysql (also for MariaDB).")
    (tmp_path / "file").touch()
    code, said = refused(*first, "--data", str(tmp_path / "file"))
    assert code == 1
    assert said.startswith(f"database sqlite+aiosqlite:///{tmp_path}/file/gateway.sqlite3 cannot be used: ")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("budget_usd = -3", "gateway.budget_usd: -3 is not allowed: input should be greater than or equal to 0."),
        ("modells = []", "gateway.modells: no such key."),
        ('prices = "nowhere.toml"', "gateway.prices: 'nowhere.toml' does not exist"),
        ('prices = "goal.md"', "goal.md: not valid TOML"),
    ],
)
def test_a_wrong_section(more: str, said: str, spec: Path) -> None:
    spec.write_text(f"{GATEWAY}{more}\n")
    code, sentence = refused("serve", str(spec), "--port", "0")
    assert code == 2
    assert said in sentence
    assert "\n" not in sentence


def test_a_spec_without_the_section(spec: Path) -> None:
    spec.write_text(SPEC)
    assert refused("serve", str(spec)) == (2, f"{spec}: gateway: missing; `agensh gateway serve` needs that section.")


def test_keys_of_nobody() -> None:
    assert refused("key", "nobody")[1].startswith("worker: 'nobody' is not a worker's full name")


def test_a_url_without_its_driver_is_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gateway.sqlite3"
    made = CliRunner().invoke(app, ["gateway", "key", ONE, "--db", url])
    assert made.exit_code == 0, made.exception
    assert made.output.startswith("aggw_")
    assert CliRunner().invoke(app, ["gateway", "revoke", ONE, "--db", url]).exit_code == 0
    assert refused("revoke", ONE, "--db", url) == (2, f"worker: {ONE!r} has no key.")
