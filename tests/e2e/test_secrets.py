"""Where the secrets of a real run are, and where they are not: environments, command lines, files, databases.

With rule-based workers, which ask no model, and with a real CLI behind the gateway.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agensh.harnesses import install, package_of
from agensh.launch.examples import example
from agensh.launch.ports import free_port
from agensh.rundir import RunDir, find_run

pytestmark = pytest.mark.timeout(420)
AGENSH = [sys.executable, "-m", "agensh"]
NO_SECRET = {"name", "chat_user_id"}
RUNNING = 240.0  # seconds until the workers have worked
OWNERLESS = ""
CLIS = ["copilot", "claude-code", "codex"] if os.environ.get("AGENSH_DEMOS") == "all" else ["codex"]
CREDENTIAL = "sk-the-providers-own-credential-0123456789"


def leaves(value: Any, owner: str = OWNERLESS, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every secret of secrets.json with the worker it belongs to."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, name if key == "workers" else owner, name)
    elif isinstance(value, str) and value and key not in NO_SECRET:
        yield value, owner


@dataclass
class Seen:
    """What other processes of this machine could see of a run while it ran."""

    environments: dict[str, set[bytes]] = field(default_factory=dict)
    """By worker; services under the empty name."""
    commands: set[bytes] = field(default_factory=set)
    modes: set[int] = field(default_factory=set)

    def look(self, run: RunDir) -> None:
        """Take in every process that has to do with the run."""
        here = str(run.path).encode()
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes()
                environment = (process / "environ").read_bytes()
                where = os.fsencode((process / "cwd").readlink())
                if here in command or here in environment or where.startswith(here):
                    self.commands.add(command)
                    variables = dict(part.split(b"=", 1) for part in environment.split(b"\0") if b"=" in part)
                    owner = variables.get(b"AGENSH_WORKER", b"").decode()
                    self.environments.setdefault(owner, set()).add(environment)
        self.modes.add(stat.S_IMODE(run.path.stat().st_mode))


@dataclass
class Ended:
    """A run of two workers, with a gateway, that was watched while they worked, then stopped."""

    harness: str
    run: RunDir
    seen: Seen


@contextlib.contextmanager
def provider(folder: Path) -> Iterator[str]:
    """The scripted model in the provider's place, which takes its credential alone; yields the root of its API."""
    port = free_port()
    command = [*AGENSH, "model", str(example("textutils") / "playbook"), "--port", str(port), "--data", str(folder)]
    with subprocess.Popen(command, env={**os.environ, "AGENSH_SCRIPTED_KEY": CREDENTIAL}) as process:
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


