"""Values that were made in this process → the same values, checked as decoding checks what comes over a wire.

A struct takes whatever it is given, so every entry of the library calls `checked` before it does anything. It refuses
what JSON cannot say, too: bytes, nan, half a surrogate pair. Errors name the field and never show a free text.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec.inspect import (
    DictType,
    ListType,
    LiteralType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from codesdk.contract.bounds import check_bounds
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.text import is_text

MAX_KEY_CHARS = 200
LONG_BYTES = 32 * 1024
"""From this size on, JSON is walked through in a thread: each byte may be a value, and a step for each takes long."""
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
MAX_WORDS_CHARS = 500
"""How much of an error's words is shown: they quote names that somebody sent, of any length."""
_PLACE = re.compile(r"(?:`key` in )?`\$\.?([^`]*)`")
_STEP = re.compile(r"\[[^]]*\]|[^.\[\]]+")


def checked(value: S) -> S:
    """Return a struct with all of its fields checked, however deep. Raise `InvalidRequest`, naming the field."""
    check_bounds(value)  # first: its words name the bounds
    return read_as(type(value), value)


def read_as(kind: type[T], value: object, at: str = "") -> T:
    """Return a value as a type, given as itself or as plain data. `at` is its name in errors."""
    unsayable: list[str] = []
    found: T | None = None
    try:
        found = msgspec.convert(_plain(value, at, unsayable), kind)
    except UnicodeEncodeError:
        pass  # half of a surrogate pair, which is noted
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid argument: {explain(error, kind, at)}.") from None
    except RecursionError:
        raise InvalidRequest(f"Invalid argument: {at or 'it'} is nested too deeply.") from None
    # Last: a field that has a type says better what it expects. One that takes any JSON gets here.
    if unsayable:
        raise InvalidRequest(f"Invalid argument: {unsayable[0]}, which JSON cannot represent.")
    return cast("T", found)


def is_long(value: object) -> bool:
    """Return whether a value is to be walked through in a thread, not on the event loop; so is one that is no JSON."""
    try:
        return len(msgspec.json.encode(value)) > LONG_BYTES
    except (TypeError, ValueError, OverflowError, RecursionError):
        return True


def check_options(
    make: Callable[..., object],
    given: Mapping[str, object],
    refused: str,
    *,
    at: str = "",
    fixed: Mapping[str, object] | None = None,
) -> None:
    """Raise `InvalidRequest` unless `make` can be called with the options `given` beside what is `fixed`. Call nothing.

    `refused` begins the error about an option that does not exist; `at` is where the options stand, for other errors.
    """
    import inspect  # most processes never need it

    known = inspect.signature(make)
    always = fixed or {}
    try:
        known.bind(**always, **given)
    except TypeError as error:
        takes = ", ".join(name for name in known.parameters if name not in always) or "none"
        raise InvalidRequest(f"{refused}: {error}. It takes: {takes}.") from None
    hints = get_type_hints(make.__init__ if isinstance(make, type) else make)
    for name, value in given.items():
        if not _is_instance(value, hints[name]):  # an object of ours is no JSON
            read_as(hints[name], value, _below(at, name))


def _is_instance(value: object, kind: Any) -> bool:
    """Return whether a value is of a type of which Python can tell."""
    try:
        return isinstance(value, kind)
    except TypeError:  # a list of something, or one of some values
        return False


def check_key(key: object) -> None:
    """Raise `InvalidRequest` for an idempotency key that could not be sent in a header."""
    if key is None:
        return
    fits = isinstance(key, str) and 1 <= len(key) <= MAX_KEY_CHARS and all("!" <= char <= "~" for char in key)
    if not fits:
        raise InvalidRequest(f"An idempotency key is 1 to {MAX_KEY_CHARS} visible ASCII characters.")


