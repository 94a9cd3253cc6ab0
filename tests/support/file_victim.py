"""The files of a run folder, written by a process that is killed with SIGKILL at every call that touches a file.

`python -m tests.support.file_victim RUN` writes `run.json` and `secrets.json` anew, over and over, and prints one JSON
line a kill: where it was, how the process ended, and what the files say then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from agensh.rundir import RunDir
from tests.support.victim import forked

MOST_STEPS = 100
STEPS = {"open", "os.chmod", "os.rename", "os.remove"}


def write(path: Path, killed_at: int) -> None:
    """Write the number of the kill into both files."""
    run = RunDir(path)
    info, secrets = run.info(), run.secrets()
    count = 0

    def step(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in STEPS:
            count += 1
            if count == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
    run.write_info(info.model_copy(update={"board": f"board-{killed_at}"}))
    run.write_secrets(secrets.model_copy(update={"board_admin": f"token-{killed_at}"}))


def main(path: Path) -> None:
    """Kill at each step, until there is none left."""
    for killed_at in range(1, MOST_STEPS):
        ended = forked(partial(write, path, killed_at))
        run = RunDir(path)
        found = [run.info().board, run.secrets().board_admin, run.secrets_file.stat().st_mode & 0o777]
        sys.stdout.write(json.dumps({"at": killed_at, "ended": ended, "found": found}) + "\n")
        sys.stdout.flush()  # or the next fork carries it away in its copy of the buffer
        if ended == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
