"""Semantic versions and ranges of them, in the grammar that npm made common. Pure.

A range is alternatives of comparators: `>=1.2 <2`, `^1.2.3`, `~1.2`, `1.x`, `1.2 - 1.4`, `^1 || ^2`. A version with a
pre-release tag is in a range only if a comparator names the same three numbers with a tag of its own.
"""

import re
from typing import NamedTuple

_MOST_CHARS = 256
_NUMBER = r"(?:0|[1-9]\d{0,14})"
_TAG = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_TAG}(?:\.{_TAG})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_PART = rf"{_NUMBER}|[xX*]"
_PARTIAL = re.compile(
    rf"v?({_PART})(?:\.({_PART})(?:\.({_PART})(?:-({_TAG}(?:\.{_TAG})*))?(?:\+[0-9A-Za-z.-]+)?)?)?"
)
_COMPARATOR = re.compile(r"(\^|~>?|>=|<=|>|<|=)?\s*([^\s<>=~^|]+)")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")


class Version(NamedTuple):
    """A version. `tags` is what follows the hyphen of a pre-release; a build's name does not count."""

    major: int
    minor: int
    patch: int
    tags: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The version without its tags."""
        return (self.major, self.minor, self.patch)

    @property
    def rank(self) -> tuple[object, ...]:
        """What versions are compared by: a pre-release is before its release, numbers are before words."""
        tags = tuple((0, int(tag), "") if tag.isdigit() else (1, 0, tag) for tag in self.tags)
        return (*self.numbers, not tags, tags)


class _Bound(NamedTuple):
    """One comparator."""

    sign: str
    version: Version

    def holds(self, version: Version) -> bool:
        here, there = version.rank, self.version.rank
        match self.sign:
            case ">=":
                return here >= there
            case ">":
                return here > there
            case "<":
                return here < there
            case "<=":
                return here <= there
            case _:
                return here == there


_ANY = _Bound(">=", Version(0, 0, 0))
_NONE = _Bound("<", Version(0, 0, 0, ("0",)))


class VersionRange:
    """A range, read once. Raise `ValueError` if it is not one."""

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_CHARS:
            raise ValueError(f"A range of versions has at most {_MOST_CHARS} characters.")
        self.text = text
        self._alternatives = [_bounds(part.strip()) for part in text.split("||")]

    def __contains__(self, version: Version) -> bool:
        """Return whether a version is in the range."""
        return any(_fits(bounds, version) for bounds in self._alternatives)


def parse_version(text: str) -> Version:
    """Return a version. Raise `ValueError` if it is not one."""
    found = _VERSION.fullmatch(text) if len(text) <= _MOST_CHARS else None
    if found is None:
        raise ValueError(
            f"{text[:80]!r} is not a version: it has three numbers, such as 1.2.3 or 1.0.0-rc.1."
        )
    major, minor, patch, tags = found.groups()
    return Version(int(major), int(minor), int(patch), tuple(tags.split(".")) if tags else ())


def _fits(bounds: list[_Bound], version: Version) -> bool:
    if not all(bound.holds(version) for bound in bounds):
        return False
    return not version.tags or any(
        bound.version.tags and bound.version.numbers == version.numbers for bound in bounds
    )


def _bounds(text: str) -> list[_Bound]:
    hyphen = _HYPHEN.fullmatch(text)
    if hyphen is not None:
        return [*_comparator(">=", hyphen[1]), *_comparator("<=", hyphen[2])]
    found: list[_Bound] = []
    at = 0
    while at < len(text):
        match = _COMPARATOR.match(text, at)
        if match is None:
            raise ValueError(f"{text[:80]!r} is not a range of versions.")
        found += _comparator(match[1] or "", match[2])
        at = match.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return found or [_ANY]


def _comparator(sign: str, text: str) -> list[_Bound]:
    match = _PARTIAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a version in a range.")
    given: list[int] = []
    for part in match.groups()[:3]:
        if part is None or part in "xX*":
            break  # behind an x everything is open
        given.append(int(part))
    tags = tuple(match[4].split(".")) if match[4] and len(given) == 3 else ()
    low = _filled(given, tags)
    if not given:
        return [_NONE] if sign in ("<", ">") else [_ANY]
    if sign == "^":
        return [_Bound(">=", low), _Bound("<", _below(_caret(given)))]
    if sign in ("~", "~>"):
        return [_Bound(">=", low), _Bound("<", _below(_raised(given, min(len(given), 2))))]
    if len(given) == 3:
        return [_Bound(sign or "=", low)]
    return _open(sign, given, low)


def _open(sign: str, given: list[int], low: Version) -> list[_Bound]:
    """Return a comparator of a version that leaves numbers open: it means all versions that begin so."""
    above = _raised(given, len(given))
    match sign:
        case ">=":
            return [_Bound(">=", low)]
        case ">":
            return [_Bound(">=", above)]
        case "<":
            return [_Bound("<", _below(low))]
        case "<=":
            return [_Bound("<", _below(above))]
        case _:
            return [_Bound(">=", low), _Bound("<", _below(above))]


def _caret(given: list[int]) -> Version:
    """Return the first version that may break what the given one promised: the leftmost number that is not 0 rises."""
    leading = next((place for place, number in enumerate(given) if number), len(given) - 1)
    return _raised(given, leading + 1)


def _raised(given: list[int], count: int) -> Version:
    """Return the version with the last of its first `count` numbers raised, and zeros behind."""
    kept = given[:count]
    kept[-1] += 1
    return _filled(kept)


def _filled(given: list[int], tags: tuple[str, ...] = ()) -> Version:
    """Return the version of up to three numbers, with zeros for those that are open."""
    major, minor, patch = [*given, 0, 0, 0][:3]
    return Version(major, minor, patch, tags)


def _below(version: Version) -> Version:
    """Return the bound below which not even a pre-release of this version is."""
    return version._replace(tags=("0",))
