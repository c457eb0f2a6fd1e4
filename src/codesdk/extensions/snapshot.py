"""An extension's directory → its files, read once, their hash, and the modules in them.

What is imported is exactly what was hashed: sources come from the snapshot and never from a `__pycache__`, which
anybody who can write beside them could have filled with something else.
"""

import hashlib
import importlib.abc
import importlib.machinery
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from codesdk.contract.errors import InvalidRequest

MAX_FILES = 500
MAX_BYTES = 8 * 1024 * 1024
_SKIPPED = frozenset({"__pycache__", ".git", ".pytest_cache", ".ruff_cache"})


class Snapshot(NamedTuple):
    """The files of a directory, by their path below it."""

    root: Path
    files: Mapping[str, bytes]

    @property
    def hash(self) -> str:
        """A hash over all names and contents."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            for part in (name.encode(), data):
                digest.update(len(part).to_bytes(8, "big") + part)
        return f"sha256:{digest.hexdigest()}"


def take_snapshot(root: Path) -> Snapshot:
    """Read a directory. Raise `InvalidRequest` if it holds a link or is too large."""
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    try:
        for folder, folders, names in os.walk(root, onerror=_raise):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED)
            for name in [*folders, *names]:
                if (Path(folder) / name).is_symlink():
                    raise InvalidRequest(f"{Path(folder) / name} is a link; an extension holds only files.")
            for name in sorted(names):
                path = Path(folder) / name
                files[path.relative_to(root).as_posix()] = data = _read(path, left)
                left -= len(data)
                if left < 0 or len(files) > MAX_FILES:
                    raise InvalidRequest(
                        f"{root} is too large for an extension: at most {MAX_FILES} files and {MAX_BYTES:,} bytes."
                    )
    except OSError as error:
        raise InvalidRequest(f"{root} cannot be read ({error.strerror}).") from None
    return Snapshot(root, files)


def _raise(error: OSError) -> None:
    raise error


def _read(path: Path, most: int) -> bytes:
    # Neither a link that appeared just now nor a pipe, which would keep us waiting.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidRequest(f"{path} is not a file; an extension holds only files.")
        return file.read(most + 1)


class SnapshotModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of one snapshot, as a package of a name of its own. Others of the process are not touched."""

    def __init__(self, package: str, snapshot: Snapshot) -> None:
        self._package = package
        self._snapshot = snapshot

    def load(self, file: str) -> ModuleType:
        """Import the module in a file of the snapshot. Runs the extension's code."""
        sys.meta_path.insert(0, self)
        return importlib.import_module(f"{self._package}.{file.removesuffix('.py').replace('/', '.')}")

    def forget(self) -> None:
        """Take the modules out of the process's table; what still uses them goes on."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{self._package}.")]:
            del sys.modules[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of this package is."""
        if not f"{fullname}.".startswith(f"{self._package}."):
            return None
        file, is_package = self._file(fullname)
        if file is None and not is_package:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)
        spec.origin = str(self._snapshot.root / (file or ""))
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the source that was hashed."""
        code = self._code(module.__name__)
        if code is not None:
            exec(code, module.__dict__)

    def _code(self, fullname: str) -> CodeType | None:
        file, _ = self._file(fullname)
        if file is None:
            return None
        return compile(self._snapshot.files[file], str(self._snapshot.root / file), "exec", dont_inherit=True)

    def _file(self, fullname: str) -> tuple[str | None, bool]:
        """Return the file of a module, and whether it is a package, which need not have one."""
        place = fullname.removeprefix(self._package).strip(".").replace(".", "/")
        files = self._snapshot.files
        if f"{place}.py" in files:
            return f"{place}.py", False
        inside = f"{place}/" if place else ""
        init = f"{inside}__init__.py"
        if init in files:
            return init, True
        return None, any(name.startswith(inside) for name in files)
