"""Runs a team on this machine: services, provisioning, the node host, and what follows its end.

Every step may be repeated: `execute` on a run folder that was left at any point goes on from there, on the same clock.
The launcher decides nothing for the workers; once the node host is up it only watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from agensh.clock import Clock, SystemClock
from agensh.errors import AgenshError
from agensh.identity import write_private_json
from agensh.launch.children import Child, start_all, stop_all
from agensh.launch.export import export_submission
from agensh.launch.health import Health, NodeSilent, ask_nodes, read_health
from agensh.launch.lock import hold_lock
from agensh.provision.all import provision
from agensh.rundir import RunDir, RunInfo
from agensh.runs import DEFAULT_CHECKPOINTS
from agensh.runs.checkpoints import Grader, prepare_cases
from agensh.runs.collect import Collector
from agensh.runs.record import load_record
from agensh.runs.report import Report, build_report

WATCH_EVERY = 1.0  # seconds between two looks at the node host's status


class RunInterrupted(AgenshError):
    """The node host ended before the run did."""


class Watcher(Protocol):
    """Who is told of the progress."""

    def say(self, message: str) -> None:
        """Take one finished or beginning step."""
        ...

    def health(self, health: Health) -> None:
        """Take the state of the team, about once a second."""
        ...

    def grading(self, done: int, total: int) -> None:
        """Take the progress of the grader."""
        ...


class LocalRun:
    """One run on this machine."""

    def __init__(self, run: RunDir, watcher: Watcher, *, clock: Clock | None = None) -> None:
        self.run = run
        self.watcher = watcher
        self.clock = clock or SystemClock()

    async def execute(self, *, checkpoints: int = DEFAULT_CHECKPOINTS) -> Report:
        """Run the team to its end and return the report.

        Cancelling ends everything in order and keeps the record. RunInterrupted when the node host died;
        ServiceFailed when a service did not come up; RunBusy when the run is running already.
        """
        with hold_lock(self.run):
            info = self.run.info()
            async with self._services(info):
                await self._prepare(info)
                try:
                    await self._node(info)
                except asyncio.CancelledError:
                    # What the services know is asked for while they still run.
                    try:
                        await self._collect(info)
                    except AgenshError as error:
                        self.watcher.say(f"the record could not be collected: {error}")
                    raise
                await self._collect(info)
            if (await load_record(self.run)).state != "finished":
                raise RunInterrupted(await self._why_interrupted())
            return await self._finish(info, checkpoints)

    @asynccontextmanager
    async def _services(self, info: RunInfo) -> AsyncIterator[None]:
        children = self._team_services(info)
        if info.spec.gateway is not None:
            children.append(self._child("gateway", f"{info.urls.gateway}/healthz", info))
        if info.urls.model:
            children.append(self._child("model", f"{info.urls.model}/healthz", info))
        if children:
            await start_all(children, self.watcher.say)
        try:
            yield
        finally:
            await asyncio.shield(stop_all(children))

    def _team_services(self, info: RunInfo) -> list[Child]:
        return [
            self._child("board", f"{info.urls.board}/healthz", info),
            self._child("forge", f"{info.urls.forge}/api/healthz", info),
            self._child("chat", f"{info.urls.chat}/api/v4/system/ping", info),
        ]

    def _child(self, name: str, health_url: str, info: RunInfo) -> Child:
        gateway = info.spec.gateway
        variable = gateway.api_key_env if gateway is not None else ""
        # Nobody but the gateway gets the provider's credential, not even as a variable that nobody reads.
        without = (variable,) if variable and name != "gateway" else ()
        return Child(name, self.run, health_url, self.clock, without=without)

    async def _prepare(self, info: RunInfo) -> None:
        say = self.watcher.say
        await self._provision(info)
        if info.spec.task.cases is not None:
            say("asking the reference for the answers to the hidden cases")
            count = await asyncio.to_thread(prepare_cases, self.run, info)
            say(f"{count} hidden cases answered")

    async def _provision(self, info: RunInfo) -> None:
        secrets = await provision(self.run, info, self.run.secrets(), progress=self.watcher.say)
        self.run.write_secrets(secrets)

    async def _node(self, info: RunInfo) -> None:
        """Run the node hosts to their end, which is the run's end unless one died or was stopped."""
        nodes = [self._child(place.name, f"{place.url}/healthz", info) for place in info.places]
        await start_all(nodes, self.watcher.say)
        self.watcher.say(f"{info.spec.team.workers} workers start, {info.spec.worker.harness}; record: {self.run.path}")
        watching = asyncio.create_task(self._watch(info))
        try:
            await asyncio.gather(*(node.wait() for node in nodes))
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await asyncio.shield(stop_all(nodes))

    async def _watch(self, info: RunInfo) -> None:
        while True:
            with suppress(NodeSilent):
                self.watcher.health(read_health(await ask_nodes(self.run, info), self.clock.time()))
            await self.clock.sleep(WATCH_EVERY)

    async def _why_interrupted(self) -> str:
        return (
            f"The node host of {self.run.run_id} died (log: {self.run.logs / 'node.jsonl'}). Nothing is lost; "
            f"go on with: agensh resume {self.run.path}"
        )

    async def _collect(self, info: RunInfo) -> None:
        self.watcher.say("collecting the record")
        await Collector(self.run, info, self.run.secrets()).collect()

    async def _finish(self, info: RunInfo, checkpoints: int) -> Report:
        submission = await export_submission(self.run, info)
        self.watcher.say(f"exported main to {submission}" if submission else "main is empty; nothing to export")
        if info.spec.task.cases is not None or info.spec.task.acceptance is not None:
            await Grader(self.run, info).grade_main(most=checkpoints, progress=self.watcher.grading)
        report = build_report(await load_record(self.run))
        write_report(self.run, report)
        return report


def write_report(run: RunDir, report: Report) -> None:
    """Keep the report beside the record."""
    write_private_json(run.path / "report.json", report.to_json())
