"""Smart HTTP: clone, fetch and push through `git http-backend`, streamed both ways.

The ref updates of a push stand at the start of its body. They are read on the way through, judged by the protection
rules, and the verdict is handed to the repository's pre-receive hook, which declines as Gitea's does. After the push
the rows are brought to what the refs are before the client hears of the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from agensh.embedded.forge import scopes
from agensh.embedded.forge.errors import ApiError
from agensh.embedded.forge.objects import ZERO, keep_folders
from agensh.embedded.forge.shapes import Shapes
from agensh.embedded.forge.state import forge_of
from agensh.embedded.forge.store import protections, repos
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import branches_moved

if TYPE_CHECKING:
    from agensh.embedded.forge.state import Forge

router = APIRouter(include_in_schema=False)

log = logging.getLogger(__name__)

CHUNK = 65536
MAX_COMMANDS = 4 * 1024 * 1024  # bytes of ref updates in one push
HEADERS_TIMEOUT = 120.0  # seconds until git has answered with its headers
HOOK = """#!/bin/sh
# Declines what the forge found the pusher may not do; see agensh/embedded/forge/http_backend.py.
if [ -n "$AGENSH_DECLINED" ]; then
	printf '\\n%s\\n' "$AGENSH_DECLINED" >&2
	exit 1
fi
while read -r old new ref; do
	case "$old$new" in *0000000000000000000000000000000000000000*) continue ;; esac
	case "
$AGENSH_NO_FORCE
" in *"
$ref
"*) ;; *) continue ;; esac
	if ! git merge-base --is-ancestor "$old" "$new"; then
		printf '\\nGitea: branch %s is protected from force push\\n' "${ref#refs/heads/}" >&2
		exit 1
	fi
