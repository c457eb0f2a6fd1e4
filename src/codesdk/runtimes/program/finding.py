"""A runtime's entry → the program that it drives: where it is, whether its version may be used, what installs it.

A version is `tested` if it is the pinned one, `certified` if the operator had it checked (`certificates`), and
otherwise `untested`, which only the operator can allow. Programs of npm and tools of Python are never started for
that: their packages say the version.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import cast

import msgspec

from codesdk.contract.access import VersionState
from codesdk.contract.entry import NpmPackage, ProgramEntry, PythonPackage, RuntimeEntry
from codesdk.contract.errors import CodeSDKError, InvalidRequest, TaskFailure
from codesdk.contract.payloads import RuntimeNotice
from codesdk.contract.runtime import Draft
from codesdk.doors import load
from codesdk.processes import SEARCH_PATH, exit_of
from codesdk.runtimes.program.certificates import standing_of
from codesdk.runtimes.program.environment import search_path_outside
from codesdk.runtimes.program.pinned.folders import Pinned, installed_program, python_of
from codesdk.runtimes.program.pinned.node import find_node, why_no_node
from codesdk.runtimes.program.pinned.pythons import install_packages
from codesdk.runtimes.program.pinned.versions import UNKNOWN, needs_node, version_of

_ASK_S = 20.0
_MAX_TOLD = 16 * 1024 * 1024
# With what follows it: 1.2.3-alpha.1 is not the tested 1.2.3.
_NUMBER = re.compile(rb"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]*[0-9A-Za-z])?")


class Program(msgspec.Struct, frozen=True):
    """A program that was found, its version, and whether that may be used."""

    path: str
    """Its file: what a certificate is for, and what people are shown."""
    version: str
    state: VersionState = "tested"
    doubt: str = ""
    """Why it is not certified, as a sentence; empty unless it is untested."""
    launcher: tuple[str, ...] = ()
    """What runs the file: a node or a Python. Empty if it runs by itself."""

    @property
    def argv(self) -> list[str]:
        """The beginning of the command that starts it."""
        return [*self.launcher, self.path]


async def find_program(
    entry: RuntimeEntry,
    given: str | None = None,
    *,
    workspace: str | None = None,
    allow_untested: bool = False,
) -> Program:
    """Return the program: the one given, else the one that CodeSDK brought, else the one on the search path.

    None of a workspace: a search path may lead into it, by a relative folder or by `node_modules/.bin`.
    Raise `TaskFailure` with RUNTIME_UNAVAILABLE if there is none, or if its version is neither tested nor
    certified and `allow_untested` is false.
    """
    wanted = _program_of(entry)
    found = await _look(entry, wanted, given, workspace)
    if found.version == wanted.version:
        return found
    standing = await asyncio.to_thread(standing_of, entry, wanted, found.path, found.version)
    if standing.certificate is not None:
        return msgspec.structs.replace(found, state="certified")
    problem = f", but {standing.problem}" if standing.problem else ""
    said = "of an unknown version" if found.version == UNKNOWN else f"version {found.version}"
    doubt = f"{found.path} is {said}, and {wanted.version} is the one that was tested{problem}"
    if allow_untested:
        return msgspec.structs.replace(found, state="untested", doubt=f"{doubt}.")
    raise _untested(entry, found, doubt)


def notices_about(entry: RuntimeEntry, program: Program) -> list[Draft]:
    """Return what the log of a task must say about the program that it starts with."""
    if program.state != "untested":
        return []
    message = (
        f"The operator allows an untested program: {program.doubt} Certify it with: {certify_command(entry)}"
    )
    details = {"version": program.version, "tested_version": _program_of(entry).version}
    return [Draft(RuntimeNotice(kind="untested", message=message, details=details))]


def certify_command(entry: RuntimeEntry) -> str:
    """Return the command that certifies the program that is there."""
    return f"codesdk runtimes certify {entry.alias or entry.name}"


def install_words(entry: RuntimeEntry) -> str:
    """Return the command of ours that installs the tested version of a runtime's program."""
    source = _program_of(entry).source
    return (
        f"codesdk runtimes install {entry.alias or entry.name}"
        if isinstance(source, PythonPackage)
        else entry.install
    )


def install_command(entry: RuntimeEntry, python: str = sys.executable) -> list[str]:
    """Return the command that installs the package of Python with a runtime's program for an interpreter."""
    source = _program_of(entry).source
    if not isinstance(source, PythonPackage):
        raise InvalidRequest(f"The program of {entry.name} is not a package of this Python: {entry.install}")
    return [*install_packages(python), *_requirements(source.extra)]


def _program_of(entry: RuntimeEntry) -> ProgramEntry:
    if entry.program is None:
        raise InvalidRequest(f"The runtime {entry.name} comes with CodeSDK: there is nothing to install.")
    return entry.program


