"""The built-in tools for finding things: `workspace.list`, `workspace.glob` and `workspace.search`.

They walk the tree with `sandbox.walk`, in a thread, with limits on results and time; notes say what was
left out.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from codesdk.contract.workspace import Workspace
from codesdk.sandbox import (
    Beneath,
    Entry,
    NotAFolder,
    PathRefused,
    Seen,
    TooLarge,
    entries,
    read_regular,
    split_folder,
    walk,
)
from codesdk.tools.registry import Tool, ToolContext, ToolError
from codesdk.tools.workspace.file_work import (
    MAX_FILE_BYTES,
    FolderPath,
    GoOn,
    in_thread,
    opened,
    reading_tool,
    shown,
)
from codesdk.tools.workspace.globs import BadGlob, Glob
from codesdk.tools.workspace.pattern import Place, PlainText, RegularExpression, TooSlow

WALK_S = 15.0
PATTERN_S = 10.0
MAX_LISTED = 1_000
MAX_LINE_CHARS = 300
SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
"""Directories not entered unless named: their content was not written by hand."""

GlobPattern = Annotated[
    str,
    Meta(
        min_length=1,
        description="Such as **/*.py or src/*.{js,ts}. Without a slash: this name in any directory.",
    ),
]
Limit = Annotated[int, Meta(ge=1, le=1_000, description="How many to show at most.")]


class ListInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.list` takes."""

    path: FolderPath = "."


class GlobInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.glob` takes."""

    pattern: GlobPattern
    path: FolderPath = "."
    limit: Limit = 200


class SearchInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `workspace.search` takes."""

    pattern: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1_000,
            description="A regular expression of Python, looked for in each line.",
        ),
    ]
    path: Annotated[
        str, Meta(min_length=1, description="The file or directory to search, relative to the workspace.")
    ] = "."
    glob: Annotated[str, Meta(description="Only files that this glob means, such as *.py.")] = ""
    literal: Annotated[bool, Meta(description="Take the pattern as plain text.")] = False
    ignore_case: bool = False
    limit: Limit = 100


async def list_folder(args: ListInput, context: ToolContext) -> str:
    """List a directory of the workspace: directories end with a slash, files come with their size in bytes."""
    return await in_thread(lambda _: _list(context.call.workspace, args))


async def glob(args: GlobInput, context: ToolContext) -> str:
    """Find files of the workspace by their path. Directories such as node_modules are passed over."""
    return await in_thread(lambda go_on: _glob(context.call.workspace, args, go_on))


async def search(args: SearchInput, context: ToolContext) -> str:
    """Find lines in the text files of the workspace. Shows path:line:text. Passes over node_modules and the like."""
    return await in_thread(lambda go_on: _search(context.call.workspace, args, go_on))


def finding_tools() -> list[Tool]:
    """Return the tools of this module."""
    return [
        reading_tool(list_folder, "workspace.list", "List a directory"),
        reading_tool(glob, "workspace.glob", "Find files by name"),
        reading_tool(search, "workspace.search", "Search in files"),
    ]


def _list(workspace: Workspace, args: ListInput) -> str:
    with opened(workspace, args.path) as files:
        found = entries(files, split_folder(args.path))
    if not found:
        return f"({args.path} is empty)"
    lines = [_line(entry) for entry in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        lines.append(f"({len(found) - MAX_LISTED} more; use workspace.glob to choose)")
    return "\n".join(lines)


def _line(entry: Entry) -> str:
    name = shown(entry.name)
    if entry.kind == "directory":
        return f"{name}/"
    if entry.kind == "file":
        return f"{name}  {entry.size}"
    return (
        f"{name}  (symbolic link, not followed)" if entry.kind == "link" else f"{name}  (not a regular file)"
    )


def _glob(workspace: Workspace, args: GlobInput, go_on: GoOn) -> str:
    wanted = _wanted(args.pattern)
    found: list[str] = []
    outing = _Outing(go_on)
    with opened(workspace, args.path) as files:
        folders = split_folder(args.path)
        for seen in outing.walk(files, folders):
            if wanted(_below(seen.path, folders)):
                if len(found) == args.limit:
                    outing.notes.append(f"(there are more than {args.limit}; narrow the pattern or the path)")
                    break
                found.append(shown(seen.path))
    return "\n".join([*sorted(found), *outing.notes] if found else ["No file matches.", *outing.notes])


def _search(workspace: Workspace, args: SearchInput, go_on: GoOn) -> str:
    wanted = _wanted(args.glob) if args.glob else None
    outing = _Outing(go_on)
    lines: list[str] = []
    try:
        with opened(workspace, args.path) as files, _matcher(args, go_on) as hits:
            for path, data in outing.texts(files, split_folder(args.path), wanted):
                places = hits.find(data, args.limit - len(lines) + 1)
                rows = data.split(b"\n") if places else []  # once, not for each place
                lines += [_hit(path, rows[place.number - 1], place) for place in places]
                if len(lines) > args.limit:
                    del lines[args.limit :]
                    outing.notes.append(
                        f"(there are more than {args.limit}; narrow the pattern, path or glob)"
                    )
                    break
    except TooSlow:
        outing.notes.append(
            f"(stopped: the pattern needs more than {PATTERN_S:g} s or too much memory; make it simpler, or use"
            " literal)"
        )
    return "\n".join([*lines, *outing.notes] if lines else ["No line matches.", *outing.notes])


def _matcher(args: SearchInput, go_on: GoOn) -> PlainText | RegularExpression:
    if "\n" in args.pattern:
        raise ToolError("The pattern contains a line end; it is looked for in each line on its own.")
    if args.literal and not args.ignore_case:
        return PlainText(args.pattern)
    pattern = re.escape(args.pattern) if args.literal else args.pattern
    return RegularExpression(pattern, ignore_case=args.ignore_case, seconds=PATTERN_S, go_on=go_on)


def _hit(path: str, row: bytes, place: Place) -> str:
    """Return a matching line, or the part of it around the match."""
    line = row.decode("utf-8", "replace").removesuffix("\r")
    first = max(0, place.column - MAX_LINE_CHARS // 3) if len(line) > MAX_LINE_CHARS else 0
    part = line[first : first + MAX_LINE_CHARS]
    before, after = "…" if first else "", "…" if first + len(part) < len(line) else ""
    return f"{shown(path)}:{place.number}:{before}{part}{after}"


def _wanted(pattern: str) -> Callable[[str], bool]:
    try:
        return Glob(pattern).matches
    except BadGlob as error:
        raise ToolError(f"The glob cannot be used: {error}.") from None


def _below(path: str, folders: list[str]) -> str:
    """Return a path relative to the directory where the walk began."""
    return "/".join(path.split("/")[len(folders) :])


class _Outing:
    """A walk with a time limit, and notes on what it left out."""

    def __init__(self, go_on: GoOn) -> None:
        self.notes: list[str] = []
        self._go_on = go_on
        self._until = time.monotonic() + WALK_S

    def walk(self, files: Beneath, folders: list[str]) -> Iterator[Seen]:
        """Yield files until there are no more, nobody wants them, or the time is up."""
        for seen in walk(files, folders, SKIPPED):
            if not self._go_on():
                return
            if time.monotonic() > self._until:
                self.notes.append(f"(stopped after {WALK_S:g} s; name a directory to see the rest)")
                return
            yield seen

    def texts(
        self, files: Beneath, folders: list[str], wanted: Callable[[str], bool] | None
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the wanted text files, with their bytes."""
        if not self._is_folder(files, folders):
            yield "/".join(folders), files.read("/".join(folders), MAX_FILE_BYTES).data
            return
        large = 0
        for seen in self.walk(files, folders):
            if wanted is not None and not wanted(_below(seen.path, folders)):
                continue
            try:
                data = read_regular(seen.directory, seen.name, MAX_FILE_BYTES).data
            except TooLarge:
                large += 1
                continue
            except PathRefused:  # removed in the meantime, or not readable
                continue
            if b"\0" not in data:  # binary files are not searched
                yield seen.path, data
        if large:
            self.notes.append(f"({large} files over {MAX_FILE_BYTES} bytes were skipped)")

    def _is_folder(self, files: Beneath, folders: list[str]) -> bool:
        try:
            with files.folder(folders):
                return True
        except NotAFolder:
            return False
