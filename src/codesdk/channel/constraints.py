"""Constraints of a decision and the arguments of its call → what the call does not keep to. Pure.

`paths` are patterns for every path that the call names, relative to where the program runs; `domains` are hosts, with
all below them. A constraint that nobody knows cannot be kept, so it is not.
"""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from codesdk.channel.subjects import subjects_of
from codesdk.contract.tools import UNKNOWN_SUBJECT


def unmet(constraints: Mapping[str, Any], args: Mapping[str, Any]) -> str | None:
    """Return why a call does not keep to the constraints of its decision, or None if it does."""
    if not constraints:
        return None
    subjects = subjects_of(args, os.getcwd())  # noqa: PTH109 - the text of it
    for name, given in constraints.items():
        if not isinstance(given, list) or not all(isinstance(one, str) for one in cast("list[Any]", given)):
            return f"The decision has a constraint {name[:80]} that cannot be read."
        patterns = cast("list[str]", given)
        if name == "paths":
            kept = _all(subjects.paths, patterns, _is_path)
        elif name == "domains":
            kept = _all(subjects.hosts, patterns, _is_host)
        else:
            return f"The decision has a constraint {name[:80]} that this program does not know."
        if not kept:
            return f"The call does not keep to the constraint {name} of its decision."
    return None


def _all(found: Sequence[str], patterns: Sequence[str], fits: Any) -> bool:
    """Return whether something is named, and all of it fits a pattern."""
    return (
        bool(found)
        and UNKNOWN_SUBJECT not in found
        and all(any(fits(one, pattern) for pattern in patterns) for one in found)
    )


def _is_path(path: str, pattern: str) -> bool:
    if pattern.endswith("/**"):
        return path == pattern[:-3] or path.startswith(pattern[:-2])
    # A star stands for a name, not for folders.
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def _is_host(host: str, domain: str) -> bool:
    host, domain = host.lower().rstrip("."), domain.lower().rstrip(".")
    return host == domain or host.endswith(f".{domain}")
