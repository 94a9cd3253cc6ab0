"""Runs a rehearsal: the services and node hosts of a real run, and load generators where the CLIs would be."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import inspect
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from agensh.clock import Clock
from agensh.db import open_engine
from agensh.errors import AgenshError, UsageError
from agensh.launch.children import Child, start_all, stop_all
from agensh.launch.create import create_run
from agensh.launch.health import ask_nodes
from agensh.launch.ports import HOST, free_ports
from agensh.provision.all import provision
from agensh.rehearse.figures import Figures
from agensh.rehearse.mariadb import private_mariadb
from agensh.rehearse.plan import CLOSING_RATE, Plan, Rates
from agensh.rehearse.processes import cpu_seconds, resident_mb
from agensh.rehearse.results import Ends, evaluate
from agensh.rundir import NodePlace, RunDir, RunInfo
from agensh.spec import TeamSpec, parse_spec

TEAM = "rehearsal"
DATABASES = ("agensh_board", "agensh_runtime")
WORKERS_A_HOST = 64
HOSTS_A_CORE = 1
LEAD = 3.0  # seconds between the start of the generators and the first call
CLOSING_ROOM = 180.0  # seconds the closing calls may take before the generators are ended
AGAIN = 3  # times that the workers look again when something is missing
AGAIN_AFTER = 20.0  # seconds before each of them
READY_SECONDS = 600.0
BUDGET_ROOM = 4 * 3600.0  # seconds; the run's own deadline must not end the rehearsal


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose."""

    workers: int = 8
    seconds: float = 180.0
    hosts: int | None = None
    generators: int | None = None
    rates: Rates = field(default_factory=Rates)
    spacing: str = "exponential"
    contacts: int = 8
    turn: float = 60.0
    """Mean length of a turn in seconds; 0: one turn for the whole rehearsal."""
    seed: int = 1
    db: str = ""
    """URL of two databases' server, with `{name}` where the name of the database goes; empty: a private MariaDB."""
    sqlite: bool = False

    def host_count(self, cores: int) -> int:
        """Return how many node hosts share the workers.

        One for 64 workers, as a machine of a team has, but no more than the machine has cores: a node host is one
        event loop, so a second one on a core adds a process (and a board stream) and no processor time.
        """
        if self.hosts is not None:
            return min(self.hosts, self.workers)
        return max(1, min(math.ceil(self.workers / WORKERS_A_HOST), HOSTS_A_CORE * cores))


