"""The keywords of JSON Schema that lead to other schemas → checks that apply those. Pure.

Every schema that is applied costs steps, so that neither a long input nor forms within forms go on for ever.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from codesdk.tools.json_schema.patterns import LinearPattern
from codesdk.tools.json_schema.work import Check, CompiledSchema, Problem, Work

_SHOWN = 3
_FIELD_CHARS = 100


def fields(
    known: Mapping[str, CompiledSchema],
    patterns: Sequence[tuple[LinearPattern, CompiledSchema]],
    others: CompiledSchema | bool,
) -> Check:
    """Check each field of an object: by its name, by the patterns that match its name, or else as one of the others."""

    def check(value: dict[str, Any], work: Work) -> Problem | None:
        for name, item in value.items():
            schemas = [known[name]] if name in known else []
            for pattern, schema in patterns:
                work.spend(pattern.steps(name))
                if pattern.found_in(name):
                    schemas.append(schema)
            if not schemas:
                if others is False:
                    return Problem(f"the field {_short(name)} is unknown")
                if others is True:
                    continue
                schemas.append(others)
            for schema in schemas:
                found = schema.problem(item, work)
                if found is not None:
                    return found.beneath(_short(name))
        return None

    return check


def _short(name: str) -> str:
    return name if len(name) <= _FIELD_CHARS else name[: _FIELD_CHARS - 1] + "…"


def field_names(schema: CompiledSchema) -> Check:
    """Check the name of each field of an object."""

    def check(value: dict[str, Any], work: Work) -> Problem | None:
        for name in value:
            found = schema.problem(name, work)
            if found is not None:
                return Problem(f"the name of the field {_short(name)} {found.words}")
        return None

    return check


def dependent(schemas: Mapping[str, CompiledSchema]) -> Check:
    """Check an object by the schemas of those fields that it has."""

    def check(value: dict[str, Any], work: Work) -> Problem | None:
        work.spend(len(schemas))
        found = (schema.problem(value, work) for name, schema in schemas.items() if name in value)
        return next((problem for problem in found if problem is not None), None)

    return check


def entries(first: Sequence[CompiledSchema], others: CompiledSchema | None) -> Check:
    """Check the entries of a list: the first ones each by its own schema, the others by one."""

    def check(value: list[Any], work: Work) -> Problem | None:
        for index, item in enumerate(value):
            schema = first[index] if index < len(first) else others
            if schema is None:
                return None
            found = schema.problem(item, work)
            if found is not None:
                return found.beneath(index)
        return None

    return check


def containing(schema: CompiledSchema, least: int, most: int | None) -> Check:
    """Check how many entries of a list fit a schema."""
    bounds = f"at least {least}" if most is None else f"{least} to {most}"

    def check(value: list[Any], work: Work) -> Problem | None:
        fits = sum(schema.problem(item, work) is None for item in value)
        if fits < least or (most is not None and fits > most):
            return Problem(f"must have {bounds} entries of a certain form, has {fits}")
        return None

    return check


def all_of(schemas: Sequence[CompiledSchema]) -> Check:
    """Check a value by all of these."""

    def check(value: Any, work: Work) -> Problem | None:
        found = (schema.problem(value, work) for schema in schemas)
        return next((problem for problem in found if problem is not None), None)

    return check


def any_of(schemas: Sequence[CompiledSchema]) -> Check:
    """Check that a value fits at least one of these."""

    def check(value: Any, work: Work) -> Problem | None:
        problems: list[Problem] = []
        for schema in schemas:
            found = schema.problem(value, work)
            if found is None:
                return None
            problems.append(found)
        return _nearest(problems)

    return check


def exactly_one_of(schemas: Sequence[CompiledSchema]) -> Check:
    """Check that a value fits one of these and no other."""

    def check(value: Any, work: Work) -> Problem | None:
        found = [schema.problem(value, work) for schema in schemas]
        problems = [problem for problem in found if problem is not None]
        if len(problems) == len(found):
            return _nearest(problems)
        if len(problems) == len(found) - 1:
            return None
        return Problem("must fit one form only, and fits several")

    return check


def _nearest(problems: list[Problem]) -> Problem:
    """Return the problem of the form that was probably meant: the one that fits furthest into the value."""
    nearest = max(problems, key=lambda problem: len(problem.way))
    if nearest.way:
        return nearest
    words = list(dict.fromkeys(problem.words for problem in problems))[:_SHOWN]
    return Problem("; or ".join(words))


def unlike(schema: CompiledSchema) -> Check:
    """Check that a value does not fit."""

    def check(value: Any, work: Work) -> Problem | None:
        return Problem("has a form that is not allowed") if schema.problem(value, work) is None else None

    return check


def conditional(test: CompiledSchema, then: CompiledSchema | None, otherwise: CompiledSchema | None) -> Check:
    """Check a value by one schema if it fits the test, by another if not."""

    def check(value: Any, work: Work) -> Problem | None:
        chosen = then if test.problem(value, work) is None else otherwise
        return None if chosen is None else chosen.problem(value, work)

    return check


def nothing(value: Any, work: Work) -> Problem:
    """Fit no value: the schema `false`."""
    return Problem("is not allowed")
