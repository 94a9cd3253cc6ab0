"""What the provider says to a run's credential, asked by the gateway, as a sentence for whoever starts the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from adapters.provider_errors import sentence
from agensh.errors import AgenshError
from agensh.rundir import RunDir, RunInfo
from agensh.spec import GatewaySection

ANSWER = 30.0  # seconds; the gateway itself waits for the provider for less
_REFUSED = 401


async def ask_provider(run: RunDir, info: RunInfo) -> dict[str, Any]:
    """Have the gateway ask, from inside the project's networks; AgenshError when it does not answer."""
    headers = {"Authorization": f"Bearer {run.secrets().gateway_admin}"}
    try:
        async with httpx.AsyncClient(headers=headers, timeout=ANSWER, trust_env=False) as http:
            found: dict[str, Any] = (await http.get(f"{info.urls.gateway}/provider")).raise_for_status().json()
    except httpx.HTTPError as error:
        raise AgenshError(f"the gateway does not answer: {error!r}") from error
    return found


def judge(section: GatewaySection, answer: Mapping[str, Any], command: str) -> str:
    """Return what a person should know of the provider's answer, nothing when it takes the credential.

    AgenshError when it refuses it, with `command` as what to call when the key has been put right.
    """
    said = sentence(str(answer["said"])).rstrip(".")
    if answer["status"] == _REFUSED:
        key = f"the key in {section.api_key_env}" if section.auth != "none" else "requests without a key"
        raise AgenshError(
            f"gateway: {section.base_url} refuses {key} (401: {said or 'no reason given'}); put it right in .env and "
            f"call `{command}` again."
        )
    if answer["status"] == 0:
        return (
            f"gateway: {section.base_url} cannot be reached ({said}); the workers wait until it can. In a container "
            "127.0.0.1 is the container itself, and the proxies of the environment are not looked at."
        )
    return ""
