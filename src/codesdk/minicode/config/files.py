"""`config.json`, the user's or a project's → the value in it as JSON has it. Every error names the file.

The user's file runs plugins and holds keys, so others must not be able to write it. A project's is whatever lies in
the workspace: it is opened through no link and never waited for.
"""

import json
import stat
from pathlib import Path
from typing import Any, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Beneath, Missing, PathRefused

NAME = "config.json"
PROJECT = f".minicode/{NAME}"
MAX_BYTES = 1_000_000


def read_global(path: Path) -> tuple[dict[str, Any] | None, bool]:
    """Return what the user's file says, None if there is none, and whether others on the machine can read it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None, False
    except OSError as error:
        raise InvalidRequest(f"{path}: the configuration cannot be read ({error.strerror}).") from None
    if mode & stat.S_IWOTH:
        raise InvalidRequest(
            f"{path}: everybody on this machine may write to it. Run chmod o-w, and look at what is in it."
        )
    return _parse(path, data), bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def read_project(directory: Path) -> dict[str, Any] | None:
    """Return what the file of the project in a directory says, None if there is none."""
    path = directory / PROJECT
    try:
        with Beneath(Workspace(str(directory))) as files:
            data = files.read(PROJECT, MAX_BYTES).data
    except Missing:
        return None
    except PathRefused as error:
        raise InvalidRequest(f"{path}: the configuration cannot be read: {error}.") from None
    return _parse(path, data)


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"{path}: a configuration may have at most {MAX_BYTES:,} bytes.")
    try:
        found: object = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_constant
        )
        # An escape may stand for half a character, which is no text.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path}: this is not valid JSON: {error or 'nested too deeply'}.") from None
    if not isinstance(found, dict):
        raise InvalidRequest(f"{path}: a configuration is a JSON object, not {type(found).__name__}.")
    return cast("dict[str, Any]", found)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs. JSON takes the last of two with the same key; here neither is silently lost."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {json.dumps(key)} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")
