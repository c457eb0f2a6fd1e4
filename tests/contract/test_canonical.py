"""Canonical JSON: our vectors, the published ones where they are at hand, and a fuzz against `rfc8785`."""

import copy
import enum
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import example, given, settings, strategies as st
from tests.counts import COUNTS

from codesdk.contract import canonical as canonical_module
from codesdk.contract.canonical import CanonicalError, canonical, content_hash, hash_json

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
VECTORS_PATH = HERE / "canonical_vectors.json"
VECTORS = json.loads(VECTORS_PATH.read_text(encoding="utf-8"))
DOCUMENTS = [pytest.param(vector, id=vector["name"]) for vector in VECTORS["documents"]]
REFUSED = [pytest.param(vector["source"], id=vector["name"]) for vector in VECTORS["refused"]]
PUBLISHED = REPOSITORY.parent / "shared" / "data" / "jcs"

INT_MAX = 2**53 - 1


def from_bits(bits: str) -> float:
    return struct.unpack(">d", bytes.fromhex(bits))[0]


# --- vectors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "text"), VECTORS["numbers"].items())
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, text: str) -> None:
    assert canonical(from_bits(bits)) == text.encode()


@pytest.mark.parametrize("vector", DOCUMENTS)
def test_a_document_has_the_expected_form_and_hash(vector: dict[str, str]) -> None:
    value = json.loads(vector["source"])
    assert (canonical(value).decode(), hash_json(value)) == (vector["text"], vector["hash"])


@pytest.mark.parametrize("vector", DOCUMENTS)
def test_the_canonical_form_is_its_own_canonical_form(vector: dict[str, str]) -> None:
    # parse_int: a whole double from 2^53 up is written without exponent, and Python reads it as an int.
    again = json.loads(vector["text"], parse_int=float)
    assert canonical(again).decode() == vector["text"]


def published_cases() -> list[Any]:
    names = sorted(path.stem for path in (PUBLISHED / "input").glob("*.json"))
    missing = pytest.mark.skip(
        reason="the published RFC 8785 vectors (shared/data/jcs) are not on this machine"
    )
    return list(names) or [pytest.param("none", marks=missing)]


