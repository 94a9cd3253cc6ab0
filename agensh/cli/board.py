"""`agensh board`: serve the board, make tokens, read, search and write from a terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from agensh.clients.board import BoardClient
from agensh.clock import SystemClock, iso
from agensh.entries import Entry, EntryType
from agensh.errors import UsageError
from agensh.text import printable_line

if TYPE_CHECKING:
    from board_service.settings import BoardSettings

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="The board: short typed entries that a team shares.")

Data = Annotated[Path | None, typer.Option("--data", envvar="AGENSH_BOARD_DATA", help="Data folder [./board-data].")]
Db = Annotated[str | None, typer.Option("--db", envvar="AGENSH_BOARD_DB", help="Database URL instead of the folder.")]
Url = Annotated[str, typer.Option("--url", envvar="AGENSH_BOARD_URL", help="Where the board service answers.")]
Token = Annotated[str, typer.Option("--token", envvar="AGENSH_BOARD_TOKEN", help="Your token.", show_default=False)]
Board = Annotated[str, typer.Option("--board", envvar="AGENSH_BOARD", help="Name of the board.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]

DEFAULT_URL = "http://127.0.0.1:8660"


@app.command()
def serve(
    data: Data = None,
    db: Db = None,
    port: Annotated[
        int | None, typer.Option("--port", envvar="AGENSH_BOARD_PORT", min=0, max=65535, help="Port [8660].")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", envvar="AGENSH_BOARD_HOST", help="Address [127.0.0.1].")] = None,
) -> None:
    """Serve the board service until Ctrl-C or SIGTERM."""
    from agensh.logs import set_up_logging
    from board_service.server import serve as run

    set_up_logging()
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # the service says itself where it answers
    run(_settings(data=data, db=db, port=port, host=host))


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Whose token: a worker's full name, or any name.")],
    board: Board = "main",
    role: Annotated[str, typer.Option("--role", help="worker, reader or admin.")] = "worker",
    data: Data = None,
    db: Db = None,
) -> None:
    """Make a token, straight in the database, and print it: it is not shown again."""
    from board_service.admin import create_token

    made = asyncio.run(create_token(_settings(data=data, db=db), name, board, role, SystemClock()))
    typer.echo(made)


@app.command()
def write(
    type: Annotated[str, typer.Argument(help="OBSERVED, FACT, FAIL, CLAIM or PATCH_SUMMARY.")],
    content: Annotated[str, typer.Argument(help="One line.")],
    detail: Annotated[str, typer.Option("--detail", help="Longer text; `-` reads it from standard input.")] = "",
    key: Annotated[str | None, typer.Option("--key", help="The same key never writes twice.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    board: Board = "main",
    as_json: Json = False,
) -> None:
    """Write an entry; prints its label and the claims that look alike."""
    text = sys.stdin.read() if detail == "-" else detail
    done = _call(url, token, board, lambda client: client.write(type, content, text, key=key))
    if as_json:
        overlaps = [
            {"label": item.label, "worker": item.worker, "content": item.content, "score": item.score}
            for item in done.overlaps
        ]
        typer.echo(json.dumps({"label": done.label, "repeated": done.repeated, "overlaps": overlaps}))
        return
    typer.echo(f"{done.label} (written before with this key)" if done.repeated else done.label)
    for item in done.overlaps:
        typer.echo(f"looks like {item.label} of {printable_line(item.worker)}: {printable_line(item.content)}")


@app.command()
def read(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=2000, help="How many of the newest.")] = 50,
    after: Annotated[int | None, typer.Option("--after", min=0, help="Instead the first ones after this seq.")] = None,
    type: Annotated[EntryType | None, typer.Option("--type", help="Only these.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    board: Board = "main",
    as_json: Json = False,
) -> None:
    """Show entries, the newest last."""
    _show(_call(url, token, board, lambda client: client.read(limit=limit, after=after, type=type)), as_json)


@app.command()
def grep(
    query: Annotated[str, typer.Argument(help="`,` is OR, `&` is AND, anything else literal, in any case.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 100,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Only entries before this seq.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    board: Board = "main",
    as_json: Json = False,
) -> None:
    """Search all entries ever written, the newest first."""
    page = _call(url, token, board, lambda client: client.grep(query, before=before, limit=limit))
    _show(page.entries, as_json)
    if page.more:
        typer.echo(f"more: --before {page.next_before}", err=True)


def _settings(**values: object) -> BoardSettings:
    from pydantic import ValidationError

    from board_service.settings import BoardSettings

    given: dict[str, Any] = {name: str(value) for name, value in values.items() if value is not None}
    try:
        return BoardSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = f"AGENSH_BOARD_{str(first['loc'][0]).upper()}"
        raise UsageError(f"{name}: {first['input']!r} is not possible: {first['msg']}.") from None


def _call(url: str, token: str, board: str, action: Callable[[BoardClient], Awaitable[T]]) -> T:
    if not token:
        raise UsageError(
            "token: none is given; use --token or AGENSH_BOARD_TOKEN (`agensh board token NAME` makes one)."
        )

    async def run() -> T:
        async with BoardClient(url, token, board) as client:
            return await action(client)

    return asyncio.run(run())


def _show(entries: Iterable[Entry], as_json: bool) -> None:
    if as_json:
        for entry in entries:
            typer.echo(json.dumps(entry.to_json()))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for column in ("label", "time", "worker", "type", "content"):
            table.add_column(column, overflow="fold")
        for entry in entries:
            content = printable_line(entry.content) + (" [+]" if entry.has_detail else "")
            style = "" if entry.active else "dim"
            cells = (entry.label, iso(entry.created_at), printable_line(entry.worker), str(entry.type), content)
            table.add_row(*(Text(cell, style=style) for cell in cells))
        Console().print(table)
    else:
        for entry in entries:
            typer.echo(
                f"{entry.label}\t{iso(entry.created_at)}\t{printable_line(entry.worker)}\t{entry.type}\t"
                f"{printable_line(entry.content)}"
            )
