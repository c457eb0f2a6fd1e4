"""`patch.apply`: a unified diff over any number of files of the workspace, applied as a whole or not at all.

`parsing` reads it, `hunks` computes the new contents in memory, `sandbox.Batch` puts them in place together.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from codesdk.contract.ports import ToolRun
from codesdk.contract.tools import Subjects
from codesdk.contract.workspace import Workspace
from codesdk.sandbox import Batch, Beneath, Missing, Opened, PathRefused, Written, split
from codesdk.tools.patch.hunks import DoesNotApply, apply_hunks
from codesdk.tools.patch.parsing import BadPatch, FilePatch, parse
from codesdk.tools.registry import Tool, ToolContext, ToolError
from codesdk.tools.workspace.diff import comparing
from codesdk.tools.workspace.file_work import (
    MAX_FILE_BYTES,
    STOPPED,
    GoOn,
    change,
    changing_tool,
    encode,
    encoding_of,
    opened,
    touches,
)
from codesdk.tools.workspace.steps import Steps, TooMuchWork
from codesdk.tools.workspace.unsaved import Unsaved, as_seen, change_files

_TOLD = 10


class PatchInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `patch.apply` takes."""

    patch: Annotated[
        str,
        Meta(
            min_length=1,
            description="A unified diff as git diff writes it, with a/ and b/ before the paths. /dev/null stands for"
            " a file that is not there; rename from and rename to move one.",
        ),
    ]


async def apply(args: PatchInput, context: ToolContext) -> ToolRun:
    """Apply a unified diff to files of the workspace: all of it, or nothing if one hunk does not fit.

    The lines of a hunk must be in the file exactly; its line numbers may be off.
    """
    paths = _subjects(args).paths
    place = context.call.workspace
    return await change_files(context.call, paths, lambda unsaved, go_on: _apply(place, args, unsaved, go_on))


def patch_tools() -> list[Tool]:
    """Return the tool of this module."""
    return [changing_tool(apply, "patch.apply", "Apply a patch", subjects=_subjects)]


def _subjects(args: PatchInput) -> Subjects:
    """Return every path the patch names; none if it cannot be parsed, since it then changes nothing."""
    try:
        files = parse(encode(args.patch, "patch"))
    except (BadPatch, ToolError):
        return Subjects()
    return touches(
        *dict.fromkeys(path for file in files for path in (file.old, file.new) if path is not None)
    )


def _apply(workspace: Workspace, args: PatchInput, unsaved: Unsaved, go_on: GoOn) -> ToolRun:
    try:
        wanted = parse(encode(args.patch, "patch"))
    except BadPatch as error:
        raise ToolError(f"The patch cannot be read: {error}. Nothing was changed.") from None
    with opened(workspace) as files:
        plan = _Plan(files, unsaved, Steps(go_on=go_on))
        problems = [problem for file in wanted if (problem := plan.add(file)) is not None]
        if problems:  # all of them are reported at once, so that a model can fix them in one go
            more = [f"and {len(problems) - _TOLD} more"] if len(problems) > _TOLD else []
            told = "\n".join(f"- {problem}" for problem in problems[:_TOLD] + more)
            raise ToolError(f"The patch does not apply. Nothing was changed.\n{told}")
        return plan.carry_out(go_on)


class _File(msgspec.Struct):
    """A file during a patch: as it is on disk, as it is seen, and as it will be."""

    before: Opened | None
    seen: Opened | None
    data: bytes | None
    mode: int | None = None
    executable: bool | None = None
    words: str = ""

    @property
    def changes(self) -> bool:
        if self.before is None or self.data is None:
            return self.data is not None or self.before is not None
        set_mode = self.executable is not None and self.executable != bool(self.before.mode & 0o100)
        return self.data != self.before.data or set_mode


