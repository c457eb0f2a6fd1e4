"""The file of a program → its version, read from the package that it belongs to. Nothing is started.

What an agent does when it is asked for its version is its own business: some say it to their makers, too.
"""

import re
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.entry import NpmPackage, PythonTool

UNKNOWN = "unknown"
_MODULES = "node_modules"
_FIRST = 256


def version_of(path: Path, source: NpmPackage | PythonTool) -> str:
    """Return the version of a program, or `UNKNOWN` if no package that should bring it says so. Blocking."""
    if isinstance(source, NpmPackage):
        return _of_npm(path, {source.name, *source.also})
    return _of_tool(path, source.name)


def needs_node(path: Path) -> bool:
    """Return whether a file is a script for node."""
    if path.suffix in (".js", ".mjs", ".cjs"):
        return True
    with path.open("rb") as file:
        first = file.read(_FIRST).partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return False
    return any(word.rpartition(b"/")[2] in (b"node", b"nodejs") for word in first[2:].split())


def package_folder(path: Path) -> Path | None:
    """Return the package of npm that a file belongs to, or None."""
    return next(
        (
            folder
            for folder in path.parents
            if _MODULES in folder.parts and (folder / "package.json").is_file()
        ),
        None,
    )


def read_package(folder: Path) -> dict[str, Any]:
    """Return what the `package.json` of a folder says; empty if it cannot be read."""
    try:
        return msgspec.json.decode((folder / "package.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}


def needed_by(package: Path) -> tuple[Path, ...]:
    """Return the packages of npm outside of a package that it needs, itself or through others, as node finds them."""
    found, waiting = {package}, [package]
    while waiting:
        folder = waiting.pop()
        said = read_package(folder)
        for kind in ("dependencies", "optionalDependencies", "peerDependencies"):
            for name in said.get(kind) or ():
                place = _place_of(name, folder)
                if place is not None and place not in found:
                    found.add(place)
                    waiting.append(place)
    return tuple(sorted(place for place in found if not place.is_relative_to(package)))


def _place_of(name: str, folder: Path) -> Path | None:
    """Return where node would find a package when one in a folder asks for it."""
    for parent in (folder, *folder.parents):
        place = parent / _MODULES / name
        if (place / "package.json").is_file():
            return place.resolve()
    return None


def _of_npm(path: Path, names: set[str]) -> str:
    folder = package_folder(path.resolve())
    said = {} if folder is None else read_package(folder)
    version = said.get("version")
    return version if said.get("name") in names and isinstance(version, str) else UNKNOWN


def _of_tool(path: Path, name: str) -> str:
    """Return the version of a package of Python in the virtual environment that a script is in."""
    environment = path.resolve().parent.parent
    written = re.sub(r"[-_.]+", "_", name).lower()
    for folder in environment.glob("lib/python*/site-packages/*.dist-info"):
        found, _, version = folder.name.removesuffix(".dist-info").partition("-")
        if found.lower() == written and version:
            return version
    return UNKNOWN
