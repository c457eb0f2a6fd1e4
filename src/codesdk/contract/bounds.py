"""Bounds of the numbers that callers and operators give: the one table of them, and a check.

Decoding checks the bounds by itself. A struct that was made in this process is checked by `check_bounds`, which also
refuses what JSON cannot say: nan, infinities, and booleans for numbers.
"""

import functools
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec.inspect import FloatType, IntType, StructType, Type, UnionType, type_info

from codesdk.contract.errors import InvalidRequest

MOST = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exact."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400)]
Timeout = Annotated[float, msgspec.Meta(gt=0, le=30 * 86_400)]
"""Of something that cannot be done in no time."""
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400_000)]
Interval = Annotated[float, msgspec.Meta(ge=0.01, le=86_400)]
"""Between two of something that is done again and again."""
Days = Annotated[float, msgspec.Meta(ge=0, le=36_500)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Number = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
"""At least one."""
Attempts = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""How often something is tried without anyone asking."""
Bytes = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
InlineBytes = Annotated[int, msgspec.Meta(ge=0, le=4 * 1024 * 1024)]
"""What an event may hold itself; the rest goes to an artifact."""
Dollars = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class NumberField(NamedTuple):
    """A field that holds a number, and its bounds, of which none may be missing."""

    name: str
    kind: IntType | FloatType

    @property
    def words(self) -> str:
        """The bounds in words."""
        kind = self.kind
        least = f"greater than {kind.gt}" if kind.ge is None else f"at least {kind.ge}"
        return (
            f"{'a whole number' if isinstance(kind, IntType) else 'a number'}, {least} and at most {kind.le}"
        )

    def holds(self, value: object) -> bool:
        """Return whether a value is a number within the bounds."""
        kind = self.kind
        if isinstance(value, bool) or not isinstance(
            value, int if isinstance(kind, IntType) else int | float
        ):
            return False
        if kind.le is None or (kind.ge is None and kind.gt is None):
            return False
        # Written so that nan, which is neither greater nor less, is outside.
        return (
            (kind.ge is None or value >= kind.ge)
            and (kind.gt is None or value > kind.gt)
            and value <= kind.le
        )


def check_bounds(value: msgspec.Struct) -> None:
    """Raise `InvalidRequest`, which names the bounds, for a number outside of them, however deep in structs."""
    numbers, structs = fields_of(type(value))
    for field in numbers:
        given = getattr(value, field.name)
        if given is not None and given is not msgspec.UNSET and not field.holds(given):
            raise InvalidRequest(f"{field.name} must be {field.words}, not {_shown(given)}.")
    for name in structs:
        given = getattr(value, name)
        if isinstance(given, msgspec.Struct):
            check_bounds(given)


@functools.cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[NumberField, ...], tuple[str, ...]]:
    """Return the fields of a struct that hold numbers, and the names of those that hold structs."""
    info: Any = type_info(kind)
    found = [(field.encode_name, part) for field in info.fields for part in _parts(field.type)]
    numbers = tuple(NumberField(name, part) for name, part in found if isinstance(part, IntType | FloatType))
    return numbers, tuple(dict.fromkeys(name for name, part in found if isinstance(part, StructType)))


def _parts(kind: Type) -> tuple[Type, ...]:
    return kind.types if isinstance(kind, UnionType) else (kind,)


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
        return "a number of so many digits"  # Python refuses to write down the longest
    return repr(value)[:40]
