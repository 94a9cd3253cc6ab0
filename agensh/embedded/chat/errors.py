"""Errors in Mattermost's shape: `{"id", "message", "detailed_error", "request_id", "status_code"}`."""

from __future__ import annotations

from typing import Any


class ChatError(Exception):
    """An answer that is an error. `id` is Mattermost's identifier of the message."""

    def __init__(self, status: int, error_id: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.id = error_id
        self.message = message
        self.detail = detail

    def shape(self, request_id: str) -> dict[str, Any]:
        """Return the JSON body."""
        return {
            "id": self.id,
            "message": self.message,
            "detailed_error": self.detail,
            "request_id": request_id,
            "status_code": self.status,
        }


def session_expired() -> ChatError:
    """No valid session came with the request."""
    return ChatError(401, "api.context.session_expired.app_error", "Invalid or expired session, please login again.")


def forbidden() -> ChatError:
    """The session may not do this."""
    return ChatError(403, "api.context.permissions.app_error", "You do not have the appropriate permissions.")


def invalid_body(name: str) -> ChatError:
    """A field of the body is missing or wrong."""
    return ChatError(400, "api.context.invalid_body_param.app_error", f"Invalid or missing {name} in request body.")


def invalid_url(name: str) -> ChatError:
    """A part of the path or query is wrong."""
    return ChatError(
        400, "api.context.invalid_url_param.app_error", f"Invalid or missing {name} parameter in request URL."
    )


def no_such_page() -> ChatError:
    """No route of this path and method."""
    return ChatError(404, "api.context.404.app_error", "Sorry, we could not find the page.")


def no_such_user() -> ChatError:
    """No account of that id or name."""
    return ChatError(404, "app.user.missing_account.const", "Unable to find the user.")


def no_such_team() -> ChatError:
    """No team of that id."""
    return ChatError(404, "app.team.get.find.app_error", "Unable to find the existing team.")


def no_such_channel() -> ChatError:
    """No channel of that id."""
    return ChatError(404, "app.channel.get.existing.app_error", "Unable to find the existing channel.")


def no_such_channel_name() -> ChatError:
    """No channel of that name, or none that the caller may know of."""
    return ChatError(404, "app.channel.get_by_name.missing.app_error", "Channel does not exist.")


def no_such_post() -> ChatError:
    """No post of that id, or a deleted one."""
    return ChatError(404, "app.post.get.app_error", "Unable to get the post.")


def no_such_channel_member() -> ChatError:
    """The user is not in the channel."""
    return ChatError(
        404, "app.channel.get_member.missing.app_error", "No channel member found for that user ID and channel ID."
    )


def no_such_team_member() -> ChatError:
    """The user is not in the team."""
    return ChatError(404, "app.team.get_member.missing.app_error", "No team member found for that user ID and team ID.")
