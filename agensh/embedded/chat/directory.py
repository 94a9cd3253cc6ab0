"""Everything but posts, in memory: accounts, tokens, teams, channels and who is where.

Loaded once at the start; changed after the database took the change, so that nothing is shown that could be lost.
"""

from __future__ import annotations

from collections import defaultdict

from agensh.embedded.chat.model import Channel, ChannelMember, Preference, Team, TeamMember, Token, User
from agensh.embedded.chat.store import Store


class Directory:
    """Look-up tables. Dicts keep the order of arrival, which is the order of listings."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.users_by_name: dict[str, User] = {}
        self.users_by_email: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        """By the hash of the secret."""
        self.tokens_by_id: dict[str, Token] = {}
        self.teams: dict[str, Team] = {}
        self.teams_by_name: dict[str, Team] = {}
        self.team_members: defaultdict[str, dict[str, TeamMember]] = defaultdict(dict)
        self.channels: dict[str, Channel] = {}
        self.channels_by_name: dict[tuple[str, str], Channel] = {}
        self.channel_members: defaultdict[str, dict[str, ChannelMember]] = defaultdict(dict)
        self.channels_of: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Channel ids by user id."""
        self.preferences: defaultdict[str, dict[tuple[str, str], Preference]] = defaultdict(dict)

    @classmethod
    def load(cls, store: Store) -> Directory:
        """Read the tables (blocking)."""
        directory = cls()
        for user in sorted(store.load(User), key=lambda user: user.create_at):
            directory.add_user(user)
        for token in sorted(store.load(Token), key=lambda token: token.create_at):
            directory.add_token(token)
        for team in sorted(store.load(Team), key=lambda team: team.create_at):
            directory.add_team(team)
        for member in sorted(store.load(TeamMember), key=lambda member: member.create_at):
            directory.team_members[member.team_id][member.user_id] = member
        for channel in sorted(store.load(Channel), key=lambda channel: channel.create_at):
            directory.add_channel(channel)
        for membership in sorted(store.load(ChannelMember), key=lambda member: member.last_update_at):
            directory.add_channel_member(membership)
        for preference in store.load(Preference):
            directory.preferences[preference.user_id][preference.category, preference.name] = preference
        return directory

    def add_user(self, user: User) -> None:
        """Add an account, or put a changed one in place of the old."""
        old = self.users.get(user.id)
        if old is not None:
            del self.users_by_name[old.username], self.users_by_email[old.email]
        self.users[user.id] = self.users_by_name[user.username] = self.users_by_email[user.email] = user

    def add_token(self, token: Token) -> None:
        """Add a token or put a changed one in place of the old."""
        self.tokens[token.hash] = self.tokens_by_id[token.id] = token

    def drop_token(self, token: Token) -> None:
        """Forget a token."""
        self.tokens.pop(token.hash, None)
        self.tokens_by_id.pop(token.id, None)

    def add_team(self, team: Team) -> None:
        """Add a team."""
        self.teams[team.id] = self.teams_by_name[team.name] = team

    def add_channel(self, channel: Channel) -> None:
        """Add a channel, or put a changed one in place of the old."""
        old = self.channels.get(channel.id)
        if old is not None:
            del self.channels_by_name[old.team_id, old.name]
        self.channels[channel.id] = self.channels_by_name[channel.team_id, channel.name] = channel

    def add_channel_member(self, member: ChannelMember) -> None:
        """Add a membership."""
        self.channel_members[member.channel_id][member.user_id] = member
        self.channels_of[member.user_id][member.channel_id] = None

    def drop_channel_member(self, channel_id: str, user_id: str) -> None:
        """End a membership."""
        self.channel_members[channel_id].pop(user_id, None)
        self.channels_of[user_id].pop(channel_id, None)

    def team_member(self, team_id: str, user_id: str) -> TeamMember | None:
        """Return the live membership in a team."""
        member = self.team_members[team_id].get(user_id) if team_id in self.team_members else None
        return member if member is not None and not member.delete_at else None

    def channel_member(self, channel_id: str, user_id: str) -> ChannelMember | None:
        """Return the membership in a channel."""
        return self.channel_members[channel_id].get(user_id) if channel_id in self.channel_members else None

    def members_of_team(self, team_id: str) -> list[TeamMember]:
        """Return the live memberships of a team."""
        return [member for member in self.team_members.get(team_id, {}).values() if not member.delete_at]

    def tokens_of(self, user_id: str) -> list[Token]:
        """Return sessions and tokens of a user."""
        return [token for token in self.tokens.values() if token.user_id == user_id]

    def active_users(self) -> int:
        """Count active ordinary users; bots are not counted."""
        return sum(not user.is_bot and not user.delete_at for user in self.users.values())