class _Plan:
    """The result of a patch on the files it names, computed before anything is changed."""

    def __init__(self, files: Beneath, unsaved: Unsaved, steps: Steps) -> None:
        self._files = files
        self._unsaved = unsaved
        self._steps = steps
        self._planned: dict[str, _File] = {}

    def add(self, wanted: FilePatch) -> str | None:
        """Plan one file of the patch. Return what is wrong with it, or None."""
        try:
            if wanted.old is None:
                self._create(wanted)
            elif wanted.new is None:
                self._remove(wanted)
            elif wanted.new != wanted.old:
                self._move(wanted)
            else:
                self._modify(wanted)
        except (DoesNotApply, PathRefused) as error:
            return f"{wanted.name}: {error}"
        except TooMuchWork:
            return f"{wanted.name}: to find the places of all hunks is too much work; use fewer hunks, with the right lines"
        return None

    def carry_out(self, go_on: GoOn) -> ToolRun:
        """Make all changes or none."""
        changing = {path: file for path, file in self._planned.items() if file.changes}
        if not changing:
            raise ToolError("The patch changes nothing: the files are already as it says.")
        with Batch(self._files) as batch:
            done = [(path, file, self._prepare(batch, path, file)) for path, file in changing.items()]
            if not batch.commit(go_on):
                return STOPPED
        steps = comparing()
        return ToolRun(
            result="\n".join(f"{file.words}." for file in changing.values()),
            changes=[change(path, file.seen, after, steps) for path, file, after in done],
        )

    def _prepare(self, batch: Batch, path: str, file: _File) -> Written | None:
        try:
            if file.data is not None:
                return batch.write(path, file.before, file.data, mode=file.mode, executable=file.executable)
            assert file.before is not None, "only what is there can be removed"
            batch.remove(path, file.before)
        except PathRefused as error:
            raise ToolError(f"The patch does not apply. Nothing was changed.\n- {path}: {error}") from None
        return None

    def _create(self, wanted: FilePatch) -> None:
        path, file = self._absent(wanted.new or "")
        file.data, _ = self._result(b"", wanted)
        file.executable, file.words = wanted.executable, f"Created {path}"

    def _remove(self, wanted: FilePatch) -> None:
        path, file = self._saved(wanted.old or "")
        left, _ = self._result(file.data or b"", wanted)
        if left:
            raise DoesNotApply("it should be removed, but the hunks keep some of its lines")
        file.data, file.words = None, f"Removed {path}"

    def _modify(self, wanted: FilePatch) -> None:
        path, file = self._present(wanted.old or "")
        file.data, offsets = self._result(file.data or b"", wanted)
        if wanted.executable is not None:
            file.executable = wanted.executable
        file.words = f"{file.words}; changed" if file.words else f"Changed {path}{_moved(offsets)}"

    def _move(self, wanted: FilePatch) -> None:
        old, source = self._saved(wanted.old or "")
        new, target = self._absent(wanted.new or "")
        # git means the file before the patch, which may have changed it already in an earlier part.
        copied = source.before.data if wanted.copy and source.before else source.data
        target.data, offsets = self._result(copied or b"", wanted)
        target.executable, target.words = wanted.executable, f"Copied {old} to {new}{_moved(offsets)}"
        if source.before is not None and wanted.executable is None:
            target.mode = source.before.mode
        if not wanted.copy:
            # The source becomes absent in the plan, so that a later part of the patch may create it again.
            source.data, source.words = None, f"Removed {old}"
            target.words = f"Renamed {old} to {new}{_moved(offsets)}"

    def _saved(self, name: str) -> tuple[str, _File]:
        """Return a file that is to go. An editor could not be told of that, and would write it again."""
        path, file = self._present(name)
        if path in self._unsaved:
            raise DoesNotApply("the editor has changes in it that are not saved; ask the user to save first")
        return path, file

    def _present(self, name: str) -> tuple[str, _File]:
        path, file = self._look(name)
        if file.data is None:
            raise DoesNotApply("there is no such file" + (" any more" if file.before else ""))
        encoding = encoding_of(file.data)
        if encoding is not None:
            raise DoesNotApply(f"it is {encoding}, and a patch is UTF-8; convert it first")
        return path, file

    def _absent(self, name: str) -> tuple[str, _File]:
        path, file = self._look(name)
        if file.data is not None:
            raise DoesNotApply("it should be created, but already exists")
        return path, file

    def _look(self, name: str) -> tuple[str, _File]:
        path = "/".join(split(name))
        if path not in self._planned:
            try:
                before = self._files.read(path, MAX_FILE_BYTES)
            except Missing:
                before = None
            seen = before and as_seen(path, before, self._unsaved)
            self._planned[path] = _File(before, seen, seen.data if seen else None)
        return path, self._planned[path]

    def _result(self, data: bytes, wanted: FilePatch) -> tuple[bytes, list[int]]:
        result, offsets = apply_hunks(data, wanted.hunks, self._steps)
        if len(result) > MAX_FILE_BYTES:
            raise DoesNotApply(
                f"it would have {len(result)} bytes; files over {MAX_FILE_BYTES} are not written"
            )
        return result, offsets


def _moved(offsets: list[int]) -> str:
    """Return a note on the hunks that did not go to the lines they named."""
    moved = [f"hunk {number} {offset:+d} lines" for number, offset in enumerate(offsets, start=1) if offset]
    return f" ({', '.join(moved)})" if moved else ""
