"""What is beneath an open directory: the entries of one directory, or the files of a whole tree, in order.

No link is followed. CodeSDK's own data directories are left out, and so is what a walk is told to skip.
Blocking; run it in a thread.
"""

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Literal

import msgspec

from codesdk.sandbox.files.paths import Beneath, PathRefused, enter, reason, reopened, require_workspace

MAX_DEPTH = 64
"""Bounded because a walk holds a descriptor for each level."""
Kind = Literal["file", "directory", "link", "other"]


class Entry(msgspec.Struct, frozen=True):
    """A name in a directory. Only a file has a size, and only if sizes were requested."""

    name: str
    kind: Kind
    size: int = 0


class Seen(msgspec.Struct, frozen=True):
    """A file on a walk. `directory` and `name` open it, until the walk goes on."""

    path: str
    directory: int
    name: str


def entries(files: Beneath, folders: Sequence[str]) -> list[Entry]:
    """Return what is in a directory, by name. Names that are not UTF-8 come with surrogates."""
    with files.folder(folders) as directory:
        return _entries(directory, sizes=True)


def walk(files: Beneath, folders: Sequence[str], skip: Collection[str] = ()) -> Iterator[Seen]:
    """Yield the regular files below a directory, each directory's own ones first.

    Directories whose names are in `skip`, that are too deep or that cannot be entered are skipped.
    """
    with files.folder(folders) as directory:
        yield from _walk(directory, "/".join(folders), skip, MAX_DEPTH)


def _walk(directory: int, path: str, skip: Collection[str], levels: int) -> Generator[Seen]:
    found = [entry for entry in _entries(directory) if _is_text(entry.name)]
    for entry in found:
        if entry.kind == "file":
            yield Seen(f"{path}/{entry.name}" if path else entry.name, directory, entry.name)
    for entry in found:
        if entry.kind != "directory" or entry.name in skip or levels == 0:
            continue
        try:
            below = enter(directory, entry.name)
        except PathRefused:
            continue
        try:
            require_workspace(below)
            yield from _walk(below, f"{path}/{entry.name}" if path else entry.name, skip, levels - 1)
        except PathRefused:
            continue
        finally:
            os.close(below)


def _entries(directory: int, *, sizes: bool = False) -> list[Entry]:
    try:
        with reopened(directory) as fd, os.scandir(fd) as found:
            return sorted((_entry(entry, sizes) for entry in found), key=lambda entry: entry.name)
    except OSError as error:
        raise PathRefused(reason(error, "the directory")) from None


def _entry(entry: os.DirEntry[str], sized: bool) -> Entry:
    if entry.is_symlink():
        return Entry(entry.name, "link")
    if entry.is_dir(follow_symlinks=False):
        return Entry(entry.name, "directory")
    if not entry.is_file(follow_symlinks=False):
        return Entry(entry.name, "other")
    try:
        return Entry(entry.name, "file", entry.stat(follow_symlinks=False).st_size if sized else 0)
    except OSError:  # it disappeared meanwhile
        return Entry(entry.name, "other")


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8, so that a path with it can be written in JSON."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
