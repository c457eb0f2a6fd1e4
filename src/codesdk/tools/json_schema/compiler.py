"""A foreign JSON Schema → a `CompiledSchema`, read once; what cannot be checked within bounds is refused here.

Drafts 4 to 2020-12. Refused: references that leave the schema or lead back without going deeper into the
value, schemas that are too large or too deep, and the keywords whose meaning depends on how other schemas went.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from codesdk.tools.json_schema import applicators, keywords, shapes
from codesdk.tools.json_schema.patterns import BadPattern, LinearPattern
from codesdk.tools.json_schema.references import References
from codesdk.tools.json_schema.shapes import BadSchema
from codesdk.tools.json_schema.work import Check, CompiledSchema

MAX_IN_PLACE = 50
MAX_PATTERNS = 100
MAX_STATES = 20_000
_OTHER_MEANING = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
_ALL = tuple(keywords.KINDS)
_NUMBER = (int, float)


def compile_schema(schema: dict[str, Any]) -> CompiledSchema:
    """Return a schema ready to check with. Raise `BadSchema`, with the place and the reason."""
    shapes.require_bounds(schema)
    compiler = _Compiler(schema)
    compiled = compiler.whole()
    _require_progress(compiler.made())
    return compiled


class _Compiler:
    """Compiles each schema once, however often it is referred to."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._references = References(root)
        # Up to draft 7, what stands beside a reference has no meaning.
        self._ref_alone = "json-schema.org/draft-0" in str(root.get("$schema", ""))
        # By the identity of what was given, which is kept so that no other can get the same.
        self._made: dict[int, tuple[Any, CompiledSchema]] = {}
        self._patterns: dict[str, LinearPattern] = {}
        # Targets of references are compiled one after the other: a chain of them must not nest the calls.
        self._waiting: list[tuple[CompiledSchema, Any, str]] = []

    def whole(self) -> CompiledSchema:
        """Compile the root, and everything it leads to."""
        compiled = self.schema(self._root, "")
        while self._waiting:
            self._fill(*self._waiting.pop())
        return compiled

    def schema(self, given: Any, place: str) -> CompiledSchema:
        """Compile what stands at a place."""
        known = self._made.get(id(given))
        if known is not None:
            return known[1]
        compiled = self._make(given)
        self._fill(compiled, given, place)
        return compiled

    def _make(self, given: Any) -> CompiledSchema:
        compiled = CompiledSchema()
        self._made[id(given)] = given, compiled
        return compiled

    def made(self) -> list[CompiledSchema]:
        """Return all schemas that were compiled."""
        return [compiled for _, compiled in self._made.values()]

    def schemas(self, given: Any, place: str) -> list[CompiledSchema]:
        """Compile a list of schemas."""
        listed = shapes.want_list(given, place)
        return [self.schema(one, f"{place}/{index}") for index, one in enumerate(listed)]

    def named(self, given: Any, place: str) -> dict[str, CompiledSchema]:
        """Compile an object of schemas."""
        found = shapes.want_object(given, place)
        return {name: self.schema(one, f"{place}/{name}") for name, one in found.items()}

    def pattern(self, given: Any, place: str) -> LinearPattern:
        """Compile a regular expression."""
        text = shapes.want_text(given, place)
        if text not in self._patterns:
            try:
                self._patterns[text] = LinearPattern(text)
            except BadPattern as error:
                raise BadSchema(place, str(error)) from None
            if len(self._patterns) > MAX_PATTERNS or self._states() > MAX_STATES:
                raise BadSchema(place, "the patterns of the schema are too many or too large")
        return self._patterns[text]

    def _states(self) -> int:
        return sum(pattern.size for pattern in self._patterns.values())

    def _fill(self, compiled: CompiledSchema, given: Any, place: str) -> None:
        if isinstance(given, bool):
            compiled.by_type = {} if given else dict.fromkeys(_ALL, (applicators.nothing,))
            return
        found: list[tuple[tuple[type, ...], Check]] = []
        schema = shapes.want_object(given, place)
        if "$ref" in schema:
            target = self._refer(schema["$ref"], f"{place}/$ref")
            compiled.in_place.append(target)
            found.append((_ALL, target.problem))
        if not (self._ref_alone and "$ref" in schema):
            found += _keyword_checks(_Place(self, compiled, schema, place))
        compiled.by_type = {kind: tuple(check for kinds, check in found if kind in kinds) for kind in _ALL}

    def _refer(self, reference: Any, place: str) -> CompiledSchema:
        target = self._references.target(shapes.want_text(reference, place), place)
        known = self._made.get(id(target))
        if known is not None:
            return known[1]
        compiled = self._make(target)
        self._waiting.append((compiled, target, place))
        return compiled


