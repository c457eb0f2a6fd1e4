"""The built-in tools on one workspace file: `workspace.read`, `workspace.write` and `workspace.edit`.

Files are opened with `sandbox.Beneath` and changed with `sandbox.Batch`, in a thread. Results are text for
a model. `builtin_registry` has all built-in tools together.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from codesdk.contract.ports import ToolRun
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Batch, Beneath, Missing, Opened, split
from codesdk.tools.ask import ask_tool
from codesdk.tools.patch.tool import patch_tools
from codesdk.tools.registry import Tool, ToolContext, ToolError, ToolRegistry
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
from codesdk.tools.workspace.search_tools import finding_tools

MAX_LINE_CHARS = 2_000
MAX_SHOWN_CHARS = 200_000


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
    return await in_thread(lambda _: _read(context.call.workspace, args))


async def write(args: WriteInput, context: ToolContext) -> ToolRun:
    """Create a text file in the workspace, with the directories it needs, or replace a whole one.

    To change a part of a file use workspace.edit.
    """
    return await in_thread(lambda go_on: _write(context.call.workspace, args, go_on))


async def edit(args: EditInput, context: ToolContext) -> ToolRun:
    """Replace a text that occurs exactly once in a file of the workspace. Include enough lines around it."""
    return await in_thread(lambda go_on: _edit(context.call.workspace, args, go_on))


def workspace_tools() -> list[Tool]:
    """Return the tools of this module."""
    return [
        reading_tool(read, "workspace.read", "Read a file"),
        changing_tool(write, "workspace.write", "Write a file", idempotent=True),
        changing_tool(edit, "workspace.edit", "Edit a file"),
    ]


def builtin_registry() -> ToolRegistry:
    """Return a new registry with the built-in tools: those on files, and `user.ask`. Applications may add their own."""
    return ToolRegistry([*workspace_tools(), *finding_tools(), *patch_tools(), ask_tool()])


def _read(workspace: Workspace, args: ReadInput) -> str:
    with opened(workspace, args.path) as files:
        data = files.read(args.path, MAX_FILE_BYTES).data
    text, notes = _as_text(args.path, data)
    if not text:
        return f"({args.path} is empty)"
    lines = text.removesuffix("\n").split("\n")
    if args.offset > len(lines):
        raise ToolError(f"{args.path} has only {len(lines)} lines; there is no line {args.offset}.")
    shown, last = _number(lines, args)
    if last < len(lines):
        notes.insert(0, f"(lines {args.offset}-{last} of {len(lines)}; for more use offset {last + 1})")
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
        return text, [f"(the file is {encoding}; workspace.edit and patch.apply only change UTF-8)"]
    if b"\0" in data:
        raise ToolError(f"{path} is a binary file of {len(data)} bytes, not text.")
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and not is_utf8(data):
        return text, [
            "(some bytes are not UTF-8, the file may be Latin-1 or similar; they are shown as \ufffd)"
        ]
    return text.removeprefix("\ufeff"), []


def _number(lines: list[str], args: ReadInput) -> tuple[list[str], int]:
    """Return the numbered lines that fit, and the number of the last one."""
    shown: list[str] = []
    size = 0
    last = args.offset
    for number, line in enumerate(lines[args.offset - 1 : args.offset - 1 + args.limit], start=args.offset):
        line = line.removesuffix("\r")
        if len(line) > MAX_LINE_CHARS:
            line = f"{line[:MAX_LINE_CHARS]}… ({len(line) - MAX_LINE_CHARS} more characters)"
        size += len(line) + 8
        if shown and size > MAX_SHOWN_CHARS:
            break
        shown.append(f"{number:>6}\t{line}")
        last = number
    return shown, last


def _write(workspace: Workspace, args: WriteInput, go_on: GoOn) -> ToolRun:
    data = encode(args.content, "content")
    _require_size(args.path, data)
    path = args.path
    with opened(workspace, path) as files:
        before = _existing(files, path)
        path = "/".join(split(path))
        # Not an error: the file is as the model wants it. But without a change there is nothing to undo.
        if before is not None and before.data == data:
            return ToolRun(result=f"{path} already has this content; nothing was changed.")
        return _put(files, path, before, data, go_on, "Replaced" if before else "Created")


def _existing(files: Beneath, path: str) -> Opened | None:
    try:
        return files.read(path, MAX_FILE_BYTES)
    except Missing:
        return None


def _edit(workspace: Workspace, args: EditInput, go_on: GoOn) -> ToolRun:
    if args.old == args.new:
        raise ToolError("old and new are the same text; nothing would change.")
    old, new = encode(args.old, "old"), encode(args.new, "new")
    with opened(workspace, args.path) as files:
        before = files.read(args.path, MAX_FILE_BYTES)
        _require_same_encoding(args, before.data)
        places = find_all(before.data, old)
        if not places:
            raise ToolError(no_match(args.path, before.data, args.old))
        if len(places) > 1:
            raise ToolError(_several(args.path, before.data, places))
        data = before.data[: places[0]] + new + before.data[places[0] + len(old) :]
        _require_size(args.path, data)
        words = f"at line {line_of(data, places[0])}"
        return _put(files, "/".join(split(args.path)), before, data, go_on, "Edited", words)


def _put(
    files: Beneath, path: str, before: Opened | None, data: bytes, go_on: GoOn, verb: str, where: str = ""
) -> ToolRun:
    with Batch(files) as batch:
        after = batch.write(path, before, data)
        if not batch.commit(go_on):
            return STOPPED
    words = where or f"({len(data):,} bytes)"
    return ToolRun(result=f"{verb} {path} {words}.", changes=[change(path, before, after)])


def _require_size(path: str, data: bytes) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"{path} would have {len(data)} bytes; files over {MAX_FILE_BYTES} are not written.")


def _require_same_encoding(args: EditInput, data: bytes) -> None:
    """Raise `ToolError` if the edit would mix two encodings in one file."""
    encoding = encoding_of(data)
    if encoding is None and not (args.old + args.new).isascii() and not is_utf8(data):
        encoding = "not UTF-8 (it may be Latin-1 or similar)"
    if encoding is not None:
        raise ToolError(
            f"{args.path} is {encoding}, and this edit is UTF-8. Nothing was changed."
            " Convert the file to UTF-8 first, or replace it with workspace.write."
        )


def _several(path: str, data: bytes, places: list[int]) -> str:
    numbers = [str(line_of(data, place)) for place in places[:10]]
    more = f" and {len(places) - 10} more" if len(places) > 10 else ""
    return (
        f"old occurs {len(places)} times in {path}, on lines {', '.join(numbers)}{more}."
        " Nothing was changed. Add lines around it until it occurs once."
    )
