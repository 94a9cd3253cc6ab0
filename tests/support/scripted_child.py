"""A process that plays a script on its stdio, byte for byte; stands for any MCP server.

`python -m tests.support.scripted_child SCRIPT RECORD`: SCRIPT is JSON, a list of steps; what is read goes into RECORD.
Steps: ["read", lines], ["write", base64], ["stderr", base64], ["drain"] (read until the end), ["exit", code],
["ignore", signal], ["wait_signal", signal] (exit 7 when it comes), ["grandchild", file] (starts a process that outlives
this one and writes its pid).
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def play(steps: list[list[Any]], record: Path) -> int:
    """Play all steps; return the exit code."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    with record.open("ab", buffering=0) as recorded:
        for action, *arguments in steps:
            match action:
                case "read":
                    for _ in range(arguments[0]):
                        recorded.write(source.readline())
                case "write":
                    sink.write(base64.b64decode(arguments[0]))
                    sink.flush()
                case "stderr":
                    sys.stderr.buffer.write(base64.b64decode(arguments[0]))
                    sys.stderr.buffer.flush()
                case "drain":
                    while chunk := source.read(65536):
                        recorded.write(chunk)
                case "exit":
                    return int(arguments[0])
                case "ignore":
                    signal.signal(arguments[0], signal.SIG_IGN)
                case "wait_signal":
                    signal.signal(arguments[0], lambda *_: os._exit(7))
                    sink.write(b'{"ready":1}\n')
                    sink.flush()
                    signal.pause()
                case "grandchild":
                    sleeper = subprocess.Popen(
                        [sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.DEVNULL
                    )
                    Path(arguments[0]).write_text(str(sleeper.pid))
                case _:
                    raise ValueError(action)
    return 0


if __name__ == "__main__":
    sys.exit(play(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])))
