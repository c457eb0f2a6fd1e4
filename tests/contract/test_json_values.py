"""The values of a JSON document are counted before it is decoded."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from codesdk.contract import json_values
from codesdk.contract.json_values import MOST_VALUES, has_too_many_values

VALUES: Any = st.recursive(
    st.none() | st.integers() | st.text('a,[{"\\\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a,[{"\\'), inner),
)


@pytest.mark.parametrize("piece", ["[],", "{},", "0,", '"",', '"a":0,', "[[", '"\\"",'])
def test_more_values_than_allowed_are_noticed(piece: str):
    assert has_too_many_values(b"[" + piece.encode() * MOST_VALUES + b"0]")


@pytest.mark.parametrize("text", [",", "[{", '",', "\\", "\\\\,", '\\",', '\\\\"],[,'])
def test_what_stands_in_a_string_is_no_value(text: str):
    document = msgspec.json.encode({"text": text * MOST_VALUES, "more": [text]})
    assert not has_too_many_values(document)


@given(VALUES)
def test_the_count_of_values_is_never_too_small_and_at_most_twice_as_large(value: Any):
    document, count = msgspec.json.encode(value), _count(value)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_values, "MOST_VALUES", 2 * count)
        assert not has_too_many_values(document)
        if count > 1:
            patched.setattr(json_values, "MOST_VALUES", count - 2)
            assert has_too_many_values(document)


def _count(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, parts))
