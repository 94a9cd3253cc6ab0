"""The shim between a scripted client and a scripted server, compared byte for byte."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from router.mcp.notices import PendingMessage
from router.mcp.server import create_mcp_app
from tests.support.pending_server import PendingServer, pending_server
from tests.support.queues import until
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

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


@pytest.fixture
def board() -> Iterator[PendingServer]:
    with pending_server() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, board: PendingServer) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def begin(*steps: list[Any], **environment: str) -> Session:
        identity = {
            "AGENSH_BOARD_URL": board.url,
            "AGENSH_WORKER": "demo-worker1",
            "AGENSH_BOARD_TOKEN": board.token,
        }
        sessions.append(Session(tmp_path, list(steps), {**identity, **environment}))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


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


ANSWERS: dict[str, tuple[Any, Any]] = {
    "text": (result(1), result(1)),
    "string id": (result("1"), result("1")),
    "error result": (result(1, isError=True), result(1, isError=True)),
    "meta and unknown fields": (
        result(1, _meta={"progressToken": "x", "n": 1.0}, future=[None]),
        result(1, _meta={"progressToken": "x", "n": 1.0}, future=[None]),
    ),
    "structured": (result(1, structuredContent={"result": "done"}), result(1)),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_tool_result_gets_one_block(start: Callable[..., Session], board: PendingServer, name: str) -> None:
    board.post(1, FAIL)
    answer, expected = ANSWERS[name]
    session = start(["read", 1], write(message(answer)), ["drain"])
    session.send(call(answer["id"], _meta={"progressToken": "x"}))
    got = json.loads(session.line())
    expected["result"]["content"] = [*expected["result"]["content"], BLOCK]
    assert got == expected


def test_blocks_of_every_kind_stay(start: Callable[..., Session], board: PendingServer) -> None:
    board.post(1, FAIL)
    line = (
        '{"jsonrpc":"2.0", "id":1,"result":{"isError":true,"content":[{"type":"text","text":"böse\\u0021"},'
        '{"type":"image","data":"QUJD","mimeType":"image/png"},{"type":"audio","data":"QQ==","mimeType":"audio/wav"},'
        '{"type":"resource_link","uri":"x:y","name":"n"},{"type":"resource","resource":{"uri":"x:z","blob":"QQ=="}},'
        '{"type":"hologram","depth":1.50}],"_meta":{"a":1}}}\r\n'
    ).encode()
    session = start(["read", 1], write(line), ["drain"])
    session.send(call(1))
    assert session.line() == line.replace(b"1.50}]", b"1.50}," + json.dumps(BLOCK).encode() + b"]")


def test_a_server_request_with_the_id_of_a_call_is_not_its_answer(
    start: Callable[..., Session], board: PendingServer
) -> None:
    board.post(1, FAIL)
    request = b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}\n'
    reply = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"roots":[]}}\n'
    session = start(["read", 1], write(request), ["read", 1], write(message(result(1))), ["drain"])
    session.send(call(1))
    assert session.line() == request
    session.send(reply)
    assert BLOCK in json.loads(session.line())["result"]["content"]
    assert session.received(len(call(1) + reply)) == call(1) + reply


def test_progress_comes_before_its_result_with_its_own_token(
    start: Callable[..., Session], board: PendingServer
) -> None:
    board.post(1, FAIL)
    progress = [
        message({"method": "notifications/progress", "params": {"progressToken": "tok", "progress": n}})
        for n in range(3)
    ]
    session = start(["read", 1], write(b"".join(progress) + message(result(1, isError=True))), ["drain"])
    session.send(call(1, _meta={"progressToken": "tok"}))
    assert [session.line() for _ in range(3)] == progress
    assert json.loads(session.line())["result"]["isError"] is True


def test_a_cancelled_call_takes_no_notice(start: Callable[..., Session], board: PendingServer) -> None:
    board.post(1, FAIL)
    cancel = message({"method": "notifications/cancelled", "params": {"requestId": 1}})
    late = message(result(1))
    session = start(["read", 2], write(late), ["read", 1], write(message(result(2))), ["drain"])
    session.send(call(1) + cancel)
    assert session.line() == late
    session.send(call(2))
    assert BLOCK in json.loads(session.line())["result"]["content"]


def test_errors_and_other_results_take_no_notice(start: Callable[..., Session], board: PendingServer) -> None:
    board.post(1, FAIL)
    lines = [
        message({"id": 1, "error": {"code": -32601, "message": "no"}}),
        message({"id": 2, "result": {"content": []}}),
        message({"id": 3, "result": {"task": {"taskId": "t"}}}),
    ]
    other = message({"id": 2, "method": "resources/read", "params": {}})
    session = start(["read", 3], write(b"".join(lines)), ["drain"])
    session.send(call(1) + other + call(3))
    assert [session.line() for _ in lines] == lines


def test_a_batch_is_looked_into(start: Callable[..., Session], board: PendingServer) -> None:
    board.post(1, FAIL)
    batch = message([json.loads(call(1)), {"id": 2, "method": "x"}, json.loads(call(3))])
    answers = [result(2), result(1), {"method": "n"}, result(3)]
    session = start(["read", 1], write(message(answers)), ["drain"])
    session.send(batch)
    got = json.loads(session.line())
    answers[1]["result"]["content"].append(BLOCK)
    assert got == answers


def test_listed_tools_lose_their_output_schema(start: Callable[..., Session], board: PendingServer) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a", "outputSchema":{"type":"object"},"z":1.0}]}}\n'
    session = start(["read", 1], write(line), ["drain"])
    session.send(message({"id": 1, "method": "tools/list"}))
    assert session.line() == line.replace(b', "outputSchema":{"type":"object"}', b"")
    assert board.queries == []


def test_a_notice_is_shown_once_and_acknowledged_by_the_next_call(
    start: Callable[..., Session], board: PendingServer
) -> None:
    board.post(1, FAIL)
    steps = [step for n in range(1, 11) for step in (["read", 1], write(message(result(n))))]
    session = start(*steps, ["drain"])
    shown = []
    for number in range(1, 11):
        session.send(call(number))
        shown.append(len(json.loads(session.line())["result"]["content"]) - 1)
        if number == 1:
            assert board.acknowledged == 0
    assert shown == [1] + [0] * 9
    assert board.acknowledged == 1
    assert board.connections == 1


def test_what_was_shown_before_a_kill_is_shown_again(
    tmp_path: Path, start: Callable[..., Session], board: PendingServer
) -> None:
    board.post(1, FAIL)
    for _ in range(2):
        session = start(["read", 1], write(message(result(1))), ["drain"])
        session.send(call(1))
        assert BLOCK in json.loads(session.line())["result"]["content"]
        session.process.kill()
        session.process.wait()
    assert board.acknowledged == 0


def test_what_does_not_fit_comes_with_the_next_results(start: Callable[..., Session], board: PendingServer) -> None:
    for seq in range(1, 41):
        board.post(seq, f"[demo-worker2/FACT +0.1m] {'x' * 90} (G{seq})")
    steps = [step for n in range(1, 9) for step in (["read", 1], write(message(result(n))))]
    session = start(*steps, ["drain"])
    texts = []
    for number in range(1, 9):
        session.send(call(number))
        texts += [block["text"] for block in json.loads(session.line())["result"]["content"][1:]]
    lines = [line for text in texts for line in text.split("\n") if line.startswith("[demo-worker2")]
    assert [line.rsplit("(", 1)[1] for line in lines] == [f"G{seq})" for seq in range(1, 41)]
    assert all(len(text) <= 2000 for text in texts)
    assert texts[0].endswith(f"{40 - texts[0].count('FACT')} more: call board_pending")
    assert board.acknowledged == 40


@pytest.mark.parametrize(("size", "shown"), [(20_000, True), (47_930, True), (47_990, False), (300_000, False)])
def test_large_results(start: Callable[..., Session], board: PendingServer, size: int, shown: bool) -> None:
    """In front, short enough for a preview, never over the limit; what would be lost with its result waits."""
    for seq in range(1, 11):
        board.post(seq, f"[demo-worker2/FAIL +0.1m] {'x' * 90} (G{seq})")
    text = "y" * size
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}
    steps = [["read", 1], write(message(answer)), ["read", 1], write(message(result(2))), ["drain"]]
    session = start(*steps)
    session.send(call(1))
    line = session.line()
    blocks = json.loads(line)["result"]["content"]
    assert blocks[-1]["text"] == text
    if not shown:
        assert line == message(answer)
    else:
        assert blocks[0]["text"].startswith("[agensh notices]\n")
        assert blocks[0]["text"].endswith(" more: call board_pending\n")
        assert len(blocks[0]["text"]) <= 450
        assert len(blocks[0]["text"]) + size <= 48_000
    session.send(call(2))
    assert f"({'G10' if not shown else 'G'}" in json.loads(session.line())["result"]["content"][-1]["text"]


def test_what_is_no_json_goes_to_stderr(start: Callable[..., Session]) -> None:
    noise = [b"Connected...\n", "🚀 server é\n".encode(), b"[INFO] up\n", b"{oops\n", b"42\n", b"[1]\n", b"\xff\xfe\n"]
    good = message(result(1))
    session = start(write(b"".join(noise) + good + noise[0] + b"last words"), ["drain"])
    out, err, code = session.finish()
    assert (out, code) == (good, 0)
    assert err == b"".join(noise) + noise[0] + b"last words"


@pytest.mark.parametrize("mode", ["hang", "500", "404", "garbage", "401"])
def test_a_board_that_fails_costs_no_result(start: Callable[..., Session], board: PendingServer, mode: str) -> None:
    board.post(1, FAIL)
    board.mode = mode
    answers = [message(result(n)) for n in range(1, 101)]
    session = start(*[step for answer in answers for step in (["read", 1], write(answer))], ["drain"])
    started = time.monotonic()
    for number, answer in enumerate(answers, start=1):
        session.send(call(number))
        assert session.line() == answer
    assert time.monotonic() - started < 5
    assert len(board.queries) <= 3
    if mode != "hang":  # which shows only after the time-out
        assert b"no notices from 127.0.0.1 for now" in session.stderr.readline()


def test_no_board_at_all(start: Callable[..., Session]) -> None:
    session = start(["read", 1], write(message(result(1))), ["drain"], AGENSH_BOARD_URL="http://127.0.0.1:1")
    session.send(call(1))
    assert session.line() == message(result(1))


def test_a_closed_connection_is_opened_again(start: Callable[..., Session], board: PendingServer) -> None:
    board.mode = "close"
    session = start(*[step for n in (1, 2, 3) for step in (["read", 1], write(message(result(n))))], ["drain"])
    for number in (1, 2, 3):
        board.post(number, f"[demo-worker2/FACT +0.1m] n{number} (G{number})")
        session.send(call(number))
        assert f"n{number} (G{number})" in json.loads(session.line())["result"]["content"][-1]["text"]


def test_the_pending_url_wins(start: Callable[..., Session], board: PendingServer) -> None:
    board.post(1, FAIL)
    session = start(
        ["read", 1],
        write(message(result(1))),
        ["drain"],
        AGENSH_BOARD_URL="",
        AGENSH_WORKER="",
        AGENSH_BOARD_TOKEN="",
        AGENSH_PENDING_URL=f"{board.url}/pending/other%20name",
        AGENSH_MCP_TOKEN=board.token,
    )
    session.send(call(1))
    assert BLOCK in json.loads(session.line())["result"]["content"]
    assert board.queries[0]["path"] == "/pending/other%20name"


@pytest.mark.parametrize(
    ("steps", "code"),
    [([["exit", 3]], 3), ([["exit", 0]], 0), ([["drain"], ["exit", 5]], 5)],
    ids=["3", "0", "after EOF"],
)
def test_the_exit_code_is_the_servers(start: Callable[..., Session], steps: list[list[Any]], code: int) -> None:
    assert start(*steps).finish()[2] == code


def test_the_servers_stderr_is_inherited(start: Callable[..., Session]) -> None:
    session = start(["stderr", base64.b64encode(b"r\xc3\xa4w\x00bytes").decode()], ["drain"])
    assert session.finish()[1] == b"r\xc3\xa4w\x00bytes"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_server(start: Callable[..., Session], number: signal.Signals) -> None:
    session = start(["wait_signal", int(number)])
    assert session.line() == b'{"ready":1}\n'
    session.process.send_signal(number)
    assert session.process.wait(PATIENCE) == 7


def test_a_killed_server_is_reported_as_such(start: Callable[..., Session]) -> None:
    session = start(["wait_signal", int(signal.SIGUSR1)])
    session.line()
    session.process.send_signal(signal.SIGTERM)
    assert session.process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_the_servers_children_end_with_it(start: Callable[..., Session], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    session = start(["grandchild", str(pid_file)], ["drain"])
    session.finish()
    pid = int(pid_file.read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_a_vanished_client_ends_the_server(start: Callable[..., Session]) -> None:
    session = start(["read", 1], write(message(result(1))), ["wait_signal", int(signal.SIGTERM)])
    session.stdout.close()
    session.send(call(1))
    assert session.process.wait(PATIENCE) == 7


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "sentence"),
    [
        (["--", "true"], {"AGENSH_BOARD_URL": ""}, 2, "set AGENSH_PENDING_URL, or AGENSH_BOARD_URL and AGENSH_WORKER"),
        (["--", "true"], {"AGENSH_WORKER": ""}, 2, "set AGENSH_PENDING_URL, or AGENSH_BOARD_URL and AGENSH_WORKER"),
        (["--", "true"], {"AGENSH_BOARD_TOKEN": ""}, 2, "set AGENSH_BOARD_TOKEN"),
        (["--", "true"], {"AGENSH_BOARD_URL": "ftp://x"}, 2, "is not an http:// or https:// URL"),
        ([], {}, 2, "usage: agensh shim -- <command"),
        (["--"], {}, 2, "usage: agensh shim -- <command"),
        (["--frob", "x"], {}, 2, "unknown option --frob; put -- before the command"),
        (["--", "no-such-command-here"], {}, 127, "'no-such-command-here' was not found"),
        (["--", "/etc"], {}, 126, "'/etc' cannot be started"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], environment: dict[str, str], code: int, sentence: str
) -> None:
    given = {"AGENSH_BOARD_URL": "http://127.0.0.1:1", "AGENSH_WORKER": "w", "AGENSH_BOARD_TOKEN": "t", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "router.mcp.shim", *arguments],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_the_shim_is_small(
    start: Callable[..., Session], board: PendingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    board.post(1, FAIL)
    session = start(["read", 1], write(message(result(1))), ["drain"])
    session.send(call(1))
    session.line()
    status = Path(f"/proc/{session.process.pid}/status").read_text()
    kilobytes = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    with capsys.disabled():
        print(f"\nshim: {kilobytes / 1024:.1f} MiB resident")  # noqa: T201 - a measurement
    assert kilobytes <= 30 * 1024


async def test_direct_messages_come_from_the_node_host(start: Callable[..., Session]) -> None:
    """The host hands out once and hears with the next call that it arrived."""
    clock = SystemClock()
    worker = StubWorker("demo-worker1", clock)
    worker.desk.messages.append(PendingMessage("e7", "demo-worker2", "yours is `sort`", clock.time()))
    worker.desk.entries += [Entry(1, "demo-worker2", EntryType.FAIL, "tabs", clock.time())]
    async with serving(create_mcp_app({worker.name: worker}, clock=clock)) as url:
        session = start(
            *[step for n in (1, 2, 3) for step in (["read", 1], write(message(result(n))))],
            ["drain"],
            AGENSH_PENDING_URL=f"{url}/pending/demo-worker1",
            AGENSH_MCP_TOKEN=worker.token,
        )

        async def tool_call(number: int) -> list[str]:
            session.send(call(number))
            line = await asyncio.to_thread(session.line)
            return [block["text"].strip() for block in json.loads(line)["result"]["content"][1:]]

        assert await tool_call(1) == [
            "[agensh notices]\n[demo-worker2/DM +0.0m] yours is `sort`\n[demo-worker2/FAIL +0.0m] tabs (G1)"
        ]
        assert worker.desk.acknowledged == []
        assert await tool_call(2) == []
        await until(lambda: worker.desk.acknowledged == ["e7", "g1"], "the second call proved the first one's notices")
        worker.desk.entries += [Entry(2, "demo-worker2", EntryType.FACT, "spaces", clock.time())]
        assert await tool_call(3) == ["[agensh notices]\n[demo-worker2/FACT +0.0m] spaces (G2)"]
        session.stdin.close()
        await asyncio.to_thread(session.process.wait, PATIENCE)
