"""What a person does about workers that are parked."""

from __future__ import annotations

from collections.abc import Mapping

from adapters.base import Outcome
from agensh.rundir import RunInfo


def remedies(info: RunInfo, parked: Mapping[str, str]) -> list[str]:
    """Return a line for each kind of reason that has a known remedy; `parked` has the reasons by worker."""
    kinds = {reason.partition(":")[0] for reason in parked.values()}
    lines = []
    if Outcome.AUTH in kinds:
        lines.append(f"The provider refuses the key: put it right in {_place(info)}, then {_again(info)}.")
    if Outcome.QUOTA_SPENT in kinds:
        stop = "call `agensh down`" if info.containers is not None else "stop the run"
        lines.append(
            f"The money is spent. Of the account: pay, then {_again(info)}. A budget of the gateway: {stop}, raise it "
            f"in run.json (spec.gateway), then {_again(info)}."
        )
    return lines


def _place(info: RunInfo) -> str:
    gateway = info.spec.gateway
    if gateway is None or gateway.auth == "none":
        return "the provider's settings"
    if gateway.api_key_file is not None:
        return str(gateway.api_key_file)
    return f"{gateway.api_key_env} in .env" if info.containers is not None else f"the variable {gateway.api_key_env}"


def _again(info: RunInfo) -> str:
    if info.containers is not None:
        return "call `agensh up` again"
    return f"stop and `agensh resume {info.run_id}`"
