"""Print a worker's own probes of one tool as JSON lines: `basic` is ordinary use, `wide` looks at edges too."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from generators import TOOLS, draw

LEVELS = {"basic": (10, 0), "wide": (12, 30)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=TOOLS, required=True)
    parser.add_argument("--level", choices=LEVELS, required=True)
    parser.add_argument("--seed", required=True)
    options = parser.parse_args()
    for case in draw(options.tool, f"probe/{options.seed}", *LEVELS[options.level]):
        print(json.dumps(case))


if __name__ == "__main__":
    main()