class Rehearsal:
    """One rehearsal in the folder `root`; `run` returns its figures."""

    def __init__(self, options: Options, root: Path, say: Callable[[str], None], clock: Clock) -> None:
        self._options = options
        self._root = root
        self._say = say
        self._clock = clock
        self._pids: dict[str, int] = {}

    async def run(self) -> Figures:
        """Rehearse. AgenshError when a part does not start or ends early."""
        options, clock = self._options, self._clock
        async with AsyncExitStack() as stack:
            database = await self._database(stack)
            run = await asyncio.to_thread(self._create, database)
            info = run.info()
            services = [
                Child("board", run, f"{info.urls.board}/healthz", clock),
                Child("forge", run, f"{info.urls.forge}/api/healthz", clock),
                Child("chat", run, f"{info.urls.chat}/api/v4/system/ping", clock),
            ]
            await stack.enter_async_context(self._running(services))
            began = clock.monotonic()
            secrets = await provision(run, info, run.secrets(), progress=self._say)
            run.write_secrets(secrets)
            provisioned = clock.monotonic() - began
            self._say(f"provisioned in {provisioned:.1f} s")
            empty_mb = await self._empty_host(run, info)
            hosts = [Child(place.name, run, f"{place.url}/healthz", clock) for place in info.places]
            await stack.enter_async_context(self._running(hosts))
            await self._all_busy(run, info)
            plan = Plan(
                workers=options.workers,
                seconds=options.seconds,
                begin=clock.time() + LEAD,
                generators=options.generators or min(os.cpu_count() or 1, math.ceil(options.workers / 64)),
                rates=options.rates,
                spacing="uniform" if options.spacing == "uniform" else "exponential",
                contacts=options.contacts,
                seed=options.seed,
            )
            plan.write(run.path)
            ends = await self._load(run, info, plan, hosts)
            figures = await self._evaluate(run, info, plan, ends, database, provisioned, empty_mb)
            missing = figures.lost
            for again in range(1, AGAIN + 1):
                if not figures.lost:
                    break
                # What is not lost arrives in the end; how much that is says how far the team was behind.
                self._say(f"{figures.lost} are not seen yet; the workers look again in {AGAIN_AFTER:g} s")
                await clock.sleep(AGAIN_AFTER)
                await self._look_again(run, plan, again)
                ends = replace(ends, looks=again + 1)
                figures = await self._evaluate(run, info, plan, ends, database, provisioned, empty_mb)
            return replace(figures, under_way=max(0, missing - figures.lost))

    async def _evaluate(
        self,
        run: RunDir,
        info: RunInfo,
        plan: Plan,
        ends: Ends,
        database: _Database,
        provisioned: float,
        empty_mb: float,
    ) -> Figures:
        self._say("counting")
        return await evaluate(run, info, plan, ends, database=database.kind, provision_s=provisioned, empty_mb=empty_mb)

    async def _look_again(self, run: RunDir, plan: Plan, again: int) -> None:
        async with AsyncExitStack() as stack:
            generators = [
                await stack.enter_async_context(_generator(run, number, again)) for number in range(plan.generators)
            ]
            await self._ended(run, generators, plan.workers / CLOSING_RATE)

    async def _ended(self, run: RunDir, generators: list[asyncio.subprocess.Process], seconds: float) -> None:
        """Wait for load generators whose plan takes so many seconds more; AgenshError when one fails."""
        try:
            async with asyncio.timeout(seconds + CLOSING_ROOM):
                codes = [await process.wait() for process in generators]
        except TimeoutError as error:
            raise AgenshError(f"A load generator did not end within {CLOSING_ROOM:g} s of its plan.") from error
        if any(codes):
            raise AgenshError(f"A load generator failed; its last words are below {run.logs}.")

    async def _database(self, stack: AsyncExitStack) -> _Database:
        options = self._options
        if options.sqlite:
            return _Database("sqlite", "", "")
        if options.db:
            if "{name}" not in options.db:
                raise AgenshError(
                    "--db: put {name} where the name of the database goes, e.g. "
                    "mysql+aiomysql://user:password@host/{name}; agensh_board and agensh_runtime must be there, empty."
                )
            given = _Database("given", *(options.db.format(name=name) for name in DATABASES))
            for url in (given.board, given.runtime):
                await _check_empty(url)
            return given
        self._say("starting a private MariaDB")
        server = await stack.enter_async_context(private_mariadb(self._clock, DATABASES))
        self._pids["mariadb"] = server.pid
        return _Database("mariadb", *map(server.url, DATABASES))

    def _create(self, database: _Database) -> RunDir:
        goal = self._root / "goal.md"
        goal.write_text("# A rehearsal\n\nNothing is built here; the team's coordination is measured.\n", "utf-8")
        hosts = self._options.host_count(os.cpu_count() or 1)
        run = create_run(self._spec(goal), self._root, self._clock, hosts=hosts)
        secrets = run.secrets()
        secrets.board_db, secrets.runtime_db = database.board, database.runtime
        run.write_secrets(secrets)
        return run

    def _spec(self, goal: Path) -> TeamSpec:
        options = self._options
        return parse_spec(
            {
                "team": {"name": TEAM, "workers": options.workers},
                "task": {"kind": "repo", "goal": str(goal), "acceptance": "true"},
                "worker": {"harness": "rehearsal", "options": {"turn": f"{options.turn:g}", "seed": str(options.seed)}},
                "clock": {"budget": options.seconds + BUDGET_ROOM, "stagger": 0, "stagger_after_ramp": 0},
            },
            source="rehearsal",
        )

    @asynccontextmanager
    async def _running(self, children: list[Child]) -> AsyncIterator[None]:
        await start_all(children, self._say)
        self._pids.update((child.name, child.pid) for child in children if child.pid is not None)
        try:
            yield
        finally:
            await asyncio.shield(stop_all(children))

    async def _empty_host(self, run: RunDir, info: RunInfo) -> float:
        """Return the memory in MB of a node host that runs no worker: what the others are compared with."""
        [port] = free_ports(1)
        place = NodePlace(name="node-empty", url=f"http://{HOST}:{port}", first=0, count=0)
        run.write_info(info.model_copy(update={"nodes": (*info.places, place)}))
        try:
            child = Child(place.name, run, f"{place.url}/healthz", self._clock)
            await start_all([child], self._say)
            assert child.pid is not None, "it has just answered"
            size = resident_mb(child.pid)
            await child.stop()
        finally:
            run.write_info(info)
        return size

    async def _all_busy(self, run: RunDir, info: RunInfo) -> None:
        """Wait until every worker has its first turn and its listeners have had their first connection."""
        deadline = self._clock.monotonic() + READY_SECONDS
        while True:
            answers = await ask_nodes(run, info, timeout=60.0)
            busy = sum(worker["turns"] > 0 for answer in answers for worker in answer["workers"])
            live = sum(worker["live"] for answer in answers for worker in answer["workers"])
            self._say(f"workers: {busy} at work, {live} listening, of {self._options.workers}")
            if busy == live == self._options.workers:
                return
            if self._clock.monotonic() > deadline:
                raise AgenshError(
                    f"{self._options.workers - min(busy, live)} workers did not begin within {READY_SECONDS:g} s."
                )
            await self._clock.sleep(2.0)

    async def _load(self, run: RunDir, info: RunInfo, plan: Plan, hosts: list[Child]) -> Ends:
        clock = self._clock
        async with AsyncExitStack() as stack:
            generators = [await stack.enter_async_context(_generator(run, number)) for number in range(plan.generators)]
            pids = self._pids | {f"load-{number}": process.pid for number, process in enumerate(generators)}
            await clock.sleep(plan.begin - clock.time())
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            self._say(f"{plan.workers} workers call for {plan.seconds:g} s")
            await clock.sleep(plan.end - clock.time())
            cpu = {name: round(cpu_seconds(pid) - before[name], 2) for name, pid in pids.items()}
            answers = await ask_nodes(run, info, timeout=60.0)
            memory = [resident_mb(child.pid) for child in hosts if child.pid is not None]
            if len(memory) < len(hosts):
                raise AgenshError(f"A node host ended during the rehearsal; its log is below {run.logs}.")
            self._say("closing calls")
            await self._ended(run, generators, plan.closing_at(plan.workers) - plan.end)
        return Ends(
            feed_heads=[int(answer["feed"]["head"]) for answer in answers],
            post_heads=[int(answer["posts"]["head"]) for answer in answers],
            unwritten=sum(int(answer["unwritten"]) for answer in answers),
            cpu=cpu,
            hosts_mb=memory,
        )


@dataclass(frozen=True, slots=True)
class _Database:
    kind: str
    board: str
    runtime: str


async def _check_empty(url: str) -> None:
    """AgenshError when a database cannot be used or holds something: a rehearsal of its own would be wrong there."""
    try:
        engine = open_engine(url, pool_size=1)
    except (ArgumentError, UsageError) as error:
        raise AgenshError(f"--db: {error}") from error
    shown = engine.url.render_as_string(hide_password=True)
    try:
        async with engine.connect() as connection:
            tables = await connection.run_sync(lambda plain: inspect(plain).get_table_names())
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error)
        raise AgenshError(f"--db: {shown} cannot be used: {reason}") from error
    finally:
        await engine.dispose()
    if tables:
        raise AgenshError(f"--db: {shown} is not empty (it has {', '.join(sorted(tables)[:3])}, ...); give it anew.")


@asynccontextmanager
async def _generator(run: RunDir, number: int, again: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    with (run.logs / f"load-{number}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agensh.rehearse.load",
            str(run.path),
            str(number),
            str(os.getpid()),
            str(again),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.shield(process.wait())
