"""A workspace's instruction files to texts for the runtime's model, and to the list of them.

Only with `implicit_sources: capture`, and only plain text files that the runtime names: nothing executable,
no links, nothing that such a file refers to. CodeSDK reads them, and the runtime's own reader stays off.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.canonical import content_hash
from codesdk.contract.runtime import Instructions
from codesdk.engine.sessions.scope import SessionScope

MAX_BYTES = 64 * 1024


class Captured(msgspec.Struct, frozen=True):
    """The files that were read, and the record of them."""

    files: Sequence[Instructions]
    document: dict[str, Any]


async def capture(scope: SessionScope, names: Sequence[str]) -> Captured | None:
    """Read the workspace's instruction files, redacted, if the session captures them."""
    if scope.settings.implicit_sources != "capture":
        return None
    workspace = Path(scope.state.config.workspace)
    read = await asyncio.to_thread(lambda: [(name, _read(workspace / name)) for name in names])
    files = [
        Instructions(name, scope.redactor.text(found.text)) for name, found in read if found.text.strip()
    ]
    left_out = [{"origin": _origin(name), "reason": found.problem} for name, found in read if found.problem]
    sources = [_source(number, file) for number, file in enumerate(files, 1)]
    return Captured(files, {"sources": sources, "left_out": left_out})


class _Found(msgspec.Struct, frozen=True):
    text: str = ""
    problem: str | None = None


def _read(path: Path) -> _Found:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Found()
    except OSError:
        return _Found(problem="It is a link, or cannot be read.")
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return _Found(problem="It is no plain file.")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return _Found(problem=f"It is longer than {MAX_BYTES:,} bytes.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _Found(problem="It is not UTF-8 text.")
    return _Found(problem="It is not plain text.") if "\0" in text else _Found(text)


def _source(number: int, file: Instructions) -> dict[str, Any]:
    """Describe a file as the list of an exact request does, except for its place there."""
    data = file.text.strip().encode()
    return {
        "origin": _origin(file.name),
        "kind": "text",
        "extent": "whole",
        "size_bytes": len(data),
        "content_hash": content_hash(data),
        "precedence": number,
    }


def _origin(name: str) -> str:
    return f"file:workspace/{name}"
