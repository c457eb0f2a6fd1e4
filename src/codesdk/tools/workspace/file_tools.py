"""The built-in tools on one workspace file: `workspace.read`, `workspace.write` and `workspace.edit`.

Files are opened with `sandbox.Beneath` and changed with `sandbox.Batch`, in a thread. Results are text for
a model.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from codesdk.contract.ports import ToolRun
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Batch, Beneath, Missing, Opened, split
from codesdk.tools.registry import Tool, ToolContext, ToolError
from codesdk.tools.workspace.file_work import (
    MAX_FILE_BYTES,
    STOPPED,
    FilePath,
    GoOn,
    change,
    changing_tool,
    encode,
    encoding_of,
    in_thread,
    is_utf8,
    opened,
    reading_tool,
)
from codesdk.tools.workspace.matching import find_all, line_of, no_match
from codesdk.tools.workspace.unsaved import NOTE, NOTHING, Unsaved, as_seen, change_files, unsaved_in

MAX_LINE_CHARS = 2_000
MAX_SHOWN_CHARS = 200_000
_SHOWN_PLACES = 10


class ReadInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.read` takes."""

    path: FilePath
    offset: Annotated[int, Meta(ge=1, description="The first line to show, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many lines to show at most.")] = 2_000


class WriteInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.write` takes."""

    path: FilePath
    content: Annotated[str, Meta(description="The whole text of the file. May be empty.")]


class EditInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.edit` takes."""

    path: FilePath
    old: Annotated[
        str,
        Meta(
            min_length=1,
            description="The text to replace, exactly as it is in the file. It must be there once.",
        ),
    ]
    new: Annotated[str, Meta(description="The text to put in its place. May be empty.")]


async def read(args: ReadInput, context: ToolContext) -> str:
    """Read a text file of the workspace. Lines come with their numbers, which are not part of the file."""
    unsaved = await unsaved_in(context.call, [args.path])
    return await read_file(context.call.workspace, args.path, args.offset, args.limit, unsaved=unsaved)


async def write(args: WriteInput, context: ToolContext) -> ToolRun:
    """Create a text file in the workspace, with the directories it needs, or replace a whole one.

    To change a part of a file use workspace.edit.
    """
    place = context.call.workspace
    return await change_files(
        context.call,
        [args.path],
        lambda unsaved, go_on: _write(place, args.path, args.content, unsaved, go_on),
    )


async def edit(args: EditInput, context: ToolContext) -> ToolRun:
    """Replace a text that occurs exactly once in a file of the workspace. Include enough lines around it."""
    place = context.call.workspace
    return await change_files(
        context.call,
        [args.path],
        lambda unsaved, go_on: _edit(place, args.path, args.old, args.new, unsaved, go_on),
    )


async def read_file(
    workspace: Workspace,
    path: str,
    offset: int,
    limit: int,
    max_chars: int = MAX_SHOWN_CHARS,
    unsaved: Unsaved = NOTHING,
) -> str:
    """Return lines of a text file with their numbers, as many as fit. Raise `ToolError`."""
    return await in_thread(lambda _: _read(workspace, path, offset, limit, max_chars, unsaved))


async def write_file(workspace: Workspace, path: str, content: str) -> ToolRun:
    """Create a text file with the directories it needs, or replace a whole one. Raise `ToolError`."""
    return await in_thread(lambda go_on: _write(workspace, path, content, NOTHING, go_on))


async def edit_file(workspace: Workspace, path: str, old: str, new: str) -> ToolRun:
    """Replace a text that occurs exactly once in a file. Raise `ToolError`."""
    return await in_thread(lambda go_on: _edit(workspace, path, old, new, NOTHING, go_on))


def workspace_tools() -> list[Tool]:
    """Return the tools of this module."""
    return [
        reading_tool(read, "workspace.read", "Read a file"),
        changing_tool(write, "workspace.write", "Write a file", idempotent=True),
        changing_tool(edit, "workspace.edit", "Edit a file"),
    ]


def _read(workspace: Workspace, path: str, offset: int, limit: int, max_chars: int, unsaved: Unsaved) -> str:
    with opened(workspace, path) as files:
        data = as_seen(path, files.read(path, MAX_FILE_BYTES), unsaved).data
    text, notes = _as_text(path, data)
    if unsaved:
        notes.append(NOTE)
    if not text:
        return f"({path} is empty)"
    lines = text.removesuffix("\n").split("\n")
    if offset > len(lines):
        raise ToolError(f"{path} has only {len(lines)} lines; there is no line {offset}.")
    shown, last = _number(lines[offset - 1 : offset - 1 + limit], offset, max_chars)
    if last < len(lines):
        notes.insert(0, f"(lines {offset}-{last} of {len(lines)}; for more use offset {last + 1})")
    return "\n".join([*shown, *notes])


def _as_text(path: str, data: bytes) -> tuple[str, list[str]]:
    """Return a file's text, and notes on its encoding."""
    encoding = encoding_of(data)
    if encoding is not None:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            raise ToolError(
                f"{path} has a {encoding} byte order mark, but is not valid {encoding}."
            ) from None
        return text, [f"(the file is {encoding}; edits and patches only change UTF-8)"]
    if b"\0" in data:
        raise ToolError(f"{path} is a binary file of {len(data)} bytes, not text.")
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and not is_utf8(data):
        return text, [
            "(some bytes are not UTF-8, the file may be Latin-1 or similar; they are shown as \ufffd)"
        ]
    return text.removeprefix("\ufeff"), []


