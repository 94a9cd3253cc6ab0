"""`agensh doctor --harness X`: can the workers of this harness run here, reach their model and reach their tools?"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from adapters.base import HarnessUnavailable
from adapters.binary import find_program
from adapters.registry import adapter_class
from agensh.cli.findings import Finding, Verdict
from agensh.harnesses import TESTED, Package
from agensh.rundir import find_run
from agensh.spec import load_spec
from router.workspace import hooks_url, mcp_url

ANSWER = 10.0  # seconds a service may take
VERSION_SECONDS = 60.0  # some CLIs unpack themselves at their first start
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_SAID = 200  # characters of an answer in a finding


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at. Empty addresses are not looked at."""

    harness: str
    options: Mapping[str, str] = field(default_factory=dict)
    path: str = os.defpath
    gateway_url: str = ""
    gateway_key: str = field(default="", repr=False)
    mcp_url: str = ""
    mcp_token: str = field(default="", repr=False)
    hooks: bool = True


def subject_of(
    harness: str, runs: Path, *, run: str | None, spec: Path | None, environment: Mapping[str, str]
) -> Subject:
    """Return what a call of the command is about; UsageError for an unknown harness or run."""
    adapter_class(harness)
    path = environment.get("PATH", os.defpath)
    if run is None:
        options = load_spec(spec).worker.options if spec is not None else {}
        return Subject(
            harness,
            options,
            path,
            gateway_url=environment.get("AGENSH_GATEWAY_URL", ""),
            gateway_key=environment.get("AGENSH_GATEWAY_KEY", ""),
            mcp_url=environment.get("AGENSH_MCP_URL", ""),
            mcp_token=environment.get("AGENSH_MCP_TOKEN", ""),
        )
    folder = find_run(runs, run)
    info, secrets = folder.info(), folder.secrets()
    worker = info.spec.worker_names[0]
    options = load_spec(spec).worker.options if spec is not None else info.spec.worker.options
    own = secrets.workers[worker]
    hooks = bool(hooks_url(info, worker))
    return Subject(
        harness, options, path, info.urls.gateway, own.gateway_key, mcp_url(info, worker), own.mcp_token, hooks
    )


def look(subject: Subject) -> list[Finding]:
    """Look at everything; blocking, seconds at most."""
    findings = list(_program(subject))
    if subject.hooks and [row for row in TESTED if row.harness == subject.harness]:
        found = shutil.which("curl", path=subject.path)
        remedy = 'Install curl, or set delivery.paths = "mcp".'
        findings.append(Finding.of("curl (the CLI's hooks)", found is not None, found or "not found", remedy))
    with httpx.Client(timeout=ANSWER, trust_env=False) as http:
        findings += _gateway(http, subject)
        findings += _tools(http, subject)
    return findings


def _program(subject: Subject) -> Iterable[Finding]:
    rows = [row for row in TESTED if row.harness == subject.harness]
    if not rows:
        yield Finding("program", Verdict.SKIPPED, "this harness has no CLI of its own")
        return
    command = subject.options.get("command", "")
    if not rows[0].command:
        name = (shlex.split(command) or [""])[0]
        if not name:
            remedy = f"Give it with --spec, or --run; tested agents: {_install(rows)}."
            yield Finding("program", Verdict.NO, "worker.options.command, which starts the agent, is not known", remedy)
            return
        found = shutil.which(name, path=subject.path)
        said = f"{name}: {found or 'not found'}"
        remedy = f"Install it, or set worker.options.command; tested agents: {_install(rows)}."
        yield Finding.of("program", found is not None, said, remedy)
        return
    try:
        program = find_program(subject.options, subject.path, rows[0], rows[0].command)
    except HarnessUnavailable as error:
        yield Finding(
            "program", Verdict.NO, str(error).partition(";")[0], f"{_install(rows)}, or set worker.options.binary."
        )
        return
    yield Finding("program", Verdict.OK, str(program))
    version = _version(program, rows[0])
    tested = rows[0].versions
    if version in tested:
        yield Finding("version", Verdict.OK, f"{version} (tested)")
    else:
        remedy = f"Tested with {', '.join(tested)}; {_install(rows)} to be sure."
        yield Finding("version", Verdict.UNSURE, f"{version or 'unknown'} is not tested", remedy)


def _install(rows: list[Package]) -> str:
    return " or ".join(f"`npm install -g {row.name}@{row.newest}`" for row in rows)


