"""The team's check: build, then compare ./executable with every case of tests/*.jsonl; 1 on any difference."""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "COLUMNS": "80"}


def check(case):
    """Return what is wrong with a case's answer, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case["files"].items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        try:
            done = subprocess.run(
                [ROOT / "executable", *map(os.fsencode, case["args"])],
                input=(case["stdin"] or "").encode("utf-8", "surrogateescape"),
                capture_output=True,
                cwd=folder,
                env=ENV,
                timeout=10,
            )
        except subprocess.TimeoutExpired:
            return "ran out of time"
    if done.returncode != case["code"]:
        return f"exit code {done.returncode}, expected {case['code']}"
    got = done.stdout.decode("utf-8", "surrogateescape")
    return None if got == case["stdout"] else f"printed {got[:200]!a}, expected {case['stdout'][:200]!a}"


def main():
    build = subprocess.run(["sh", ROOT / "compile.sh"], cwd=ROOT)
    if build.returncode != 0:
        print(f"compile.sh ended with {build.returncode}")
        return 1
    wanted = set(sys.argv[1:])
    files = [path for path in sorted(ROOT.glob("tests/*.jsonl")) if not wanted or path.stem in wanted]
    cases = [json.loads(line) for path in files for line in path.read_text().splitlines() if line]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(check, cases))
    wrong = [(case, reason) for case, reason in zip(cases, results) if reason]
    for case, reason in wrong:
        print(f"FAIL {case['id']} {' '.join(case['args'])!a}: {reason}")
    print(f"{len(cases) - len(wrong)} of {len(cases)} cases pass")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
