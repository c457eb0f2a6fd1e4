"""What may still become a JSON object, against the json module."""

import json
from itertools import pairwise
from typing import Any, Never

from hypothesis import example, given, strategies as st

from codesdk.channel.json_prefix import ObjectPrefix

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
ENDINGS = [
    *(
        "}",
        ":1}",
        "1}",
        '":1}',
        '"}',
        '1":1}',
        ',"":1}',
        'n":1}',
        'n"}',
        "e}",
        "l}",
        "ll}",
        "ull}",
        "ue}",
        "rue}",
    ),
    *(
        "se}",
        "lse}",
        "alse}",
        *(zeros + end for zeros in ("0", "00", "000", "0000") for end in ('":1}', '"}')),
    ),
]
"""After any beginning of an object whose inner brackets are closed, one of these makes it whole."""


def refuse(word: str) -> Never:
    raise ValueError(word)


def is_object(line: bytes) -> bool:
    """Return whether a line is an object by the grammar; its text need not be UTF-8."""
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace"), parse_constant=refuse), dict)
    except ValueError:
        return False


def closers(line: bytes) -> str:
    """Return the brackets that a beginning leaves open, innermost first."""
    open_: list[str] = []
    inside = escaped = False
    for character in line.decode("latin-1"):
        if inside:
            inside = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            inside = True
        elif character in "{[":
            open_.append("}" if character == "{" else "]")
        elif character in "}]" and open_:
            open_.pop()
    return "".join(reversed(open_))


def can_become_an_object(line: bytes) -> bool:
    """Return whether anything makes it one, by trying all that might."""
    rest = closers(line)
    ends = [end.removesuffix("}") for end in ENDINGS] + [""]
    return any(is_object(line + (end + rest).encode()) for end in ends)


def fed(line: bytes, cuts: list[int]) -> bool:
    prefix = ObjectPrefix()
    places = sorted({0, len(line), *(min(cut, len(line)) for cut in cuts)})
    return all(prefix.feed(line[a:b]) for a, b in pairwise(places))


CUTS = st.lists(st.integers(0, 80), max_size=8)


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]), st.data())
def test_every_beginning_of_an_object_may_become_one(
    value: dict[str, Any], ascii_only: bool, indent: int | None, data: st.DataObject
):
    line = json.dumps(value, ensure_ascii=ascii_only, indent=indent).replace("\n", "\t")
    encoded = line.encode("utf-8", "surrogatepass") + b" \r"
    length = data.draw(st.integers(0, len(encoded)))
    assert fed(encoded[:length], data.draw(CUTS))
    whole = ObjectPrefix()
    assert whole.feed(encoded)
    assert whole.is_whole


@given(st.lists(st.sampled_from(list('{}[]",:\\ u0a1-+.eEtrfalsn\t\x01\x80')), max_size=14), CUTS)
@example(list('{"a":-0.1e+1'), [])
@example(list('{"a":[{"b":[]}'), [6])
@example(list('{"\\u00'), [3])
@example(list('{"a":01'), [])
@example(list("{y/n} "), [])
def test_what_is_let_through_is_what_nothing_can_complete(characters: list[str], cuts: list[int]):
    line = ("{" + "".join(characters)).encode("latin-1")
    assert fed(line, cuts) == can_become_an_object(line)


@given(OBJECTS, st.integers(0, 200), st.binary(min_size=1, max_size=1), CUTS)
def test_an_object_with_one_wrong_byte_is_judged_as_the_json_module_does(
    value: dict[str, Any], place: int, byte: bytes, cuts: list[int]
):
    line = json.dumps(value).encode()
    place %= len(line)
    changed = (line[:place] + byte + line[place + 1 :]).replace(b"\n", b"\t")
    if not changed.startswith(b"{"):
        changed = b"{" + changed
    assert fed(changed, cuts) == can_become_an_object(changed)
