"""Restores files that tools changed, from the undo store; `files.undone` records it.

A call is undone as a whole, and only if each of its files is still as the tool left it. The newest call is
undone first.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from codesdk.contract.canonical import content_hash
from codesdk.contract.codec import decode
from codesdk.contract.errors import Busy, CodeSDKError, Conflict, NotFound
from codesdk.contract.events import FilesUndone, ToolCallCompleted
from codesdk.contract.ports import EventLog, Kept
from codesdk.contract.records import KeyRow
from codesdk.contract.service import SessionReader
from codesdk.contract.tools import Actor, UndoneFile, UndoRefusal, UndoReport
from codesdk.contract.workspace import Workspace
from codesdk.engine.log.feed import PAGE_EVENTS
from codesdk.engine.sessions.session import LiveSession
from codesdk.sandbox import Batch, Beneath, Missing, Opened, PathRefused, TooLarge, remove_folders, split

MAX_BYTES = 256 * 1024 * 1024
_MARK = b'"undo":"'  # in every event that can be undone, and in few others


async def changed_calls(log: EventLog | SessionReader, session_id: str) -> list[ToolCallCompleted]:
    """Return the calls of a session whose changes can be or were undone, in the order in which they ended."""
    found: list[ToolCallCompleted] = []
    after = 0
    while page := await log.read(session_id, after, PAGE_EVENTS):
        after = page[-1].seq
        for frame in page:
            if frame.damage is None and _MARK in frame.data:
                payload = decode(frame.data).payload
                if isinstance(payload, ToolCallCompleted) and any(change.undo for change in payload.changes):
                    found.append(payload)
    return found


async def undo(
    session: LiveSession, by: Actor, tool_call_id: str | None = None, key: KeyRow | None = None
) -> UndoReport:
    """Undo the changes of one call, or of all calls of a session that are not undone yet.

    Raise `Conflict` if nothing could be undone. What was undone is in the log when this returns.
    """
    _require_idle(session)
    session.scope.hold_workspace()
    # Checked again inside: a task may have started while this waited for the files. From then on none begins.
    async with session.queue.writes, session.queue.changing:
        _require_idle(session)
        return await _Undoing(session, by, key).run(tool_call_id)


def _require_idle(session: LiveSession) -> None:
    if session.state.task is not None or session.state.queue:
        raise Busy(
            f"Session {session.session_id} has a task that runs or waits. Stop it or let it end, then undo.",
            code="SESSION_BUSY",
        )


class _Undoing:
    """One undo, while no tool of the session writes files."""

    def __init__(self, session: LiveSession, by: Actor, key: KeyRow | None) -> None:
        self._session = session
        self._key = key
        self._ports = session.scope.ports
        self._by = by
        self._restored: list[UndoneFile] = []
        self._refused: list[UndoRefusal] = []
        self._used: list[tuple[str, Kept]] = []

    async def run(self, tool_call_id: str | None) -> UndoReport:
        calls = await changed_calls(self._ports.log, self._session.session_id)
        chosen = [call for call in calls if tool_call_id in (None, call.tool_call_id)]
        for call in reversed(chosen):
            await self._take_back(call, named=tool_call_id is not None)
        if not self._restored:
            raise self._nothing(tool_call_id, bool(chosen))
        report = UndoReport(restored=self._restored, refused=self._refused)
        await self._note(report)
        return report

    async def _take_back(self, call: ToolCallCompleted, *, named: bool) -> None:
        """Undo one call, or note why not. An already undone one is only reported if it was named."""
        names = [change.undo for change in call.changes if change.undo]
        found = [await self._ports.undo.find(self._session.session_id, name) for name in names]
        kept = [entry for entry in found if entry is not None]
        if kept and all(entry.undone for entry in kept):
            if named:
                self._refuse(call, "it was already undone")
            return
        if len(kept) < len(names):
            self._refuse(call, "what that takes is not kept any more")
            return
        try:
            await asyncio.to_thread(_restore, self._session.scope.workspace, kept)
        except PathRefused as error:
            self._refuse(call, str(error))
            return
        self._used += zip(names, kept, strict=True)
        self._restored += [
            UndoneFile(
                path=entry.path,
                tool_call_id=call.tool_call_id,
                attempt=call.attempt,
                removed=entry.before is None,
            )
            for entry in kept
        ]

    async def _note(self, report: UndoReport) -> None:
        """Record what was done, then drop the kept content: a change is undone once."""
        undone = FilesUndone(by=self._by, restored=report.restored, refused=report.refused)
        self._session.recorder.journal.write(undone)
        await self._session.recorder.commit(self._key, report)
        for name, entry in self._used:
            done = msgspec.structs.replace(entry, before=None, undone=True)
            await self._ports.undo.keep(self._session.session_id, name, done)

    def _refuse(self, call: ToolCallCompleted, reason: str) -> None:
        self._refused.append(UndoRefusal(tool_call_id=call.tool_call_id, attempt=call.attempt, reason=reason))

    def _nothing(self, tool_call_id: str | None, changed: bool) -> CodeSDKError:
        """Return the error for an undo that undid nothing."""
        session = self._session.session_id
        if tool_call_id is not None and not changed:
            return NotFound(f"There is no call {tool_call_id} in session {session} that changed a file.")
        if not changed:
            return NotFound(f"No tool has changed a file in session {session}, as far as CodeSDK could see.")
        if not self._refused:
            return Conflict(f"All changes of session {session} were already undone.")
        reasons = "; ".join(f"{one.tool_call_id}: {one.reason}" for one in self._refused[:5])
        return Conflict(f"Nothing was undone. {reasons}.")


def _restore(workspace: Workspace, kept: Sequence[Kept]) -> None:
    """Put the files of one call back, all or none. Raise `PathRefused`."""
    with Beneath(workspace) as files:
        with Batch(files) as batch:
            for entry in reversed(kept):
                _prepare(files, batch, entry)
            batch.commit()
        made = [folders for entry in kept for folders in _made_for(entry)]
        remove_folders(files, sorted(made, key=len))


def _made_for(entry: Kept) -> list[list[str]]:
    """Return the folders that were created for a file and can go with it."""
    *folders, _ = split(entry.path)
    return [folders[: len(folders) - up] for up in range(entry.made_folders)]


def _prepare(files: Beneath, batch: Batch, entry: Kept) -> None:
    now = _read(files, entry)
    was = None if entry.before is None else content_hash(entry.before)
    if _is(now, was, entry.before_mode):
        return  # already restored, perhaps by an undo that a crash cut short
    if not _is(now, entry.after_hash, entry.after_mode):
        raise PathRefused(f"{entry.path} is not as the tool left it; what was done since then would be lost")
    if entry.before is not None:
        batch.write(entry.path, now, entry.before, mode=entry.before_mode)
    elif now is not None:
        batch.remove(entry.path, now)


def _read(files: Beneath, entry: Kept) -> Opened | None:
    try:
        return files.read(entry.path, MAX_BYTES)
    except Missing:
        return None
    except TooLarge:
        raise PathRefused(f"{entry.path} is not as the tool left it; it has grown") from None


def _is(now: Opened | None, digest: str | None, mode: int | None) -> bool:
    """Return whether a file has this content and mode; with no digest, whether it is missing."""
    if now is None or digest is None:
        return now is None and digest is None
    return content_hash(now.data) == digest and (mode is None or now.mode & 0o777 == mode & 0o777)
