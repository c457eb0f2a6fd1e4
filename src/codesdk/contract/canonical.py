"""JSON-like value → RFC 8785 canonical bytes → `sha256:<hex>`.

Whatever is compared or addressed by content (events, tool arguments, artifacts) is hashed through this module.
msgspec writes the bytes wherever its sorted encoding is certain to be the canonical one, `rfc8785` the rest.
"""

import hashlib
from collections.abc import Iterable
from types import NoneType
from typing import Any, cast

import msgspec
import rfc8785

_INT_MAX = 2**53 - 1
_BMP_MAX = "\uffff"

# msgspec and RFC 8785 escape the same 34 characters in the same way, so no string needs a look.
_WRITTEN_ALIKE = frozenset({str, bool, NoneType})

_encode = msgspec.json.Encoder(order="sorted").encode


class CanonicalError(ValueError):
    """The value has no canonical JSON form; the message says where and why."""


class _Unproven(Exception):
    """msgspec might write this value differently from RFC 8785, or should have refused it."""


def canonical(value: object) -> bytes:
    """Return the RFC 8785 form of `value`: a JSON value, or anything `msgspec.to_builtins` turns into one.

    A Struct counts as what it encodes to: tagged, renamed, without defaults under `omit_defaults`. A set becomes
    a sorted array. Raise CanonicalError for NaN, an infinity, an integer beyond ±(2^53-1), a lone surrogate,
    an object key that is not a string, a type that msgspec does not know, and nesting too deep or endless.

    SPEED
    """
    try:
        value = msgspec.to_builtins(value, order="deterministic", enc_hook=_to_base_type)
        try:
            return _encode(_spell(value))
        except _Unproven:
            return rfc8785.dumps(cast("Any", value))
    except RecursionError:
        raise CanonicalError("the value is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise CanonicalError(_find_fault(value, "$") or str(error)) from error


def content_hash(data: bytes) -> str:
    """Return the address of `data`: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def hash_json(value: object) -> str:
    """Return the content hash of the canonical form. Raise CanonicalError where `canonical` does."""
    return content_hash(canonical(value))


def _to_base_type(value: object) -> object:
    """Accept subclasses of JSON's types, which msgspec refuses: they count as the text or number they hold."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _spell(value: Any) -> Any:
    """Return what makes msgspec write RFC 8785 for `value`: itself, or a copy with its odd floats spelled out.

    Must not change `value`. Raise _Unproven where only rfc8785 knows the order of keys, or the error.
    """
    kind = type(value)
    if kind is dict:
        if not _sort_alike(value):
            raise _Unproven
        changes = _spell_items(value.items())
        return value | changes if changes else value
    if kind is list or kind is tuple:
        changes = _spell_items(enumerate(value))
        return [changes.get(index, item) for index, item in enumerate(value)] if changes else value
    if kind is float:
        return value if _is_written_alike(value) else msgspec.Raw(rfc8785.dumps(value))
    if kind in _WRITTEN_ALIKE or (kind is int and -_INT_MAX <= value <= _INT_MAX):
        return value
    raise _Unproven


def _spell_items(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the items that had to be spelled out, by key or index. A hot loop: it repeats the cheap checks."""
    changes: dict[Any, Any] = {}
    for place, item in items:
        kind = type(item)
        if kind in _WRITTEN_ALIKE or (kind is int and -_INT_MAX <= item <= _INT_MAX):
            continue
        spelled = _spell(item)
        if spelled is not item:
            changes[place] = spelled
    return changes


def _sort_alike(keys: Iterable[Any]) -> bool:
    """Say whether the keys are strings whose order by code point (msgspec) is that by UTF-16 unit (the RFC)."""
    text = "".join(keys)
    return text.isascii() or max(text) <= _BMP_MAX


def _is_written_alike(number: float) -> bool:
    """Say whether the number has a fraction and needs no exponent: then its shortest digits are the only spelling.

    Elsewhere msgspec writes 1.0, -0.0 and 1e20 where RFC 8785 has 1, 0 and 100000000000000000000; NaN as null.
    """
    return 1e-4 <= abs(number) < _INT_MAX and number % 1 != 0


def _find_fault(value: Any, place: str) -> str | None:
    """Describe the first thing in `value` that canonical JSON cannot carry, with its place, for the error."""
    return None
