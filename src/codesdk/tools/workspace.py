"""The built-in tools on files of the workspace: `workspace.read` and `workspace.edit`.

Files are opened through `sandbox.paths`, in a thread. Results are text for a model to read.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from codesdk.contract.ports import FileChange, ToolRun
from codesdk.contract.tools import SandboxSummary
from codesdk.sandbox.paths import Beneath, PathRefused, split
from codesdk.tools.diff import unified
from codesdk.tools.matching import find_all, line_of, no_match
from codesdk.tools.registry import Tool, ToolContext, ToolError, ToolRegistry, make_tool

MAX_FILE_BYTES = 2_000_000
MAX_LINE_CHARS = 2_000
MAX_SHOWN_CHARS = 200_000
_SANDBOX = SandboxSummary(network=False, mounts=["workspace"])

T = TypeVar("T")
Path = Annotated[str, Meta(min_length=1, description="The file, relative to the workspace.")]


class ReadInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.read` takes."""

    path: Path
    offset: Annotated[int, Meta(ge=1, description="The first line to show, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many lines to show at most.")] = 2_000


class EditInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.edit` takes."""

    path: Path
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
    return await _in_thread(lambda _: _read(context.call.workspace, args))


async def edit(args: EditInput, context: ToolContext) -> ToolRun:
    """Replace a text that occurs exactly once in a file of the workspace. Include enough lines around it."""
    return await _in_thread(lambda go_on: _edit(context.call.workspace, args, go_on))


def workspace_tools() -> list[Tool]:
    """Return the tools of this module."""
    return [
        make_tool(read, name="workspace.read", tool_class="read_only", safe_replay=True, sandbox=_SANDBOX),
        make_tool(edit, name="workspace.edit", tool_class="write", sandbox=_SANDBOX),
    ]


def builtin_registry() -> ToolRegistry:
    """Return a new registry with the built-in tools."""
    return ToolRegistry(workspace_tools())


async def _in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Run `work` in a thread. On cancellation wait for it, so that nothing happens afterwards.

    `work` is given a function that says whether to go on. If it had already changed something, its
    result is returned although the caller was cancelled, because that is what happened.
    """
    cancelled = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, lambda: not cancelled.is_set()))
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled.set()
    if not cancelled.is_set():
        return running.result()
    if running.exception() is None and isinstance(result := running.result(), ToolRun) and result.changes:
        return result
    raise asyncio.CancelledError


def _read(workspace: str, args: ReadInput) -> str:
    with _opened(workspace, args.path) as files:
        data = files.read(args.path, MAX_FILE_BYTES).data
    if b"\0" in data:
        raise ToolError(f"{args.path} is a binary file of {len(data)} bytes, not text.")
    if not data:
        return f"({args.path} is empty)"
    text = data.decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n")
    if args.offset > len(lines):
        raise ToolError(f"{args.path} has only {len(lines)} lines; there is no line {args.offset}.")
    shown, last = _number(lines, args)
    notes: list[str] = []
    if last < len(lines):
        notes.append(f"(lines {args.offset}-{last} of {len(lines)}; for more use offset {last + 1})")
    if "\ufffd" in text and not _is_utf8(data):
        notes.append("(some bytes are not UTF-8; they are shown as \ufffd)")
    return "\n".join([*shown, *notes])


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


def _edit(workspace: str, args: EditInput, go_on: Callable[[], bool]) -> ToolRun:
    if args.old == args.new:
        raise ToolError("old and new are the same text; nothing would change.")
    old, new = _encode(args.old, "old"), _encode(args.new, "new")
    with _opened(workspace, args.path) as files:
        before = files.read(args.path, MAX_FILE_BYTES)
        places = find_all(before.data, old)
        if not places:
            raise ToolError(no_match(args.path, before.data, args.old))
        if len(places) > 1:
            raise ToolError(_several(args.path, before.data, places))
        data = before.data[: places[0]] + new + before.data[places[0] + len(old) :]
        if len(data) > MAX_FILE_BYTES:
            raise ToolError(
                f"{args.path} would have {len(data)} bytes; files over {MAX_FILE_BYTES} are not written."
            )
        written = files.replace(args.path, before, data, go_on)
    if written is None:
        return ToolRun(result="Stopped before the file was changed.", is_error=True)
    path = "/".join(split(args.path))
    change = FileChange(path=path, diff=unified(path, before.data, written))
    return ToolRun(result=f"Edited {path} at line {line_of(data, places[0])}.", changes=[change])


def _several(path: str, data: bytes, places: list[int]) -> str:
    numbers = [str(line_of(data, place)) for place in places[:10]]
    more = f" and {len(places) - 10} more" if len(places) > 10 else ""
    return (
        f"old occurs {len(places)} times in {path}, on lines {', '.join(numbers)}{more}."
        " Nothing was changed. Add lines around it until it occurs once."
    )


def _encode(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError(f"{field} contains characters that cannot be written as UTF-8.") from None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def _opened(workspace: str, path: str) -> Generator[Beneath]:
    """Hold the workspace open. A refusal becomes an error for the model, with the path as it was given."""
    try:
        with Beneath(workspace) as files:
            yield files
    except PathRefused as error:
        raise ToolError(f'Cannot use the path "{path[:200]}": {error}.') from None
