"""Schemas and inputs made to keep the process busy: refused when the tool is added, or checked in bounded steps."""

from typing import Any

import pytest
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.tools.json_input import schema_check
from codesdk.tools.json_schema.compiler import MAX_IN_PLACE, MAX_PATTERNS, compile_schema
from codesdk.tools.json_schema.shapes import MAX_DEPTH, MAX_VALUES
from codesdk.tools.json_schema.work import MAX_STEPS, TooMuchWork, Work

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def with_field(field: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": field}, **more}


def doubled(levels: int, keyword: str) -> dict[str, Any]:
    """Each definition leads to the next one twice: 2 ** levels ways for one value."""
    defs: dict[str, Any] = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    defs[f"d{levels}"] = {"const": 1}
    return with_field({"$ref": "#/$defs/d0"}, **{"$defs": defs})


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"const": 1}
    for _ in range(levels):
        schema = {"anyOf": [schema]}
    return with_field(schema)


COLLIDING = [(2**61 - 1) * n for n in range(1, 60_000)]
SLOW: list[tuple[str, dict[str, Any], Any]] = [
    ("nested quantifiers", with_field({"pattern": "^(a+)+$"}), "a" * 50_000 + "!"),
    ("overlapping alternatives", with_field({"pattern": "^(a|a|aa)*$"}), "a" * 50_000 + "!"),
    ("many stars", with_field({"pattern": "^.*.*.*.*.*.*.*.*x$"}), "a" * 50_000),
    ("a slow look-ahead", with_field({"pattern": "^(?=(a+)+$)a"}), "a" * 50_000 + "!"),
    ("slow names of fields", {"type": "object", "patternProperties": {"^(a+)+$": {}}}, None),
    ("doubled anyOf", doubled(24, "anyOf"), 2),
    ("doubled oneOf", doubled(24, "oneOf"), 2),
    ("doubled allOf", doubled(24, "allOf"), 1),
    ("equal entries", with_field({"uniqueItems": True}), [{"n": n} for n in range(60_000)]),
    ("integers of one hash", with_field({"uniqueItems": True}), COLLIDING),
    ("an enum of one hash", with_field({"enum": COLLIDING[:15_000]}), COLLIDING[-1]),
    ("a huge dividend", with_field({"multipleOf": 7}), 10**4_000),
    ("an absurd quotient", with_field({"multipleOf": 1e-300}), 1e300),
    ("many inputs times many forms", with_field({"items": {"anyOf": [{"const": n} for n in range(1_000)]}}), [-1] * 10_000),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), [row[1:] for row in SLOW], ids=[row[0] for row in SLOW])
@pytest.mark.slow
def test_an_input_that_was_made_to_be_slow_is_answered_in_bounded_steps(schema, value):
    with hang_guard():
        check = schema_check("mcp.evil.tool", schema)
        answer = check({"a" * 60_000 + "!": 1} if value is None else {"a": value})
    assert answer is None or answer.startswith("The input of mcp.evil.tool is not valid. ")


def test_the_work_of_a_check_never_exceeds_its_limit_and_the_error_says_what_to_do():
    check = schema_check("mcp.evil.tool", doubled(24, "anyOf"))
    assert str(check({"a": 2})).startswith(
        "The input of mcp.evil.tool is not valid. Checking it takes more than 200,000 steps; send less at once."
    )
    compiled = compile_schema(doubled(24, "anyOf"))
    work = Work()
    with pytest.raises(TooMuchWork):
        compiled.problem({"a": 2}, work)
    assert work.left >= -10


