"""The kind of a setting, a type that msgspec knows → a check of its values, and the type of its flag.

The same bounds hold for a flag and for a key of the file, and the same words name them.
"""

import functools
from typing import Any, get_args

import click
from msgspec.inspect import (
    BoolType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    NoneType,
    Type,
    UnionType,
    type_info,
)

from codesdk.cli.options import Real, whole
from codesdk.contract.bounds import MOST, NumberField

NONE = "none"
"""How no limit is written, since neither TOML nor a command line has a null."""
_SHOWN_CHARS = 60


@functools.cache
def parts_of(kind: Any) -> tuple[Type, bool]:
    """Return what a value is, and whether there may be none."""
    info = type_info(kind)
    if not isinstance(info, UnionType):
        return info, False
    (part,) = (each for each in info.types if not isinstance(each, NoneType))
    return part, True


class Bounded(click.ParamType[Any]):
    """A number between bounds, or the word for none where there may be none. Help does not show the bounds."""

    def __init__(self, inner: click.ParamType[Any], may_be_none: bool) -> None:
        self.name = inner.name
        self._inner = inner
        self._may_be_none = may_be_none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; the word stays, since it was given."""
        return value if self._may_be_none and value == NONE else self._inner.convert(value, param, ctx)


def click_type(kind: Any) -> click.ParamType[Any] | None:
    """Return the type of a flag's value; None for text."""
    part, may_be_none = parts_of(kind)
    match part:
        case LiteralType():
            return click.Choice(get_args(kind))
        case IntType(ge=least, le=most):
            return Bounded(whole(least or 0, MOST if most is None else most), may_be_none)
        case FloatType(ge=least, gt=above, le=most):
            return Bounded(
                Real(least if above is None else above, most, min_open=above is not None), may_be_none
            )
        case _:
            return None


def is_switch(kind: Any) -> bool:
    """Return whether a setting is on or off."""
    return isinstance(parts_of(kind)[0], BoolType)


def is_list(kind: Any) -> bool:
    """Return whether a setting is a list of texts."""
    return isinstance(parts_of(kind)[0], ListType)


def accepted(kind: Any, value: Any) -> Any:
    """Return a given value as the setting has it. Raise `ValueError`, with what it must be, if it does not fit."""
    part, may_be_none = parts_of(kind)
    if may_be_none and value == NONE:
        return None
    if not _fits(part, value):
        nothing = f', or "{NONE}"' if may_be_none else ""
        raise ValueError(f"must be {words(part)}{nothing}, not {_shown(value)}")
    if isinstance(part, FloatType):
        return float(value)
    return tuple(value) if isinstance(part, ListType) else value


def number(kind: Any, text: str) -> Any:
    """Return the number that a text of the command line stands for, checked as one of the file is."""
    part, _ = parts_of(kind)
    value: Any = text
    for convert in (int, float) if isinstance(part, FloatType) else (int,):
        try:
            value = convert(text)
            break
        except ValueError:
            continue
    return accepted(kind, value)


def words(part: Type) -> str:
    """Return what a value must be."""
    match part:
        case BoolType():
            return "true or false"
        case ListType():
            return "a list of texts"
        case LiteralType(values=values):
            return f"one of {', '.join(str(value) for value in values)}"
        case IntType() | FloatType():
            return NumberField("", part).words
        case _:
            return "a text"


def _fits(part: Type, value: Any) -> bool:
    match part:
        case BoolType():
            return isinstance(value, bool)
        case ListType():
            return isinstance(value, list | tuple) and all(_is_text(each) for each in value)  # pyright: ignore[reportUnknownVariableType]
        case LiteralType(values=values):
            return isinstance(value, str) and value in values
        case IntType() | FloatType():
            return NumberField("", part).holds(value)
        case _:
            return _is_text(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != "" and "\0" not in value


def _shown(value: Any) -> str:
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}…"
