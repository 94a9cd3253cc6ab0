"""The command that a CLI runs as its hook: curl, which posts what the CLI says to the worker's node host.

A worker has no Python of ours, and the token must not stand on a command line: it is in a curl configuration of mode
600 in the worker's home. Whatever goes wrong, the hook says nothing and succeeds, for a CLI takes a failing hook as a
reason to stop the tool.
"""

from __future__ import annotations

import shlex
from typing import Literal

from adapters.base import WorkerLaunch
from agensh.inside import write_private_inside

CONFIG = ".config/agensh/hook-{style}.curl"
HOOK_SECONDS = 5  # the host answers from memory; more means that it is gone
_TEMPLATE = """\
url = "{url}/{style}"
request = "POST"
header = "Authorization: Bearer {token}"
header = "Content-Type: application/json"
data-binary = "@-"
silent
fail
noproxy = "*"
max-time = {seconds}
"""


def hook_command(launch: WorkerLaunch, style: Literal["claude", "copilot"]) -> str:
    """Write the worker's curl configuration and return the shell command of its hook; empty where it has no hooks."""
    if not launch.hooks_url:
        return ""
    text = _TEMPLATE.format(
        url=_quoted(launch.hooks_url), style=style, token=_quoted(launch.mcp_token), seconds=HOOK_SECONDS
    )
    path = write_private_inside(launch.home, CONFIG.format(style=style), text)
    # -q: a .curlrc of the worker's changes nothing.
    return f"curl -q -K {shlex.quote(str(path))} 2>/dev/null || echo '{{}}'"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
