"""A bare MCP server on stdio that answers every line that has an id with the same result. Standard library only."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer until the end of stdin."""
    text = "what the tool found, as it is\n" * 10
    for line in sys.stdin.buffer:
        answer = {
            "jsonrpc": "2.0",
            "id": json.loads(line)["id"],
            "result": {"content": [{"type": "text", "text": text}]},
        }
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