def _version(program: Path, package: Package) -> str:
    """Return the version, from the npm package around the program, or by asking it; empty when nobody knows."""
    for folder in program.resolve().parents[:6]:
        try:
            data = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if str(data.get("name", "")).startswith(package.name):
            return _first_version(str(data.get("version", "")))
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "COPILOT_AUTO_UPDATE": "false"}
        try:
            said = subprocess.run(
                [str(program), "--version"],
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=VERSION_SECONDS,
                check=False,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return _first_version(said.decode("utf-8", "replace"))


def _first_version(text: str) -> str:
    found = _VERSION.search(text)
    return found[0] if found else ""


def _gateway(http: httpx.Client, subject: Subject) -> Iterable[Finding]:
    url = subject.gateway_url.rstrip("/")
    if not url:
        yield Finding("gateway", Verdict.SKIPPED, "not looked at (name a run with --run, or set AGENSH_GATEWAY_URL)")
        return
    answer = _ask(http, "GET", f"{url}/healthz", "")
    if isinstance(answer, str):
        remedy = "Start it with the run, `agensh resume RUN`, or set AGENSH_GATEWAY_URL to where it is."
        yield Finding("gateway", Verdict.NO, answer, remedy)
        return
    if answer.status_code != 200:
        remedy = "Set AGENSH_GATEWAY_URL to the gateway's root, such as http://127.0.0.1:9000, without /v1."
        yield Finding("gateway", Verdict.NO, f"{url} answered {answer.status_code}", remedy)
        return
    yield Finding("gateway", Verdict.OK, url)
    answer = _ask(http, "GET", f"{url}/key", subject.gateway_key)
    ok = not isinstance(answer, str) and answer.status_code == 200
    said = "accepted" if ok else answer if isinstance(answer, str) else _refusal(answer)
    yield Finding.of(
        "gateway key",
        ok,
        said,
        "Give the worker a key that the gateway knows: `agensh resume RUN` hands them out anew.",
    )
    if ok:
        yield _provider(http, url, subject.gateway_key)


def _provider(http: httpx.Client, url: str, key: str) -> Finding:
    """Ask for the provider's list of models: it costs nothing, and a wrong credential is refused."""
    answer = _ask(http, "GET", f"{url}/v1/models", key)
    if isinstance(answer, str):
        return Finding("provider", Verdict.NO, answer, "Look at the gateway's log.")
    if answer.status_code == 401:
        remedy = "Put the provider's key right (gateway.api_key_env or api_key_file), and start the gateway again."
        return Finding("provider", Verdict.NO, f"the gateway's credential is {_refusal(answer)}", remedy)
    if answer.status_code in (502, 504):
        remedy = "Look at gateway.base_url, and whether the gateway's machine reaches it."
        return Finding("provider", Verdict.NO, _refusal(answer), remedy)
    if answer.status_code == 200:
        return Finding("provider", Verdict.OK, "takes the gateway's credential")
    # Some have no such list, or keep it from keys that may do the work.
    return Finding("provider", Verdict.SKIPPED, f"its list of models answers {answer.status_code}, which says nothing")


def _tools(http: httpx.Client, subject: Subject) -> Iterable[Finding]:
    if not subject.mcp_url:
        yield Finding("tools (MCP)", Verdict.SKIPPED, "not looked at (name a run with --run, or set AGENSH_MCP_URL)")
        return
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = _ask(http, "POST", subject.mcp_url, subject.mcp_token, body)
    if isinstance(answer, str):
        yield Finding("tools (MCP)", Verdict.NO, answer, "Start the node host: `agensh resume RUN`.")
    elif answer.status_code in (401, 403):
        remedy = "Set AGENSH_MCP_TOKEN to the worker's own token of this run."
        yield Finding("tools (MCP)", Verdict.NO, _refusal(answer), remedy)
    elif answer.status_code != 200:
        yield Finding("tools (MCP)", Verdict.NO, _refusal(answer), "Check AGENSH_MCP_URL: it ends with /mcp/<worker>.")
    else:
        yield Finding("tools (MCP)", Verdict.OK, subject.mcp_url)


def _ask(
    http: httpx.Client, method: str, url: str, token: str, body: Mapping[str, object] | None = None
) -> httpx.Response | str:
    """Return the answer, or a sentence when none came."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    try:
        return http.request(method, url, headers=headers if token else {"Accept": headers["Accept"]}, json=body)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
        return f"{url} is no address; expected http(s)://HOST:PORT"
    except httpx.HTTPError as error:
        return f"{url} cannot be reached ({type(error).__name__})"


def _refusal(answer: httpx.Response) -> str:
    """Return what an answer says: the message of a JSON error, the text of anything else."""
    try:
        said = answer.json()["error"]
        said = said["message"] if isinstance(said, dict) else said
    except (ValueError, KeyError, TypeError):
        said = answer.text
    return f"refused with {answer.status_code}: {' '.join(str(said).split())[:_SAID]}"
