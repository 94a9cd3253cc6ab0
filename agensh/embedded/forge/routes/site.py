"""The forge itself: version and health."""

from __future__ import annotations

from fastapi import APIRouter, Request

from agensh.clock import iso
from agensh.embedded.forge.state import Json, forge_of

VERSION = "1.27.3+agensh"

router = APIRouter()


@router.get("/api/v1/version")
async def version() -> Json:
    """The version of Gitea whose API this is."""
    return {"version": VERSION}


@router.get("/api/healthz")
async def healthz(request: Request) -> Json:
    """Pass when the rows can be read."""
    forge = forge_of(request)
    await forge.db.read(lambda tx: tx.value("SELECT 1"))
    check = {"status": "pass", "time": iso(forge.clock.time())}
    return {"status": "pass", "description": "Agensh forge", "checks": {"database:ping": [check]}}
