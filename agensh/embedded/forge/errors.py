"""The forge's answers that are not a success, in the shape Gitea gives them."""

from __future__ import annotations


class ApiError(Exception):
    """An answer with a status of 400 and above; `message` is what the client reads."""

    def __init__(self, status: int, message: str, **fields: object) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.fields = fields


def not_found() -> ApiError:
    """What does not exist, or must not be known to exist."""
    return ApiError(404, "The target couldn't be found.", errors=[])


def forbidden(message: str = "Must have sufficient permission to do this.") -> ApiError:
    """The caller is known and lacks the right."""
    return ApiError(403, message)


def unprocessable(message: str) -> ApiError:
    """The request is understood and cannot be done as it is."""
    return ApiError(422, message)
