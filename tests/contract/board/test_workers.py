"""What node hosts tell of their workers, and who may."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from agensh.clients.board import BoardClient, WorkerState
from agensh.errors import ServiceError
from board_service.settings import BoardSettings
from tests.support.board_server import serving_board

ADMIN = "bootstrap-admin-token"


async def test_what_hosts_tell_is_listed_together(tmp_path: Path) -> None:
    settings = BoardSettings(data=str(tmp_path), admin_token=SecretStr(ADMIN))
    async with serving_board(settings) as (board, _), BoardClient(board.url, ADMIN, "main") as admin:
        assert await admin.workers() == []
        one, two = WorkerState("demo-worker1", "busy"), WorkerState("demo-worker2", "parked", "\x1b[31mno\nkey")
        await admin.tell_workers([one])
        await admin.tell_workers([two])
        assert await admin.workers() == [one, WorkerState("demo-worker2", "parked", "no key")]
        await admin.tell_workers([WorkerState("demo-worker1", "parked", "x" * 5000)])
        assert (await admin.workers())[0].reason == "x" * 500
        async with BoardClient(board.url, await admin.create_token("demo-worker1"), "main") as worker:
            assert [each.state for each in await worker.workers()] == ["parked", "parked"]
            with pytest.raises(ServiceError, match="admin"):
                await worker.tell_workers([one])
        async with BoardClient(board.url, ADMIN, "other") as other:
            assert await other.workers() == []


@pytest.mark.parametrize("state", [WorkerState("a b", "busy"), WorkerState("w1", "Busy!"), WorkerState("w1", "")])
async def test_what_is_no_report_is_refused(tmp_path: Path, state: WorkerState) -> None:
    settings = BoardSettings(data=str(tmp_path), admin_token=SecretStr(ADMIN))
    async with serving_board(settings) as (board, _), BoardClient(board.url, ADMIN, "main") as admin:
        with pytest.raises(ServiceError) as refused:
            await admin.tell_workers([state])
        assert refused.value.status == 422
        assert await admin.workers() == []
