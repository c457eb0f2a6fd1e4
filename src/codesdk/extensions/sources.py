"""Where extensions come from → the directories to load, in order of precedence, and which are trusted.

A project's own extensions lie in its workspace, where an agent writes. So each of them counts only while its files
are, byte for byte, those that somebody trusted.
"""

import importlib.metadata
import importlib.util
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.extensions.manifest import MANIFESTS

SourceKind = Literal["project", "package", "root"]
GROUP = "codesdk.extensions"
"""The group of entry points in which an installed package names the package that holds its manifest."""
PROJECT_FOLDER = Path(".codesdk") / "extensions"
PINS = "extensions.json"
_LINK = "It is a link. Put the extension itself there, or name its directory as a root."


class Candidate(NamedTuple):
    """A directory that may be an extension. One that has a `problem` is only listed."""

    root: Path
    kind: SourceKind
    problem: str | None = None


class Pins:
    """The project extensions that were trusted: the hash of each, by its path. A file of the data directory."""

    def __init__(self, data_dir: Path | None) -> None:
        self._path = None if data_dir is None else data_dir / PINS

    def read(self) -> Mapping[str, str]:
        """Return the hashes by path. Raise `StorageFailure` if the file cannot be read: nothing is trusted then."""
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise StorageFailure(
                f"{self._path} cannot be read ({error}). Remove it and trust the extensions again."
            ) from None

    def add(self, root: Path, digest: str) -> None:
        """Trust a directory as it is now."""
        if self._path is None:
            raise InvalidRequest("Without a data directory nothing can be trusted. Name one.")
        kept = msgspec.json.encode({**self.read(), str(root.resolve()): digest})
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._path.with_name(f"{PINS}.{secrets.token_hex(4)}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(kept)
                file.flush()
                os.fsync(handle)
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def find_candidates(project: Path | None, packages: bool, roots: Sequence[Path]) -> list[Candidate]:
    """Return the directories to look at: the project's, installed packages, then configured roots; each once."""
    found = _of_project(project) if project else []
    found += _installed() if packages else []
    for root in roots:
        found += _configured(root)
    seen: set[Path] = set()
    once: list[Candidate] = []
    for candidate in found:
        if candidate.problem is not None:  # it is not loaded, so it must not stand in for one that is
            once.append(candidate)
            continue
        root = candidate.root.resolve()
        if root not in seen:
            seen.add(root)
            once.append(candidate._replace(root=root))
    return once


def _of_project(project: Path) -> list[Candidate]:
    """Return a project's extensions. None through a link: it would be trusted here because it was trusted elsewhere."""
    folder = project / PROJECT_FOLDER
    links = [place for place in (folder.parent, folder) if place.is_symlink()]
    if links:
        return [Candidate(links[0], "project", _LINK)]
    return [Candidate(root, "project", _LINK if root.is_symlink() else None) for root in _below(folder)]


def _configured(root: Path) -> list[Candidate]:
    """Return the extension that a root is, or those that are in it."""
    if not root.is_dir():
        return [Candidate(root, "root", "There is no such directory.")]
    if any((root / name).exists() for name in MANIFESTS):
        return [Candidate(root, "root")]
    return [Candidate(each, "root") for each in _below(root)]


def _below(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []


def _installed() -> list[Candidate]:
    """Return the directories of installed packages that say they are extensions. None of them is imported."""
    found: list[Candidate] = []
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda each: each.name):
        # A package inside another one could be found only by importing that one.
        spec = None if "." in point.value else importlib.util.find_spec(point.value.partition(":")[0])
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if places:
            found.append(Candidate(Path(places[0]), "package"))
        else:
            why = (
                f"The entry point {point.name} names {point.value}, which is not a package at the top level."
            )
            found.append(Candidate(Path(point.value), "package", why))
    return found
