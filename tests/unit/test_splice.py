from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.mcp.notices import add_notice, place, text_block
from router.mcp.splice import apply, elements, member, members, notice_edits, room_in, schema_edits
from tests.unit.test_notices import RESULTS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def spliced(text: str) -> str:
    placement = place(json.loads(text))
    assert placement is not None
    return apply(text, notice_edits(text, 0, placement, "N"))


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_splicing_says_what_add_notice_says(name: str, indent: int | None, ascii_only: bool) -> None:
    result: dict[str, Any] = {"_meta": {"x": 1}, **RESULTS[name][0], "zz": [1.5]}
    text = json.dumps(result, indent=indent, ensure_ascii=ascii_only)
    assert json.loads(spliced(text)) == add_notice(result, "N")


@given(JSON, JSON, st.booleans(), st.booleans())
def test_any_result(extra: Any, structured: Any, failed: bool, first: bool) -> None:
    block = {"type": "text", "text": "a", "extra": extra}
    result: dict[str, Any] = {"content": [block, {"type": "odd", "v": extra}], "isError": failed, "x": extra}
    result = {"structuredContent": structured, **result} if first else {**result, "structuredContent": structured}
    assert json.loads(spliced(json.dumps(result))) == add_notice(result, "N")


def test_every_other_byte_stays() -> None:
    text = '{ "a" : 1.0e400 ,"content":[ {"type":"text","text":"\\u00fc\\/ü"}\t] , "n":123456789012345678901234567890 }'
    block = json.dumps(text_block("\nN"))
    assert spliced(text) == text.replace("\t]", "\t," + block + "]")


def test_the_last_of_two_members_of_one_name_counts() -> None:
    text = '{"content":[],"structuredContent":1,"content":[{"type":"text","text":"b"}],"structuredContent":{"k":2}}'
    assert json.loads(spliced(text)) == {
        "content": [text_block("b"), text_block('{"k": 2}'), text_block("\nN")],
    }


def test_output_schemas_go_and_nothing_else() -> None:
    text = (
        '{"tools":[{"name":"a","outputSchema":{"type":"object"},"inputSchema":{"outputSchema":1}},'
        '{"outputSchema":{} , "name":"b"},{"name":"c","outputSchema":null},{"outputSchema":{}},{"name":"d"}],'
        '"nextCursor":"x"}'
    )
    changed = apply(text, schema_edits(text, 0))
    assert changed == (
        '{"tools":[{"name":"a","inputSchema":{"outputSchema":1}},{"name":"b"},{"name":"c"},{},{"name":"d"}],'
        '"nextCursor":"x"}'
    )


@pytest.mark.parametrize("text", ['{"tools":null}', '{"tools":[]}', "{}", '{"tools":[1,"a",null]}'])
def test_odd_listings_stay(text: str) -> None:
    assert schema_edits(text, 0) == []


def test_members_and_elements_stand_where_they_say() -> None:
    text = ' { "k\\"1" : [1, {"a":2} ,"]"] , "k2":{} } '
    found = members(text, 1)
    assert [(item.key, text[item.value : item.end]) for item in found] == [
        ('k"1', '[1, {"a":2} ,"]"]'),
        ("k2", "{}"),
    ]
    assert [text[start:end] for start, end in elements(text, found[0].value)] == ["1", '{"a":2}', '"]"']
    assert member(text, 1, "k3") is None


@pytest.mark.parametrize("result", [None, [], "x", {}, {"content": 1}, {"content": [text_block("x" * 100_000)]}])
def test_what_carries_no_notice(result: Any) -> None:
    assert room_in(result) is None