done
"""


def prepare(path: Path) -> None:
    """Put into a repository what the forge needs there: the hook, and folders of objects that stay (blocking)."""
    keep_folders(path)
    hook = path / "hooks" / "pre-receive"
    if hook.exists() and hook.read_text() == HOOK:
        return
    hook.parent.mkdir(exist_ok=True)
    temporary = hook.with_suffix(".new")
    temporary.write_text(HOOK)
    temporary.chmod(0o755)
    temporary.replace(hook)


@dataclass(slots=True)
class Commands:
    """The ref updates at the head of a push."""

    updates: list[tuple[str, str, str]] = field(default_factory=list)
    """(old, new, ref)"""
    raw: bytes = b""
    """The bytes read so far; git must get them too."""


async def read_commands(body: AsyncIterator[bytes]) -> Commands:
    """Read the pkt-lines up to the flush; 400 when they are not what a push sends."""
    found = Commands()
    at = 0
    async for chunk in body:
        found.raw += chunk
        while len(found.raw) >= at + 4:
            try:
                size = int(found.raw[at : at + 4], 16)
            except ValueError as error:
                raise ApiError(400, "the body is not a push of git") from error
            if size == 0:
                return found
            if size < 4:
                raise ApiError(400, "the body is not a push of git")
            if len(found.raw) < at + size:
                break
            line = found.raw[at + 4 : at + size].split(b"\0")[0].decode(errors="replace").strip()
            at += size
            parts = line.split(" ", 2)
            if len(parts) == 3 and parts[0] not in {"shallow", "push-cert"}:
                found.updates.append((parts[0], parts[1], parts[2]))
        if len(found.raw) > MAX_COMMANDS and at < len(found.raw) - CHUNK * 16:
            raise ApiError(413, f"a push may update refs of {MAX_COMMANDS} bytes at once")
    return found


async def _inflate(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    async for chunk in body:
        rest = chunk
        while rest:
            try:
                data = unpack.decompress(rest, CHUNK)
            except zlib.error as error:
                raise ApiError(400, "the body is not gzip, which its header says") from error
            if data:
                yield data
            rest = unpack.unconsumed_tail


def judge(tx: Tx, user: Row, repo: Row, updates: list[tuple[str, str, str]]) -> tuple[str, list[str]]:
    """Return why the push is declined (empty: it is not), and the refs that must not be rewritten."""
    rules = protections.rules(tx, repo["id"])
    no_force = []
    for _, new, ref in updates:
        if not ref.startswith("refs/heads/"):
            continue
        branch = ref.removeprefix("refs/heads/")
        if new == ZERO and branch == repo["default_branch"]:
            return f"Gitea: branch {branch} is the default branch and cannot be deleted", []
        rule = protections.match(rules, branch)
        if rule is None:
            continue
        if new == ZERO:
            return f"Gitea: branch {branch} is protected from deletion", []
        if not rule.may_push(user):
            return f"Gitea: Not allowed to push to protected branch {branch}", []
        if not rule.may_force_push(user):
            no_force.append(ref)
    return "", no_force


@router.api_route("/{owner}/{name}/info/refs", methods=["GET"])
@router.api_route("/{owner}/{name}/git-upload-pack", methods=["POST"])
@router.api_route("/{owner}/{name}/git-receive-pack", methods=["POST"])
async def smart_http(request: Request, owner: str, name: str) -> Response:
    """Serve one request of a git client."""
    forge = forge_of(request)
    caller = await forge.auth.git(request)
    if caller is None:
        return Response("Unauthorized\n", 401, {"WWW-Authenticate": 'Basic realm="Gitea"'}, "text/plain")
    service = request.url.path.rsplit("/", 1)[1]
    if service == "refs":
        service = request.query_params.get("service", "")
    if service not in {"git-upload-pack", "git-receive-pack"}:
        return Response("Only the smart HTTP protocol is served\n", 403, media_type="text/plain")
    pushing = service == "git-receive-pack"
    user, need = caller.user, Mode.WRITE if pushing else Mode.READ
    if caller.token is not None:
        scopes.require(caller.token, ["repository"], write=pushing)

    def find(tx: Tx) -> tuple[Row, Path]:
        row = repos.require(tx, user, owner, name.removesuffix(".git"), need)
        return row, Shapes(tx, "", forge.data, user).path(row["id"])

    repo, path = await forge.db.read(find)
    body = _without_stalls(request.stream(), forge.settings.transfer_idle)
    if request.headers.get("content-encoding") == "gzip":
        body = _inflate(body)
    commands = Commands()
    env = {"AGENSH_DECLINED": "", "AGENSH_NO_FORCE": ""}
    if pushing and request.method == "POST":
        try:
            commands = await read_commands(body)
        except ClientDisconnect as error:
            raise ApiError(400, "the push ended before its list of refs did") from error
        declined, no_force = await forge.db.read(lambda tx: judge(tx, user, repo, commands.updates))
        env = {"AGENSH_DECLINED": declined, "AGENSH_NO_FORCE": "\n".join(no_force)}
        forge.git.leftovers.suspect(path, [ref for _, _, ref in commands.updates])
    session = Session(forge, request, path, env)
    branches = {ref.removeprefix("refs/heads/") for _, _, ref in commands.updates if ref.startswith("refs/heads/")}
    return await session.answer(body, commands.raw, _Push(forge, repo, path, branches, user))


@dataclass(slots=True)
class _Push:
    forge: Forge
    repo: Row
    path: Path
    branches: set[str]
    user: Row

    async def finish(self) -> None:
        if self.branches:
            await branches_moved(self.forge, self.repo, self.path, self.branches, self.user)


class Session:
    """One run of git-http-backend."""

    def __init__(self, forge: Forge, request: Request, path: Path, env: dict[str, str]) -> None:
        headers = request.headers
        # The repository is found by its rows; git gets the path as it is on disk, whatever case the client wrote.
        inner = "/" + request.url.path.split("/", 3)[3]
        self._forge = forge
        self._path = path
        self._writes = inner.endswith("/git-receive-pack")
        self._process: asyncio.subprocess.Process | None = None
        self._env = {
            **forge.git.env,
            **env,
            "GIT_PROJECT_ROOT": str(path.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{path.name}{inner}",
            "QUERY_STRING": request.url.query,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "REMOTE_USER": "git",
            "REMOTE_ADDR": request.client.host if request.client else "",
            "GIT_PROTOCOL": headers.get("git-protocol", ""),
        }

    async def answer(self, body: AsyncIterator[bytes], head: bytes, push: _Push) -> Response:
        """Start git, wait for its headers and return the response that streams the rest."""
        stack = AsyncExitStack()
        try:
            await stack.enter_async_context(self._forge.git_slots)
            if self._writes:
                stack.push_async_callback(self._look)
                stack.enter_context(self._forge.git.leftovers.working(self._path))
            self._process = process = await asyncio.create_subprocess_exec(
                self._forge.git.backend,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                limit=CHUNK,
                start_new_session=True,
            )
            feeder = asyncio.create_task(_feed(process, body, head))
            stack.push_async_callback(_end, process, feeder)
            assert process.stdout is not None
            async with asyncio.timeout(HEADERS_TIMEOUT):
                raw = await process.stdout.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
            await stack.aclose()
            raise ApiError(500, "git did not answer the request") from error
        except BaseException:
            await stack.aclose()
            raise
        status, headers = 200, {}
        for line in raw.decode("latin-1").split("\r\n"):
            key, _, value = line.partition(": ")
            if key == "Status":
                status = int(value.split(" ")[0])
            elif key:
                headers[key] = value
        idle = self._forge.settings.transfer_idle
        return GitResponse(process, feeder, Ending(stack, push), status, headers, idle)

    async def _look(self) -> None:
        # The backend fails as well when the git that it started was killed.
        if self._process is not None and self._process.returncode != 0:
            self._forge.git.leftovers.suspect(self._path)


class Ending:
    """What follows a run of git, once, whoever asks first: the process ends, the rows are brought to the refs."""

    def __init__(self, stack: AsyncExitStack, push: _Push) -> None:
        self._stack = stack
        self._push = push
        self._task: asyncio.Task[None] | None = None

    async def reach(self) -> None:
        """Do it, also when the caller is cancelled meanwhile."""
        if self._task is None:
            self._task = self._push.forge.tasks.spawn(self._finish())
        await asyncio.shield(self._task)

    async def _finish(self) -> None:
        await self._stack.aclose()
        await self._push.finish()


class GitResponse(StreamingResponse):
    """Streams what git says."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        feeder: asyncio.Task[None],
        ending: Ending,
        status: int,
        headers: dict[str, str],
        idle: float,
    ) -> None:
        super().__init__(self._chunks(process), status, headers)
        self._feeder = feeder
        self._ending = ending
        self._idle = idle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def after_the_body() -> Message:
            # git answers before it has the whole body: who waits for a disconnect must not take pieces of it.
            await asyncio.wait([self._feeder])
            return await receive()

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._idle):
                await send(message)

        try:
            await super().__call__(scope, after_the_body, send_in_time)
        except TimeoutError:
            # The server closes a connection whose answer is not complete.
            log.info("a client takes no more of what git says", extra={"path": scope["path"]})
        finally:
            # A client that went away may have pushed all the same: the rows follow in any case.
            await self._ending.reach()

    async def _chunks(self, process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
        assert process.stdout is not None
        held = b""
        # The last bytes wait until the rows agree: a client that knows its push is done finds it done in the API.
        while chunk := await process.stdout.read(CHUNK):
            if held:
                yield held
            held = chunk
        await process.wait()
        await self._ending.reach()
        if held:
            yield held


async def _without_stalls(pieces: AsyncIterator[bytes], idle: float) -> AsyncIterator[bytes]:
    """Pass on what a client sends; ClientDisconnect when nothing came for `idle` seconds, as from one that is gone."""
    while True:
        try:
            async with asyncio.timeout(idle):
                piece = await anext(pieces, None)
        except TimeoutError as error:
            raise ClientDisconnect from error
        if piece is None:
            return
        yield piece


async def _feed(process: asyncio.subprocess.Process, body: AsyncIterator[bytes], head: bytes) -> None:
    assert process.stdin is not None
    try:
        # git may end before it has read everything, and the client may go before it has sent everything.
        with suppress(BrokenPipeError, ConnectionResetError, ClientDisconnect):
            if head:
                process.stdin.write(head)
                await process.stdin.drain()
            async for chunk in body:
                process.stdin.write(chunk)
                await process.stdin.drain()
    finally:
        process.stdin.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.wait_closed()


async def _end(process: asyncio.subprocess.Process, feeder: asyncio.Task[None]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout is not None
    # What nobody read keeps the pipe open.
    while await process.stdout.read(CHUNK):
        pass
    await process.wait()
    feeder.cancel()
    await asyncio.gather(feeder, return_exceptions=True)
