"""`agensh doctor --harness X` finds what keeps a worker from working, and says in one line what to do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agensh.cli.app import app
from agensh.clock import SystemClock
from agensh.harnesses import install, package
from router.mcp.server import create_mcp_app
from tests.support.gateway import CREDENTIAL, serving_gateway
from tests.support.provider import Answer, Handler, Provider, Received, provider, usual
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

ONE = "demo-worker1"
CURL = "/usr/bin:/bin"


def doctor(*arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
    variables = {name: None for name in os.environ if name.startswith("AGENSH_")}
    given = {**variables, "PATH": CURL, **(env or {})}
    found = CliRunner().invoke(app, ["doctor", *arguments], env=given)
    return found.exit_code, found.output.splitlines()


def remedy_of(lines: list[str], what: str) -> str:
    """Return the line below a finding that is not well."""
    (index,) = [number for number, line in enumerate(lines) if line[4:].startswith(f"{what}:")]
    assert lines[index][:2] in ("no", "??"), lines[index]
    return lines[index + 1].strip()


def program(folder: Path, version: str) -> str:
    path = folder / "codex"
    path.write_text(f"#!/bin/sh\necho codex-cli {version}\n")
    path.chmod(0o755)
    return f"{folder}:{CURL}"


def test_a_program_that_is_missing() -> None:
    code, lines = doctor("--harness", "codex")
    assert code == 1
    newest = package("@openai/codex").newest
    assert remedy_of(lines, "program") == f"`npm install -g @openai/codex@{newest}`, or set worker.options.binary."


def test_a_version_nobody_has_tested(tmp_path: Path) -> None:
    code, lines = doctor("--harness", "codex", env={"PATH": program(tmp_path, "9.9.9")})
    assert code == 0, lines  # it may work
    assert remedy_of(lines, "version").startswith("Tested with 0.171.0; `npm install -g @openai/codex@")


def test_the_real_one_is_found_below_its_prefix_and_its_version_known(tmp_path: Path) -> None:
    binary = install("@openai/codex")
    code, lines = doctor("--harness", "codex", env={"PATH": f"{binary.parent}:{CURL}"})
    assert code == 0, lines
    assert f"ok  version: {package('@openai/codex').newest} (tested)" in lines


def test_nothing_that_answers(tmp_path: Path) -> None:
    gone = {"AGENSH_GATEWAY_URL": "http://127.0.0.1:1", "AGENSH_MCP_URL": "http://127.0.0.1:1/mcp/x"}
    code, lines = doctor("--harness", "codex", env={"PATH": program(tmp_path, "0.171.0"), **gone})
    assert code == 1
    assert "agensh resume" in remedy_of(lines, "gateway")
    assert "agensh resume" in remedy_of(lines, "tools (MCP)")


def test_addresses_that_are_none(tmp_path: Path) -> None:
    wrong = {"AGENSH_GATEWAY_URL": "127.0.0.1:1", "AGENSH_MCP_URL": "nowhere"}
    code, lines = doctor("--harness", "codex", env={"PATH": program(tmp_path, "0.171.0"), **wrong})
    assert code == 1
    assert "no  gateway: 127.0.0.1:1/healthz is no address; expected http(s)://HOST:PORT" in lines
    assert "no  tools (MCP): nowhere is no address; expected http(s)://HOST:PORT" in lines


def test_an_agent_whose_command_nobody_named() -> None:
    code, lines = doctor("--harness", "acp")
    assert code == 1
    assert "no  program: worker.options.command, which starts the agent, is not known" in lines
    assert remedy_of(lines, "program").startswith("Give it with --spec, or --run; tested agents: `npm install -g ")


async def test_a_key_that_counts_and_one_that_does_not(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        env = {"PATH": program(tmp_path, "0.171.0"), "AGENSH_GATEWAY_URL": gateway.url}
        key = gateway.keys[ONE]
        code, lines = await asyncio.to_thread(doctor, "--harness", "codex", env={**env, "AGENSH_GATEWAY_KEY": key})
        assert code == 0, lines
        well = {
            f"ok  gateway: {gateway.url}",
            "ok  gateway key: accepted",
            "ok  provider: takes the gateway's credential",
        }
        assert well <= set(lines)
        code, lines = await asyncio.to_thread(doctor, "--harness", "codex", env={**env, "AGENSH_GATEWAY_KEY": "wrong"})
        assert code == 1
        assert "agensh resume RUN" in remedy_of(lines, "gateway key")
        assert any(
            line.startswith("no  gateway key: refused with 401: This gateway key is not valid") for line in lines
        )
        env["AGENSH_GATEWAY_URL"] += "/v1"
        code, lines = await asyncio.to_thread(doctor, "--harness", "codex", env=env)
        assert code == 1
        assert remedy_of(lines, "gateway").endswith("http://127.0.0.1:9000, without /v1.")


async def test_a_provider_that_refuses_the_gateway_or_is_out_of_reach(tmp_path: Path) -> None:
    async def look(url: Provider | str, folder: str) -> tuple[int, list[str]]:
        async with serving_gateway(tmp_path / folder, url) as gateway:
            env = {"AGENSH_GATEWAY_URL": gateway.url, "AGENSH_GATEWAY_KEY": gateway.keys[ONE]}
            path = program(tmp_path, "0.171.0")
            return await asyncio.to_thread(doctor, "--harness", "codex", env={"PATH": path, **env})

    def refuse(status: int) -> Handler:
        async def answer_with(_: Received, answer: Answer) -> None:
            await answer.json({"error": {"message": f"No: {CREDENTIAL}"}}, status)

        return answer_with

    async with provider(refuse(401)) as upstream:
        code, lines = await look(upstream, "refused")
    assert code == 1
    assert "gateway.api_key_env" in remedy_of(lines, "provider")
    assert CREDENTIAL not in "".join(lines)
    code, lines = await look("http://127.0.0.1:1/v1", "gone")
    assert code == 1
    assert "gateway.base_url" in remedy_of(lines, "provider")
    async with provider(refuse(404)) as upstream:
        code, lines = await look(upstream, "no list")
    assert code == 0, lines
    assert "--  provider: its list of models answers 404, which says nothing" in lines


async def test_tools_that_answer_and_tools_that_refuse(tmp_path: Path) -> None:
    worker = StubWorker(ONE, SystemClock())
    async with serving(create_mcp_app({ONE: worker}, clock=SystemClock())) as url:
        env = {"PATH": program(tmp_path, "0.171.0"), "AGENSH_MCP_URL": f"{url}/mcp/{ONE}"}
        code, lines = await asyncio.to_thread(
            doctor, "--harness", "codex", env={**env, "AGENSH_MCP_TOKEN": worker.token}
        )
        assert code == 0, lines
        assert f"ok  tools (MCP): {url}/mcp/{ONE}" in lines
        code, lines = await asyncio.to_thread(doctor, "--harness", "codex", env={**env, "AGENSH_MCP_TOKEN": "wrong"})
        assert code == 1
        assert remedy_of(lines, "tools (MCP)") == "Set AGENSH_MCP_TOKEN to the worker's own token of this run."
        assert "wrong" not in "".join(lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--harness", "nope"), "worker.harness: 'nope' is not known"),
        (("--run", "x"), "--run: give --harness as well."),
        (("--harness", "codex", "--run", "nowhere"), "run: 'nowhere' is neither a run folder nor"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(app, ["doctor", *arguments])
    assert said in str(found.exception)