@pytest.mark.parametrize("name", published_cases())
def test_a_published_vector_is_met(name: str) -> None:
    value = json.loads((PUBLISHED / "input" / f"{name}.json").read_text(encoding="utf-8"))
    expected = bytes.fromhex((PUBLISHED / "outhex" / f"{name}.txt").read_text(encoding="ascii"))
    assert canonical(value) == expected == (PUBLISHED / "output" / f"{name}.json").read_bytes()


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", REFUSED)
def test_what_canonical_json_cannot_carry_is_refused(source: str) -> None:
    with pytest.raises(CanonicalError):
        canonical(json.loads(source))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, math.nan]}, "$.a[1] is nan, which is not a JSON number"),
        ((-math.inf,), "$[0] is -inf, which is not a JSON number"),
        ({"a": {"b": 2**53}}, "$.a.b is an integer beyond ±(2^53-1)"),
        ([10**5000], "$[0] is an integer beyond ±(2^53-1)"),
        ({"a": "x\ud800"}, "$.a has a lone surrogate"),
        ({"a": {"\udc00": 1}}, "$.a has a key with a lone surrogate: '\\udc00'"),
        ({"a": [{1: 2}]}, "$.a[0] has a key of type int, which is not a string"),
        ({None: 2}, "$ has a key of type NoneType, which is not a string"),
        ({True: 2, "a": 1}, "$ has a key of type bool, which is not a string"),
        ([1, 2j], "complex is not a JSON value"),
        ({"a": msgspec.Raw(b'{"b":1,"a":2}')}, "Raw is not a JSON value"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(value: object, message: str) -> None:
    with pytest.raises(CanonicalError) as caught:
        canonical(value)
    assert str(caught.value) == message


def nested(value: object, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.slow
def test_endless_and_very_deep_values_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in (endless, {"a": endless}, nested(1, depth=100_000)):
        with pytest.raises(CanonicalError, match="nested too deeply"):
            canonical(value)


@pytest.mark.slow
@pytest.mark.parametrize("leaf", [math.nan, object()], ids=["nan", "object"])
def test_a_fault_below_deep_nesting_is_still_a_canonical_error(leaf: object) -> None:
    limit = sys.getrecursionlimit()
    for depth in range(limit // 4, limit * 2, 20):
        with pytest.raises(CanonicalError):
            canonical(nested(leaf, depth))


def test_nesting_is_no_shallower_than_that_of_rfc8785() -> None:
    value = nested(1.0, depth=sys.getrecursionlimit() * 7 // 10)
    assert canonical(value) == rfc8785.dumps(value)


# --- Structs and other Python values ---------------------------------------------------------------


class Usage(msgspec.Struct, omit_defaults=True, rename="camel"):
    input_tokens: int = 0
    cost_usd: float = 0.0
    note: str | msgspec.UnsetType = msgspec.UNSET


class Finished(msgspec.Struct, tag="finished"):
    usage: Usage
    duration_s: float
    labels: frozenset[str] = frozenset()


class Color(enum.Enum):
    RED = "red"


class Name(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not the text"


class Key(str):
    __slots__ = ()


class Count(int):
    pass


class Share(float):
    pass


class Odd(enum.StrEnum):
    """Its text and its value differ, so msgspec's two ways of writing it do, too."""

    def __new__(cls, text: str) -> "Odd":
        member = str.__new__(cls, text)
        member._value_ = "value of " + text
        return member

    A = "a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Usage(), "{}"),
        (Usage(input_tokens=3, cost_usd=0.5), '{"costUsd":0.5,"inputTokens":3}'),
        (
            Finished(Usage(note="n"), 2.0),
            '{"duration_s":2,"labels":[],"type":"finished","usage":{"note":"n"}}',
        ),
        ({"b": [Usage(input_tokens=1)], "a": Usage()}, '{"a":{},"b":[{"inputTokens":1}]}'),
        ({"\ufb00": Usage(), "\U0001f600": 1e-7}, '{"\U0001f600":1e-7,"\ufb00":{}}'),
        ((1, (2, [3.0])), "[1,[2,[3]]]"),
        ({"c": Color.RED}, '{"c":"red"}'),
        ([Name("text"), Count(3), Share(0.5), Share(2)], '["text",3,0.5,2]'),
        ({Key("k"): 1}, '{"k":1}'),
        ({"b": {"z", "y", "x"}, "a": frozenset({3, 1, 2})}, '{"a":[1,2,3],"b":["x","y","z"]}'),
    ],
)
def test_python_values_count_as_what_msgspec_makes_of_them(value: object, text: str) -> None:
    assert canonical(value).decode() == text


def test_a_struct_is_refused_for_the_same_reasons() -> None:
    for usage in (Usage(cost_usd=math.nan), Usage(input_tokens=2**53), Usage(note="\ud800")):
        with pytest.raises(CanonicalError):
            canonical(usage)


def test_the_path_taken_does_not_change_how_a_key_is_written() -> None:
    assert canonical({Odd.A: 0.5}) == b'{"value of a":0.5}'
    assert canonical({Odd.A: {"\U0001f600": 0.5}}) == '{"value of a":{"\U0001f600":0.5}}'.encode()


def test_the_value_is_left_as_it_was() -> None:
    value = {"a": [1.0, {"b": -0.0}], "c": (1e21, 2.5), "\U0001f600": {"d": 1e-7}}
    before = copy.deepcopy(value)
    canonical(value)
    assert repr(value) == repr(before)


def test_an_ordinary_event_needs_no_help_from_rfc8785(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {
        "seq": 412,
        "at": 1731699999123,
        "raw": None,
        "p": {"ok": True, "s": 1.532, "delta": -2.5, "out": "✓ 😀\n", "é": [0]},
    }
    expected = rfc8785.dumps(event)

    def refuse(_: object) -> bytes:
        raise AssertionError("the slow path was taken")

    monkeypatch.setattr(canonical_module.rfc8785, "dumps", refuse)
    assert canonical(event) == expected


# --- fuzz against rfc8785 --------------------------------------------------------------------------

near_edges = st.builds(
    lambda bits, step: from_bits(f"{(int(bits, 16) + step) % 2**64:016x}"),
    st.sampled_from(list(VECTORS["numbers"])),
    st.integers(-3, 3),
)
any_bits = st.binary(min_size=8, max_size=8).map(lambda data: struct.unpack(">d", data)[0])
decimals = st.builds(
    lambda digits, places: digits / 10**places, st.integers(-(10**9), 10**9), st.integers(0, 15)
)
floats = (st.floats() | near_edges | any_bits | decimals).filter(math.isfinite)
integers = st.integers(-INT_MAX, INT_MAX) | st.sampled_from([INT_MAX, -INT_MAX, 0, -1])

# Characters on both sides of every border: escapes, UTF-8 lengths, and the surrogates' place in UTF-16 order.
borders = st.sampled_from(
    '\x00\x08\x1f "\\/\x7f\x80\u07ff\u0800\u2028\ud7ff\ue000\ufb33\uffff\U00010000\U0010ffff'
)
texts = st.text(st.characters(exclude_categories=["Cs"]) | borders, max_size=8)

scalars = st.none() | st.booleans() | integers | floats | texts


def nest(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        rows = st.lists(inner, max_size=5)
        return rows | rows.map(tuple) | st.dictionaries(keys, inner, max_size=6)

    return st.recursive(leaves, extend, max_leaves=25)


@settings(max_examples=5 * COUNTS.examples)
@given(nest(scalars, texts))
@example({"\U0001f600": 1.0, "\uffee": -0.0})
def test_every_json_value_is_written_as_rfc8785_writes_it(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@settings(max_examples=10 * COUNTS.examples)
@given(floats)
def test_every_double_is_written_as_rfc8785_writes_it_and_reads_back(number: float) -> None:
    written = canonical([number])
    assert written == rfc8785.dumps([number])
    assert json.loads(written, parse_int=float) == [number]


broken_leaves = (
    scalars | st.floats() | st.integers() | st.text(st.characters(categories=["Cs", "L"]), max_size=3)
)
broken_keys = (
    texts | st.text(st.characters(categories=["Cs", "L"]), max_size=3) | st.integers(0, 9) | st.none()
)


def dumps_or_none(value: Any) -> bytes | None:
    try:
        return rfc8785.dumps(value)
    except ValueError:
        return None


def canonical_or_none(value: object) -> bytes | None:
    try:
        return canonical(value)
    except CanonicalError:
        return None


@settings(max_examples=5 * COUNTS.examples)
@given(nest(broken_leaves, broken_keys))
@example([math.nan])
@example({"a": 2**53})
@example({"\ud800": 1})
@example({1: 1.0})
def test_exactly_what_rfc8785_refuses_is_refused(value: Any) -> None:
    assert canonical_or_none(value) == dumps_or_none(value)


# --- hashes ----------------------------------------------------------------------------------------


def test_a_content_hash_names_its_algorithm() -> None:
    assert content_hash(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert content_hash(b"abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_hash_json_hashes_the_canonical_form() -> None:
    assert hash_json({"b": 1.0, "a": "é"}) == content_hash('{"a":"é","b":1}'.encode())


# The module is loaded by its path: another interpreter may lack the rest of the package's dependencies.
# The set is there because its order, unlike a dict's, follows the hash seed.
PRINT_HASHES = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("canonical", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with open(sys.argv[2], encoding="utf-8") as file:
    documents = json.load(file)["documents"]
hashes = [module.hash_json(json.loads(vector["source"])) for vector in documents]
words = {"word %d" % number for number in range(50)}
print(json.dumps([*hashes, module.hash_json({"words": words}), list(words)]))
"""

FROZEN = [vector["hash"] for vector in VECTORS["documents"]]
FROZEN_SET = content_hash(
    json.dumps({"words": sorted(f"word {n}" for n in range(50))}, separators=(",", ":")).encode()
)


def hashes_elsewhere(python: str, seed: int) -> tuple[list[str], list[str]]:
    """Return the hashes that a fresh interpreter finds, and the order in which it iterates over the set."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    arguments = [python, "-c", PRINT_HASHES, str(canonical_module.__file__), str(VECTORS_PATH)]
    run = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    *hashes, order = json.loads(run.stdout)
    return hashes, order


def test_hashes_do_not_depend_on_the_hash_seed() -> None:
    results = [hashes_elsewhere(sys.executable, seed) for seed in (0, 1, 4242)]
    assert [hashes for hashes, _ in results] == [[*FROZEN, FROZEN_SET]] * 3
    assert len({tuple(order) for _, order in results}) > 1, (
        "the seeds made no difference: the test shows nothing"
    )


def other_pythons() -> list[str]:
    """Return the environments that the set-up made for the other Pythons of this machine."""
    made = Path(sys.prefix) / "other"
    return sorted(str(path) for path in made.glob("*/bin/python"))


def test_hashes_are_the_same_on_every_python() -> None:
    for python in [sys.executable, *other_pythons()]:
        assert hashes_elsewhere(python, seed=7)[0] == [*FROZEN, FROZEN_SET], python
