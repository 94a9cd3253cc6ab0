"""What the shim has nothing to add to passes byte for byte."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from tests.contract.shim.session import FAIL, PATIENCE, Session, call, message, result, write
from tests.support.pending_server import PendingServer

BIG = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "ä" * 2_600_000}}).encode()

PASSING: dict[str, bytes] = {
    "notification": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n',
    "progress": b'{"jsonrpc": "2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.50}}\n',
    "server request": b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[]}}\n',
    "unknown method": b'{"id":"zz","method":"x/y","params":[1,2.0,1e400],"future":{"z":null}}\n',
    "result of another": b'{"jsonrpc":"2.0","id":99,"result":{"content":[]}}\n',
    "error": b'{"jsonrpc":"2.0","id":99,"error":{"code":-32000,"message":"x"}}\n',
    "batch": b'[{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","id":5,"result":{}}]\n',
    "CRLF": b'{"jsonrpc":"2.0","method":"a"}\r\n',
    "odd spaces": b'  {"jsonrpc" :  "2.0" ,\t"method":"a" } \n',
    "non-ASCII": '{"jsonrpc":"2.0","method":"ü🫠","params":{"a":"\\ud83e\\udee0","b":"𠜎"}}\n'.encode(),
    "lone surrogate": b'{"jsonrpc":"2.0","method":"a","params":{"b":"\\ud800"}}\n',
    "5 MB": BIG + b"\n",
    "huge number": b'{"jsonrpc":"2.0","method":"a","params":{"n":' + b"9" * 5000 + b"}}\n",
    "deep": b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n",
    "duplicate keys": b'{"jsonrpc":"2.0","method":"a","method":"b"}\n',
}


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("waiting", [False, True])
def test_what_is_no_tool_result_passes_byte_for_byte(
    start: Callable[..., Session], board: PendingServer, name: str, waiting: bool
) -> None:
    """In both directions, also while a tool call with id 1 is unanswered and a notice waits."""
    board.post(1, FAIL)
    line = PASSING[name]
    opening = call(1) if waiting else b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    session = start(["read", 2], write(line), ["drain"])
    session.send(opening + line)
    assert session.line() == line
    session.stdin.close()
    assert session.process.wait(PATIENCE) == 0
    assert session.received(len(opening + line)) == opening + line


def test_every_direction_at_once(start: Callable[..., Session]) -> None:
    """Megabytes both ways at the same time neither deadlock nor change."""
    lines = [BIG + b"\n"] * 3
    session = start(*[write(line) for line in lines], ["drain"])
    sender = threading.Thread(target=session.send, args=(b"".join(lines),))
    sender.start()
    assert [session.line() for _ in lines] == lines
    sender.join()
    session.stdin.close()
    assert session.process.wait(PATIENCE) == 0
    assert session.record.read_bytes() == b"".join(lines)


def test_what_is_no_json_goes_to_stderr(start: Callable[..., Session]) -> None:
    noise = [b"Connected...\n", "🚀 server é\n".encode(), b"[INFO] up\n", b"{oops\n", b"42\n", b"[1]\n", b"\xff\xfe\n"]
    good = message(result(1))
    session = start(write(b"".join(noise) + good + noise[0] + b"last words"), ["drain"])
    out, err, code = session.finish()
    assert (out, code) == (good, 0)
    assert err == b"".join(noise) + noise[0] + b"last words"
