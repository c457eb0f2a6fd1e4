"""Which runtimes drive a program of their own: how it is found here, and the command that installs the tested version.

A runtime that is not listed needs none. Used by the command line; a runtime itself looks for its program when it starts.
"""

import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import cast

import msgspec

from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.runtimes.program.versions import Program


class Extra(msgspec.Struct, frozen=True):
    """A program that comes with a Python package, which is pinned as an extra of ours."""

    name: str

    def command(self, python: str) -> list[str]:
        """Return what installs it for an interpreter: uv where there is one, else pip."""
        wanted = _requirements(self.name)
        uv = shutil.which("uv", path=str(Path(python).parent)) or shutil.which("uv")
        if uv is not None:
            return [uv, "pip", "install", "--python", python, *wanted]
        return [python, "-m", "pip", "install", *wanted]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime's program: where the function is that finds it, and what brings it here."""

    find: str
    comes_with: Extra
    login: str | None = None
    """How a person logs in to it, where it has logins: `{program}` with its `{folder}` in the credential namespace."""


PROGRAMS: dict[str, Known] = {
    "claude-agent-sdk": Known(
        find="codesdk.runtimes.claude.options:find_claude",
        comes_with=Extra("claude"),
        login="CLAUDE_CONFIG_DIR={folder}/claude {program} auth login",
    ),
    "codex-sdk": Known(find="codesdk.runtimes.codex.adapter:find_codex", comes_with=Extra("codex")),
}


async def find(runtime: str) -> Program:
    """Return a runtime's program. Raise `TaskFailure` if it is missing, or not the tested version."""
    return await cast("Callable[[], Awaitable[Program]]", _load(PROGRAMS[runtime].find))()


def install_command(runtime: str, python: str = sys.executable) -> list[str]:
    """Return the command that installs a runtime's program. Raise `InvalidRequest` if it needs none."""
    known = PROGRAMS.get(runtime)
    if known is None:
        raise InvalidRequest(f"The runtime {runtime} comes with CodeSDK: there is nothing to install.")
    return known.comes_with.command(python)


def _load(place: str) -> object:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


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
            f"This installation of CodeSDK does not say what its extra {extra} needs. Install CodeSDK anew."
        )
    return wanted
