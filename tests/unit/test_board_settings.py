"""Every setting is documented, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from agensh.errors import AgenshError, UsageError
from board_service.database import database_url, prepare
from board_service.settings import BoardSettings

DOCUMENT = Path(__file__).parents[2] / "docs" / "board.md"


def test_every_setting_stands_in_the_document_with_its_default() -> None:
    rows = dict(
        re.findall(r"^\| `AGENSH_BOARD_(\w+)` \| ([^|]*) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    )
    expected = {}
    for name, field in BoardSettings.model_fields.items():
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        expected[name.upper()] = f"`{shown}`" if shown else "none"
        assert field.description
    assert {name: default.strip() for name, default in rows.items()} == expected


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENSH_BOARD_PORT", "9000")
    monkeypatch.setenv("AGENSH_BOARD_ADMIN_TOKEN", "secret")
    settings = BoardSettings()
    assert (settings.port, settings.admin_token.get_secret_value()) == (9000, "secret")
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("db", "url"),
    [
        ("sqlite:////x/y.db", "sqlite+aiosqlite:////x/y.db"),
        ("sqlite+aiosqlite:////x/y.db", "sqlite+aiosqlite:////x/y.db"),
        ("mysql://u:p%40@h/n", "mysql+aiomysql://u:p%40@h/n"),
        ("mariadb://u@h/n", "mysql+aiomysql://u@h/n"),
    ],
)
def test_database_urls(db: str, url: str) -> None:
    assert database_url(BoardSettings(db=db)) == url


@pytest.mark.parametrize("db", ["postgresql://h/n", "nonsense"])
def test_other_databases_are_refused(db: str) -> None:
    with pytest.raises(UsageError, match=r"^db: .*mysql"):
        database_url(BoardSettings(db=db))


@pytest.mark.parametrize(
    ("db", "said"),
    [
        ("mysql://u:hunter@2@h/n", r"more than one '@'; write one in the user or the password as %40\.$"),
        ("mysql://u:hunter2@h:port/n", r"not a database URL"),
        ("mysql://u:hunter2@h:70000/n", r"70000 is not a port; expected 1 to 65535\.$"),
    ],
)
def test_a_url_with_a_mistake_is_one_sentence_without_its_password(db: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"^db: .*{said}") as error:
        database_url(BoardSettings(db=db))
    assert "hunter" not in str(error.value)


def test_a_database_that_cannot_be_used_is_one_sentence_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agensh.db_setup.WAIT", 0)
    with pytest.raises(
        AgenshError, match=r"^database mysql\+aiomysql://u:\*\*\*@127\.0\.0\.1:1/n cannot be used: "
    ) as error:
        prepare("mysql+aiomysql://u:hunter2@127.0.0.1:1/n")
    assert "hunter2" not in str(error.value)
    (tmp_path / "file").touch()
    with pytest.raises(AgenshError, match="cannot be used"):
        prepare(f"sqlite+aiosqlite:///{tmp_path}/file/board.sqlite3")
