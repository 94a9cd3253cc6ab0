"""The board's description, fuzzed: whatever is sent, no 5xx, and every answer is one the description names.

Cases are generated from the OpenAPI description, valid and invalid ones, the same every time (`derandomize`). Statuses,
content types, headers and bodies of the answers have to conform to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from board_service.app import create_app
from board_service.settings import BoardSettings
from tests.support.board_server import RunningBoard, running_board

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 60
STREAM = "/board/{board}/stream"
load_all_checks()
DESCRIPTION = create_app(BoardSettings()).openapi()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok))
}


def takes_anything(name: str) -> bool:
    method, path = name.split(" ")
    operation = DESCRIPTION["paths"][path][method.lower()]
    return bool(operation.get("parameters") or operation.get("requestBody"))


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBoard]:
    with running_board(tmp_path_factory.mktemp("board")) as running:
        client = requests.Session()
        client.trust_env = False
        for content in ("the first claim", "the second claim"):
            sent = {"type": "CLAIM", "content": content, "detail": "x"}
            token = {"Authorization": f"Bearer {running.admin_token}"}
            assert client.post(f"{running.url}/board/main/note", json=sent, headers=token).status_code == 200
        client.close()
        yield running


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.fixture(scope="module")
def tokens(board: RunningBoard) -> list[str]:
    return [board.admin_token, board.token_for("w1"), board.token_for("r1", role="reader"), "nobody's"]


CASES = [
    (name, mode)
    for name in OPERATIONS
    if STREAM not in name
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or takes_anything(name)
]


@pytest.mark.parametrize(("name", "mode"), CASES, ids=[f"{name}, {mode.value}" for name, mode in CASES])
def test_fuzzed(
    name: str, mode: GenerationMode, board: RunningBoard, session: requests.Session, tokens: list[str]
) -> None:
    operation = OPERATIONS[name]

    @settings(
        derandomize=True,
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.sampled_from([0, 0, 0, 1, 2, 3]))
    def fuzz(case: schemathesis.Case[Any], who: int) -> None:
        token = {"Authorization": f"Bearer {tokens[who]}"}
        answer = case.call(base_url=board.url, session=session, headers=token, timeout=20, allow_redirects=False)
        case.validate_response(answer, checks=CHECKS)

    fuzz()
