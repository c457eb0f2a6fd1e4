"""Reads a workspace's instruction files: their texts for the runtime's model, and the list of them.

Only with `implicit_sources: capture`, and only plain text files that the runtime names: nothing executable,
no links, nothing that such a file refers to. CodeSDK reads them, and the runtime's own reader stays off.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from codesdk.contract.canonical import content_hash
from codesdk.contract.runtime import Instructions
from codesdk.contract.workspace import Workspace
from codesdk.engine.sessions.scope import SessionScope
from codesdk.sandbox import Beneath, Missing, PathRefused, TooLarge

MAX_BYTES = 64 * 1024


class Captured(msgspec.Struct, frozen=True):
    """The files that were read, and the record of them."""

    files: Sequence[Instructions]
    document: dict[str, Any]


async def capture(scope: SessionScope, names: Sequence[str]) -> Captured | None:
    """Read the workspace's instruction files, redacted, if the session captures them."""
    if scope.settings.implicit_sources != "capture":
        return None
    read = await asyncio.to_thread(_read_all, scope.workspace, names)
    files = [
        Instructions(name, scope.redactor.text(found.text)) for name, found in read if found.text.strip()
    ]
    left_out = [{"origin": _origin(name), "reason": found.problem} for name, found in read if found.problem]
    sources = [_source(number, file) for number, file in enumerate(files, 1)]
    return Captured(files, {"sources": sources, "left_out": left_out})


class _Found(msgspec.Struct, frozen=True):
    text: str = ""
    problem: str | None = None


def _read_all(workspace: Workspace, names: Sequence[str]) -> list[tuple[str, _Found]]:
    try:
        with Beneath(workspace) as files:
            return [(name, _read(files, name)) for name in names]
    except PathRefused as error:
        return [(name, _Found(problem=f"It was not read: {error}.")) for name in names]


def _read(files: Beneath, name: str) -> _Found:
    try:
        text = files.read(name, MAX_BYTES).data.decode()
    except Missing:
        return _Found()
    except TooLarge:
        return _Found(problem=f"It is longer than {MAX_BYTES:,} bytes.")
    except PathRefused as error:
        return _Found(problem=f"It was not read: {error}.")
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
