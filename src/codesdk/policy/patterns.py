"""The patterns of rules → predicates on tool names, paths and hosts. Compiled once, then fast."""

import posixpath
import re
from collections.abc import Callable, Sequence

Predicate = Callable[[str], bool]

_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[?[0-9a-f:]*:[0-9a-f:.]*\]?")
# Finds an empty name, `.` or `..`.
_UNTIDY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")
_TOKEN = re.compile(r"\[!?[^]/]+\]|.", re.DOTALL)
# Within these bounds the regular expression of a glob is fast; each `**` multiplies the ways to match a path.
_MAX_DEEP = 3
_SHORT_CHARS = 1000
_SHORT_NAMES = 32


class BadPattern(ValueError):
    """The pattern is not valid; the message says why."""


def tool_pattern(patterns: Sequence[str]) -> Predicate:
    """Return a predicate: whether a tool's name matches one of these; `*` stands for any characters."""
    exact = frozenset(pattern for pattern in patterns if "*" not in pattern)
    globs = [_any_between(pattern.split("*")) for pattern in patterns if "*" in pattern]
    if not globs:
        return exact.__contains__
    found = re.compile("|".join([*globs, *map(re.escape, exact)])).fullmatch
    return lambda name: found(name) is not None


class PathPattern:
    """A predicate: whether a whole tidy path matches one of some globs.

    `*` and `?` stay within a name, `**` stands for any number of directories, `dir/**` is `dir` and
    everything beneath it. A regular expression is used unless the path or the glob could make it slow:
    paths come from models and must not be able to block the loop.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._globs = [_Glob(pattern) for pattern in patterns]
        quick = all(glob.quick for glob in self._globs)
        self.regex = "|".join(glob.regex for glob in self._globs) if quick else None
        self._found = None if self.regex is None else re.compile(self.regex, re.DOTALL).fullmatch

    def __call__(self, path: str) -> bool:
        """Return whether the path matches."""
        if self._found is not None and is_short(path):
            return self._found(path) is not None
        names = path.split("/")
        return any(glob.fits(names) for glob in self._globs)


class _Glob:
    """One glob: as a regular expression, and name by name, in a time bounded by names times names."""

    def __init__(self, pattern: str) -> None:
        if not pattern or tidy_path(pattern) != pattern:
            raise BadPattern(
                f"{pattern!r} is not a path pattern: write it like src/**/*.py, without . and ..,"
                " relative to the workspace"
            )
        names = pattern.split("/")
        if any("**" in name and name != "**" for name in names):
            raise BadPattern(
                f"{pattern!r} is not a path pattern: ** stands alone between slashes, as in src/**/*.py"
            )
        kept = [name for at, name in enumerate(names) if name != "**" or names[at - 1 : at] != ["**"]]
        regexes = [None if name == "**" else _name_regex(name) for name in kept]
        self.quick = regexes.count(None) <= _MAX_DEEP
        self.regex = _joined(regexes)
        try:
            self._names = [None if name is None else re.compile(name).fullmatch for name in regexes]
        except re.error as error:
            raise BadPattern(f"{pattern!r} is not a path pattern: {error.msg}") from None

    def fits(self, path: list[str]) -> bool:
        """Compare name by name; on a mismatch, let the last `**` take one name more."""
        at = here = back = 0
        deep: int | None = None
        names = self._names
        while here < len(path):
            name = names[at] if at < len(names) else _nothing
            if name is None:
                deep, back = at, here
                at += 1
            elif name(path[here]) is not None:
                at, here = at + 1, here + 1
            elif deep is not None:
                back += 1
                at, here = deep + 1, back
            else:
                return False
        return all(name is None for name in names[at:])


def is_short(path: str) -> bool:
    """Return whether a regular expression is certain to be fast on this path."""
    return len(path) <= _SHORT_CHARS and path.count("/") <= _SHORT_NAMES


def host_pattern(patterns: Sequence[str]) -> Predicate:
    """Return a predicate: whether a host is one of these, or beneath one written `*.example.com`."""
    lowered = [pattern.lower().rstrip(".") for pattern in patterns]
    for pattern in lowered:
        if not _HOST.fullmatch(pattern):
            raise BadPattern(
                f"{pattern!r} is not a host: write example.com or *.example.com, without port or path"
            )
    exact = frozenset(pattern for pattern in lowered if not pattern.startswith("*."))
    ends = tuple(pattern[1:] for pattern in lowered if pattern.startswith("*."))
    return lambda host: host in exact or host.endswith(ends)


def tidy_path(path: str) -> str:
    """Return a path without `.`, `..` and double slashes, so that no spelling of it slips past a pattern."""
    return posixpath.normpath(path) if _UNTIDY.search(path) else path


def tidy_host(host: str) -> str:
    """Return a host in the form that patterns are compared with."""
    return host.lower().rstrip(".")


def _any_between(pieces: list[str]) -> str:
    """Return a regular expression for these texts with any characters between them.

    Names come from models. The first place where a piece fits is good enough, so none is tried twice.
    """
    first, *rest = map(re.escape, pieces)
    return f"{first}{''.join(f'(?>.*?{piece})' for piece in rest[:-1] if piece)}.*{rest[-1]}"


def _nothing(name: str) -> None:
    """Match no name: the glob has ended."""


def _joined(names: list[str | None]) -> str:
    """Return one regular expression for a whole path; None stands for any number of directories."""
    if names == [None]:
        return ".*"
    last = len(names) - 1
    parts: list[str] = []
    for at, name in enumerate(names):
        if name is None:
            parts.append("(?:/.*)?" if at == last else "(?:[^/]*/)*")
        else:
            ends = at == last or (at + 1 == last and names[last] is None)
            parts.append(name if ends else f"{name}/")
    return "".join(parts)


def _name_regex(glob: str) -> str:
    """Return a regular expression for one name."""
    # The first place where a piece after a `*` fits is good enough, so atomic groups rule out backtracking.
    pieces = [""]
    for token in _TOKEN.findall(glob):
        if token == "*":
            pieces.append("")
        else:
            pieces[-1] += _piece(token)
    first, *rest = pieces
    if not rest:
        return first
    middle = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1] if piece)
    return f"{first}{middle}[^/]*{rest[-1]}"


def _piece(token: str) -> str:
    """Return the regular expression for one character or character class of a glob."""
    if token == "?":
        return "[^/]"
    if len(token) > 2 and token.startswith("["):
        negated = token.startswith("[!")
        escaped = re.sub(r"([\\\[\]&~|^])", r"\\\1", token[2:-1] if negated else token[1:-1])
        escaped = escaped.replace("--", r"\-\-")
        return f"[^/{escaped}]" if negated else f"(?!/)[{escaped}]"
    return re.escape(token)
