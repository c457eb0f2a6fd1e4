"""The arguments of a program's call → what it would touch, in the terms that policy rules are written in.

A program names its arguments as it likes; the usual names are looked at, wherever they stand. More subjects make an
allow harder to get and a deny easier, so nothing is left out that looks like one. Pure.
"""

import os.path
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from codesdk.contract.tools import Subjects

_PATHS = frozenset(
    {"path", "paths", "file", "files", "file_path", "file_paths", "filepath", "filename", "filenames"}
    | {"src", "source", "dst", "dest", "destination", "target", "from", "to", "old_path", "new_path"}
    | {"dir", "directory", "folder", "cwd"}
)
_HOSTS = frozenset(
    {"host", "hosts", "hostname", "domain", "domains", "url", "urls", "uri", "uris", "address", "endpoint"}
)
_COMMANDS = frozenset({"argv", "command", "cmd"})
_MAX = 200
_DEEP = 8


def subjects_of(args: Mapping[str, Any], workspace: str) -> Subjects:
    """Return what the arguments name. Paths in the workspace are relative to it; others are as they are."""
    found = list(_walk(args, _DEEP))
    paths = [_relative(text, workspace) for name, text in found if name in _PATHS]
    hosts = [_host(text) for name, text in found if name in _HOSTS]
    return Subjects(
        paths=paths[:_MAX], hosts=[host for host in hosts if host][:_MAX], argv=_argv(args)[:_MAX]
    )


def _walk(value: Mapping[str, Any], deep: int) -> Iterator[tuple[str, str]]:
    """Yield every text of an object with the name that it stands under."""
    for name, inner in value.items():
        for one in cast("list[Any]", inner) if isinstance(inner, list) else [inner]:
            if isinstance(one, str):
                yield name.lower(), one
            elif isinstance(one, dict) and deep:
                yield from _walk(cast("dict[str, Any]", one), deep - 1)


def _relative(text: str, workspace: str) -> str:
    """Return a path without the detours by which a rule could be passed."""
    whole = os.path.normpath(os.path.join(workspace, os.path.expanduser(text)))  # noqa: PTH111, PTH118 - pure text
    inside = os.path.relpath(whole, workspace)
    return whole if inside == ".." or inside.startswith("../") else inside


def _host(text: str) -> str:
    try:
        return urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        return text


def _argv(args: Mapping[str, Any]) -> list[str]:
    for name, value in args.items():
        if name.lower() in _COMMANDS:
            if isinstance(value, list):
                return [str(word) for word in cast("list[Any]", value)]
            if isinstance(value, str):
                try:
                    return shlex.split(value)
                except ValueError:
                    return [value]
    return []
