"""`agensh mcp`: MCP servers on stdio, for any CLI."""

from __future__ import annotations

import os

import typer

app = typer.Typer(no_args_is_help=True, help="MCP servers on stdio, for any CLI.")


@app.callback()
def mcp() -> None:
    """MCP servers on stdio, for any CLI."""


@app.command()
def board() -> None:
    """The board's tools; AGENSH_BOARD_URL, AGENSH_BOARD_TOKEN and AGENSH_BOARD say which board and who you are."""
    from router.mcp.stdio import main

    raise typer.Exit(main(os.environ))
