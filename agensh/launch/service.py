"""Entry of the processes a local run consists of: `python -m agensh.launch.service NAME RUN_DIR PARENT_PID`.

NAME is `board`, `forge`, `chat`, `gateway`, `model`, `baseline`, or the name of one of the run's node hosts; in a
container, where PARENT_PID is 0, also `provision`, `collect`, `status`, `unpark` and `provider`, which do their work
and end. Each reads the run folder for all it needs, so no secret stands in an argument or an environment (but for the
provider's credential in the gateway's, where the spec names a variable), logs JSON lines to standard error, and ends
when the launcher ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from adapters.base import Runtime
from agensh.clock import Clock, SystemClock
from agensh.errors import AgenshError
from agensh.launch.parent import end_with_parent
from agensh.logs import set_up_logging
from agensh.rundir import RunDir, RunInfo

BIND = "AGENSH_BIND"
"""Variable that says where to listen, in a container, whose name others use as the host of its URL."""


def _address(url: str) -> tuple[str, int]:
    """Return where to listen for `url`."""
    parts = urlsplit(url)
    return os.environ.get(BIND) or parts.hostname or "127.0.0.1", parts.port or 80


def _board(run: RunDir) -> None:
    from board_service.server import serve
    from board_service.settings import BoardSettings

    info = run.info()
    host, port = _address(info.urls.board)
    speed = info.spec.clock.speed
    serve(
        BoardSettings(
            db=run.board_url,
            host=host,
            port=port,
            admin_token=SecretStr(run.secrets().board_admin),
            claim_seconds=info.spec.board.claim_ttl / speed,
        )
    )


def _forge(run: RunDir) -> None:
    from agensh.embedded.forge.server import serve
    from agensh.embedded.forge.settings import ForgeSettings

    admin = run.secrets().forge_admin
    # With many open pull requests on one branch, only those that are looked at are checked again after a merge.
    settings = ForgeSettings(delay_check_for_inactive_days=0)
    serve(run.forge, *_address(run.info().urls.forge), (admin.name, admin.password), settings)


def _chat(run: RunDir) -> None:
    from agensh.embedded.chat.server import serve

    admin = run.secrets().chat_admin
    serve(run.chat, *_address(run.info().urls.chat), (admin.name, admin.password))


def _gateway(run: RunDir) -> None:
    from agensh.gateway.credential import read_credential
    from agensh.gateway.server import serve

    info = run.info()
    section = info.spec.gateway
    if section is None:
        raise AgenshError("gateway: the spec of this run has no [gateway] section.")
    host, port = _address(info.urls.gateway)
    admin = run.secrets().gateway_admin
    serve(section, read_credential(section), admin, run.gateway_url, host, port, run_id=info.run_id)


def _model(run: RunDir) -> None:
    from agensh.embedded.model.server import serve

    info = run.info()
    if info.playbook is None:
        raise AgenshError("model: this run has no playbook for the scripted model.")
    serve(info.playbook, run.model, *_address(info.urls.model))


def _baseline(run: RunDir) -> None:
    from adapters.registry import adapter_class
    from router.baseline import run_baseline

    info = run.info()
    asyncio.run(run_baseline(run, adapter_factory=adapter_class, runtime=_runtime(run, info), clock=SystemClock()))


def _node(run: RunDir, name: str) -> None:
    import uvloop

    from adapters.registry import adapter_class
    from router.backends import ServiceBackends
    from router.node import run_node

    clock = SystemClock()

    async def host() -> None:
        info = run.info()
        if info.containers is not None and await _is_over(run, info, clock):
            return
        place = info.place(name)
        backends = ServiceBackends(info, run.secrets(), clock, workers=place.count)
        await run_node(
            run,
            adapter_factory=adapter_class,
            runtime=_runtime(run, info),
            clock=clock,
            backends=backends,
            place=place,
            own_process=True,
            bind=os.environ.get(BIND, ""),
        )
        if info.containers is not None:
            from agensh.launch.compose.ending import finish

            await finish(run, info)

    # A node host is one loop with a thousand connections, most of whose work is reading and writing them.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(host())


async def _is_over(run: RunDir, info: RunInfo, clock: Clock) -> bool:
    """Say whether a run in containers has ended, or must end now because the box was rebooted."""
    from agensh.launch.compose.ending import abort
    from agensh.launch.compose.project import ENDED
    from agensh.launch.compose.reboot import boot_id, must_abort

    if (run.path / ENDED).exists():
        return True
    return must_abort(run, info, boot_id()) and await abort(run, info, clock.time())


def _runtime(run: RunDir, info: RunInfo) -> Runtime:
    if info.containers is None:
        from adapters.runtime import LocalRuntime

        return LocalRuntime()
    from adapters.container_runtime import ContainerRuntime
    from agensh.launch.compose.plan import container_plan

    return ContainerRuntime(container_plan(run, info))


def _provision(run: RunDir) -> None:
    from agensh.launch.compose.ending import provision_run

    asyncio.run(provision_run(run))


def _collect(run: RunDir) -> None:
    from agensh.launch.compose.ending import collect

    asyncio.run(collect(run, run.info()))


def _status(run: RunDir) -> None:
    from agensh.launch.health import ask_nodes

    sys.stdout.write(json.dumps(asyncio.run(ask_nodes(run, run.info()))) + "\n")


def _unpark(run: RunDir) -> None:
    from agensh.launch.compose.ending import unpark

    sys.stdout.write(json.dumps(asyncio.run(unpark(run, run.info()))) + "\n")


def _provider(run: RunDir) -> None:
    from agensh.launch.compose.provider import ask_provider

    sys.stdout.write(json.dumps(asyncio.run(ask_provider(run, run.info()))) + "\n")


_SERVICES: dict[str, Callable[[RunDir], None]] = {
    "board": _board,
    "forge": _forge,
    "chat": _chat,
    "gateway": _gateway,
    "model": _model,
    "baseline": _baseline,
    "provision": _provision,
    "collect": _collect,
    "status": _status,
    "unpark": _unpark,
    "provider": _provider,
}


def main(arguments: list[str]) -> int:
    """Run one service until SIGTERM or its own end; return the exit code."""
    name, folder, parent = arguments
    # The node host must outlive a signal long enough to put its workers away, hence SIGTERM and not SIGKILL.
    if int(parent):
        end_with_parent(int(parent), signal.SIGTERM)
    set_up_logging()
    try:
        run = RunDir(Path(folder))
        if name in _SERVICES:
            _SERVICES[name](run)
        else:
            _node(run, name)
    except AgenshError as error:
        sys.stderr.write(f"agensh {name}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
