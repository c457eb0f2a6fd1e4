"""Which program a runtime drives: where it is, which version it is, and what installs the one that was tested."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from codesdk.contract.errors import TaskFailure

_ASK_S = 20.0
_NUMBER = re.compile(rb"\d+\.\d+\.\d+")


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A program as the tests know it."""

    runtime: str
    program: str
    """Its name on the search path."""
    package: str
    """The Python package that brings it along."""
    version: str
    install: str
    """The command that installs this version."""


class Program(msgspec.Struct, frozen=True):
    """A program that was found, of the pinned version."""

    path: str
    version: str


async def find_program(pin: Pin, bundled: Callable[[], Path], given: str | None = None) -> Program:
    """Return the program: the one given, else the one of the package, else the one on the search path.

    Raise `TaskFailure` with RUNTIME_UNAVAILABLE if there is none, or another version than the tested one.
    """
    path, known = _look(pin, bundled, given)
    found = known or await _ask_version(path)
    if found is None:
        raise _unavailable(pin, f"{path} does not say its version, so it is not the program")
    if found != pin.version:
        raise _unavailable(pin, f"{path} is version {found}, and {pin.version} is the one that was tested")
    return Program(path, found)


def _look(pin: Pin, bundled: Callable[[], Path], given: str | None) -> tuple[str, str | None]:
    """Return a path, and the version where the package says it."""
    if given is not None:
        if not os.access(given, os.X_OK):
            raise _unavailable(pin, f"there is no program at {given}")
        return given, None
    try:
        return str(bundled()), version(pin.package)
    except (ImportError, PackageNotFoundError, FileNotFoundError):
        pass
    found = shutil.which(pin.program)
    if found is None:
        raise _unavailable(pin, f"the program {pin.program} is not installed")
    return found, None


async def _ask_version(path: str) -> str | None:
    """Ask a program for its version, with nothing of our environment and in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                "--version",
                env={"PATH": os.defpath, "HOME": scratch, "TMPDIR": scratch},
                cwd=scratch,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError:
            return None
        try:
            async with asyncio.timeout(_ASK_S):
                told, _ = await process.communicate()
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    number = _NUMBER.search(told)
    return number.group().decode() if number else None


def _unavailable(pin: Pin, problem: str) -> TaskFailure:
    return TaskFailure(
        f"The runtime {pin.runtime} cannot run: {problem}. Install it with: {pin.install}",
        code="RUNTIME_UNAVAILABLE",
        runtime=pin.runtime,
        details={"wanted": pin.version, "install": pin.install},
    )