def _plain(value: object, at: str, unsayable: list[str]) -> Any:
    """Return structs as dicts, with their tags; note what JSON cannot say and leave it as it is."""
    match value:
        case None | bool():
            pass
        case str():
            if not is_text(value):
                unsayable.append(f"{at} holds half of a surrogate pair")
        case int():
            if value.bit_length() > 64:
                unsayable.append(f"{at} holds a number of so many digits")
        case float():
            if not math.isfinite(value):
                unsayable.append(f"{at} is {value}")
        case msgspec.Struct():
            return _fields(value, at, unsayable)
        case dict():
            return _items(cast("dict[object, object]", value), at, unsayable)
        case list() | tuple():
            items = cast("list[object]", value)
            return [_plain(item, f"{at}[{place}]", unsayable) for place, item in enumerate(items)]
        case _:
            unsayable.append(f"{at} holds a value of the type {type(value).__name__}")
    return value


def _fields(value: msgspec.Struct, at: str, unsayable: list[str]) -> dict[str, Any]:
    config = value.__struct_config__
    found: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for name, written in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        field = getattr(value, name)
        if field is None or field is True or field is False:
            found[written] = field  # most fields of most actions
        elif field is not msgspec.UNSET:
            found[written] = _plain(field, _below(at, written), unsayable)
    return found


def _items(value: dict[object, object], at: str, unsayable: list[str]) -> dict[object, Any]:
    # The names in a free-form map may be anybody's words, so they are not shown.
    below = _below(at, "…")
    for key in value:
        if not isinstance(key, str):
            unsayable.append(f"{at} has a key of the type {type(key).__name__}")
        elif not is_text(key):
            unsayable.append(f"{at} has a key with half of a surrogate pair")
    return {key: _plain(item, below, unsayable) for key, item in value.items()}


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def explain(error: msgspec.ValidationError, kind: Any, at: str = "") -> str:
    """Return what is wrong with data of a type: the field, what was expected, and the choices if there are some."""
    words, place = split_error(str(error))
    where = _below(at, place) if place and not place.startswith("[") else f"{at}{place}"
    choices = _choices(_type_at(type_info(kind), place)) if words.startswith("Invalid enum value") else []
    if choices:
        words += (
            f", expected {' or '.join(filter(None, (', '.join(map(str, choices[:-1])), str(choices[-1]))))}"
        )
    words = words[0].lower() + words[1:]
    return f"{where}: {words}" if where else words


def split_error(said: str) -> tuple[str, str]:
    """Return what msgspec says without the place that it ends with, and that place, such as `a.b[...]`.

    Of long words the middle is left out before anything is looked for, since whoever sent a name chose its length.
    """
    if len(said) > MAX_WORDS_CHARS:
        half = MAX_WORDS_CHARS // 2
        said = f"{said[:half]}…{said[-half:]}"
    words, _, place = said.rpartition(" - at ")
    found = _PLACE.fullmatch(place) if words else None
    return (words, found[1]) if found else (said, "")


def _type_at(kind: Type, place: str) -> Type | None:
    """Return the type of a field, by its place in the words of msgspec. None where that does not lead anywhere."""
    found: Type | None = kind
    for step in _STEP.findall(place):
        found = next((below for part in _parts(found) if (below := _step(part, step)) is not None), None)
        if found is None:
            return None
    return found


def _step(kind: Type, step: str) -> Type | None:
    match kind:
        case StructType():
            return next((field.type for field in kind.fields if field.encode_name == step), None)
        case ListType() | VarTupleType():
            return kind.item_type
        case DictType():
            return kind.value_type
        case _:
            return None


def _parts(kind: Type) -> tuple[Type, ...]:
    return kind.types if isinstance(kind, UnionType) else (kind,)


def _choices(kind: Type | None) -> list[Any]:
    """Return the values that a field may have, as far as they are named."""
    if kind is None:
        return []
    named = [value for part in _parts(kind) if isinstance(part, LiteralType) for value in part.values]
    return [*named, *("a list" for part in _parts(kind) if isinstance(part, ListType))]
