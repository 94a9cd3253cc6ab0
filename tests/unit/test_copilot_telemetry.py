"""Copilot's file of spans: what counts, what does not, and that nothing counts twice. Lines as 1.0.70 writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from adapters.base import Usage
from adapters.copilot.installed import tells_tokens
from adapters.copilot.telemetry import TokenFile, tokens_in
from agensh.clock import SystemClock

METRIC = {"type": "metric", "name": "gen_ai.client.token.usage", "dataPoints": [{"value": {"sum": 6000.0}}]}
TOOL = {"type": "span", "attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash"}}
FAILED = {"type": "span", "parentSpanId": "90", "attributes": {"gen_ai.operation.name": "chat"}}


def chat(tokens: int, cached: int, output: int, reasoning: int) -> dict[str, object]:
    return {
        "type": "span",
        "name": "chat gpt-5.4",
        "parentSpanId": "9cbf627be8facf51",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": tokens,
            "gen_ai.usage.output_tokens": output,
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.reasoning.output_tokens": reasoning,
        },
    }


def agent(parent: str | None = None) -> dict[str, object]:
    more = {} if parent is None else {"parentSpanId": parent}
    counts = {"gen_ai.usage.input_tokens": 99_999, "gen_ai.usage.output_tokens": 99_999}
    return {"type": "span", "attributes": {"gen_ai.operation.name": "invoke_agent", **counts}, **more}


def line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def test_requests_to_the_model_count_and_nothing_else() -> None:
    lines = [line(each) for each in (METRIC, chat(1000, 400, 30, 7), TOOL, FAILED, chat(1200, 900, 5, 0), agent())]
    assert tokens_in(lines) == (Usage(2200, 1300, 35, 7), True)


@pytest.mark.parametrize("count", [-5, 10**12, 1.5, "7", None, True])
def test_what_is_no_count_counts_nothing(count: object) -> None:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": count}
    assert tokens_in([line({"attributes": attributes})]) == (Usage(), False)


@pytest.mark.parametrize(
    "other", [b"", b"[" * 100_000, b"no json\n", b"[]\n", b"1\n", b'{"attributes": null}\n', line(agent("90"))]
)
def test_other_lines_end_no_prompt(other: bytes) -> None:
    assert tokens_in([other, line(chat(10, 0, 1, 0))]) == (Usage(10, 0, 1, 0), False)


async def test_a_turn_is_taken_once_and_the_file_stays_small(tmp_path: Path) -> None:
    file = TokenFile(tmp_path, "tokens.jsonl", SystemClock())
    file.path.write_bytes(line(chat(7, 7, 7, 7)))  # of a former process
    file.begin()
    assert await file.take(answered=False) == Usage()
    file.path.write_bytes(line(chat(10, 4, 1, 0)) + line(agent()))
    assert await file.take(answered=True) == Usage(10, 4, 1, 0)
    assert file.path.stat().st_size == 0
    with file.path.open("ab") as more:
        more.write(line(chat(20, 8, 2, 1)) + line(agent()))
    assert await file.take(answered=True) == Usage(20, 8, 2, 1)
    assert await file.take(answered=False) == Usage()


async def test_a_line_that_is_not_whole_yet_counts_later(tmp_path: Path) -> None:
    file = TokenFile(tmp_path, "tokens.jsonl", SystemClock())
    first = line(chat(10, 4, 1, 0))
    whole = first + line(chat(20, 8, 2, 1)) + line(agent())
    file.path.write_bytes(whole[: len(first) + 20])
    assert await file.take(answered=False) == Usage(10, 4, 1, 0)
    file.path.write_bytes(whole)
    assert await file.take(answered=True) == Usage(20, 8, 2, 1)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder", "missing"])
async def test_nothing_but_a_file_of_the_workers_own_is_read_or_emptied(tmp_path: Path, kind: str) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.write_bytes(line(chat(10, 4, 1, 0)) + line(agent()))
    before = other.read_bytes()
    file = TokenFile(home, ".copilot/tokens.jsonl", SystemClock())
    file.begin()
    match kind:
        case "link":
            file.path.symlink_to(other)
        case "hard link":
            file.path.hardlink_to(other)
        case "pipe":
            os.mkfifo(file.path)
        case "folder":
            file.path.mkdir()
    assert await file.take(answered=False) == Usage()
    assert other.read_bytes() == before


async def test_the_lines_of_the_end_are_waited_for(tmp_path: Path) -> None:
    late = line(chat(20, 8, 2, 1)) + line(agent())

    class Late(SystemClock):
        """Writes the rest while the reader waits."""

        async def sleep(self, seconds: float) -> None:
            with file.path.open("ab") as more:
                more.write(late)

    file = TokenFile(tmp_path, "tokens.jsonl", Late())
    file.path.write_bytes(line(chat(10, 4, 1, 0)))
    assert await file.take(answered=True) == Usage(30, 12, 3, 1)


@pytest.mark.parametrize(
    ("version", "told"), [("1.0.70", False), ("1.0.101", False), ("1.0.102", True), ("1.1.0", True), ("", False)]
)
def test_which_versions_tell_tokens(version: str, told: bool) -> None:
    assert tells_tokens(version) is told
