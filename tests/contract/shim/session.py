"""A shim with a scripted server behind it, and what goes through it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAIL = "[demo-worker2/FAIL +0.1m] tabs break the parser (G1)"
BLOCK = {"type": "text", "text": f"\n[agensh notices]\n{FAIL}"}
PATIENCE = 20.0  # seconds


class Session:
    """A shim with a scripted server behind it; the test is the client."""

    def __init__(self, tmp_path: Path, steps: list[list[Any]], environment: dict[str, str]) -> None:
        script = tmp_path / "script.json"
        script.write_text(json.dumps(steps))
        self.record = tmp_path / "record"
        self.record.touch()
        command = [sys.executable, "-m", "tests.support.scripted_child", str(script), str(self.record)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "router.mcp.shim", "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr

    def send(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def line(self) -> bytes:
        return self.stdout.readline()

    def received(self, size: int) -> bytes:
        """What the server got, once it is at least `size` bytes."""
        wait_for(lambda: len(self.record.read_bytes()) >= size)
        return self.record.read_bytes()

    def finish(self) -> tuple[bytes, bytes, int]:
        """Close stdin; return the rest of stdout, stderr, and the exit code."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return out, err, self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def write(data: bytes) -> list[Any]:
    return ["write", base64.b64encode(data).decode()]


def message(value: Any, **options: Any) -> bytes:
    return json.dumps(value, **options).encode() + b"\n"


def call(identifier: Any, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": {"name": "t", **params}}
    return message(body)


def result(identifier: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "result": {"content": [{"type": "text", "text": "done"}], **fields}}
