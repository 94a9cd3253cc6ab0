"""compare.py CASES REFERENCE [PROGRAM]: run both on the same cases and say where they differ.

CASES is a file: JSON lines, packed with zlib and base64. The last line of what is printed is packed alike: the answers
of the reference, and of the program where it differs. A case on which the reference runs out of time does not count.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

SECONDS = 5.0
MEMORY = 512 << 20  # bytes of address space
OUTPUT = 1 << 20  # bytes
ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "COLUMNS": "80",
}
FULL = 5  # differences that are reported whole

Answer = dict[str, Any]


def limit() -> None:
    """Set the limits of the program that is about to start."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT, OUTPUT))


def run(program: str, case: dict[str, Any]) -> Answer | None:
    """Return output and exit code; None when the program runs out of time."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
        for name, text in case["files"].items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        process = subprocess.Popen(
            [program, *(os.fsencode(part) for part in case["args"])],
            cwd=folder,
            env=ENV,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            process.communicate((case["stdin"] or "").encode("utf-8", "surrogateescape"), SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        out.seek(0)
        code = process.returncode
        stdout = out.read().decode("utf-8", "surrogateescape")
        return {"stdout": stdout, "code": 128 - code if code < 0 else code}


def main(cases_file: str, reference: str, program: str = "") -> int:
    """Run all cases and print what came of them."""
    text = zlib.decompress(base64.b64decode(Path(cases_file).read_text())).decode()
    cases = [json.loads(line) for line in text.splitlines()]
    answers = [run(reference, case) for case in cases]
    report: dict[str, Any] = {"total": sum(answer is not None for answer in answers)}
    if not program:
        report["answers"] = answers
    else:
        pairs = [(n, right, run(program, cases[n])) for n, right in enumerate(answers) if right is not None]
        wrong = [(number, right, got) for number, right, got in pairs if got != right]
        report |= {"wrong": len(wrong), "differences": wrong[:FULL]}
        for number, right, got in wrong[:FULL]:
            shown = f"code {got['code']}, {got['stdout'][:100]!a}" if got else "out of time"
            print(
                f"{shlex.join(cases[number]['args'])!a}: {shown}; expected {right['code']}, {right['stdout'][:100]!a}"
            )
        print(f"{report['total'] - len(wrong)} of {report['total']} cases agree")
    print(base64.b64encode(zlib.compress(json.dumps(report).encode())).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
