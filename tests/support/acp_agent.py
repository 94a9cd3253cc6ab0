"""An ACP agent without a model: `python -m tests.support.acp_agent [CAPABILITY...]`; the prompt is what it does.

Words of a prompt: `ask` (a permission), `read` (a file through the client), `mute` (its output ends, it lives on),
`silent` (no answer until it is cancelled), `chatter` (the same, with news that are no progress).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any


def tell(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(kind: str, **fields: Any) -> None:
    """Report something of the session."""
    tell({"method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": kind, **fields}}})


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request; return the client's answer."""
    tell({"id": method, "method": method, "params": params})
    while True:
        message: dict[str, Any] = json.loads(sys.stdin.readline())
        if message.get("id") == method:
            return message


def chatter() -> None:
    """Say for ever what is no progress."""
    while True:
        update("session_info_update", title="waiting")
        time.sleep(0.05)


def prompt(number: int, words: str) -> None:
    """Do what a prompt says."""
    said = "done"
    if "ask" in words:
        options = [{"optionId": f"o-{kind}", "kind": kind} for kind in ("reject_once", "allow_once", "allow_always")]
        said = json.dumps(ask("session/request_permission", {"options": options})["result"])
    if "read" in words:
        said = str(ask("fs/read_text_file", {"path": "/etc/passwd"})["error"]["code"])
    if "mute" in words:
        os.close(1)
        threading.Event().wait()
    if "chatter" in words:
        threading.Thread(target=chatter, daemon=True).start()
    if "silent" in words or "chatter" in words:
        return
    update("agent_message_chunk", content={"type": "text", "text": said})
    tell({"id": number, "result": {"stopReason": "end_turn"}})


def main(capabilities: list[str]) -> None:
    """Serve until the input ends."""
    running = 0
    for line in sys.stdin:
        message = json.loads(line)
        match message["method"]:
            case "initialize":
                known = dict.fromkeys(capabilities, True)
                tell({"id": message["id"], "result": {"protocolVersion": 1, "agentCapabilities": known}})
            case "session/new":
                sys.stdout.write("a line of some library\n")
                tell({"id": message["id"], "result": {"sessionId": "s1"}})
            case "session/prompt":
                running = message["id"]
                prompt(running, message["params"]["prompt"][0]["text"])
            case "session/cancel":
                tell({"id": running, "result": {"stopReason": "cancelled"}})
            case "session/load":
                update("agent_message_chunk", content={"type": "text", "text": "what was said before"})
                tell({"id": message["id"], "result": {}})


if __name__ == "__main__":
    main(sys.argv[1:])
