"""What the tools on files share: stoppable work in a thread, refusals as errors, changes with their undo."""

import asyncio
import codecs
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from codesdk.contract.canonical import content_hash
from codesdk.contract.ports import FileChange, Kept, ToolRun
from codesdk.contract.tools import SandboxSummary, Subjects, ToolAnnotations
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Beneath, Opened, PathRefused, Written, split_folder
from codesdk.tools.registry import SubjectsOf, Tool, ToolError, ToolFunction, make_tool
from codesdk.tools.workspace.diff import unified
from codesdk.tools.workspace.steps import Steps

MAX_FILE_BYTES = 2_000_000
SANDBOX = SandboxSummary(network=False, mounts=["workspace"])
STOPPED = ToolRun(result="Stopped before anything was changed.", is_error=True)

T = TypeVar("T")
GoOn = Callable[[], bool]
"""Returns whether the work is still wanted."""
FilePath = Annotated[str, Meta(min_length=1, description="The file, relative to the workspace.")]
FolderPath = Annotated[
    str,
    Meta(min_length=1, description="The directory, relative to the workspace; . is the workspace itself."),
]

# Longer marks first: the mark of UTF-32-LE begins with that of UTF-16-LE.
_MARKS = [
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
]


async def in_thread(work: Callable[[GoOn], T]) -> T:
    """Run `work` in a thread. On cancellation wait for it, so that nothing happens afterwards.

    `work` gets a function that returns whether to go on. If it has already changed something, its result is
    returned although the caller was cancelled: the log must tell what happened.
    """
    cancelled = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, lambda: not cancelled.is_set()))
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled.set()  # a thread cannot be interrupted; it stops at the next `go_on`
    if not cancelled.is_set():
        return running.result()
    if running.exception() is None and isinstance(result := running.result(), ToolRun) and result.changes:
        return result
    raise asyncio.CancelledError


@contextmanager
def opened(workspace: Workspace, path: str | None = None) -> Generator[Beneath]:
    """Hold the workspace open. A refusal becomes an error for the model, with the path as given."""
    try:
        with Beneath(workspace) as files:
            yield files
    except PathRefused as error:
        where = "" if path is None else f' the path "{path[:200]}"'
        raise ToolError(f"Cannot use{where}: {error}." if where else f"Cannot do it: {error}.") from None


def change(path: str, before: Opened | None, after: Written | None, steps: Steps | None = None) -> FileChange:
    """Return what a tool did to a file, with what is needed to undo it. `steps` are for comparing, of a whole call."""
    return FileChange(
        path=path,
        diff=unified(path, before.data if before else None, after.data if after else None, steps),
        kept=Kept(
            path=path,
            before=before.data if before else None,
            before_mode=before.mode if before else None,
            after_hash=content_hash(after.data) if after else None,
            after_mode=after.mode if after else None,
            made_folders=after.made_folders if after else 0,
        ),
    )


def encode(text: str, field: str) -> bytes:
    """Return a model's text as bytes. Raise `ToolError` if it is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError(f"{field} contains characters that cannot be written as UTF-8.") from None


def encoding_of(data: bytes) -> str | None:
    """Return the encoding named by a byte order mark, or None for UTF-8 or no mark."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def touches(*paths: str) -> Subjects:
    """Return the paths of a call for the policy, in their simplest form."""
    return Subjects(paths=[_plain(path) for path in paths])


def _plain(path: str) -> str:
    """Return a path in its simplest form, or unchanged if it leads outside: the tool then refuses it."""
    try:
        return "/".join(split_folder(path)) or "."
    except PathRefused:
        return path


def _path_of(args: Any) -> Subjects:
    return touches(args.path)


def reading_tool(function: ToolFunction, name: str, title: str) -> Tool:
    """Return a tool that only reads the `path` in its input."""
    return make_tool(
        function,
        name=name,
        tool_class="read_only",
        safe_replay=True,
        sandbox=SANDBOX,
        annotations=ToolAnnotations(title=title, idempotent=True),
        subjects=_path_of,
    )


def changing_tool(
    function: ToolFunction,
    name: str,
    title: str,
    *,
    idempotent: bool = False,
    subjects: SubjectsOf = _path_of,
) -> Tool:
    """Return a tool that changes files: the `path` in its input, unless `subjects` returns others."""
    return make_tool(
        function,
        name=name,
        tool_class="write",
        sandbox=SANDBOX,
        annotations=ToolAnnotations(title=title, destructive=True, idempotent=idempotent),
        subjects=subjects,
    )


def shown(name: str) -> str:
    """Return a name or path as one unambiguous line."""
    return name if name.isprintable() else json.dumps(name)
