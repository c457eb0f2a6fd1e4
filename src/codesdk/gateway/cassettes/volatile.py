"""A request's body → the same without what changes from run to run: dates, ids, paths, ports, counts.

Replay treats two requests with the same normal form as equal. Every rule in `volatile_rules` has an
example, which is its test and its line in docs/gateway.md. Normal forms are only compared, never sent.
"""

import re
from collections.abc import Callable
from typing import Any, cast

from codesdk.gateway.cassettes.volatile_rules import DIGIT_RULES, WORDY_RULES, Rule

SESSION_FIELDS = frozenset(
    {"metadata", "prompt_cache_key", "safety_identifier", "user", "client_metadata", "session_id"}
)
"""Top-level fields that name a session, a user or an installation in some format."""

_UNTOUCHED = frozenset({"model"})
_ID_FIELDS = frozenset({"tool_use_id", "call_id", "tool_call_id"})
_DATA_FIELDS = frozenset({"args", "response", "parameters", "input_schema", "parametersJsonSchema"})
_SAID_CWD = re.compile(
    r"""
    (?: [Ww]orking\ directory(?:\ is)? | Workspace\ root\ folder | working\ in\ the\ directory ) :?\ *
      (/[^\s<>"'`,;)\]}]+ | [A-Za-z]:\\[^\s<>"'`,;)\]}]+)
  | <cwd>\s*+([^<>\n]++)\s*+</cwd>
    """,
    re.VERBOSE,
)
MAX_CWDS = 8
"""How many working directories a request may name; the longest count. It names one or two."""
_PROJECTS = "/projects/"
_IN_PATH, _IN_NAME = re.compile(r"[\w.-]"), re.compile(r"[\w-]")
_digit = re.compile("[0-9]")
# A request that names one of these must not have every path below it replaced.
_NOT_CWD = frozenset({"/", "/tmp", "/var/tmp", "/home", "/Users", "/root", "/usr", "/etc", "/var"})


def normalize(body: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a request's body without its volatile parts.

    Raise `RecursionError` for absurd nesting.
    """
    text = _Text(_find_cwds(body))
    ids = _Ids()
    return {key: _top(key, body[key], text, ids) for key in sorted(body)}


class _Text:
    """Applies the rules to texts, after replacing the working directories that the request names."""

    def __init__(self, cwds: set[str]) -> None:
        longest_first = sorted(cwds, key=lambda cwd: (-len(cwd), cwd))[:MAX_CWDS]
        self._paths = [(cwd, _slug(cwd)) for cwd in longest_first]

    def __call__(self, text: str) -> str:
        for path, slug in self._paths:
            text = _replace(text, path, _is_path)
            text = _replace(text, _PROJECTS + slug, _is_slug, _PROJECTS)
        text = _apply(WORDY_RULES, text)
        # One search for a digit spares a line without any all of the digit rules.
        if _digit.search(text) is None:
            return text
        lines = text.split("\n")
        return "\n".join(_apply(DIGIT_RULES, line) if _digit.search(line) else line for line in lines)


def _replace(text: str, wanted: str, fits: Callable[[str, int, int], bool], kept: str = "") -> str:
    """Return a text with `<cwd>` where a directory stands by itself.

    By `find`, not by an expression: who names a directory of a thousand `/~` and then writes a million of them would
    have every place compared with all of it.
    """
    pieces: list[str] = []
    at = copied = 0
    while (at := text.find(wanted, at)) >= 0:
        end = at + len(wanted)
        if fits(text, at, end):
            pieces += (text[copied:at], kept, "<cwd>")
            copied = end
        at = end
    return "".join([*pieces, text[copied:]]) if pieces else text


def _is_path(text: str, start: int, end: int) -> bool:
    return _IN_PATH.match(text, start - 1, start) is None and _IN_NAME.match(text, end) is None


def _is_slug(text: str, start: int, end: int) -> bool:
    return _IN_NAME.match(text, end) is None


def _apply(rules: tuple[Rule, ...], text: str) -> str:
    for rule in rules:
        if not rule.signs or any(sign in text for sign in rule.signs):
            text = rule.pattern.sub(rule.becomes, text)
    return text


class _Ids:
    """Numbers ids in the order in which they first appear, so that a result still belongs to its call."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, value: str) -> str:
        return f"<id {self._numbers.setdefault(value, len(self._numbers) + 1)}>"


def _top(key: str, value: Any, text: _Text, ids: _Ids) -> Any:
    if key in _UNTOUCHED:
        return value
    if key in SESSION_FIELDS:
        return "<session>"
    return _walk(value, text, ids, is_data=False)


def _walk(value: Any, text: _Text, ids: _Ids, *, is_data: bool) -> Any:
    """Return the value normalized. In data (a tool's arguments or result), `id` is an ordinary field."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_walk(item, text, ids, is_data=is_data) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    out: dict[str, Any] = {}
    for key in sorted(entries):
        item = entries[key]
        if not is_data and isinstance(item, str) and (key in _ID_FIELDS or key == "id"):
            out[key] = ids(item)
        else:
            below = is_data or key in _DATA_FIELDS or (key == "input" and isinstance(item, dict))
            out[key] = _walk(item, text, ids, is_data=below)
    return out


def _find_cwds(value: Any) -> set[str]:
    if isinstance(value, str):
        return _cwds_in(value)
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return set[str]().union(*(_find_cwds(item) for item in cast("list[Any]", value)))
    return set()


def _cwds_in(text: str) -> set[str]:
    if "irectory" not in text and "<cwd>" not in text and "root folder" not in text:
        return set()
    found = ((match[1] or match[2]).rstrip().rstrip("/.") for match in _SAID_CWD.finditer(text))
    return {path for path in found if path.startswith("/") or path[1:3] == ":\\"} - _NOT_CWD - {""}


def _slug(path: str) -> str:
    """Return a directory as Claude Code writes it in the names of its own directories."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)
