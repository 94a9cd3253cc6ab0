"""Shows a run's progress: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agensh.launch.health import Health
from agensh.runs.html import clock_label
from agensh.text import printable

PLAIN_EVERY = 10.0  # seconds between two plain lines about the team
_STYLES = {"busy": "green", "idle": "cyan", "starting": "yellow", "waiting": "dim", "parked": "red", "stopped": "dim"}


class Progress:
    """A Watcher for people."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._said_at = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, message: str) -> None:
        """Print one step with the time since the start."""
        at = clock_label(time.monotonic() - self._began)
        self.console.print(Text.assemble((f"[{at}] ", "dim"), printable(message)), soft_wrap=True)

    def health(self, health: Health) -> None:
        """Show the team."""
        if self._live is not None:
            self._live.update(_team(health))
            return
        now = time.monotonic()
        if now - self._said_at >= PLAIN_EVERY:
            self._said_at = now
            states = ", ".join(f"{count} {state}" for state, count in sorted(Counter(health.workers.values()).items()))
            self.say(f"{states}; {health.turns} turns, {health.queued} events queued, {clock_label(health.left)} left")

    def grading(self, done: int, total: int) -> None:
        """Show how far the grader is."""
        if self._live is not None:
            self._live.update(_bar(f"grading main: {done} of {total} checkpoints", done, total))
        elif done == 0:
            self.say(f"grading main at {total} checkpoints")


def _team(health: Health) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    names = list(health.workers.items())
    columns = 4 if len(names) > 4 else max(1, len(names))
    for start in range(0, len(names), columns):
        table.add_row(
            *(
                Text.assemble((f"{name} ", ""), (state, _STYLES.get(state, "")))
                for name, state in names[start : start + columns]
            )
        )
    total = health.elapsed + health.left
    line = (
        f"{clock_label(health.elapsed)} of {clock_label(total)} · {health.turns} turns · {health.queued} events queued"
    )
    return Group(table, _bar(line, health.elapsed, total))


def _bar(label: str, done: float, total: float) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(ProgressBar(total=total or 1.0, completed=done, width=40), Text(label))
    return grid