class _Place:
    """One schema while it is compiled: its keywords, each with its place."""

    def __init__(
        self, compiler: _Compiler, compiled: CompiledSchema, schema: Mapping[str, Any], place: str
    ) -> None:
        self.compiler = compiler
        self.compiled = compiled
        self.schema = schema
        self._place = place

    def at(self, keyword: str) -> tuple[Any, str]:
        """Return what a keyword says, and its place."""
        return self.schema[keyword], f"{self._place}/{keyword}"

    def here(self, keyword: str) -> CompiledSchema:
        """Compile a schema that is applied to the same value."""
        return self._same([self.compiler.schema(*self.at(keyword))])[0]

    def all_here(self, keyword: str) -> list[CompiledSchema]:
        """Compile a list of schemas that are applied to the same value."""
        given, place = self.at(keyword)
        if not given:
            raise BadSchema(place, "it must not be empty")
        return self._same(self.compiler.schemas(given, place))

    def each_here(self, found: Mapping[str, CompiledSchema]) -> Check:
        """Apply schemas to the same value, if it has the field that each is named after."""
        self._same(list(found.values()))
        return applicators.dependent(found)

    def beneath(self, keyword: str) -> CompiledSchema | None:
        """Compile a schema that is applied to parts of the value."""
        return self.compiler.schema(*self.at(keyword)) if keyword in self.schema else None

    def _same(self, schemas: list[CompiledSchema]) -> list[CompiledSchema]:
        self.compiled.in_place += schemas
        return schemas


def _keyword_checks(place: _Place) -> list[tuple[tuple[type, ...], Check]]:
    for keyword in _OTHER_MEANING:
        if keyword in place.schema:
            raise BadSchema(place.at(keyword)[1], "this keyword is not supported")
    found: list[tuple[tuple[type, ...], Check]] = []
    for triggers, kinds, make in _KEYWORDS:
        if any(keyword in place.schema for keyword in triggers):
            check = make(place)
            if check is not None:
                found.append((kinds, check))
    return found


def _type(place: _Place) -> Check:
    return keywords.of_type(shapes.want_types(*place.at("type")))


def _fields(place: _Place) -> Check:
    compiler = place.compiler
    known = compiler.named(*place.at("properties")) if "properties" in place.schema else {}
    patterns: list[tuple[LinearPattern, CompiledSchema]] = []
    if "patternProperties" in place.schema:
        where = place.at("patternProperties")[1]
        by_pattern = compiler.named(*place.at("patternProperties"))
        patterns = [(compiler.pattern(text, f"{where}/{text}"), one) for text, one in by_pattern.items()]
    others = place.schema.get("additionalProperties", True)
    return applicators.fields(
        known, patterns, others if isinstance(others, bool) else place.beneath("additionalProperties") or True
    )


def _entries(place: _Place) -> Check:
    # Before 2020-12 the first entries were a list in `items`, and the others were called `additionalItems`.
    listed = isinstance(place.schema.get("items"), list)
    first = "items" if listed else "prefixItems"
    schemas = place.compiler.schemas(*place.at(first)) if first in place.schema else []
    return applicators.entries(schemas, place.beneath("additionalItems" if listed else "items"))


def _contains(place: _Place) -> Check:
    least = shapes.want_count(*place.at("minContains")) if "minContains" in place.schema else 1
    most = shapes.want_count(*place.at("maxContains")) if "maxContains" in place.schema else None
    return applicators.containing(place.compiler.schema(*place.at("contains")), least, most)


def _conditional(place: _Place) -> Check:
    then = place.here("then") if "then" in place.schema else None
    otherwise = place.here("else") if "else" in place.schema else None
    return applicators.conditional(place.here("if"), then, otherwise)


def _dependent_required(place: _Place) -> Check:
    needed, where = place.at("dependentRequired")
    found = shapes.want_object(needed, where)
    return keywords.dependent_required({name: shapes.want_texts(one, where) for name, one in found.items()})


def _dependencies(place: _Place) -> Check:
    """Until draft 7, one keyword for both: the names of other fields, or a schema."""
    given, where = place.at("dependencies")
    found = shapes.want_object(given, where)
    schemas = {
        name: {"required": cast("list[Any]", one)} if isinstance(one, list) else one
        for name, one in found.items()
    }
    return place.each_here({name: place.compiler.schema(one, where) for name, one in schemas.items()})


