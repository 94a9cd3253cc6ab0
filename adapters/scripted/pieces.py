"""The three pieces of work: the core, an area, an audit. Each goes step by step and can be taken up at any step."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from adapters.scripted.choice import failure_text, heeded
from adapters.scripted.desk import Desk
from adapters.scripted.git import Clone
from adapters.scripted.landing import Lander, Landing, Verdict
from adapters.scripted.mcp_client import Tools
from adapters.scripted.playbook import Playbook
from adapters.scripted.reading import area_of
from adapters.scripted.session import Job, State
from adapters.scripted.work import Bench, Comparison
from agensh.cases import AnsweredCase, Case, dump_cases, parse_cases
from agensh.clock import Clock
from agensh.entries import EntryType
from agensh.errors import AgenshError

CASES = 4  # of a new tool in the team's tests: everybody runs all of them before every merge
CASES_CAP = 10  # of one tool
_CORE_POLLS = 8
_CORE_PAUSE = 0.5  # seconds between two looks at main while the core is in work; grows by as much with each
_CORE_LONGEST_PAUSE = 2.0  # seconds


class GivenUp(AgenshError):
    """The piece of work cannot be brought further by this worker."""


class Pieces:
    """Does the job in the worker's state."""

    def __init__(
        self,
        playbook: Playbook,
        state: State,
        tools: Tools,
        clone: Clone,
        bench: Bench,
        desk: Desk,
        clock: Clock,
    ) -> None:
        self.playbook = playbook
        self.state = state
        self.tools = tools
        self.clone = clone
        self.shell = clone.shell
        self.bench = bench
        self.desk = desk
        self.clock = clock
        sources, cases = (_pattern(path("TOOL")) for path in (playbook.source_path, playbook.cases_path))
        self.lander = Lander(
            clone,
            tools,
            playbook.dispatch_path,
            sources,
            cases,
            desk.react,
            clock,
            hurry=lambda: state.winding_down,
            over=lambda: state.last_call,
        )

    def title(self, tool: str) -> str:
        """Return what a tool's area is about."""
        if tool == "core":
            return self.playbook.core_title
        return next(area.title for area in self.playbook.areas if area.tool == tool)

    def registered(self, dispatch: str) -> list[str]:
        """Return the tools in the text of the registration file."""
        rows = set(dispatch.splitlines())
        return [area.tool for area in self.playbook.areas if self.playbook.dispatch_line(area.tool) in rows]

    @property
    def job(self) -> Job:
        assert self.state.job is not None
        return self.state.job

    async def perform(self) -> str:
        """Do the job up to its end; return what to say. GivenUp when it cannot be brought further."""
        job = self.job
        match job.kind:
            case "core":
                return await self._core()
            case "area":
                return await self._area()
            case _:
                return await self._audit()

    async def finish(self) -> str:
        """The run is about to end: land the job when it is ready, give it up otherwise."""
        if self.job.step in ("ready", "landed"):
            return await self.perform()
        return await self._give_up("the run ends and it is not ready")

    async def main_builds(self) -> bool:
        """Build main as it is now."""
        await self.clone.start("main")
        return (await self.shell.build(["sh", "compile.sh"], self.clone.path)).ok

    # core

    async def _core(self) -> str:
        job = self.job
        if job.step == "claimed":
            await self.clone.fetch()
            if await self.clone.show(self.playbook.dispatch_path) is not None:
                return await self._give_up("it is on main already")
            await self.clone.start(job.branch)
            await self.shell.write(self.clone.path, self.playbook.core_files())
            built = await self.shell.build(["sh", "compile.sh"], self.clone.path)
            if not built.ok:
                return await self._give_up(f"compile.sh fails: {built.output.strip()[-120:]}")
            await self.clone.commit(self.playbook.core_title)
            self._step("ready")
        landing = await self._land(self.playbook.core_title, "The frame every tool is registered in.")
        if landing.verdict is not Verdict.LANDED:
            return await self._give_up(landing.reason)
        await self._publish(landing, ",".join(sorted(self.playbook.core_files())), "build, dispatcher, team check")
        await self.desk.post(
            f"core/{job.claim}",
            f"The core is on main: register a tool with one line at the end of {self.playbook.dispatch_path}, "
            f"cases go to {self.playbook.cases_path('<tool>')}, check.py runs them all. Questions about it to me.",
        )
        return self._done("The core is on main.")

    # area

    async def _area(self) -> str:
        job = self.job
        if job.step == "claimed":
            await self._prepare()
        if job.step == "prepared":
            if not await self._core_there():
                return f"{job.tool} is ready to go in (revision {job.revision}); the core is not on main yet."
            await self.clone.start(job.branch)
            if await self._taken():
                return await self._give_up("it is on main already")
            await self._write_tool()
            await self._add_cases([AnsweredCase.from_json(case) for case in job.cases])
            await self.clone.commit(f"{job.tool}: {self.title(job.tool)}")
            self._step("ready")
        landing = await self._land(f"{job.tool}: {self.title(job.tool)}", job.evidence)
        if landing.verdict is not Verdict.LANDED:
            return await self._give_up(landing.reason)
        await self._publish(landing, self._files(), self.title(job.tool))
        return self._done(f"{job.tool} is on main{_number(job)}.")

    async def _prepare(self) -> None:
        """Build the tool beside the repository and compare it until ordinary use agrees."""
        job = self.job
        await self.clone.fetch()
        if await self.clone.show(self.playbook.dispatch_path) is not None:
            await self.clone.start(job.branch)
            place = self.clone.path
        else:
            # While the core is in work, the one that the playbook would build stands in for it.
            place = self.clone.path.with_name("scratch")
            await self.shell.remove(place)
            await self.shell.write(place, self.playbook.core_files())
        comparison = await self._improve(place, "basic")
        cases = await self.bench.answer((await self._probes("basic"))[:CASES])
        job.cases = [case.to_json() for case in cases]
        job.evidence = str(comparison)
        self._step("prepared")

    async def _improve(self, place: Path, level: str) -> Comparison:
        """Take revision after revision until the probes agree; publish what each one got wrong."""
        job = self.job
        probes = await self._probes(level)
        while True:
            await self.desk.react()
            job.revision = heeded(self.playbook, job.tool, job.revision, self.desk.failures)
            await self._write_tool(place)
            await self.shell.build(["sh", "compile.sh"], place)
            comparison = await self.bench.compare(place / "executable", probes, f"{job.tool}, {level} probes")
            if comparison.agrees or job.revision >= self.playbook.revisions(job.tool):
                return comparison
            await self._report(comparison)
            job.revision += 1
            self.desk.save()

    async def _report(self, comparison: Comparison) -> None:
        job = self.job
        first = comparison.differences[0]
        wrong = self.playbook.defects(job.tool, job.revision)
        text = failure_text(job.tool, wrong[0].summary if wrong else f"differs from the reference: {first.command}")
        detail = f"{comparison}\n" + "\n\n".join(found.describe() for found in comparison.differences[:5])
        await self.desk.write("FAIL", text, detail, key=f"fail/{job.claim}/{job.revision}")

    async def _core_there(self) -> bool:
        """Wait, for a bounded time, until the core is on main; ask its owner when it takes long."""
        for number in range(_CORE_POLLS):
            await self.clone.fetch()
            if await self.clone.show(self.playbook.dispatch_path) is not None:
                return True
            await self.tools.call("board_pending")
            await self.desk.react()
            if number == _CORE_POLLS // 2:
                await self._ask_for_core()
            await self.clock.sleep(min(_CORE_PAUSE * (number + 1), _CORE_LONGEST_PAUSE))
        return False

    async def _ask_for_core(self) -> None:
        owners = [line for line in await self.desk.claims() if area_of(line.content) == ("core", "core")]
        if owners:
            text = f"core: when will it be on main? {self.job.tool} is ready to go in. Can you say?"
            await self.desk.tell(owners[0].worker, f"core/{owners[0].label}", text)

    async def _taken(self) -> bool:
        dispatch = await self.clone.show(self.playbook.dispatch_path)
        return self.job.tool in self.registered(dispatch or "")

    # audit

    async def _audit(self) -> str:
        job = self.job
        if job.step == "claimed":
            found = await self._inspect()
            if found is not None:
                return found
        landing = await self._land(f"{job.tool}: what the audit found", job.evidence)
        if landing.verdict is not Verdict.LANDED:
            return await self._give_up(landing.reason)
        await self._publish(landing, self._files(), f"{job.tool} as the reference does it, revision {job.revision}")
        self.state.audited[job.tool] = 1
        return self._done(f"{job.tool}: the audit's fix is on main{_number(job)}.")

    async def _inspect(self) -> str | None:
        """Compare main with the reference on inputs nobody tried; return what to say when nothing is to be fixed."""
        job = self.job
        await self.clone.fetch()
        await self.clone.start(job.branch)
        text = await self.clone.show(self.playbook.source_path(job.tool))
        known = [
            n for n in range(1, self.playbook.revisions(job.tool) + 1) if self.playbook.source(job.tool, n) == text
        ]
        await self.shell.build(["sh", "compile.sh"], self.clone.path)
        probes = await self._probes("wide")
        program = self.clone.path / "executable"
        comparison = await self.bench.compare(program, probes, f"{job.tool}, wide probes")
        if comparison.agrees:
            await self.desk.write("FACT", f"audit {job.tool}: {comparison}", key=f"fact/{job.claim}")
            await self.desk.release(job.claim)
            self.state.audited[job.tool] = 1
            return self._done(f"The audit of {job.tool} found nothing.")
        job.revision = known[0] if known else 0
        first = comparison.differences[0]
        await self._tell_author(first.command)
        if not known or job.revision >= self.playbook.revisions(job.tool):
            await self._report(comparison)
            self.state.stuck[job.tool] = "differs from the reference, and I know nothing better"
            return await self._give_up(f"{first.command} differs and I know nothing better")
        await self._report(comparison)
        job.revision += 1
        job.cases = [difference.case.to_json() for difference in comparison.differences[:2]]
        final = await self._improve(self.clone.path, "wide")
        job.evidence = str(final)
        await self._add_cases([AnsweredCase.from_json(case) for case in job.cases])
        await self.clone.commit(f"{job.tool}: {first.command} as the reference does it")
        self._step("ready")
        return None

    async def _tell_author(self, command: str) -> None:
        """Tell who published the tool, when that worker has work of its own on it right now."""
        job = self.job
        published = [
            line
            for line in await self.desk.read()
            if line.type is EntryType.PATCH_SUMMARY and self.playbook.source_path(job.tool) in line.content
        ]
        if published and published[-1].worker != self.state.worker:
            job.author = published[-1].worker
            text = f"{job.tool}: main differs from the reference on `{command}`; I fix it ({job.claim})."
            await self.desk.tell(job.author, f"found/{job.claim}", text)

    # common steps

    def _step(self, step: str) -> None:
        self.job.step = step
        self.desk.save()

    async def _probes(self, level: str) -> list[Case]:
        # A program prints them, which takes a while; others may share this event loop.
        return await asyncio.to_thread(self.playbook.probes, self.job.tool, level, self.job.seed)

    def _files(self) -> str:
        return f"{self.playbook.source_path(self.job.tool)},{self.playbook.cases_path(self.job.tool)}"

    async def _write_tool(self, place: Path | None = None) -> None:
        place = place or self.clone.path
        job = self.job
        files = {self.playbook.source_path(job.tool): self.playbook.source(job.tool, job.revision)}
        dispatch = await self.shell.read(place / self.playbook.dispatch_path)
        files[self.playbook.dispatch_path] = self.playbook.register(dispatch or "", job.tool)
        await self.shell.write(place, files)

    async def _add_cases(self, cases: list[AnsweredCase]) -> None:
        """Add cases to the tool's file of the team's tests, numbered on, at most `CASES_CAP` in all."""
        path = self.playbook.cases_path(self.job.tool)
        text = await self.shell.read(self.clone.path / path)
        old = parse_cases(AnsweredCase, text.split("\n"), where=path) if text is not None else []
        known = {(case.args, case.stdin, tuple(sorted(case.files.items()))) for case in old}
        fresh = [case for case in cases if (case.args, case.stdin, tuple(sorted(case.files.items()))) not in known]
        merged = [*old, *fresh][:CASES_CAP]
        numbered = [
            AnsweredCase.from_json({**case.to_json(), "id": f"{self.job.tool}-{number:04}"})
            for number, case in enumerate(merged, 1)
        ]
        await self.shell.write(self.clone.path, {path: dump_cases(numbered)})

    async def _land(self, title: str, body: str) -> Landing:
        job = self.job
        if not await self.clone.resume(job.branch):
            await self._give_up("my branch is gone")
        taken = self._taken if job.kind == "area" else None
        landing = await self.lander.land(job.branch, job.tool, title, f"{body}\n\nClaim {job.claim}.", taken=taken)
        job.pull = landing.pull or job.pull
        if landing.verdict is Verdict.LANDED:
            job.sha = landing.sha
            if landing.conflicts and landing.author not in ("", self.state.worker):
                text = f"{job.tool}: we both changed {self.playbook.dispatch_path}; I kept your lines and mine."
                await self.desk.tell(landing.author, f"conflict/{landing.author}", text)
            self._step("landed")
        return landing

    async def _publish(self, landing: Landing, files: str, idea: str) -> None:
        job = self.job
        evidence = "; ".join(
            part
            for part in (job.evidence, f"check: {landing.check}" if landing.check else "", f"main {landing.sha[:10]}")
            if part
        )
        tail = f" | evidence={evidence} {job.claim}"
        head = f"files={files} | idea="
        room = 300 - len(head) - len(tail)
        await self.desk.write("PATCH_SUMMARY", f"{head}{idea[:room]}{tail}", key=f"summary/{job.claim}")

    def _done(self, text: str) -> str:
        self.state.job = None
        self.desk.save()
        return text

    async def _give_up(self, reason: str) -> str:
        job = self.job
        if job.pull:
            await self.tools.call("forge_comment", number=job.pull, body=f"I give this up: {reason}.")
        await self.clone.discard(job.branch)
        await self.desk.release(job.claim)
        self.state.job = None
        self.desk.save()
        raise GivenUp(f"I gave up {job.tool} ({job.claim}): {reason}.")


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.escape(path).replace("TOOL", r"(?P<tool>[^/]+)"))


def _number(job: Job) -> str:
    # Unknown when I was killed between the merge and its answer.
    return f" (pull request {job.pull})" if job.pull else ""