@pytest.fixture(scope="module", params=["scripted", *CLIS])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    harness, runs, seen = request.param, tmp_path_factory.mktemp("runs"), Seen()
    spec = tmp_path_factory.mktemp("example") / "textutils"
    shutil.copytree(example("textutils"), spec)
    text = (spec / "team.toml").read_text()
    with contextlib.ExitStack() as stack:
        url = "http://127.0.0.1:9/v1"
        if harness != "scripted":
            url = stack.enter_context(provider(tmp_path_factory.mktemp("model")))
            options = f'options = {{ binary = "{install(package_of(harness).name)}" }}\nmax_prompt_tokens = 1000000'
            text = text.replace('options = { playbook = "playbook" }', options)
            text = text.replace('harness = "scripted"', f'harness = "{harness}"\nmodel = "scripted"')
        text += f'[gateway]\nbase_url = "{url}"\napi_key_env = "THE_PROVIDERS_KEY"\n'
        (spec / "team.toml").write_text(text)
        process = stack.enter_context(
            subprocess.Popen(
                [*AGENSH, "run", str(spec / "team.toml"), "--local", "--workers", "2", "--runs", str(runs)],
                env={**os.environ, "THE_PROVIDERS_KEY": CREDENTIAL},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        try:
            run = None
            until = time.monotonic() + RUNNING
            while not {"demo-worker1", "demo-worker2"} <= set(seen.environments) or not _worked(run):
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < until, "the workers did not come to work"
                run = run or (find_run(runs) if list(runs.glob("*/secrets.json")) else None)
                if run is not None:
                    seen.look(run)
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=120)
    assert run is not None
    assert CREDENTIAL not in said
    return Ended(harness, run, seen)


def _worked(run: RunDir | None) -> bool:
    """Say whether something was pushed: then git has used its credentials, too."""
    if run is None:
        return False
    # Only the branches, and by `os.walk`: git makes and removes folders meanwhile.
    return any(
        files and "worker" in folder
        for heads in run.forge.glob("repos/*/*/refs/heads")
        for folder, _, files in os.walk(heads)
    )


def test_a_process_has_no_secret_but_its_own_workers(ended: Ended) -> None:
    run, seen = ended.run, ended.seen
    secrets = dict(leaves(json.loads(run.secrets_file.read_text())))
    assert len(secrets) >= 2 * 4 + 6, "every credential is told from every other"
    assert {OWNERLESS, "demo-worker1", "demo-worker2"} <= set(seen.environments)
    for name, environments in seen.environments.items():
        for environment in environments:
            for secret, owner in secrets.items():
                if secret.encode() in environment:
                    assert name
                    assert owner == name, f"{name} has a secret of {owner or 'the run'}"
    # Its own two doors, and not even the rest of its own: the router holds that.
    worker = run.secrets().workers["demo-worker1"]
    for environment in seen.environments["demo-worker1"]:
        for hidden in (worker.forge_password, worker.chat_token, worker.board_token):
            assert hidden.encode() not in environment


def test_nobody_but_the_gateway_has_the_credential(ended: Ended) -> None:
    run, seen = ended.run, ended.seen
    holders = [name for name, found in seen.environments.items() for one in found if CREDENTIAL.encode() in one]
    assert holders == [OWNERLESS], "the gateway's process, and no other service or worker"
    assert not any(CREDENTIAL.encode() in command for command in seen.commands)
    for path in run.path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert CREDENTIAL.encode() not in path.read_bytes(), path
    keys = {secrets.gateway_key for secrets in run.secrets().workers.values()}
    assert len(keys) == 2
    asked = (run.path / "record" / "usage.jsonl").read_text()
    assert bool(asked) == (ended.harness != "scripted"), "only rule-based workers ask no model"


def test_no_command_line_has_a_secret(ended: Ended) -> None:
    run, seen = ended.run, ended.seen
    assert len(seen.commands) >= 5
    assert any(b"git" in command for command in seen.commands)
    for secret, _ in leaves(json.loads(run.secrets_file.read_text())):
        for command in seen.commands:
            assert secret.encode() not in command


def test_no_file_has_a_secret_but_a_workers_own(ended: Ended) -> None:
    run = ended.run
    secrets = list(leaves(json.loads(run.secrets_file.read_text())))
    looked_at = set()
    for path in run.path.rglob("*"):
        if path == run.secrets_file or path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        looked_at.add(path.relative_to(run.path).parts[0])
        place = path.relative_to(run.path).parts
        home = place[1] if place[0] == "workers" else None
        for secret, owner in secrets:
            if secret.encode() in content:
                assert home, f"a secret of {owner or 'the run'} stands in {path}"
                assert home == owner, f"a secret of {owner or 'the run'} stands in {path}"
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {"run.json", "board.sqlite3", "runtime.sqlite3", "forge", "chat", "logs", "workers"} <= looked_at


def test_the_files_are_their_owners_alone(ended: Ended) -> None:
    run, seen = ended.run, ended.seen
    assert seen.modes == {0o700}
    assert stat.S_IMODE(run.secrets_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(run.private.stat().st_mode) == 0o700
    for name in ("demo-worker1", "demo-worker2"):
        for folder in ("home", "work", "tmp"):
            assert stat.S_IMODE((run.worker(name) / folder).stat().st_mode) == 0o700
        assert stat.S_IMODE((run.worker(name) / "home/.config/agensh/forge-token").stat().st_mode) == 0o600


def test_every_log_record_is_one_line_of_json(ended: Ended) -> None:
    run = ended.run
    lines = [(file, line) for file in run.logs.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert lines
    for file, line in lines:
        if not line.startswith("board: http"):  # where it answers, for people who start it by hand
            assert isinstance(json.loads(line), dict), (file, line)
