"""Stored things as Mattermost's JSON."""

from __future__ import annotations

import json
from typing import Any

from agensh.embedded.chat.model import Channel, ChannelMember, Post, Reaction, Team, TeamMember, Token, User

NOTIFY_PROPS = {
    "channel": "true",
    "comments": "never",
    "desktop": "mention",
    "desktop_sound": "true",
    "desktop_threads": "all",
    "email": "true",
    "email_threads": "all",
    "first_name": "false",
    "highlight_keys": "",
    "mention_keys": "",
    "push": "mention",
    "push_status": "online",
    "push_threads": "all",
}
CHANNEL_NOTIFY_PROPS = {
    "desktop": "default",
    "email": "default",
    "ignore_channel_mentions": "default",
    "mark_unread": "all",
    "push": "default",
    "channel_auto_follow_threads": "off",
}


def dumps(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def user_shape(user: User, *, own: bool = False) -> dict[str, Any]:
    """Return an account; `own` adds what only its owner and admins see."""
    shape: dict[str, Any] = {
        "id": user.id,
        "create_at": user.create_at,
        "update_at": user.update_at,
        "delete_at": user.delete_at,
        "username": user.username,
        "auth_data": "",
        "auth_service": "",
        "email": user.email,
        "nickname": user.nickname,
        "first_name": user.first_name,
        "last_name": user.last_name,
        "position": user.position,
        "roles": user.roles,
        "locale": user.locale,
        "timezone": {"automaticTimezone": "", "manualTimezone": "", "useAutomaticTimezone": "true"},
        "disable_welcome_email": False,
    }
    if user.props:
        shape["props"] = user.props
    if user.is_bot:
        shape |= {"is_bot": True, "bot_description": user.description}
    if own:
        shape |= {
            "email_verified": not user.is_bot,
            "notify_props": NOTIFY_PROPS | user.notify_props,
            "last_password_update": user.last_password_update,
            "terms_of_service_id": "",
            "terms_of_service_create_at": 0,
        }
    return shape


def bot_shape(user: User) -> dict[str, Any]:
    """Return a bot."""
    return {
        "user_id": user.id,
        "username": user.username,
        "display_name": user.first_name,
        "description": user.description,
        "owner_id": user.owner_id,
        "create_at": user.create_at,
        "update_at": user.update_at,
        "delete_at": user.delete_at,
    }


def token_shape(token: Token, secret: str = "") -> dict[str, Any]:
    """Return a personal access token; the secret is known at its creation only."""
    shape: dict[str, Any] = {
        "id": token.id,
        "user_id": token.user_id,
        "description": token.description,
        "is_active": token.is_active,
    }
    return {"id": token.id, "token": secret} | shape if secret else shape


def team_shape(team: Team, *, full: bool = True) -> dict[str, Any]:
    """Return a team; `full` shows what only its members may see."""
    return {
        "id": team.id,
        "create_at": team.create_at,
        "update_at": team.update_at,
        "delete_at": team.delete_at,
        "display_name": team.display_name,
        "name": team.name,
        "description": team.description,
        "email": team.email if full else "",
        "type": team.type,
        "company_name": "",
        "allowed_domains": "",
        "invite_id": team.invite_id if full else "",
        "allow_open_invite": team.allow_open_invite,
        "scheme_id": None,
        "group_constrained": None,
        "policy_id": None,
        "cloud_limits_archived": False,
    }


def team_member_shape(member: TeamMember) -> dict[str, Any]:
    """Return a membership in a team."""
    return {
        "team_id": member.team_id,
        "user_id": member.user_id,
        "roles": "team_user team_admin" if member.scheme_admin else "team_user",
        "delete_at": member.delete_at,
        "scheme_guest": False,
        "scheme_user": True,
        "scheme_admin": member.scheme_admin,
        "explicit_roles": "",
    }


def channel_shape(channel: Channel) -> dict[str, Any]:
    """Return a channel."""
    return {
        "id": channel.id,
        "create_at": channel.create_at,
        "update_at": channel.update_at,
        "delete_at": channel.delete_at,
        "team_id": channel.team_id,
        "type": channel.type,
        "display_name": channel.display_name,
        "name": channel.name,
        "header": channel.header,
        "purpose": channel.purpose,
        "last_post_at": channel.last_post_at,
        "total_msg_count": channel.total_msg_count,
        "extra_update_at": 0,
        "creator_id": channel.creator_id,
        "scheme_id": None,
        "props": None,
        "group_constrained": None,
        "shared": None,
        "total_msg_count_root": channel.total_msg_count_root,
        "policy_id": None,
        "last_root_post_at": channel.last_root_post_at,
        "policy_enforced": False,
        "policy_is_active": False,
        "default_category_name": "",
    }


def channel_member_shape(member: ChannelMember) -> dict[str, Any]:
    """Return a membership in a channel."""
    return {
        "channel_id": member.channel_id,
        "user_id": member.user_id,
        "roles": "channel_user channel_admin" if member.scheme_admin else "channel_user",
        "last_viewed_at": member.last_viewed_at,
        "msg_count": member.msg_count,
        "mention_count": member.mention_count,
        "mention_count_root": member.mention_count_root,
        "urgent_mention_count": 0,
        "msg_count_root": member.msg_count_root,
        "notify_props": CHANNEL_NOTIFY_PROPS | member.notify_props,
        "last_update_at": member.last_update_at,
        "scheme_guest": False,
        "scheme_user": True,
        "scheme_admin": member.scheme_admin,
        "explicit_roles": "",
    }


def post_shape(post: Post) -> dict[str, Any]:
    """Return a post."""
    shape: dict[str, Any] = {
        "id": post.id,
        "create_at": post.create_at,
        "update_at": post.update_at,
        "edit_at": post.edit_at,
        "delete_at": post.delete_at,
        "is_pinned": post.is_pinned,
        "user_id": post.user_id,
        "channel_id": post.channel_id,
        "root_id": post.root_id,
        "original_id": post.original_id,
        "message": post.message,
        "type": post.type,
        "props": post.props,
        "hashtags": " ".join(word for word in post.message.split() if word.startswith("#") and len(word) > 3),
        "pending_post_id": post.pending_post_id,
        "reply_count": post.reply_count,
        "last_reply_at": 0,
        "participants": None,
        "metadata": {},
    }
    if post.has_reactions:
        shape["has_reactions"] = True
    return shape


def reaction_shape(reaction: Reaction, channel_id: str) -> dict[str, Any]:
    """Return a reaction."""
    return {
        "user_id": reaction.user_id,
        "post_id": reaction.post_id,
        "emoji_name": reaction.emoji_name,
        "create_at": reaction.create_at,
        "update_at": reaction.create_at,
        "delete_at": 0,
        "remote_id": "",
        "channel_id": channel_id,
    }
