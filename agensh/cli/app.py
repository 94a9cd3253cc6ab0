"""Assembles the commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agensh import __version__
from agensh.cli import board, compose, gateway, inspect, life, mcp
from agensh.cli import run as run_commands
from agensh.cli.doctor import doctor
from agensh.cli.model import model
from agensh.cli.rehearse import rehearse
from agensh.errors import AgenshError
from agensh.text import printable

app = typer.Typer(
    name="agensh",
    help="1 to 1,024 coding agents on one goal, with no orchestrator.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run_commands.demo)
app.command()(run_commands.run)
app.command()(run_commands.baseline)
app.command()(run_commands.resume)
app.command()(run_commands.stop)
app.command()(compose.up)
app.command()(compose.down)
app.command()(compose.clean)
app.command()(compose.provision)
app.command()(life.pause)
app.command()(life.wait)
app.command()(inspect.status)
app.command()(life.logs)
app.command()(life.attach)
app.command()(life.export)
app.command()(inspect.report)
app.command()(inspect.cost)
app.command()(doctor)
app.command()(rehearse)
app.command()(model)
app.add_typer(board.app, name="board", help="The board: serve it, read it, write to it.")
app.add_typer(gateway.app, name="gateway", help="The gateway to the model provider, on its own.")
app.add_typer(mcp.app, name="mcp", help="Tools over MCP for any CLI.")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def shim(command: Annotated[list[str], typer.Argument(help="The stdio MCP server to wrap, after --.")]) -> None:
    """Wrap any stdio MCP server so that its tool results also carry the notices of the board."""
    # Only --help gets here: main() hands a real call to router.mcp.shim before anything is imported.
    raise typer.Exit(2)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"agensh {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """1 to 1,024 coding agents on one goal, with no orchestrator."""


def run() -> int:
    """Run the command line; return the exit code."""
    try:
        app(standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        sys.stderr.write("agensh: interrupted\n")
        return 1
    except AgenshError as error:
        sys.stderr.write(f"agensh: {printable(str(error))}\n")
        return error.exit_code
    except OSError as error:
        # A file of another user, a full disk, an engine that goes away: the machine's affair, and no mistake in here.
        what = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        sys.stderr.write(f"agensh: {printable(' '.join(what.split()))}\n")
        return 1
    return 0
