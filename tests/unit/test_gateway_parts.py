"""The gateway's small parts: requests, refusals, prices, budgets, the credential."""

from __future__ import annotations

import json

import pytest

from agensh.errors import SpecError
from agensh.gateway.accounts import Accounts, dollars
from agensh.gateway.credential import credential_headers, read_credential
from agensh.gateway.ledger import Total
from agensh.gateway.models import only_allowed
from agensh.gateway.prices import load_prices
from agensh.gateway.usage import Tokens
from agensh.gateway.wires import Refusal, Wire, ask_for_usage, read_head
from agensh.spec import GatewaySection, parse_spec
from tests.support.gateway import section

URL = "http://127.0.0.1:1/v1"


def test_a_head_is_read_on_every_wire():
    for body in (
        {"reasoning": {"effort": "high"}},
        {"reasoning_effort": "high"},
        {"output_config": {"effort": "high"}},
    ):
        head = read_head(json.dumps({"model": "m", "stream": True, "input": ["x"], **body}).encode())
        assert (head.model, head.stream, head.effort) == ("m", True, "high")
    assert read_head(b'{"model":"m","reasoning":null}').effort == ""


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b'{"model": 3}', b'{"stream": []}', b"[" * 5000])
def test_a_body_that_is_none_is_one_sentence(body):
    with pytest.raises(Refusal) as caught:
        read_head(body)
    assert caught.value.status == 400
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","stream":true}',
        b' \n{ "model":"m","stream":true}',
        b'{"model":"m","stream":true} \r\n',
        b'{"model":"m","stream":true,"stream_options":null}',
        rb'{"model":"m","stream":true,"stream\u005foptions":null}',
        b'{"model":"m","stream":true,"stream_options":{"include_usage":false,"x":1}}',
    ],
)
def test_the_usage_is_asked_for_and_nothing_else_changes(body):
    changed, added = ask_for_usage(body, read_head(body))
    assert added
    before, after = json.loads(body), json.loads(changed)
    assert after.pop("stream_options") == {**(before.pop("stream_options", None) or {}), "include_usage": True}
    assert after == before


def test_a_client_that_asks_for_the_usage_is_left_alone():
    body = b'{"model":"m", "stream":true,"stream_options":{"include_usage":true}}'
    assert ask_for_usage(body, read_head(body)) == (body, False)


def test_a_refusal_has_the_shape_of_its_wire():
    refusal = Refusal(402, "agensh_budget_spent", "Stop.")
    error = {"message": "Stop.", "type": "billing_error", "code": "agensh_budget_spent"}
    assert json.loads(refusal.body(Wire.MESSAGES)) == {"type": "error", "error": error}
    for wire in (Wire.CHAT, Wire.RESPONSES):
        assert json.loads(refusal.body(wire)) == {"error": error | {"param": None}}
    assert dict(refusal.headers())[b"x-should-retry"] == b"false"


def test_prices_of_fresh_cached_and_written_input_and_of_output(tmp_path):
    own = tmp_path / "prices.toml"
    own.write_text('["gpt-5.4"]\ninput = 1\noutput = 10\n[mine]\ninput=1\ncached=0.1\ncache_write=2\noutput=10\n')
    prices = load_prices(own)
    tokens = Tokens(1_000_000, 600_000, 100_000, 50_000, 20_000)
    assert prices.cost(tokens, "mine") == pytest.approx(0.3 + 0.06 + 0.2 + 0.5)
    assert prices.cost(tokens, "gpt-5.4") == pytest.approx(1 + 0.5), "its own table wins, and cached costs as input"
    assert prices.cost(tokens, "gpt-5.4-2026-03-05") == prices.cost(tokens, "gpt-5.4-20260305") == pytest.approx(1.5)
    assert prices.cost(tokens, "deployment-7") is None
    assert prices.cost(tokens, "deployment-7", "mine") is not None, "the name the provider gave"
    assert load_prices().price("claude-sonnet-4-5") is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 3", r"x: 3 is not allowed; expected a table"),
        ("[m]\ninput = 1", r"m\.output: missing"),
        ("[m]\ninput = -1\noutput = 1", r"m\.input: -1 is not allowed"),
        ("[m]\ninput = true\noutput = 1", r"m\.input: True is not allowed"),
        ("[m]\ninput = nan\noutput = 1", r"m\.input: nan is not allowed"),
        ("[m]\ninput = 1\noutput = 1\ninpt = 2", r"m\.inpt: no such key"),
        ("[m", r"not valid TOML"),
    ],
)
def test_a_mistake_in_a_table_names_file_model_and_key(tmp_path, text, said):
    own = tmp_path / "prices.toml"
    own.write_text(text)
    with pytest.raises(SpecError, match=said) as caught:
        load_prices(own)
    assert str(own) in str(caught.value)


