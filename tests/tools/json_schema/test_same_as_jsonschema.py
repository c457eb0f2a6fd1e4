"""Our checks and those of the `jsonschema` library, on the same schemas and inputs: they must agree on what is valid."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema.validators import Draft7Validator, Draft202012Validator

from codesdk.tools.json_schema.compiler import compile_schema
from codesdk.tools.json_schema.work import Work

NAMES = st.sampled_from(["a", "b", "ab", ""])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 12), st.sampled_from([0.5, 1.0, 2.5, -1.5, 1e20]), NAMES
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "integer", "number", "null"])
PATTERNS = st.sampled_from(["^a", "b$", "^(a|b)+$", "", "^[^a]"])
COUNTS = st.integers(0, 4)
NUMBERS = st.one_of(st.integers(-3, 6), st.sampled_from([0.5, 2.0]))
PLAIN: dict[str, Any] = {
    "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
    "const": VALUES,
    "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr),
    "minimum": NUMBERS,
    "maximum": NUMBERS,
    "exclusiveMinimum": NUMBERS,
    "exclusiveMaximum": NUMBERS,
    "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
    "minLength": COUNTS,
    "maxLength": COUNTS,
    "pattern": PATTERNS,
    "minItems": COUNTS,
    "maxItems": COUNTS,
    "uniqueItems": st.booleans(),
    "minProperties": COUNTS,
    "maxProperties": COUNTS,
    "required": st.lists(NAMES, max_size=2, unique=True),
}


def nesting(inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Return the keywords that lead to other schemas."""
    several = st.lists(inner, min_size=1, max_size=3)
    return {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "contains": inner,
        "items": inner,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }


def schemas(newer: bool) -> st.SearchStrategy[Any]:
    def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        found = PLAIN | nesting(inner)
        if newer:
            found |= {
                "prefixItems": st.lists(inner, min_size=1, max_size=3),
                "minContains": COUNTS,
                "maxContains": COUNTS,
                "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=2),
                "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
                "$ref": st.sampled_from(["#/$defs/x", "#y"]),
            }
        else:
            lists = st.lists(inner, min_size=1, max_size=3)
            found |= {
                "items": st.one_of(inner, lists),
                "additionalItems": inner,
                "dependencies": st.dictionaries(
                    NAMES, st.one_of(inner, st.lists(NAMES, unique=True)), max_size=2
                ),
                "$ref": st.sampled_from(["#/$defs/x"]),
            }
        return st.lists(st.sampled_from(sorted(found)), max_size=4, unique=True).flatmap(
            lambda keys: st.fixed_dictionaries({key: found[key] for key in keys})
        )

    return st.recursive(st.booleans(), objects, max_leaves=6)


DEFS = {"x": {"type": ["string", "array"], "minItems": 1}, "z": {"$anchor": "y", "multipleOf": 2}}


def agree(kind: Any, field: Any, value: Any) -> None:
    schema = {"type": "object", "properties": {"v": field}, "$defs": DEFS, "$schema": kind.META_SCHEMA["$id"]}
    ours = compile_schema(schema).problem({"v": value}, Work())
    assert (ours is None) == kind(schema).is_valid({"v": value}), ours and ours.words


@pytest.mark.slow
@given(schemas(newer=True), VALUES)
@settings(max_examples=400, deadline=None)
def test_they_agree_on_schemas_of_2020_12(field, value):
    agree(Draft202012Validator, field, value)


@pytest.mark.slow
@given(schemas(newer=False), VALUES)
@settings(max_examples=400, deadline=None)
def test_they_agree_on_schemas_of_draft_7(field, value):
    agree(Draft7Validator, field, value)