def _number(keyword: str, words: str, breaks: Callable[[Any, Any], bool]) -> "_Keyword":
    def make(place: _Place) -> Check | None:
        given, where = place.at(keyword)
        if isinstance(given, bool) and keyword.startswith("exclusive"):
            return None  # draft 4: it only says how the bound beside it is meant
        strict = place.schema.get(f"exclusive{keyword[:1].upper()}{keyword[1:]}") is True
        sense = {operator.lt: operator.le, operator.gt: operator.ge}.get(breaks, breaks) if strict else breaks
        return keywords.bounded(words, shapes.want_number(given, where), sense)

    return (keyword,), _NUMBER, make


def _size(keyword: str, kind: type, words: str, breaks: Callable[[int, int], bool]) -> "_Keyword":
    def make(place: _Place) -> Check:
        return keywords.sized(words, shapes.want_count(*place.at(keyword)), breaks)

    return (keyword,), (kind,), make


def _multiple_of(place: _Place) -> Check:
    divisor, where = place.at("multipleOf")
    if shapes.want_number(divisor, where) <= 0:
        raise BadSchema(where, "it must be above 0")
    return keywords.multiple_of(divisor)


def _pattern(place: _Place) -> Check:
    text, where = place.at("pattern")
    return keywords.matching(place.compiler.pattern(text, where), shapes.short(text))


_Keyword = tuple[tuple[str, ...], tuple[type, ...], Callable[[_Place], Check | None]]

# In the order in which problems are reported: the type first, what forms a value may have last.
_KEYWORDS: list[_Keyword] = [
    (("type",), _ALL, _type),
    (("const",), _ALL, lambda place: keywords.one_of([place.schema["const"]])),
    (("enum",), _ALL, lambda place: keywords.one_of(shapes.want_list(*place.at("enum")))),
    _number("minimum", "at least", operator.lt),
    _number("maximum", "at most", operator.gt),
    _number("exclusiveMinimum", "above", operator.le),
    _number("exclusiveMaximum", "below", operator.ge),
    (("multipleOf",), _NUMBER, _multiple_of),
    _size("minLength", str, "at least {} characters", operator.lt),
    _size("maxLength", str, "at most {} characters", operator.gt),
    (("pattern",), (str,), _pattern),
    _size("minItems", list, "at least {} entries", operator.lt),
    _size("maxItems", list, "at most {} entries", operator.gt),
    (("items", "prefixItems"), (list,), _entries),
    (("contains",), (list,), _contains),
    (("uniqueItems",), (list,), lambda place: keywords.distinct if place.schema["uniqueItems"] else None),
    _size("minProperties", dict, "at least {} fields", operator.lt),
    _size("maxProperties", dict, "at most {} fields", operator.gt),
    (("required",), (dict,), lambda place: keywords.required(shapes.want_texts(*place.at("required")))),
    (("dependentRequired",), (dict,), _dependent_required),
    (("properties", "patternProperties", "additionalProperties"), (dict,), _fields),
    (("propertyNames",), (dict,), lambda place: applicators.field_names(place.compiler.schema(*place.at("propertyNames")))),
    (("dependentSchemas",), (dict,), lambda place: place.each_here(place.compiler.named(*place.at("dependentSchemas")))),
    (("dependencies",), (dict,), _dependencies),
    (("allOf",), _ALL, lambda place: applicators.all_of(place.all_here("allOf"))),
    (("anyOf",), _ALL, lambda place: applicators.any_of(place.all_here("anyOf"))),
    (("oneOf",), _ALL, lambda place: applicators.exactly_one_of(place.all_here("oneOf"))),
    (("not",), _ALL, lambda place: applicators.unlike(place.here("not"))),
    (("if",), _ALL, _conditional),
]  # fmt: skip


def _require_progress(schemas: Iterable[CompiledSchema]) -> None:
    """Refuse schemas that apply each other to the same value without an end, or with a distant one."""
    heights: dict[int, int] = {}

    def height(schema: CompiledSchema, above: int) -> int:
        found = heights.get(id(schema))
        if above + (found or 0) > MAX_IN_PLACE:
            raise BadSchema("", f"more than {MAX_IN_PLACE} of its schemas apply to one value by each other")
        if found is None:
            found = 1 + max((height(one, above + 1) for one in schema.in_place), default=0)
            heights[id(schema)] = found
        return found

    for schema in schemas:
        height(schema, 0)