def test_a_spent_budget_refuses_and_says_whose():
    accounts = Accounts(1.0, 0.5, {"a": Total(1, Tokens(), 0.2)})
    accounts.check("a")
    accounts.add("a", Tokens(10), 0.3)
    with pytest.raises(Refusal, match=r"worker's budget of \$0\.50 is spent") as caught:
        accounts.check("a")
    assert (caught.value.status, caught.value.code) == (402, "agensh_budget_spent")
    accounts.check("b")
    accounts.add("b", Tokens(10), 0.49)
    accounts.check("b")
    accounts.add("b", Tokens(10), 0.01)
    with pytest.raises(Refusal, match=r"team's budget of \$1\.00"):
        accounts.check("c")
    usage = accounts.usage({"c"})
    assert usage["team"] == {"spent_usd": 1.0, "budget_usd": 1.0, "share": 1.0}
    assert {name: row["stopped"] for name, row in usage["workers"].items()} == {"a": True, "b": False, "c": True}


def test_without_a_budget_nothing_is_refused_and_unpriced_tokens_cost_nothing():
    accounts = Accounts(0, 0)
    accounts.add("a", Tokens(10, output=4), None)
    accounts.check("a")
    row = accounts.usage(set())["workers"]["a"]
    assert (row["requests"], row["input_tokens"], row["output_tokens"], row["spent_usd"]) == (1, 10, 4, 0)


def test_dollars():
    assert [dollars(x) for x in (0, 0.05, 0.0512, 5, 12.345)] == ["$0.00", "$0.05", "$0.0512", "$5.00", "$12.35"]


def test_a_model_list_shows_what_is_allowed():
    body = json.dumps({"data": [{"id": "a"}, {"id": "b"}], "first_id": "a", "last_id": "b"}).encode()
    assert only_allowed(body, ()) == body
    assert json.loads(only_allowed(body, ("b",))) == {"data": [{"id": "b"}], "first_id": "b", "last_id": "b"}
    assert json.loads(only_allowed(body, ("c",))) == {"data": [], "first_id": None, "last_id": None}
    for other in (b"no json", b"[]", b'{"data": 3}'):
        assert only_allowed(other, ("a",)) == other


def test_the_credential_comes_from_the_environment_or_a_private_file(tmp_path):
    named = section(URL, api_key_env="KEY")
    assert read_credential(named, {"KEY": " sk-1\n"}) == "sk-1"
    with pytest.raises(SpecError, match="'KEY' is not set"):
        read_credential(named, {})
    with pytest.raises(SpecError, match="does not hold a credential"):
        read_credential(named, {"KEY": "two words"})
    file = tmp_path / "key"
    file.write_text("sk-2\n")
    file.chmod(0o644)
    filed = section(URL, api_key_env="", api_key_file=file)
    with pytest.raises(SpecError, match=r"has mode 644.*chmod 600"):
        read_credential(filed)
    file.chmod(0o600)
    assert read_credential(filed) == "sk-2"
    file.unlink()
    with pytest.raises(SpecError, match="cannot be read"):
        read_credential(filed)
    assert read_credential(section(URL, api_key_env="", auth="none"), {}) == ""


def test_each_provider_has_its_header():
    found = [credential_headers(section(URL, auth=auth), "k") for auth in ("bearer", "x-api-key", "api-key")]
    assert found == [{"authorization": "Bearer k"}, {"x-api-key": "k"}, {"api-key": "k"}]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"base_url": "ftp://x/v1"}, r"gateway\.base_url: 'ftp://x/v1' is not allowed"),
        ({"base_url": "api.openai.com/v1"}, r"gateway\.base_url"),
        ({"base_url": "https://me:secret@x/v1"}, r"gateway\.base_url: it holds a credential"),
        ({"api_key_env": ""}, r"gateway\.api_key_env: missing"),
        ({"api_key_file": "x"}, r"gateway\.api_key_file: not allowed beside api_key_env"),
        ({"auth": "none"}, r'gateway\.auth: "none" is not allowed when'),
        ({"auth": "basic"}, r"gateway\.auth: 'basic' is not allowed"),
        ({"headers": {"Authorization": "Bearer sk"}}, r"gateway\.headers: 'Authorization' is not allowed"),
        ({"headers": {"x\r\ny": "z"}}, r"gateway\.headers"),
        ({"headers": {"x": "a\r\nb"}}, r"gateway\.headers"),
        ({"budget_usd": -1}, r"gateway\.budget_usd: -1 is not allowed"),
        ({"concurrency": 0}, r"gateway\.concurrency: 0 is not allowed"),
        ({"api_key": "sk"}, r"gateway\.api_key: no such key"),
    ],
)
def test_a_mistake_in_the_section_names_key_and_value(values, said):
    base = {"base_url": URL, "api_key_env": "KEY"} | values
    spec = {"team": {"name": "team"}, "task": {"kind": "repo", "goal": "g", "acceptance": "true"}, "gateway": base}
    with pytest.raises(SpecError, match=said) as caught:
        parse_spec(spec)
    assert "secret" not in str(caught.value)


def test_a_section_survives_json():
    one = section(URL, models=["a"], queue_wait="5m")
    assert GatewaySection.model_validate_json(one.model_dump_json()) == one
