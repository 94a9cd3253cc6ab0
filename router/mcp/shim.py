"""`agensh shim -- <command …>`: a transparent wrapper of any MCP server on stdio that adds notices to tool results.

Standard library only, one small process. What it changes: a `tools/call` result may get one text block (and loses
`structuredContent` then, see docs/decisions/notices-in-tool-results.md), a `tools/list` result loses `outputSchema`,
and lines of the server that are no JSON go to stderr. Everything else passes byte for byte, in both directions, in
order. A call that was cancelled gets no notice. When the board does not answer, results pass without notices.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from router.mcp.pending import Identity, PendingFeed
from router.mcp.splice import Edit, apply, elements, member, notice_edits, room_in, schema_edits

CHUNK = 64 * 1024  # bytes
GRACE = 5.0  # seconds between passing SIGTERM on and SIGKILL
DRAIN = 2.0  # seconds for the rest of the output after the server's exit
TRACKED = 10_000  # unanswered requests; more are passed on without a notice
USAGE = "usage: agensh shim -- <command of an MCP server on stdio> [arguments …]"

CALL = "tools/call"
LIST = "tools/list"
_METHODS = (b"tools/call", b"tools/list", b"tools\\/", b"notifications/cancelled", b"notifications\\/")


def lines_of(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a file descriptor with their endings, of any length; the last one may have none."""
    parts: list[bytes] = []
    while chunk := os.read(descriptor, CHUNK):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            parts.append(chunk[start : end + 1])
            yield b"".join(parts)
            parts.clear()
            start = end + 1
        if start < len(chunk):
            parts.append(chunk[start:])
    if parts:
        yield b"".join(parts)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`; OSError when nobody reads any more."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def request_key(identifier: Any) -> str | None:
    """Return a key under which `1` and `"1"` are two ids; None when it is no id of a request."""
    if isinstance(identifier, bool) or not isinstance(identifier, str | int | float):
        return None
    return json.dumps(identifier)


class Requests:
    """The client's unanswered tools/call and tools/list requests; used by both directions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._methods: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._methods)

    def note(self, line: bytes) -> bool:
        """Remember what a line of the client asks for; return whether it calls a tool."""
        if not any(method in line for method in _METHODS):
            return False
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return False
        calls = False
        for message in value if isinstance(value, list) else [value]:
            if not isinstance(message, dict):
                continue
            method = message.get("method")
            with self._lock:
                if method == "notifications/cancelled" and isinstance(message.get("params"), dict):
                    self._methods.pop(request_key(message["params"].get("requestId")) or "", None)
                elif method in (CALL, LIST) and len(self._methods) < TRACKED:
                    key = request_key(message.get("id"))
                    if key is not None:
                        self._methods[key] = method
                        calls = calls or method == CALL
        return calls

    def answered(self, message: dict[str, Any]) -> str | None:
        """Return the method that a message of the server answers, and forget the request; None when it is no answer."""
        if "method" in message or not ("result" in message or "error" in message):
            return None
        key = request_key(message.get("id"))
        with self._lock:
            return None if key is None else self._methods.pop(key, None)


class Rewriter:
    """Decides for each line of the server what the client gets."""

    def __init__(self, requests: Requests, feed: PendingFeed) -> None:
        self._requests = requests
        self._feed = feed

    def line(self, line: bytes) -> bytes | None:
        """Return the line for the client, or None when it is no protocol line."""
        start = line.lstrip()[:1]
        if start not in (b"{", b"["):
            return None
        try:
            text = line.decode("utf-8")
            value = json.loads(text)
        except json.JSONDecodeError:
            return None
        except (ValueError, RecursionError):
            return line  # JSON beyond what Python reads (huge numbers, deep nesting, foreign bytes): not ours to judge
        if isinstance(value, list) and not (value and all(isinstance(item, dict) for item in value)):
            return None
        if not self._requests:
            return line
        try:
            edits = self._edits(text, value)
        except RecursionError:
            return line  # nested almost too deep to read; raised before any notice is taken
        return apply(text, edits).encode("utf-8") if edits else line

    def _edits(self, text: str, value: Any) -> list[Edit]:
        at = len(text) - len(text.lstrip())
        if isinstance(value, dict):
            return self._message(text, at, value, True)[0]
        edits: list[Edit] = []
        wanted = True
        for message, (start, _) in zip(value, elements(text, at), strict=True):
            more, used = self._message(text, start, message, wanted)
            edits += more
            wanted = wanted and not used
        return edits

    def _message(self, text: str, start: int, message: dict[str, Any], wanted: bool) -> tuple[list[Edit], bool]:
        method = self._requests.answered(message)
        result = member(text, start, "result") if method and isinstance(message.get("result"), dict) else None
        if result is None:
            return [], False
        if method == LIST:
            return schema_edits(text, result.value), False
        placement = room_in(message["result"]) if wanted else None
        if placement is None:
            return [], False
        notice = self._feed.take(placement.room)
        if notice is None:
            return [], False
        return notice_edits(text, result.value, placement, notice.text), True


def complain(sentence: str) -> None:
    """Tell the person who reads the CLI's log; stdout belongs to the protocol."""
    with contextlib.suppress(OSError):
        write_all(2, f"agensh shim: {sentence}\n".encode(errors="replace"))


class Wrapped:
    """The wrapped server's process and the two directions of its stdio."""

    def __init__(self, child: subprocess.Popen[bytes], feed: PendingFeed) -> None:
        self._child = child
        self._feed = feed
        self._requests = Requests()
        self._rewriter = Rewriter(self._requests, feed)
        self._stdin = _pipe(child.stdin)
        self._stdout = _pipe(child.stdout)

    def run(self) -> int:
        """Pass everything on until the server has ended; return its exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._forward)
        _thread(self._upwards)
        reader = _thread(self._downwards)
        # WNOWAIT keeps the process id reserved, so that the group signalled below is still the server's own.
        os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        reader.join(DRAIN)
        self._signal_group(signal.SIGTERM)
        reader.join(DRAIN)
        self._signal_group(signal.SIGKILL)
        reader.join(DRAIN)
        code = self._child.wait()
        return code if code >= 0 else 128 - code

    def _upwards(self) -> None:
        """From the client to the server."""
        try:
            for line in lines_of(0):
                # Before the server can answer: the answer has to find its request.
                if self._requests.note(line):
                    self._feed.next_call()
                write_all(self._stdin.fileno(), line)
        except OSError:
            pass  # the server reads no more; its exit ends the shim
        with contextlib.suppress(OSError):
            self._stdin.close()

    def _downwards(self) -> None:
        """From the server to the client."""
        for line in lines_of(self._stdout.fileno()):
            changed = self._rewriter.line(line)
            try:
                if changed is None:
                    write_all(2, line)
                else:
                    if changed is not line:
                        # Before the client can answer with its next call. If it is gone, there is none.
                        self._feed.written()
                    write_all(1, changed)
            except OSError:
                if changed is not None:
                    # The client is gone without a word: end the server, which nobody reads any more.
                    self._forward(signal.SIGTERM, None)
                    return

    def _forward(self, number: int, frame: object) -> None:
        self._signal_group(number)
        timer = threading.Timer(GRACE, self._signal_group, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


def _pipe(stream: Any) -> BinaryIO:
    if stream is None:
        raise AssertionError("the child is started with pipes")
    pipe: BinaryIO = stream
    return pipe


def _thread(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def main(argv: list[str]) -> int:
    """Run `agensh shim` with the arguments after `shim`; return the exit code: the server's, or 2 for wrong usage."""
    command = argv[1:] if argv[:1] == ["--"] else argv
    if not command or command[0] in ("-h", "--help"):
        write_all(2, f"{USAGE}\n".encode())
        return 0 if command else 2
    if argv[0] != "--" and command[0].startswith("-"):
        complain(f"unknown option {command[0]}; put -- before the command. {USAGE}")
        return 2
    identity = Identity.from_environment(dict(os.environ))
    if isinstance(identity, str):
        complain(identity)
        return 2
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0, close_fds=True
        )
    except FileNotFoundError:
        complain(f"{command[0]!r} was not found; give the MCP server's command after --.")
        return 127
    except OSError as error:
        complain(f"{command[0]!r} cannot be started: {error.strerror}.")
        return 126
    return Wrapped(child, PendingFeed(identity, complain)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
