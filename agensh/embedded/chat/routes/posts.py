"""`/posts` and the posts of a channel."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from agensh.embedded.chat import posting, reading
from agensh.embedded.chat.context import NUMBER_MAX, PER_PAGE_MAX, Call, Session, answer, mapping, ok, text
from agensh.embedded.chat.errors import (
    ChatError,
    forbidden,
    invalid_body,
    invalid_url,
    no_such_channel_member,
    no_such_post,
)
from agensh.embedded.chat.ids import is_id
from agensh.embedded.chat.model import Channel, Post, Reaction
from agensh.embedded.chat.shapes import post_shape, reaction_shape
from agensh.embedded.chat.store import select

router = APIRouter()
IDS = 1000
"""Most posts fetched by id in one request."""


@router.post("/posts")
async def create(call: Session) -> Response:
    fields = await call.fields()
    channel = call.directory.channels.get(text(fields, "channel_id"))
    if channel is None:
        # The real server looks at the permission first, so an unknown channel reads as a forbidden one.
        raise forbidden()
    if not call.user.is_admin and not call.is_member(channel):
        raise forbidden()
    if channel.delete_at:
        raise ChatError(400, "api.post.create_post.can_not_post_to_deleted.error", "Can not post to deleted channel.")
    message = text(fields, "message", "")
    if not message.strip() and not fields.get("props"):
        raise invalid_body("message")
    posting.check_message(message)
    key = text(fields, "pending_post_id", "")
    if key:
        made = call.chat.pending.reserve(key)
        if made is not None:
            earlier = await call.chat.store.read(lambda connection: reading.one(connection, made))
            if earlier is not None and earlier.user_id == call.user.id:
                earlier.pending_post_id = key
                return answer(post_shape(earlier), 201)
    try:
        post = await _create(call, channel, fields, message, key)
    except BaseException:
        call.chat.pending.release(key)
        raise
    if key:
        call.chat.pending.made(key, post.id)
    return answer(post_shape(post), 201)


async def _create(call: Call, channel: Channel, fields: dict[str, Any], message: str, key: str) -> Post:
    at = fields.get("create_at")
    kind = text(fields, "type", "")
    if posting.is_system(kind):
        raise invalid_body("type")
    return await posting.create(
        call.chat,
        call.user,
        channel,
        message,
        root_id=text(fields, "root_id", ""),
        kind=kind,
        props=mapping(fields, "props") | ({"from_bot": "true"} if call.user.is_bot else {}),
        pending_post_id=key,
        create_at=at if call.user.is_admin and isinstance(at, int) and 0 < at <= NUMBER_MAX else 0,
        set_online=call.query("set_online", "true") != "false",
        silent=call.user.is_bot and call.flag("silent"),
    )


async def _post(call: Call, post_id: str) -> Post:
    """Return a live post that the caller may read."""
    post = await call.chat.store.read(lambda connection: reading.one(connection, post_id))
    if post is None or (post.delete_at and not (call.flag("include_deleted") and call.user.is_admin)):
        raise no_such_post()
    call.channel_of(post.channel_id)
    return post


async def _own(call: Call, post_id: str) -> Post:
    """Return a live post that the caller may change."""
    post = await _post(call, post_id)
    if post.user_id != call.user.id and not call.user.is_admin:
        raise forbidden()
    return post


@router.post("/posts/ids")
async def by_ids(call: Session) -> Response:
    ids = await call.names("post_ids")
    if not ids or len(ids) > IDS:
        raise invalid_body("post_ids")
    found = await call.chat.store.read(lambda connection: reading.several(connection, ids))
    readable = [post for post in found if call.may_read(call.directory.channels[post.channel_id])]
    return answer([post_shape(post) for post in readable])


@router.post("/posts/ids/reactions")
async def reactions_by_ids(call: Session) -> Response:
    ids = await call.names("post_ids")
    shapes: dict[str, Any] = {}
    for post_id in ids[:PER_PAGE_MAX]:
        post = await _post(call, post_id)
        shapes[post_id] = await _reactions(call, post)
    return answer(shapes)


@router.get("/posts/{post_id}")
async def get(call: Session, post_id: str) -> Response:
    return answer(post_shape(await _post(call, post_id)))


@router.put("/posts/{post_id}/patch")
async def patch(call: Session, post_id: str) -> Response:
    return await _edit(call, post_id, await call.fields())


@router.put("/posts/{post_id}")
async def update(call: Session, post_id: str) -> Response:
    fields = await call.fields()
    if text(fields, "id") != post_id:
        raise invalid_body("id")
    return await _edit(call, post_id, fields)


async def _edit(call: Call, post_id: str, fields: dict[str, Any]) -> Response:
    post = await _own(call, post_id)
    changes: dict[str, Any] = {}
    if fields.get("message") is not None:
        changes["message"] = text(fields, "message", "")
    if fields.get("props") is not None:
        changes["props"] = mapping(fields, "props")
    if isinstance(fields.get("is_pinned"), bool):
        changes["is_pinned"] = fields["is_pinned"]
    return answer(post_shape(await posting.edit(call.chat, post, **changes)))


@router.delete("/posts/{post_id}")
async def delete(call: Session, post_id: str) -> Response:
    await posting.delete(call.chat, await _own(call, post_id), call.user)
    return ok()


@router.get("/posts/{post_id}/thread")
async def thread(call: Session, post_id: str) -> Response:
    post = await _post(call, post_id)
    return answer(await call.chat.store.read(lambda connection: reading.thread(connection, post)))


@router.get("/posts/{post_id}/edit_history")
async def edit_history(call: Session, post_id: str) -> Response:
    post = await _own(call, post_id)
    former = await call.chat.store.read(
        lambda connection: select(connection, Post, "WHERE original_id = ? ORDER BY edit_at DESC", (post.id,))
    )
    if not former:
        raise ChatError(404, "app.post.get_edit_history_for_post.app_error", "No edit history found for the post.")
    return answer([post_shape(row) for row in former])


@router.post("/posts/{post_id}/pin")
async def pin(call: Session, post_id: str) -> Response:
    await posting.pin(call.chat, await _post(call, post_id), True)
    return ok()


@router.post("/posts/{post_id}/unpin")
async def unpin(call: Session, post_id: str) -> Response:
    await posting.pin(call.chat, await _post(call, post_id), False)
    return ok()


async def _reactions(call: Call, post: Post) -> list[dict[str, Any]]:
    found = await call.chat.store.read(
        lambda connection: select(connection, Reaction, "WHERE post_id = ? ORDER BY create_at", (post.id,))
    )
    return [reaction_shape(reaction, post.channel_id) for reaction in found]


@router.get("/posts/{post_id}/reactions")
async def reactions(call: Session, post_id: str) -> Response:
    return answer(await _reactions(call, await _post(call, post_id)) or None)


@router.post("/reactions")
async def react(call: Session) -> Response:
    fields = await call.fields()
    if text(fields, "user_id") != call.user.id:
        raise forbidden()
    post = await _post(call, text(fields, "post_id"))
    reaction = await posting.react(call.chat, post, call.user, text(fields, "emoji_name"))
    return answer(reaction_shape(reaction, post.channel_id))


@router.delete("/users/{user_id}/posts/{post_id}/reactions/{emoji}")
async def unreact(call: Session, user_id: str, post_id: str, emoji: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    await posting.unreact(call.chat, await _post(call, post_id), user, emoji)
    return ok()


@router.get("/channels/{channel_id}/posts")
async def of_channel(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    after, before, since = call.query("after"), call.query("before"), call.query("since")
    for name, value in (("after", after), ("before", before)):
        if value and not is_id(value):
            raise invalid_url(name)
    if since and not (since.isascii() and since.isdigit() and len(since) < len(str(NUMBER_MAX))):
        raise invalid_url("since")
    offset, size = call.page()
    threads = not call.flag("skipFetchThreads")
    roots = call.flag("collapsedThreads")
    read = call.chat.store.read
    if since and int(since) > 0:
        return answer(await read(lambda connection: reading.since(connection, channel.id, int(since), roots=roots)))
    if after or before:
        return answer(
            await read(
                lambda connection: reading.around(
                    connection,
                    channel.id,
                    after or before,
                    offset,
                    size,
                    after=bool(after),
                    threads=threads,
                    roots=roots,
                )
            )
        )
    return answer(
        await read(lambda connection: reading.page(connection, channel.id, offset, size, threads=threads, roots=roots))
    )


@router.get("/users/{user_id}/channels/{channel_id}/posts/unread")
async def unread(call: Session, user_id: str, channel_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    channel = call.channel_of(channel_id)
    member = call.directory.channel_member(channel.id, user.id)
    if member is None:
        raise no_such_channel_member()
    before = min(call.number("limit_before", 60), PER_PAGE_MAX)
    after = min(call.number("limit_after", 60), PER_PAGE_MAX)
    if not after:
        raise invalid_url("limit_after")
    viewed = member.last_viewed_at
    return answer(
        await call.chat.store.read(lambda connection: reading.unread(connection, channel.id, viewed, before, after))
    )


@router.post("/teams/{team_id}/posts/search")
async def search(call: Session, team_id: str) -> Response:
    fields = await call.fields()
    team = call.team_of(team_id)
    terms = text(fields, "terms").split()
    mine = (call.directory.channels[channel_id] for channel_id in call.directory.channels_of[call.user.id])
    ids = [channel.id for channel in mine if channel.team_id in {team.id, ""}]
    page, size = fields.get("page"), fields.get("per_page")
    count = min(size, PER_PAGE_MAX) if isinstance(size, int) and size > 0 else 60
    start = page * count if isinstance(page, int) and 0 < page < NUMBER_MAX else 0
    if not terms or not ids:
        return answer(reading.shape_list([]) | {"matches": None})
    found = await call.chat.store.read(lambda connection: reading.search(connection, ids, terms, start, count))
    return answer(reading.shape_list(found) | {"matches": None})
