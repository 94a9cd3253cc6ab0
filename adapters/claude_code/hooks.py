"""What is pending for the worker, asked for after every tool of the CLI.

Claude Code asks its host itself (`hook_callback`), so no process starts for it: the adapter asks the worker's hook
endpoint and hands the answer on as it is. That endpoint and the results of our own tools take from one desk, so nothing
is shown by both.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

import httpx

from adapters.base import WorkerLaunch

Json: TypeAlias = dict[str, object]

EVENTS = ("PostToolUse", "PostToolUseFailure")
"""The second comes instead of the first, also for a command that merely ends with another code than 0."""
_SECONDS = 5.0  # the host answers from memory; more means that it is gone

log = logging.getLogger(__name__)


class Hooks:
    """The worker's hook endpoint; without one nothing is ever pending."""

    def __init__(self, launch: WorkerLaunch) -> None:
        self.events = EVENTS if launch.hooks_url else ()
        self._worker = launch.worker
        self._url = f"{launch.hooks_url}/claude"
        headers = {"Authorization": f"Bearer {launch.mcp_token}"}
        self._client = httpx.AsyncClient(headers=headers, timeout=_SECONDS, trust_env=False)

    async def ask(self, event: str) -> Json:
        """Return what to answer the CLI; nothing when the endpoint does not answer, for a tool must not wait for it."""
        try:
            response = await self._client.post(self._url, json={"hook_event_name": event})
            response.raise_for_status()
            answer = response.json()
        except (httpx.HTTPError, ValueError) as error:
            log.warning(
                "hook not answered", extra={"worker": self._worker, "error": f"{type(error).__name__}: {error}"}
            )
            return {}
        return answer if isinstance(answer, dict) else {}

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()
