"""The chat of a run: the team, the task channel, and one bot account with a token per worker.

Bots, because ordinary accounts are capped (250 on an unlicensed server of version 11) and need slow logins.
"""

from __future__ import annotations

from agensh.clients.mattermost import Channel, ChatUser, MattermostClient, Team
from agensh.errors import AgenshError, ServiceError
from agensh.provision.job import Job

ADD_ATTEMPTS = 3
FIRST_ADMINS = 1  # the administrator is in the team as well
_TEAM_FULL = "join_user_to_team.max_accounts"


async def provision_chat(job: Job) -> None:
    """Bring the chat into the state the run needs; what is there already is left alone."""
    chat = await _signed_in(job)
    await _check_limits(job, chat)
    team = await _team(job, chat)
    channel = await _channel(job, chat, team)
    bots = {user.username: user for user in await chat.users_by_names(job.workers)}

    async def account(name: str) -> None:
        bot = bots.get(name) or await _create_bot(job, chat, name)
        if not bot.is_bot:
            raise AgenshError(f"chat: the account {name!r} exists and is no bot; rename or remove it there.")
        bots[name] = bot
        job.secrets.workers[name].chat_user_id = bot.id

    async def token(name: str) -> None:
        worker = job.secrets.workers[name]
        if not await _token_works(job, worker.chat_token, worker.chat_user_id):
            for old in await chat.user_tokens(worker.chat_user_id):
                if old.description == job.label:
                    await chat.revoke_token(old.id)
            worker.chat_token = await chat.create_user_token(worker.chat_user_id, job.label)

    await job.each("chat: bot accounts", job.workers, account)
    ids = [job.secrets.workers[name].chat_user_id for name in job.workers]
    await _team_members(chat, team, ids)
    job.progress(f"chat: members of the team {team.name}: {len(ids)}")
    await _channel_members(chat, channel, ids)
    job.progress(f"chat: members of the channel {channel.name}: {len(ids)}")
    await job.each("chat: tokens", job.workers, token)


async def _signed_in(job: Job) -> MattermostClient:
    admin = job.secrets.chat_admin
    if await _token_works(job, admin.token, ""):
        return MattermostClient(job.info.urls.chat, token=admin.token, http=job.http)
    chat = MattermostClient(job.info.urls.chat, http=job.http)
    try:
        admin.token = await chat.login(admin.name, admin.password)
    except ServiceError as error:
        if error.status not in {400, 401}:
            raise
        try:
            await chat.create_first_user(admin.name, admin.password, f"{admin.name}@agensh.invalid")
        except ServiceError:
            raise AgenshError(f"The chat does not accept the password of its administrator {admin.name!r}.") from error
        admin.token = await chat.login(admin.name, admin.password)
    await job.save()
    job.progress(f"chat: signed in as {admin.name}")
    return chat


async def _token_works(job: Job, token: str, user_id: str) -> bool:
    if not token:
        return False
    try:
        me = await MattermostClient(job.info.urls.chat, token=token, http=job.http).me()
    except ServiceError as error:
        if error.status in {401, 403}:
            return False
        raise
    return not user_id or me.id == user_id


async def _check_limits(job: Job, chat: MattermostClient) -> None:
    limits = await chat.limits()
    if limits.post_history:
        job.progress(
            f"chat: this server hides posts beyond the newest {limits.post_history}; use the team edition to keep all"
        )
    config = await chat.config()
    if (config.get("ServiceSettings") or {}).get("EnableBotAccountCreation") is False:
        raise AgenshError(
            "chat: bot accounts are switched off; set ServiceSettings.EnableBotAccountCreation to true "
            "(MM_SERVICESETTINGS_ENABLEBOTACCOUNTCREATION=true)."
        )
    most = int((config.get("TeamSettings") or {}).get("MaxUsersPerTeam") or 0)
    needed = len(job.workers) + FIRST_ADMINS
    if most and most < needed:
        raise _team_too_small(str(most), needed)


def _team_too_small(most: str, needed: int) -> AgenshError:
    return AgenshError(
        f"chat: a team may have {most} members and this one needs {needed}; set TeamSettings.MaxUsersPerTeam to at "
        f"least {needed} (MM_TEAMSETTINGS_MAXUSERSPERTEAM={needed})."
    )


async def _team(job: Job, chat: MattermostClient) -> Team:
    name = job.info.chat_team
    team = await chat.find_team(name)
    if team is None:
        try:
            team = await chat.create_team(name)
        except ServiceError:
            team = await chat.find_team(name)
            if team is None:
                raise
    return team


async def _channel(job: Job, chat: MattermostClient, team: Team) -> Channel:
    name = job.info.channel
    channel = await chat.find_channel(team.id, name)
    if channel is None:
        try:
            channel = await chat.create_channel(team.id, name)
        except ServiceError:
            channel = await chat.find_channel(team.id, name)
            if channel is None:
                raise
    job.progress(f"chat: team {team.name}, channel {channel.name}")
    return channel


async def _create_bot(job: Job, chat: MattermostClient, name: str) -> ChatUser:
    try:
        return await chat.create_bot(name, description=f"Worker of the team {job.info.spec.team.name}")
    except ServiceError as error:
        found = await chat.find_user(name)
        if found is not None:
            return found
        if error.status in {403, 501}:
            raise AgenshError(
                f"chat: the server does not let {job.secrets.chat_admin.name!r} create bots: {error}"
            ) from (error)
        raise


async def _team_members(chat: MattermostClient, team: Team, ids: list[str]) -> None:
    for _ in range(ADD_ATTEMPTS):
        there = set(await chat.team_member_ids(team.id))
        missing = [user_id for user_id in ids if user_id not in there]
        if not missing:
            return
        try:
            await chat.add_team_members(team.id, missing)
        except ServiceError as error:
            if _TEAM_FULL in error.reason:
                raise _team_too_small("fewer", len(ids) + FIRST_ADMINS) from error
            raise
    await _verify(set(await chat.team_member_ids(team.id)), ids, f"team {team.name}")


async def _channel_members(chat: MattermostClient, channel: Channel, ids: list[str]) -> None:
    # A release lost members of a large batch without an error, so what was added is counted.
    for _ in range(ADD_ATTEMPTS):
        there = set(await chat.member_ids(channel.id))
        missing = [user_id for user_id in ids if user_id not in there]
        if not missing:
            return
        await chat.add_channel_members(channel.id, missing)
    await _verify(set(await chat.member_ids(channel.id)), ids, f"channel {channel.name}")


async def _verify(there: set[str], ids: list[str], place: str) -> None:
    missing = len(set(ids) - there)
    if missing:
        raise AgenshError(f"chat: {missing} of {len(ids)} workers could not be added to the {place}.")
