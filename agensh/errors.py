"""Errors that a person or an agent reads.

Each message names the field or the thing, the value, and what to do. `exit_code` follows the command line's contract:
1 failed, 2 wrong usage.
"""

from __future__ import annotations

import inspect


class AgenshError(Exception):
    """Something went wrong inside Agensh."""

    exit_code = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


class UsageError(AgenshError):
    """The command was called in a way it does not understand; see --help."""

    exit_code = 2


class SpecError(UsageError):
    """The team spec is not valid."""


class ServiceError(AgenshError):
    """A service answered with an error.

    `status` is the HTTP status, or 0 when no answer came. `retryable` says that the same call may succeed later.
    `retry_after` is the wait in seconds the service asked for, when it did.
    """

    def __init__(
        self,
        service: str,
        status: int,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        where = f"{service} answered {status}" if status else f"{service} did not answer"
        super().__init__(f"{where}: {message}")
        self.service = service
        self.status = status
        self.reason = message
        self.retryable = retryable
        self.retry_after = retry_after
