"""Form login and the event stream, which takes the session cookie and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse

from agensh.embedded.forge.auth import COOKIE
from agensh.embedded.forge.state import forge_of
from agensh.embedded.forge.store.database import Tx
from agensh.identity import token_hash

router = APIRouter(include_in_schema=False)

PAGE = """<!DOCTYPE html><title>Sign In</title><p>{}</p>
<form method="post" action="/user/login"><input name="user_name"><input name="password" type="password"><button>Sign In
</button></form>"""
HEADERS = {"Cache-Control": "no-cache", "Connection": "keep-alive", "X-Accel-Buffering": "no"}


@router.get("/user/login")
async def login_page() -> HTMLResponse:
    """The form."""
    return HTMLResponse(PAGE.format(""))


@router.post("/user/login")
async def login(request: Request) -> Response:
    """Sign in: a redirect with the cookie, or the page again (200) when name or password is wrong."""
    forge = forge_of(request)
    form = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=20)
    name, password = (form.get(field, [""])[0] for field in ("user_name", "password"))
    user = await forge.auth.password(name, password)
    if user is None or user["prohibit_login"]:
        return HTMLResponse(PAGE.format("Username or password is incorrect."))
    secret = secrets.token_hex(20)
    now = forge.now()
    expires = now + int(forge.settings.session_life_time)

    def sign_in(tx: Tx) -> None:
        tx.run("DELETE FROM sessions WHERE expires <= ?", now)
        tx.insert("sessions", hash=token_hash(secret), user_id=user["id"], expires=expires)
        tx.update("users", "id", user["id"], last_login=now)

    await forge.db.write(sign_in)
    target = "/user/settings/change_password" if user["must_change_password"] else "/"
    answer = RedirectResponse(target, 303)
    answer.set_cookie(COOKIE, secret, path="/", httponly=True, samesite="lax")
    return answer


@router.api_route("/user/logout", methods=["GET", "POST"])
async def logout(request: Request) -> Response:
    """End the session."""
    secret = request.cookies.get(COOKIE, "")
    await forge_of(request).db.write(lambda tx: tx.run("DELETE FROM sessions WHERE hash = ?", token_hash(secret)))
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


@router.api_route("/user/events", methods=["GET", "POST"])
async def events(request: Request) -> Response:
    """The stream; who has no session gets 200 and one event that closes it, as in Gitea."""
    forge = forge_of(request)
    user = await forge.auth.session(request)
    if user is None:
        return StreamingResponse(_unauthorized(), headers=HEADERS, media_type="text/event-stream")
    return StreamingResponse(forge.events.stream(user["id"]), headers=HEADERS, media_type="text/event-stream")


async def _unauthorized() -> AsyncIterator[bytes]:
    yield b"event: close\ndata: unauthorized\n\n"


@router.get("/")
async def home() -> HTMLResponse:
    """What a browser finds; the forge has no pages."""
    return HTMLResponse("<!DOCTYPE html><title>Agensh forge</title><p>This forge is used through git and its API.</p>")
