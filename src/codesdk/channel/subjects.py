"""The arguments of a program's call → what it would touch, in the terms that policy rules are written in.

A program names its arguments as it likes; the usual names are looked at, wherever they stand. More subjects make an
allow harder to get and a deny easier, so nothing is left out that looks like one, and what cannot be told counts as any. Pure.
"""

import os.path
import shlex
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from codesdk.contract.tools import UNKNOWN_SUBJECT, Subjects

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
_DEEP = 16  # objects and lists


def subjects_of(args: Mapping[str, Any], workspace: str) -> Subjects:
    """Return what the arguments name. Paths in the workspace are relative to it; others are as they are.

    What is too much, too deep or of no known shape becomes `UNKNOWN_SUBJECT`: to leave it out would hide it from every rule.
    """
    found = _read(dict(args), _DEEP)
    paths = [text if text == UNKNOWN_SUBJECT else _relative(text, workspace) for text in found.paths]
    hosts = [text if text == UNKNOWN_SUBJECT else _host(text) for text in found.hosts]
    return Subjects(
        paths=_cut(paths), hosts=_cut([host for host in hosts if host]), argv=_argv(args, found.commands)
    )


def _cut(subjects: list[str]) -> list[str]:
    return subjects if len(subjects) <= _MAX else [*subjects[:_MAX], UNKNOWN_SUBJECT]


class _Found:
    """What a value names, by the names that texts stand under, wherever they stand."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.hosts: list[str] = []
        self.commands = 0
        self.bare: list[str] = []
        """Texts that stand under no name yet: the value itself, or what is in its lists."""
        self.objects = False
        """Whether there is an object in it, which may name anything."""

    def add(self, other: "_Found") -> None:
        """Take over what an entry of a list names."""
        self.paths += other.paths
        self.hosts += other.hosts
        self.commands += other.commands
        self.bare += other.bare
        self.objects = self.objects or other.objects

    def add_named(self, name: str, other: "_Found") -> None:
        """Take over what the value of a field names."""
        for known, mine, theirs in ((_PATHS, self.paths, other.paths), (_HOSTS, self.hosts, other.hosts)):
            mine += theirs
            if name in known:
                mine += other.bare
                # An object where a path should be, without one by a known name: it is some path all the same.
                mine += [UNKNOWN_SUBJECT] if other.objects and not theirs else []
        self.commands += 2 * other.commands + (name in _COMMANDS)

    def give_up(self) -> None:
        """Note that there is more than was looked at."""
        self.paths.append(UNKNOWN_SUBJECT)
        self.hosts.append(UNKNOWN_SUBJECT)
        self.commands += 2


def _read(value: Any, deep: int) -> _Found:
    found = _Found()
    if isinstance(value, str):
        found.bare.append(value)
    elif isinstance(value, list | dict) and value and not deep:
        found.give_up()
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            found.add(_read(one, deep - 1))
    elif isinstance(value, dict):
        found.objects = True
        for name, inner in cast("dict[str, Any]", value).items():
            if inner is not None:
                found.add_named(name.lower(), _read(inner, deep - 1))
    return found


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


def _argv(args: Mapping[str, Any], commands: int) -> list[str]:
    """Return the one command that a call names. Of several nobody knows which is run."""
    if not commands:
        return []
    given = [value for name, value in args.items() if name.lower() in _COMMANDS and value is not None]
    if commands > 1 or not given:
        return [UNKNOWN_SUBJECT]
    [command] = given
    if isinstance(command, str):
        try:
            return shlex.split(command)[:_MAX]
        except ValueError:
            return [UNKNOWN_SUBJECT]
    words = cast("list[Any]", command) if isinstance(command, list) else None
    if words is None or not all(isinstance(word, str | int | float) for word in words):
        return [UNKNOWN_SUBJECT]
    return [str(word) for word in words][:_MAX]
