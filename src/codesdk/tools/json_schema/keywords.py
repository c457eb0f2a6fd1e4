"""The keywords of JSON Schema that constrain one value → checks of it. Pure.

Each function takes what the schema says and returns the check; the compiler says for which types it is.
Keywords that lead to other schemas are in `applicators`.
"""

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, cast

from codesdk.tools.json_schema.patterns import LinearPattern
from codesdk.tools.json_schema.work import Check, Problem, Work

KINDS: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
_NUMBERS = {"number": (int, float), "integer": (int,)}
_CHOICES_SHOWN = 20
_CHOICE_CHARS = 40


def of_type(names: Sequence[str]) -> Check:
    """Check that a value has one of these types."""
    found = {kind for kind, name in KINDS.items() if name in names}
    allowed = found.union(*(_NUMBERS.get(name, ()) for name in names))
    whole = "integer" in names and "number" not in names
    wanted = " or ".join(names)

    def check(value: object, work: Work) -> Problem | None:
        kind = type(value)
        if kind in allowed or (whole and isinstance(value, float) and value.is_integer()):
            return None
        return Problem(f"expected {wanted}, got {KINDS[kind]}")

    return check


def one_of(choices: Sequence[Any]) -> Check:
    """Check that a value equals one of these."""
    known = {identity(choice, Work()) for choice in choices}
    shown = ", ".join(_shown(choice) for choice in choices[:_CHOICES_SHOWN])
    more = ", …" if len(choices) > _CHOICES_SHOWN else ""
    words = f"must be {shown}" if len(choices) == 1 else f"must be one of {shown}{more}"
    return lambda value, work: None if identity(value, work) in known else Problem(words)


def _shown(choice: Any) -> str:
    if isinstance(choice, dict | list):
        return f"a certain {KINDS[type(cast('Any', choice))]}"
    text = json.dumps(choice, ensure_ascii=False)
    return text if len(text) <= _CHOICE_CHARS else text[: _CHOICE_CHARS - 1] + "…"


def identity(value: Any, work: Work) -> Any:
    """Return a hashable stand-in that equals another one exactly if the two JSON values are equal.

    Numbers become bytes: 1 and 1.0 are equal in JSON, but 1 and true are not, and the hashes of integers can
    be made to collide.
    """
    work.spend(1)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return tuple(identity(item, work) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        return frozenset((key, identity(item, work)) for key, item in cast("dict[str, Any]", value).items())
    if isinstance(value, float) and not value.is_integer():
        return repr(value).encode()
    work.spend(int(value).bit_length() >> 6)
    return b"%x" % int(value)


def distinct(items: list[Any], work: Work) -> Problem | None:
    """Check that no two items are equal."""
    seen: set[Any] = set()
    for index, item in enumerate(items):
        known = identity(item, work)
        if known in seen:
            return Problem("must not repeat an earlier entry").beneath(index)
        seen.add(known)
    return None


def bounded(words: str, bound: Any, breaks: Callable[[Any, Any], bool]) -> Check:
    """Check a number against a bound; `breaks` returns whether it is on the wrong side."""
    return lambda value, work: Problem(f"must be {words} {bound}") if breaks(value, bound) else None


def sized(words: str, bound: int, breaks: Callable[[int, int], bool]) -> Check:
    """Check the length of a string, a list or an object. `words` have a place for the bound."""
    return lambda value, work: (
        Problem(f"must have {words.format(bound)}") if breaks(len(value), bound) else None
    )


def multiple_of(divisor: float) -> Check:
    """Check that a number is a multiple of another, exactly as both are written."""
    exact = _fraction(divisor)

    def check(value: Any, work: Work) -> Problem | None:
        if type(value) is int:
            work.spend(value.bit_length() >> 6)
        if type(value) is int and type(divisor) is int:
            fits = value % divisor == 0
        else:
            fits = _fraction(value) % exact == 0
        return None if fits else Problem(f"must be a multiple of {divisor}")

    return check


def _fraction(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


def matching(pattern: LinearPattern, words: str) -> Check:
    """Check that a pattern matches somewhere in a string."""

    def check(value: str, work: Work) -> Problem | None:
        work.spend(pattern.steps(value))
        return None if pattern.found_in(value) else Problem(f"must match the pattern {words}")

    return check


def required(names: Sequence[str]) -> Check:
    """Check that an object has these fields."""

    def check(value: dict[str, Any], work: Work) -> Problem | None:
        work.spend(len(names))
        for name in names:
            if name not in value:
                return Problem(f"the required field {name} is missing")
        return None

    return check


def dependent_required(needed: dict[str, Sequence[str]]) -> Check:
    """Check that an object which has a field also has those that go with it."""
    checks = {name: required(others) for name, others in needed.items()}

    def check(value: dict[str, Any], work: Work) -> Problem | None:
        work.spend(len(checks))
        found = (checks[name](value, work) for name in checks if name in value)
        return next((problem for problem in found if problem is not None), None)

    return check
