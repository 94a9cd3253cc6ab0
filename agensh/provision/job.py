"""What the steps of provisioning share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from agensh.clients.http import backoff, unsure
from agensh.errors import AgenshError, ServiceError
from agensh.identity import new_password, new_token
from agensh.rundir import RunDir, RunInfo, RunSecrets, WorkerSecrets

GROUP = 32  # workers between two saves of the secrets
ATTEMPTS = 4  # of a step whose answer gets lost


@dataclass(slots=True)
class Job:
    """One run to be provisioned."""

    run: RunDir
    info: RunInfo
    secrets: RunSecrets
    progress: Callable[[str], None]
    concurrency: int
    http: httpx.AsyncClient

    @property
    def workers(self) -> list[str]:
        """The full handles."""
        return self.info.spec.worker_names

    @property
    def label(self) -> str:
        """Name of this run's tokens on the services: another run of the same team has its own."""
        return f"agensh-{self.info.run_id}"

    async def save(self) -> None:
        """Write the secrets back: what a service shows once must not be lost with this process."""
        await asyncio.to_thread(self.run.write_secrets, self.secrets)

    async def prepare(self) -> None:
        """Choose and save what does not come from a service, so that a later attempt uses the same passwords."""
        for name in self.workers:
            if name not in self.secrets.workers:
                self.secrets.workers[name] = WorkerSecrets(
                    forge_password=new_password(),
                    forge_token="",
                    chat_token="",
                    chat_user_id="",
                    board_token="",
                    mcp_token=new_token("agm"),
                )
        await self.save()

    async def each(self, what: str, names: Sequence[str], do: Callable[[str], Awaitable[None]]) -> None:
        """Call `do` for every name, some at a time; save after each group; one line of progress a group.

        `do` looks before it makes anything, so it is repeated when an answer was lost.
        """

        async def surely(name: str) -> None:
            await repeated(lambda: do(name))

        for start in range(0, len(names), GROUP):
            group = names[start : start + GROUP]
            try:
                await together(group, surely, self.concurrency)
            finally:
                await self.save()
            self.progress(f"{what}: {start + len(group)} of {len(names)}")


async def repeated(step: Callable[[], Awaitable[None]]) -> None:
    """Run a step, and again when something may have been made whose answer was lost; the step looks for it.

    What a client has repeated by itself already is not repeated here.
    """
    for attempt in range(ATTEMPTS):
        try:
            await step()
        except ServiceError as error:
            if not unsure(error) or error.retryable or attempt + 1 == ATTEMPTS:
                raise
        else:
            return
        await asyncio.sleep(backoff(attempt))


async def together(names: Sequence[str], do: Callable[[str], Awaitable[None]], concurrency: int) -> None:
    """Call `do` for every name, at most `concurrency` at a time; the first failure ends the others and is raised."""
    gate = asyncio.Semaphore(max(1, concurrency))
    failures: list[Exception] = []

    async def one(name: str) -> None:
        async with gate:
            await do(name)

    try:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))
    except* (AgenshError, OSError, LookupError, ValueError) as errors:
        failures.append(_first(errors))
    if failures:
        raise failures[0]


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
