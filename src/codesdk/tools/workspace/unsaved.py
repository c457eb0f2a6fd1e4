"""What the editor of a task has not saved yet → what tools on files read and change in place of the text on disk.

Tools stay the owners of files. Each path is opened beneath the workspace before the editor hears of it; a change is
made on disk, by us, and only then is the editor given the new text. The past of a changed file is what the editor
had: the difference is what the tool did, and an undo brings back what the person had written.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from codesdk.contract.ports import ToolInvocation, ToolRun
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Opened, PathRefused, split
from codesdk.tools.registry import ToolError
from codesdk.tools.workspace.file_work import MAX_FILE_BYTES, GoOn, encoding_of, in_thread, is_utf8, opened

Unsaved = Mapping[str, bytes]
"""Files as the editor has them, by their paths in the simplest form. Only those with changes that are not saved."""
NOTHING: Unsaved = {}
NOTE = "(this is the text in the editor, with changes that are not saved yet)"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


async def unsaved_in(call: ToolInvocation, paths: Iterable[str]) -> Unsaved:
    """Return which of these files have changes in the editor that are not saved."""
    found: dict[str, bytes] = {}
    if call.editor is None:
        return found
    for given in paths:
        saved = await in_thread(lambda _, given=given: _saved(call.workspace, given))
        if saved is None:
            continue  # nothing that an editor could have open, or nothing that a tool may read
        path, data = saved
        text = await call.editor.text_of(path)
        changed = None if text is None else _changed(text, data)
        if changed is not None:
            found[path] = changed
    return found


async def change_files(
    call: ToolInvocation, paths: Iterable[str], work: Callable[[Unsaved, GoOn], ToolRun]
) -> ToolRun:
    """Change files in a thread, as the editor has them, and give it their new text."""
    unsaved = await unsaved_in(call, paths)
    if unsaved and not (call.editor and call.editor.takes):
        raise ToolError(
            f"The editor has changes in {', '.join(unsaved)} that are not saved. Nothing was changed. Ask the user to"
            " save first."
        )
    run = await in_thread(lambda go_on: work(unsaved, go_on))
    notes = [await _give(call, change.path) for change in run.changes if change.path in unsaved]
    return msgspec.structs.replace(run, result="\n".join([run.result, *notes])) if notes else run


def as_seen(path: str, before: Opened, unsaved: Unsaved) -> Opened:
    """Return a file as a tool sees it: with the editor's text, if that has changes that are not saved."""
    data = unsaved.get("/".join(split(path)))
    return before if data is None else msgspec.structs.replace(before, data=data)


async def _give(call: ToolInvocation, path: str) -> str:
    """Give the editor the text that is on disk now. Return what a reader of the result must know."""
    saved = await in_thread(lambda _: _saved(call.workspace, path))
    if saved is not None and call.editor is not None and await call.editor.take(path, saved[1].decode()):
        return f"(the changes to {path} that were not saved in the editor are kept, and saved with it)"
    return f"(the changes to {path} that were not saved in the editor are kept, but the editor was not told)"


def _saved(workspace: Workspace, given: str) -> tuple[str, bytes] | None:
    """Return the simplest form of a path and what is on disk there; None if an editor's text cannot stand for it.

    Editors show other encodings and line ends as if they were the usual ones. Theirs could not be told from a change.
    """
    try:
        path = "/".join(split(given))
        with opened(workspace, given) as files:
            data = files.read(path, MAX_FILE_BYTES).data
    except (PathRefused, ToolError):
        return None
    plain = encoding_of(data) is None and not data.startswith(_BYTE_ORDER_MARK) and is_utf8(data)
    return (path, data) if plain and b"\0" not in data and b"\r" not in data else None


def _changed(text: str, saved: bytes) -> bytes | None:
    """Return an editor's text as it would be on disk; None if that is what is there, or none that can be."""
    try:
        data = text.replace("\r\n", "\n").encode()
    except UnicodeEncodeError:
        return None
    if saved.endswith(b"\n") and not data.endswith(b"\n"):
        data += b"\n"  # some editors leave the last one out of what they say
    # Nothing at all is what some say of a file that they do not have.
    if data in (b"", b"\n", saved) or b"\0" in data or len(data) > MAX_FILE_BYTES:
        return None
    return data
