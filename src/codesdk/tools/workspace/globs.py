"""A glob such as `src/**/*.py` or `*.{js,ts}` → the paths it matches. Pure.

Matched name by name, never as one regular expression, so that no pattern is slow.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

MAX_CHARS = 500
MAX_ALTERNATIVES = 100


class BadGlob(ValueError):
    """The pattern cannot be used; the message says why."""


class Glob:
    """`**` stands for any number of folders, `*` and `?` stay within a name, `{a,b}` is one of several.

    A pattern without a slash means a name in any folder.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > MAX_CHARS or "\0" in pattern:
            raise BadGlob(f"a glob has 1 to {MAX_CHARS} characters, none of them NUL")
        self._patterns = [_names(one) for one in _alternatives(pattern)]

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches this path."""
        names = path.split("/")
        return any(_matches(pattern, names) for pattern in self._patterns)


def _alternatives(pattern: str) -> list[str]:
    """Expand the braces of a pattern."""
    done: list[str] = []
    open_ones = [pattern]
    while open_ones:
        one = open_ones.pop()
        start = one.find("{")
        end = one.find("}", start)
        if start < 0 or end < 0:
            done.append(one)
            continue
        # The innermost pair first, so that braces may be nested.
        start = one.rfind("{", 0, end)
        open_ones += [one[:start] + choice + one[end + 1 :] for choice in one[start + 1 : end].split(",")]
        if len(open_ones) + len(done) > MAX_ALTERNATIVES:  # each pair of braces multiplies them
            raise BadGlob(f"a glob may stand for {MAX_ALTERNATIVES} patterns; the braces make more")
    return done


def _names(pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise BadGlob('a glob cannot contain ".."; it looks inside the workspace only')
    return names if "/" in pattern else ["**", *names]


def _matches(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether the names match. `reached[i]`: the pattern so far can match the first i names."""
    reached = [True] + [False] * len(names)
    for part in pattern:
        if part == "**":
            for index in range(len(names)):
                reached[index + 1] = reached[index + 1] or reached[index]
        else:
            reached = [False] + [
                reached[index] and fnmatchcase(name, part) for index, name in enumerate(names)
            ]
    return reached[-1]
