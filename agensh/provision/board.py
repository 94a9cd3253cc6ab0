"""The board of a run: a token per worker."""

from __future__ import annotations

from agensh.clients.board import BoardClient
from agensh.errors import ServiceError
from agensh.provision.job import Job


async def provision_board(job: Job) -> None:
    """Give every worker a token of the board; a token that still works stays."""
    url, board = job.info.urls.board, job.info.board

    async def token(name: str) -> None:
        worker = job.secrets.workers[name]
        if await _token_works(job, worker.board_token):
            return
        admin = BoardClient(url, job.secrets.board_admin, board, http=job.http)
        # One may have been made and lost with the process that asked for it.
        await admin.revoke_token(name)
        worker.board_token = await admin.create_token(name)

    await job.each("board: tokens", job.workers, token)


async def _token_works(job: Job, token: str) -> bool:
    if not token:
        return False
    try:
        await BoardClient(job.info.urls.board, token, job.info.board, http=job.http).head()
    except ServiceError as error:
        if error.status in {401, 403}:
            return False
        raise
    return True
