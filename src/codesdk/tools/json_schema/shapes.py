"""What stands in a foreign schema → the shape that its keyword needs, or `BadSchema` with the place."""

from typing import Any, cast

from codesdk.tools.json_schema.keywords import KINDS

MAX_VALUES = 20_000
MAX_DEPTH = 64
_MAX_NUMBER = 10**300
_SHORT_CHARS = 100


class BadSchema(ValueError):
    """The schema is not valid or cannot be checked within bounds; `place` is a path in it."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place = place.removeprefix("/")


def short(text: str) -> str:
    """Return a text of a stranger in a length that fits into an error."""
    return text if len(text) <= _SHORT_CHARS else text[: _SHORT_CHARS - 1] + "…"


def require_bounds(schema: dict[str, Any]) -> None:
    """Refuse a schema that is too large or too deep, without recursion."""
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count + len(waiting) > MAX_VALUES:
            raise BadSchema("", f"it has more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise BadSchema("", f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            waiting += [(item, depth + 1) for item in cast("dict[str, Any]", value).values()]
        elif isinstance(value, list):
            waiting += [(item, depth + 1) for item in cast("list[Any]", value)]
        elif isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise BadSchema("", "it has a number of more than 300 digits")


def want_object(given: Any, place: str) -> dict[str, Any]:
    """Return an object."""
    if not isinstance(given, dict):
        raise BadSchema(place, f"expected an object, got {_kind(given)}")
    return cast("dict[str, Any]", given)


def want_list(given: Any, place: str) -> list[Any]:
    """Return a list."""
    if not isinstance(given, list):
        raise BadSchema(place, f"expected an array, got {_kind(given)}")
    return cast("list[Any]", given)


def want_text(given: Any, place: str) -> str:
    """Return a string."""
    if not isinstance(given, str):
        raise BadSchema(place, f"expected a string, got {_kind(given)}")
    return given


def want_texts(given: Any, place: str) -> list[str]:
    """Return a list of strings."""
    return [want_text(one, place) for one in want_list(given, place)]


def want_number(given: Any, place: str) -> float:
    """Return a number."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise BadSchema(place, f"expected a number, got {_kind(given)}")
    return given


def want_count(given: Any, place: str) -> int:
    """Return a whole number that is not negative."""
    number = want_number(given, place)
    if number < 0 or number != int(number):
        raise BadSchema(place, "expected a whole number from 0")
    return int(number)


def want_types(given: Any, place: str) -> list[str]:
    """Return the names of types."""
    names = [given] if isinstance(given, str) else want_texts(given, place)
    unknown = next((name for name in names if name not in KINDS.values()), None)
    if unknown is not None or not names:
        raise BadSchema(place, f"expected types such as string or object, got {short(unknown or 'none')}")
    return names


def _kind(given: Any) -> str:
    return KINDS.get(cast("Any", type(given)), "something else")