async def _look(
    entry: RuntimeEntry, wanted: ProgramEntry, given: str | None, workspace: str | None
) -> Program:
    source = wanted.source
    if not isinstance(source, PythonPackage):
        return await asyncio.to_thread(_look_at_files, entry, wanted, source, given, workspace)
    if given is None:
        bundled: Program | None = load(source.bundled)()
        if bundled is not None:
            return bundled
    given = _given_or_found(entry, wanted, given, workspace)
    version = _NUMBER.search(await told_by(given, "--version", timeout_s=_ASK_S))
    if version is None:
        raise _unavailable(entry, f"{given} does not say its version, so it is not the program")
    return Program(given, version.group().decode())


def _look_at_files(
    entry: RuntimeEntry, wanted: ProgramEntry, source: Pinned, given: str | None, workspace: str | None
) -> Program:
    """Return a program of npm or a tool of Python, and what runs it, without starting it."""
    try:
        ours = installed_program(wanted, source) if given is None else None
    except InvalidRequest as error:
        raise _unavailable(entry, error.message.rstrip(".")) from None
    path = ours or Path(_given_or_found(entry, wanted, given, workspace))
    version = version_of(path, source)
    if isinstance(source, NpmPackage):
        # What a package of another version wants is its own business, but it will not be less.
        launcher = _node_for(entry, source.node or 0, workspace) if needs_node(path) else ()
    else:
        launcher = () if ours is None else (str(python_of(ours)),)
    return Program(str(path), version, launcher=launcher)


def _node_for(entry: RuntimeEntry, oldest: int, workspace: str | None) -> tuple[str, ...]:
    search_path = search_path_outside(workspace)
    node = find_node(oldest, search_path)
    if node is None:
        raise _unavailable(entry, why_no_node(oldest, search_path))
    return (node,)


def _given_or_found(
    entry: RuntimeEntry, wanted: ProgramEntry, given: str | None, workspace: str | None
) -> str:
    if given is None:
        given = shutil.which(wanted.command, path=search_path_outside(workspace))
        if given is None:
            raise _unavailable(entry, f"the program {wanted.command} is not installed")
    elif not Path(given).is_file() or not (os.access(given, os.X_OK) or needs_node(Path(given))):
        raise _unavailable(entry, f"there is no program at {given}")
    return given


async def told_by(*argv: str, timeout_s: float, homes: Sequence[str] = ("HOME",)) -> bytes:
    """Return what a program writes, run without our environment in a temporary folder, which all `homes` name.

    Empty if it cannot be started, does not end in time, or writes without end. Nothing of it is left running.
    """
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env={"PATH": SEARCH_PATH, "TMPDIR": scratch, **dict.fromkeys(homes, scratch)},
                cwd=scratch,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return b""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                return await _all_of(process.stdout)
        except TimeoutError:
            return b""
        finally:
            # Whatever it started has the same group, and may still be there though it has ended.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await exit_of(process)
            # A pipe that was not read to its end is never closed by itself.
            cast("asyncio.SubprocessTransport", vars(process)["_transport"]).close()


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    """Return what a program writes until it ends; nothing if that is too much."""
    told = bytearray()
    while piece := await stream.read(1 << 16):
        told += piece
        if len(told) > _MAX_TOLD:
            return b""
    return bytes(told)


def _untested(entry: RuntimeEntry, found: Program, doubt: str) -> TaskFailure:
    program, certify = _program_of(entry), certify_command(entry)
    return TaskFailure(
        f"The runtime {entry.name} cannot run: {doubt}. Check this version with: {certify}"
        f" - or install the tested one with: {entry.install} - or allow it unchecked: --allow-untested,"
        " CodeSDK.open(allow_untested=True).",
        code="RUNTIME_UNAVAILABLE",
        runtime=entry.name,
        details={
            "wanted": program.version,
            "install": entry.install,
            "found": found.version,
            "certify": certify,
        },
    )


def _unavailable(entry: RuntimeEntry, problem: str) -> TaskFailure:
    program = _program_of(entry)
    return TaskFailure(
        f"The runtime {entry.name} cannot run: {problem}. Install it with: {entry.install}",
        code="RUNTIME_UNAVAILABLE",
        runtime=entry.name,
        details={"wanted": program.version, "install": entry.install},
    )


def _requirements(extra: str) -> list[str]:
    """Return what an extra of this installation asks for, so that CodeSDK itself is not touched."""
    marker = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    try:
        listed = [entry.partition(";") for entry in requires("codesdk") or []]
    except PackageNotFoundError:
        listed = []
    wanted = [requirement.strip() for requirement, _, condition in listed if marker.search(condition)]
    if not wanted:
        raise CodeSDKError(
            f"This installation of CodeSDK does not say what its extra {extra} needs. Install CodeSDK again."
        )
    return wanted
