"""Certificates: what the conformance matrix found about a program of a version that CodeSDK was not tested with.

They are the operator's, so they are kept in the operator's own folder and not in a data directory, which may lie in a
workspace that somebody else wrote. A certificate is for the exact files of the program, and for the CodeSDK and the
adapter that drove it: it is void as soon as one of the three is another.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.entry import NpmPackage, ProgramEntry, PythonTool, RuntimeEntry
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.runtimes.program.environment import operator_folder
from codesdk.runtimes.program.pinned.versions import needed_by
from codesdk.runtimes.program.tree import hash_tree, tree_of
from codesdk.store import write_file

OWNERSHIP_ROWS = (
    "tool approve",
    "tool deny with reason",
    "non-interactive ask",
    "forbidden tool does not run",
    "no native tool in the exact input",
    "every native name called, none run",
    "hostile workspace runs nothing",
    "native tool attempt does not run",
)
"""The rows of the matrix that show who decides about tools. No certificate without all of them."""
_TREES = "trees.json"
_VENV = ("pyvenv.cfg",)
_FORMAT = "codesdk-certificate-1"
_LOOSE = stat.S_IWGRP | stat.S_IWOTH


class Row(msgspec.Struct, frozen=True):
    """The outcome of one row of the matrix."""

    name: str
    outcome: Literal["pass", "fail", "unsupported", "not-checked"]
    detail: str = ""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, of which program, with which CodeSDK."""

    runtime: str
    version: str
    """What the program says that it is. What counts is `tree`."""
    tree: str
    """The hash of the installed files."""
    codesdk: str
    adapter: str
    made_at: str
    rows: tuple[Row, ...]
    sessions: tuple[str, ...] = ()
    """The recorded sessions that it was compared against."""
    format: Literal["codesdk-certificate-1"] = _FORMAT

    @property
    def unchecked(self) -> list[Row]:
        """What was not shown: rows that could not be checked here, or that the runtime does not promise."""
        return [row for row in self.rows if row.outcome != "pass"]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate as it is stored. The hash finds out changes that nobody meant; it is no signature."""

    certificate: Certificate
    hash: str


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that was made, and where it is; or why none was."""

    certificate: Certificate | None = None
    path: Path | None = None
    problem: str | None = None
    withdrawn: bool = False
    """Whether an older certificate for the same files was taken back."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a program of another version is certified, and if not, why."""

    certificate: Certificate | None = None
    problem: str | None = None
    """Why its certificate is void. None if it has none."""


def certificate_folder() -> Path:
    """Return the operator's folder for certificates. It need not exist."""
    return operator_folder() / "certificates"


def program_tree(program: ProgramEntry, path: str) -> str:
    """Return the hash of an installed program. Blocking. Raise `OSError` or `Conflict` if it has none now."""
    folder = certificate_folder()
    markers = _VENV if isinstance(program.source, PythonTool) else program.markers
    root = tree_of(path, markers)
    # A package of npm finds what it needs beside itself, among what others need.
    beside = needed_by(root) if isinstance(program.source, NpmPackage) else ()
    return hash_tree(root, folder / _TREES if _is_private(folder) else None, beside)


def standing_of(entry: RuntimeEntry, program: ProgramEntry, path: str, found: str) -> Standing:
    """Look for a certificate of the program at a path, of the version `found`. Blocking. Must not raise.

    Without any certificate for the runtime nothing is hashed.
    """
    problem: str | None = None
    tree: str | None = None
    for file in _files(entry):
        read = _read(file)
        if isinstance(read, str):
            problem = problem or f"the certificate {file.name} is not valid: {read}"
            continue
        try:
            tree = tree or program_tree(program, path)
        except (OSError, CodeSDKError) as error:
            return Standing(problem=f"its files could not be read: {error}")
        void = _void(entry, read, tree)
        if void is None:
            return Standing(certificate=read)
        if read.tree == tree or read.version == found:
            problem = f"its certificate of {read.made_at} is void: {void}"
    return Standing(problem=problem)


