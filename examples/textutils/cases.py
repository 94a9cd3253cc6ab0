"""Print the hidden test set as JSON lines; the same seed prints the same cases."""

from __future__ import annotations

import argparse
import json

from generators import TOOLS, draw

ORDINARY, EDGE = 8, 13


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="textutils-1")
    options = parser.parse_args()
    for tool in TOOLS:
        for case in draw(tool, f"hidden/{options.seed}", ORDINARY, EDGE):
            print(json.dumps(case))


if __name__ == "__main__":
    main()
