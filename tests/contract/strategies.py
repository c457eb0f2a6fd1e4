"""Any struct of the contract → a hypothesis strategy for it, read from its annotations.

Optional fields are left out as often as they are given, so that both wire shapes are tried.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as mi

from codesdk.contract.events import EVENT_OF, EVENT_TYPES, SCHEMA_VERSION, Event, RuntimeInfo, Trace

INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TIMES = st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "Z")


def structs(struct: type) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of a struct type."""
    return _of(mi.type_info(struct))


def payloads(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy for the payloads of an event type."""
    return structs(EVENT_TYPES[name])


def events(name: str) -> st.SearchStrategy[Event]:
    """Return a strategy for whole events of a type."""
    return st.builds(
        EVENT_OF[EVENT_TYPES[name]],
        schema_version=st.just(SCHEMA_VERSION),
        seq=st.integers(1, 2**53 - 1),
        time=TIMES,
        trace=structs(Trace),
        runtime=structs(RuntimeInfo),
        payload=payloads(name),
    )


def _of(info: Any) -> st.SearchStrategy[Any]:
    return _MAKERS[type(info)](info)


def _struct(info: mi.StructType) -> st.SearchStrategy[Any]:
    required = {field.name: _of(field.type) for field in info.fields if field.required}
    optional = {field.name: _of(field.type) for field in info.fields if not field.required}
    given = st.fixed_dictionaries(required, optional=optional)
    return given.map(lambda fields: info.cls(**fields))


_MAKERS: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    mi.AnyType: lambda _: JSON,
    mi.BoolType: lambda _: st.booleans(),
    mi.DictType: lambda info: st.dictionaries(st.text(max_size=8), _of(info.value_type), max_size=3),
    mi.FloatType: lambda info: FLOATS if info.ge is None else st.floats(info.ge, info.le),
    mi.IntType: lambda info: INTEGERS if info.ge is None else st.integers(info.ge, info.le),
    mi.ListType: lambda info: st.lists(_of(info.item_type), max_size=3),
    mi.LiteralType: lambda info: st.sampled_from(info.values),
    mi.NoneType: lambda _: st.none(),
    mi.StrType: lambda _: st.text(max_size=20),
    mi.StructType: _struct,
    mi.UnionType: lambda info: st.one_of([_of(part) for part in info.types]),
}


def without(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return a JSON object without the field that the path leads to."""
    head, *rest = path
    if not rest:
        return {key: item for key, item in value.items() if key != head}
    return value | {head: without(value[head], *rest)}


def required_fields(struct: type) -> list[str]:
    """Return the wire names of the fields that a struct always has."""
    return [field.encode_name for field in msgspec.structs.fields(struct) if field.required]
