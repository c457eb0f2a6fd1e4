"""A program → the tree of files that it was installed as, and one hash of all of them.

Hashing takes as long as reading everything, so a result is kept under the stamps of the files (size, times, inode),
which cost one look at each. A change of a file changes its stamp: programs can set the time of the last write, but not
the time of the last change. The one exception is a change within the clock's tick in which the file was hashed, so
what changed just before is not kept.
"""

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.errors import Conflict
from codesdk.store import write_file

SETTLED_S = 2.0
"""How old the last change must be for a hash to be kept: longer than a tick of any file system's clock."""
_UP = 4
"""How far above a program its folder may begin."""
_NPM = "package.json"
_MODULES = "node_modules"
_SKIPPED = "__pycache__"
_BLOCK = 1024 * 1024
_MOST = 64
_Entry = tuple[str, os.stat_result]


class Known(msgspec.Struct, frozen=True):
    """The hash of a tree, and the stamps that its files had then."""

    stamps: str
    hash: str


def tree_of(program: str, markers: Sequence[str]) -> Path:
    """Return the folder that a program was installed as: the nearest one above it with a marker in it.

    A package of npm is such a folder, too. The program alone, with all links resolved, if there is none.
    """
    path = Path(program).resolve()
    for folder in list(path.parents)[:_UP]:
        # Only inside node_modules: a stray package.json in somebody's home must not make a package of it.
        found = (*markers, _NPM) if _MODULES in folder.parts else markers
        if any((folder / marker).is_file() for marker in found):
            return folder
    return path


def hash_tree(root: Path, kept: Path | None = None, beside: Sequence[Path] = ()) -> str:
    """Return the hash of a file, or of all files below a folder and the folders that belong to it. Blocking.

    `kept` is a file in which hashes are kept by their stamps. Raise `OSError` if something cannot be read, and
    `Conflict` if it changes meanwhile.
    """
    stamps, newest_s = _stamps(root, beside)
    known = _read(kept)
    found = known.get(str(root))
    if found is not None and found.stamps == stamps:
        return found.hash
    began_s = time.time()
    hashed = hash_json([_described(root, name, status) for name, status in _all_entries(root, beside)])
    if _stamps(root, beside)[0] != stamps:
        raise Conflict(f"{root} changed while it was being read. Try again when nothing installs there.")
    if kept is not None and newest_s < began_s - SETTLED_S:
        _keep(kept, known, str(root), Known(stamps, hashed))
    return hashed


def _entries(root: Path, below: str = "") -> Iterator[_Entry]:
    """Give every file and link, by its path below the root, in the order of names."""
    place = root / below
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        yield below, status
        return
    for name in sorted(os.listdir(place)):  # noqa: PTH208 - names, not paths
        if name != _SKIPPED:  # what Python writes there by itself, it checks against the source
            yield from _entries(root, f"{below}/{name}" if below else name)


def _all_entries(root: Path, beside: Sequence[Path]) -> Iterator[_Entry]:
    """Give every file below the root and below the folders that belong to it, by its path from the root."""
    yield from _entries(root)
    for folder in beside:
        yield from _entries(root, os.path.relpath(folder, root))


def _stamps(root: Path, beside: Sequence[Path]) -> tuple[str, float]:
    """Return one hash of the stamps of all files, and when the youngest of them changed."""
    digest, newest_ns = hashlib.sha256(), 0
    for name, status in _all_entries(root, beside):
        times = (status.st_mtime_ns, status.st_ctime_ns)
        newest_ns = max(newest_ns, *times)
        digest.update(
            repr((name, status.st_dev, status.st_ino, status.st_mode, status.st_size, times)).encode()
        )
    return digest.hexdigest(), newest_ns / 1e9


def _described(root: Path, name: str, status: os.stat_result) -> list[str]:
    """Return what is hashed of a file: not where it is nor when it was written, so that copies are equal."""
    path = root / name
    if stat.S_ISLNK(status.st_mode):
        return [name, "link", os.readlink(path)]  # noqa: PTH115 - as it is written, not as a path
    if not stat.S_ISREG(status.st_mode):
        return [name, "other", ""]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return [name, "program" if status.st_mode & stat.S_IXUSR else "file", digest.hexdigest()]


def _read(kept: Path | None) -> dict[str, Known]:
    if kept is not None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(kept.read_bytes(), type=dict[str, Known])
    return {}


def _keep(kept: Path, known: dict[str, Known], root: str, found: Known) -> None:
    """Add a hash to those that are kept. A cache: what two processes write at once may lose one of them."""
    others = [(name, each) for name, each in known.items() if name != root and Path(name).exists()]
    with contextlib.suppress(OSError):
        write_file(kept, msgspec.json.encode(dict([*others[-_MOST:], (root, found)])))
