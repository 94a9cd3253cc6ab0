"""Runs a baseline on this machine: one worker, a bare repository on disk, and the gateway where the spec has one.

Order, record, grades and report are those of a local run, so that a team can be compared with it.
"""

from __future__ import annotations

import asyncio

from agensh.clients.http import new_http_client
from agensh.launch.children import Child, last_words, stop_all
from agensh.launch.local import LocalRun
from agensh.provision.forge import issue_title
from agensh.provision.gateway import provision_gateway
from agensh.provision.job import Job
from agensh.provision.seed import push_main
from agensh.rundir import RunInfo, WorkerSecrets
from agensh.runs.alone import remove_stale_locks
from agensh.runs.collect import git, main_history
from agensh.runs.record import load_record

_NOTHING = WorkerSecrets(
    forge_password="", forge_token="", chat_token="", chat_user_id="", board_token="", mcp_token=""
)


class BaselineRun(LocalRun):
    """One run of a single worker on this machine."""

    def _team_services(self, info: RunInfo) -> list[Child]:
        return []

    async def _provision(self, info: RunInfo) -> None:
        await self._seed(info)
        secrets = self.run.secrets()
        for name in info.spec.worker_names:
            secrets.workers.setdefault(name, _NOTHING.model_copy())
        self.run.write_secrets(secrets)
        if info.spec.gateway is not None:
            async with new_http_client() as http:
                await provision_gateway(Job(self.run, info, secrets, self.watcher.say, 1, http))

    async def _seed(self, info: RunInfo) -> None:
        place = self.run.workspace
        if place.exists() and await main_history(place):
            return
        await git("init", "--quiet", "--bare", "--initial-branch=main", str(place))
        await asyncio.to_thread(remove_stale_locks, place)
        goal = info.spec.task.goal
        title = issue_title(await asyncio.to_thread(goal.read_text, encoding="utf-8"), goal)
        await push_main(info.spec.task.repository, str(place), readme=f"# {title}\n", at=info.created_at)
        self.watcher.say(f"the task's files are on main of {place}")

    async def _node(self, info: RunInfo) -> None:
        worker = self._child("baseline", "", info)
        await worker.start()
        self.watcher.say(f"one worker starts, {info.spec.worker.harness}, alone; record: {self.run.path}")
        try:
            await worker.wait()
        finally:
            await asyncio.shield(stop_all([worker]))

    async def _why_interrupted(self) -> str:
        parked = [row["parked_reason"] for row in (await load_record(self.run)).sessions if row["parked_reason"]]
        log = self.run.logs / "baseline.jsonl"
        what = f"The worker cannot go on: {parked[0]}" if parked else f"The worker's process died: {last_words(log)}"
        return f"{what} (log: {log}). Nothing is lost; go on with: agensh resume {self.run.path}"