def issue_certificate(
    entry: RuntimeEntry,
    found: str,
    tree: str,
    rows: tuple[Row, ...],
    *,
    sessions: tuple[str, ...] = (),
    problem: str | None = None,
) -> Issued:
    """Store a certificate for these files, of the version `found`, if the rows are enough for one. Blocking.

    If they are not, or if there is another `problem`, an older certificate for the same files is withdrawn.
    """
    problem = problem_of(rows) or problem
    if problem is not None:
        return Issued(problem=problem, withdrawn=withdraw_certificate(entry.name, tree))
    certificate = Certificate(
        runtime=entry.name,
        version=found,
        tree=tree,
        codesdk=codesdk_version(),
        adapter=adapter_version(entry),
        made_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        rows=rows,
        sessions=sessions,
    )
    return Issued(certificate=certificate, path=store_certificate(certificate))


def problem_of(rows: tuple[Row, ...]) -> str | None:
    """Return why these rows are not enough for a certificate, or None."""
    failed = [row.name for row in rows if row.outcome == "fail"]
    if failed:
        return f"{_some(len(failed), 'row')} failed: {', '.join(failed)}"
    shown = {row.name for row in rows if row.outcome == "pass"}
    missing = [name for name in OWNERSHIP_ROWS if name not in shown]
    if missing:
        return f"who decides about tools was not shown: {', '.join(missing)}"
    return None


def store_certificate(certificate: Certificate) -> Path:
    """Store a certificate for this user, in place of an older one for the same files. Return where."""
    path = _path(certificate.runtime, certificate.tree)
    plain = msgspec.to_builtins(certificate)
    data = msgspec.json.encode(_File(certificate=certificate, hash=hash_json(plain)))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, msgspec.json.format(data, indent=1) + b"\n")
    except OSError as error:
        raise StorageFailure(f"The certificate cannot be written to {path}: {error.strerror}.") from error
    return path


def withdraw_certificate(runtime: str, tree: str) -> bool:
    """Remove the certificate of these files, if there is one: they have failed since. Return whether there was one."""
    try:
        _path(runtime, tree).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageFailure(f"The certificate cannot be removed: {error.strerror}.") from error
    return True


def codesdk_version() -> str:
    """Return the version of this CodeSDK."""
    return version("codesdk")


def adapter_version(entry: RuntimeEntry) -> str:
    """Return the version of a runtime's adapter: a hash of the sources of its package and of those that it builds on,
    which nobody can forget to count up."""
    return _version(entry.adapter, entry.builds_on)


@cache
def _version(adapter: str, builds_on: tuple[str, ...]) -> str:
    sources = {module: _sources(module) for module in (adapter.partition(":")[0], *builds_on)}
    return hash_json({"adapter": adapter, "sources": sources})


def _sources(module: str) -> dict[str, str]:
    """Return the sources of a module and of all in its package. A module at the top is alone."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return {}
    origin = Path(spec.origin)
    files = origin.parent.rglob("*.py") if "." in module else [origin]
    return {path.relative_to(origin.parent).as_posix(): path.read_text("utf-8", "replace") for path in files}


def _void(entry: RuntimeEntry, certificate: Certificate, tree: str) -> str | None:
    """Return why a certificate does not count for these files here, or None."""
    if (certificate.runtime, certificate.tree) != (entry.name, tree):
        return "the program's files are others now"
    if certificate.codesdk != codesdk_version():
        return f"it was made with CodeSDK {certificate.codesdk}, and this is {codesdk_version()}"
    if certificate.adapter != adapter_version(entry):
        return "the adapter has changed since"
    return problem_of(certificate.rows)


def _path(runtime: str, tree: str) -> Path:
    return certificate_folder() / f"{runtime}-{tree.removeprefix('sha256:')[:16]}.json"


def _files(entry: RuntimeEntry) -> Iterator[Path]:
    """Give the certificates for a runtime, the newest first."""
    folder = certificate_folder()
    with contextlib.suppress(OSError):
        found = sorted(folder.glob(f"{entry.name}-*.json"), key=lambda path: path.stat().st_mtime)
        yield from reversed(found)


def _read(path: Path) -> Certificate | str:
    """Return a stored certificate, or why it cannot be believed."""
    if not (_is_private(path.parent) and _is_private(path)):
        return "others than you may write to it"
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        return str(error.strerror)
    except msgspec.DecodeError as error:
        return f"it cannot be read ({error})"
    if hash_json(msgspec.to_builtins(stored.certificate)) != stored.hash:
        return "it was changed after it was made"
    return stored.certificate


def _is_private(path: Path) -> bool:
    """Return whether only we, or root, may write to a file or folder."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & _LOOSE


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