def _number(lines: list[str], offset: int, max_chars: int) -> tuple[list[str], int]:
    """Return the numbered lines that fit, and the number of the last one."""
    shown: list[str] = []
    size = 0
    last = offset
    for number, line in enumerate(lines, start=offset):
        line = line.removesuffix("\r")
        if len(line) > MAX_LINE_CHARS:
            line = f"{line[:MAX_LINE_CHARS]}… ({len(line) - MAX_LINE_CHARS} more characters)"
        size += len(line) + 8
        if shown and size > max_chars:
            break
        shown.append(f"{number:>6}\t{line}")
        last = number
    return shown, last


def _write(workspace: Workspace, path: str, content: str, unsaved: Unsaved, go_on: GoOn) -> ToolRun:
    data = encode(content, "The content")
    _require_size(path, data)
    with opened(workspace, path) as files:
        before = _existing(files, path)
        path = "/".join(split(path))
        # Not an error: the file is as the model wants it. But without a change there is nothing to undo.
        if before is not None and before.data == data and not unsaved:
            return ToolRun(result=f"{path} already has this content; nothing was changed.")
        seen = before and as_seen(path, before, unsaved)
        return _put(files, path, before, seen, data, go_on, "Replaced" if before else "Created")


def _existing(files: Beneath, path: str) -> Opened | None:
    try:
        return files.read(path, MAX_FILE_BYTES)
    except Missing:
        return None


def _edit(workspace: Workspace, path: str, old: str, new: str, unsaved: Unsaved, go_on: GoOn) -> ToolRun:
    if old == new:
        raise ToolError("The old text and the new one are the same; nothing would change.")
    wanted, instead = encode(old, "The old text"), encode(new, "The new text")
    with opened(workspace, path) as files:
        before = files.read(path, MAX_FILE_BYTES)
        seen = as_seen(path, before, unsaved)
        _require_same_encoding(path, old + new, seen.data)
        places = find_all(seen.data, wanted, _SHOWN_PLACES + 1)
        if not places:
            raise ToolError(no_match(path, seen.data, old))
        if len(places) > 1:
            raise ToolError(_several(path, seen.data, places))
        data = seen.data[: places[0]] + instead + seen.data[places[0] + len(wanted) :]
        _require_size(path, data)
        words = f"at line {line_of(data, places[0])}"
        return _put(files, "/".join(split(path)), before, seen, data, go_on, "Edited", words)


def _put(
    files: Beneath,
    path: str,
    before: Opened | None,
    seen: Opened | None,
    data: bytes,
    go_on: GoOn,
    verb: str,
    where: str = "",
) -> ToolRun:
    """Put a file in place of the one on disk, `before`. What an undo brings back is `seen`."""
    with Batch(files) as batch:
        after = batch.write(path, before, data)
        if not batch.commit(go_on):
            return STOPPED
    words = where or f"({len(data):,} bytes)"
    return ToolRun(result=f"{verb} {path} {words}.", changes=[change(path, seen, after)])


def _require_size(path: str, data: bytes) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"{path} would have {len(data)} bytes; files over {MAX_FILE_BYTES} are not written.")


def _require_same_encoding(path: str, text: str, data: bytes) -> None:
    """Raise `ToolError` if the edit would mix two encodings in one file."""
    encoding = encoding_of(data)
    if encoding is None and not text.isascii() and not is_utf8(data):
        encoding = "not UTF-8 (it may be Latin-1 or similar)"
    if encoding is not None:
        raise ToolError(
            f"{path} is {encoding}, and this edit is UTF-8. Nothing was changed."
            " Convert the file to UTF-8 first, or write all of it."
        )


def _several(path: str, data: bytes, places: list[int]) -> str:
    numbers = ", ".join(str(line_of(data, place)) for place in places[:_SHOWN_PLACES])
    many = len(places) > _SHOWN_PLACES
    times, more = (f"more than {_SHOWN_PLACES}", " and others") if many else (str(len(places)), "")
    return (
        f"The old text occurs {times} times in {path}, on lines {numbers}{more}."
        " Nothing was changed. Add lines around it until it occurs once."
    )
