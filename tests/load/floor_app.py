"""The floor of HTTP: a bare FastAPI endpoint on the same kind of server as the board's."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

from agensh.serving import BACKLOG, open_socket

app = FastAPI(openapi_url=None)


@app.get("/floor")
async def floor() -> dict[str, object]:
    """Answer what an empty `/pending` answers."""
    return {"agent": "bench-worker1", "notices": [], "cursor": 1000}


def main() -> None:
    """Serve until SIGTERM."""
    with open_socket("127.0.0.1", 0, "floor") as listening:
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, backlog=BACKLOG)
        sys.stderr.write(f"floor: http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
