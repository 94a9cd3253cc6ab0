"""The chat's tools: the team's task channel and direct messages."""

from __future__ import annotations

from agensh.clients.mattermost import MattermostClient, Post
from agensh.identity import parse_worker_name
from agensh.text import block, handle
from router.ports import WorkerPort
from router.tools.registry import Argument, Call, Refused, Tool
from router.tools.texts import TEXT_ROOM, clip, clip_oldest, minutes

MESSAGE_CAP = 16_383  # characters; the chat's own limit
MESSAGE_ROOM = TEXT_ROOM // 2  # characters; a message is shown whole here where its lines are not absurdly many
NAMES_IN_FULL = 40  # peers listed one by one; above that as ranges


async def post(call: Call[WorkerPort]) -> str:
    chat, channel = call.port.chat, call.port.channel_id
    sent, repeated = await _send(chat, channel, call["message"], call["thread"], call["key"])
    if repeated:
        return f"status=posted post={sent.id} repeated=1\nThis key was used before; nothing new was posted."
    thread = sent.root_id or sent.id
    return f"status=posted post={sent.id}\nThe task channel has it. Replies to it belong in thread={thread}."


async def direct_message(call: Call[WorkerPort]) -> str:
    name = peer(call.port, call["to"], "to")
    chat = call.port.chat
    channel = await chat.direct_channel((await chat.user_by_name(name)).id)
    sent, repeated = await _send(chat, channel.id, call["message"], "", call["key"])
    if repeated:
        return f"status=sent post={sent.id} to={name} repeated=1\nThis key was used before; nothing new was sent."
    return (
        f"status=sent post={sent.id} to={name}\n"
        f"{name} sees it with its next tool result, or as its next turn when idle. "
        "An answer reaches you the same way: do not wait for it."
    )


async def _send(chat: MattermostClient, channel: str, message: str, thread: str, key: str) -> tuple[Post, bool]:
    if key:
        found = await chat.find_post(channel, key)
        if found is not None:
            return found, True
    return await chat.post(channel, message, root_id=thread, key=key or None), False


async def read(call: Call[WorkerPort]) -> str:
    chat, now, name = call.port.chat, call.clock.time(), ""
    if call["with_"]:
        name = peer(call.port, call["with_"], "with_")
        channel = (await chat.direct_channel((await chat.user_by_name(name)).id)).id
        where = f"between you and {name}"
    else:
        channel, where = call.port.channel_id, "in the task channel"
    posts = [found for found in await chat.posts(channel, limit=call["limit"]) if not found.type]
    if not posts:
        return f"status=ok posts=0\nThere are no messages {where} yet."
    users = await chat.users_by_ids(sorted({found.user_id for found in posts}))
    names = {user.id: user.username for user in users}
    rows, dropped = clip_oldest([_row(found, names, now) for found in posts], TEXT_ROOM)
    # Last: a reading that failed, or had no room for a message, has shown nothing of it.
    call.port.desk.worker_read({found.id for found in posts[dropped:]}, call.arrived)
    head = f"status=ok posts={len(rows)}\nMessages {where}, oldest first"
    return "\n".join([f"{head}{f' ({dropped} older ones left out)' if dropped else ''}:", *rows])


def _row(found: Post, names: dict[str, str], now: float) -> str:
    reply = f", reply to {found.root_id}" if found.root_id else ""
    who = handle(names.get(found.user_id, found.user_id))
    text = clip(block(found.message), MESSAGE_ROOM)
    return f"[{who}, {minutes(found.create_at / 1000, now)}, post {found.id}{reply}] {text}"


async def who(call: Call[WorkerPort]) -> str:
    peers = call.port.peers
    return (
        f"status=ok workers={len(peers) + 1}\nYou are {call.port.name}. "
        f"{f'The others: {names_of(peers)}.' if peers else 'You are alone in this team.'}\n"
        "Everybody reads the task channel (chat_post); chat_dm reaches one of them by the full name."
    )


def names_of(peers: tuple[str, ...]) -> str:
    """Return the peers' names, as ranges of numbers when there are many."""
    if len(peers) <= NAMES_IN_FULL:
        return ", ".join(peers)
    numbered = sorted(parse_worker_name(name) for name in peers)
    ranges: list[tuple[str, int, int]] = []
    for team, number in numbered:
        if ranges and ranges[-1][0] == team and ranges[-1][2] + 1 == number:
            ranges[-1] = (team, ranges[-1][1], number)
        else:
            ranges.append((team, number, number))
    return ", ".join(
        f"{team}-worker{first}" + (f" to {team}-worker{last}" if last > first else "") for team, first, last in ranges
    )


def peer(port: WorkerPort, given: str, argument: str) -> str:
    """Return the full name of the peer that was meant; Refused for anybody else, before anything is sent."""
    name = given.strip().removeprefix("@")
    if name == port.name:
        raise Refused(f"{argument} is you; name another worker.", first_line="status=invalid")
    if name not in port.peers:
        hint = f"; expected the full name of another worker: {names_of(port.peers)}" if port.peers else ""
        raise Refused(f"{argument} is {given!r}, and nobody here has that name{hint}.", first_line="status=invalid")
    return name


KEY = Argument(
    "key", "Any word of yours; repeating a call with the same key never sends twice.", default="", maximum=200
)

TOOLS: tuple[Tool[WorkerPort], ...] = (
    Tool(
        "chat_post",
        """Write to the team's task channel, which everybody reads. For what the whole team has to discuss; short facts,
failures and claims belong on the board (board_write), a word to one worker into chat_dm. Mention somebody with
@full-name to make sure that they see it. At most 16,383 characters.
Example: chat_post(message="@demo-worker3 your change of main.c breaks `sort -k`: see pull 12").""",
        (
            Argument("message", "What to say; Markdown.", minimum=1, maximum=MESSAGE_CAP),
            Argument("thread", "Id of the post to reply to; empty for a new thread.", default="", maximum=64),
            KEY,
        ),
        post,
        writes=True,
    ),
    Tool(
        "chat_dm",
        """Write a direct message to one other worker; it sees it with its next tool result, in the middle of its work.
Use it to settle an overlap of claims, to hand something over, to ask the author of a change. Go on working meanwhile:
the answer comes to you by itself. At most 16,383 characters.
Example: chat_dm(to="demo-worker2", message="G12 and G14 are both `sort`; yours is earlier, I take `uniq` instead").""",
        (
            Argument("to", "Full name of the other worker, e.g. demo-worker2; chat_who lists them.", minimum=1),
            Argument("message", "What to say; Markdown.", minimum=1, maximum=MESSAGE_CAP),
            KEY,
        ),
        direct_message,
        writes=True,
    ),
    Tool(
        "chat_read",
        """Read the newest messages of the task channel, or with `with_` those between you and one other worker, oldest
first. Messages to you also come by themselves; read when you need what was said before.
Example: chat_read(with_="demo-worker2", limit=10).""",
        (
            Argument("with_", "Full name of the other worker; empty for the task channel.", default=""),
            Argument("limit", "At most this many messages.", int, 30, minimum=1, maximum=200),
        ),
        read,
    ),
    Tool("chat_who", "Show who you are and the full names of the other workers of your team.", (), who),
)
