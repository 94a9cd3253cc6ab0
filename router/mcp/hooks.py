"""Notices through the hooks of a CLI: the way that reaches a worker after any tool, its shell included.

The CLI runs a hook after a tool; the hook (`adapters/hook_file.py`) posts what the CLI gave it and prints the answer,
which the CLI adds to what the model reads. The notices come from the desk that also serves the tool results, so nothing
is shown by both ways. A hook acknowledges nothing: it runs before the model has read the result it belongs to, and
beside tools that still run; the worker's next call or the end of its turn does.
"""

from __future__ import annotations

import json
import re

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from agensh.bounded_http import arrived_on
from router.mcp.requests import BodyRefused, refusal, whole_body
from router.ports import NoticeDesk

STYLES = ("claude", "copilot")
"""`claude` is what Claude Code and Codex read, `copilot` what GitHub Copilot reads."""
_EVENT = re.compile(r"[A-Za-z]{1,64}")


async def hook_answer(request: Request, desk: NoticeDesk, *, room: int) -> Response:
    """Answer a hook in the style that the path names, with a notice of at most `room` characters; `{}` without one."""
    style = request.path_params["style"]
    if style not in STYLES:
        return refusal(404, f"There are no hooks of style {style!r}; it is one of {', '.join(STYLES)}.")
    try:
        event = _event(await whole_body(request))
    except BodyRefused as refused:
        return refused.answer
    except ClientDisconnect:
        return Response(status_code=499)  # nobody reads it
    # An answer nobody waits for any more proves nothing: what it would show stays pending.
    if not desk.waiting() or await request.is_disconnected():
        return JSONResponse({})
    notice = desk.collect(room, via="hook", arrived=arrived_on(request.scope))
    if notice is None:
        return JSONResponse({})
    if style == "copilot":
        return JSONResponse({"additionalContext": notice.text})
    return JSONResponse({"hookSpecificOutput": {"hookEventName": event, "additionalContext": notice.text}})


def _event(body: bytes) -> str:
    """Return the event that the CLI names: its answer has to name the same."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    name = value.get("hook_event_name") if isinstance(value, dict) else None
    return name if isinstance(name, str) and _EVENT.fullmatch(name) else "PostToolUse"