@pytest.mark.parametrize("length", [1_000, 2_000, 4_000])
def test_the_steps_of_a_pattern_grow_with_the_text_and_not_faster(length):
    compiled = compile_schema(with_field({"pattern": "^(a|aa|b)+$"}))
    work = Work()
    assert compiled.problem({"a": "a" * length + "!"}, work) is not None
    assert MAX_STEPS - work.left <= 20 + length


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("a loop of references", with_field({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}}), "apply to one value by each other"),
    ("a reference to itself", with_field({"$ref": "#/properties/a"}), "apply to one value by each other"),
    ("a loop through anyOf", with_field({"anyOf": [{"$ref": "#/properties/a"}, {"type": "string"}]}), "apply to one value by each other"),
    ("a loop through not", with_field({"not": {"$ref": "#/properties/a"}}), "apply to one value by each other"),
    ("a loop through if", with_field({"if": True, "then": {"$ref": "#/properties/a"}}), "apply to one value by each other"),
    ("a loop through dependencies", with_field({"dependencies": {"b": {"$ref": "#/properties/a"}}}), "apply to one value by each other"),
    ("a long chain of references", with_field({"$ref": "#/$defs/d0"}, **{"$defs": {**{f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5_000)}, "d5000": {}}}), "apply to one value by each other"),
    ("too deep", nested(MAX_DEPTH), "nested deeper than"),
    ("a million values", with_field({"enum": list(range(1_000_000))}), f"more than {MAX_VALUES:,} values"),
    ("back references", with_field({"pattern": r"^(a*)*\1$"}), "the pattern cannot be used"),
    ("a look-behind", with_field({"pattern": "(?<=a)b"}), "the pattern cannot be used"),
    ("a look-ahead inside", with_field({"pattern": "^a(?!b)"}), "the pattern cannot be used"),
    ("a look-ahead in one alternative", with_field({"pattern": "^(?!a)b|c"}), "a look-ahead that is repeated, or part of one alternative"),
    ("an enormous pattern", with_field({"pattern": "((((a{1,100}){1,100}){1,100}){1,100})"}), "the pattern cannot be used"),
    ("a long pattern", with_field({"pattern": "a" * 10_000}), "a pattern may have 2,000 characters"),
    ("many patterns", {"type": "object", "patternProperties": {f"a{n}": {} for n in range(MAX_PATTERNS + 1)}}, "too many or too large"),
    ("half a pair in a pattern", with_field({"pattern": "\ud800"}), "half of a surrogate pair"),
    ("a huge number", with_field({"maximum": 10**4_000}), "a number of more than 300 digits"),
    ("a remote reference", with_field({"$ref": "http://127.0.0.1:9/x.json"}), "nothing is fetched"),
    ("a reference to no schema", with_field({"$ref": "#/type"}), "which it does not have"),
    ("what depends on other schemas", with_field({"unevaluatedProperties": False}), "this keyword is not supported"),
    ("no divisor", with_field({"multipleOf": 0}), "it must be above 0"),
    ("no forms", with_field({"anyOf": []}), "it must not be empty"),
    ("no schema", with_field(5), "expected an object, got integer"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "why"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_schema_that_cannot_be_checked_is_refused_when_the_tool_is_added(schema, why):
    with hang_guard(), pytest.raises(ValueError, match=r"^the input schema of mcp\.evil\.tool ") as caught:
        schema_check("mcp.evil.tool", schema)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_is_large_but_honest_is_checked():
    assert schema_check("app.tool", nested(MAX_DEPTH // 2 - 3))({"a": 1}) is None
    assert MAX_IN_PLACE >= MAX_DEPTH // 2
    numbers = schema_check("app.tool", with_field({"items": {"type": "number"}, "uniqueItems": True}))
    assert numbers({"a": list(range(40_000))}) is None
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert schema_check("app.tool", tree)({"left": {"right": {"left": {}}}}) is None


EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (EMAIL, "a.b@example.org", "a..b@example.org"),
        (EMAIL, "a@example.org", ".a@example.org"),
        (r"^(?=.*[A-Z])(?=.*\d).{4,}$", "abC1", "abc1"),
        (r"^\u00e9+$", "éé", "e"),
        (r"^a\Z", "a", "a\n"),
        (r"^[^|)(\]]+$", "ab", "a|b"),
        (r"^(?![)(|])[a-z|]+$", "a|b", "|a"),
        (r"^\p{L}+$", "ßü", "1"),
    ],
)
def test_the_patterns_that_people_write_mean_what_they_say(pattern, good, bad):
    check = schema_check("app.tool", with_field({"pattern": pattern}))
    assert check({"a": good}) is None
    assert f"must match the pattern {pattern}"[:100] in str(check({"a": bad}))


def test_up_to_draft_7_nothing_counts_beside_a_reference_and_a_bound_may_be_strict():
    beside = {"$ref": "#/definitions/x", "maximum": 1}
    defs = {"definitions": {"x": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}}
    old = schema_check("app.tool", with_field(beside, **defs, **{"$schema": DRAFT_4}))
    assert old({"a": 5}) is None
    assert "a: must be at least 0" in str(old({"a": 0}))
    new = schema_check("app.tool", with_field(beside, definitions={"x": {}}))
    assert "a: must be at most 1" in str(new({"a": 5}))


def test_half_of_a_surrogate_pair_in_an_input_is_no_crash():
    check = schema_check("app.tool", with_field({"pattern": "^[a-z]+$"}))
    assert "must match the pattern" in str(check({"a": "\ud800"}))
