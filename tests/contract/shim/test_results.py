"""What the shim adds to the results of tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.shim.session import BLOCK, FAIL, Session, call, message, result, write
from tests.support.pending_server import PendingServer

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
