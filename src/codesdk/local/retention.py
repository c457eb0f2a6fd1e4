"""Removes what exceeds limits of age and size from a data directory: sessions, undo content, blobs, audit segments.

Behind `codesdk gc`, and run by the daemon in the background. The oldest go first; a session that has work to
do or that somebody follows is never touched. Each removal is in the audit.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import cast

import msgspec

from codesdk.contract.actions import Caller, DeleteSession
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.records import SessionRow
from codesdk.contract.retention import GcReport, Kept, Progress, Removed, Retention
from codesdk.contract.tools import Actor
from codesdk.contract.validation import checked, read_as
from codesdk.engine import GARBAGE_GRACE_S, Engine, iso
from codesdk.local.directory import AUDIT, DATABASE, UNDO, DataDir
from codesdk.store import Audit, AuditEntry, age_time, storage_entry

ENGINE = Actor(kind="engine")
_DAY_S = 86_400.0
_PAGE = 500
_NOT_COUNTED = frozenset({AUDIT, f"{DATABASE}-wal", f"{DATABASE}-shm"})

Folders = Callable[[str], Sequence[Path]]
"""Returns where the runtimes of a session keep their state."""


async def collect(
    engine: Engine,
    directory: DataDir,
    audit: Audit,
    retention: Retention,
    *,
    folders: Folders,
    dry_run: bool = False,
    rewrite: bool = False,
    progress: Progress | None = None,
) -> GcReport:
    """Remove what is over the limits, then return the space. `rewrite` is passed to the log's `vacuum`."""
    given = cast("object", retention)
    retention = checked(given if isinstance(given, Retention) else read_as(Retention, given, "retention"))
    collecting = _Collecting(engine, directory, audit, folders, dry_run)
    before = await asyncio.to_thread(stored_bytes, directory.path)
    chosen = await collecting.choose(retention, before - await directory.log.unused_bytes())
    sessions = [session for session in chosen if await collecting.remove(session, progress, len(chosen))]
    uploads, upload_bytes = await directory.log.trim_uploads(_cutoff(retention), dry_run=dry_run)
    undo_files, undo_bytes = await directory.undo.trim(
        before=_ago(retention.undo_max_age_days),
        max_bytes=retention.undo_max_bytes,
        dry_run=dry_run,
    )
    segments = await audit.trim(
        max_age_s=None if retention.audit_max_age_days is None else retention.audit_max_age_days * _DAY_S,
        max_bytes=retention.audit_max_bytes,
        reason="older or more than the audit keeps",
        dry_run=dry_run,
    )
    blobs = unused = 0
    if not dry_run:
        blobs = await engine.collect_garbage(GARBAGE_GRACE_S)
        unused = await directory.log.vacuum(rewrite=rewrite)
        if uploads:
            audit.note(_removed("uploads_removed", "age", files=uploads, bytes=upload_bytes))
        if undo_files:
            audit.note(_removed("undo_removed", "age or size", files=undo_files, bytes=undo_bytes))
        await audit.flush()
    return GcReport(
        dry_run=dry_run,
        sessions=sessions,
        kept=collecting.kept,
        uploads=uploads,
        upload_bytes=upload_bytes,
        undo_files=undo_files,
        undo_bytes=undo_bytes,
        blobs=blobs,
        audit_segments=segments,
        bytes_before=before,
        bytes_after=await asyncio.to_thread(stored_bytes, directory.path),
        unused_bytes=unused,
    )


class _Collecting:
    """One collection of a data directory."""

    def __init__(
        self, engine: Engine, directory: DataDir, audit: Audit, folders: Folders, dry_run: bool
    ) -> None:
        self.kept: list[Kept] = []
        self._engine = engine
        self._directory = directory
        self._audit = audit
        self._folders = folders
        self._dry_run = dry_run
        self._done = 0

    async def choose(self, retention: Retention, stored: int) -> list[Removed]:
        """Return what to remove, oldest first: all that is too old, then as much as exceeds the size."""
        cutoff = _cutoff(retention)
        chosen: list[Removed] = []
        for row in await self._idle_rows():
            too_old = _last_used(row) < cutoff
            too_much = retention.max_total_bytes is not None and stored > retention.max_total_bytes
            if not too_old and not too_much:  # nor is any that follows: rows are sorted by age
                break
            size = await self._size(row.session_id)
            stored -= size
            chosen.append(
                Removed(
                    session_id=row.session_id,
                    principal=row.principal,
                    updated_at=row.updated_at,
                    bytes=size,
                    why="age" if too_old else "size",
                )
            )
        return chosen

    async def remove(self, session: Removed, progress: Progress | None, total: int) -> bool:
        """Remove a session and all that belongs to it, unless this is a dry run. Return whether it is gone."""
        if not self._dry_run:
            try:
                if self._engine.in_use(session.session_id):  # by now
                    raise CodeSDKError("it is in use")
                caller = Caller(principal=session.principal, actor=ENGINE)
                await self._engine.execute(DeleteSession(session_id=session.session_id), caller)
            except CodeSDKError as error:
                self.kept.append(Kept(session_id=session.session_id, reason=error.message))
                return False
            facts = msgspec.structs.asdict(session)
            self._audit.note(_removed("session_removed", facts.pop("why"), facts.pop("principal"), **facts))
        self._done += 1
        if progress is not None:
            progress(self._done, total)
        return True

    async def _idle_rows(self) -> list[SessionRow]:
        """Return the sessions that may be removed, least recently used first."""
        rows = [row async for row in self._rows() if row.active_task_id is None and not row.queued]
        return sorted(
            (row for row in rows if not self._engine.in_use(row.session_id)),
            key=lambda row: (_last_used(row), row.session_id),
        )

    async def _rows(self) -> AsyncIterator[SessionRow]:
        after: str | None = None
        while page := await self._directory.log.sessions(
            after=after, limit=_PAGE, principal=None, status=None
        ):
            for row in page:
                yield row
            after = page[-1].session_id

    async def _size(self, session_id: str) -> int:
        """Return about how much disk space a session takes, everywhere."""
        beside = [self._directory.path / UNDO / session_id, *self._folders(session_id)]
        return await self._directory.log.bytes_of(session_id) + await asyncio.to_thread(_bytes_in, beside)


def stored_bytes(path: Path) -> int:
    """Return how much disk space a data directory takes, without its audit and the write-ahead log."""
    return _bytes_in([entry for entry in path.iterdir() if entry.name not in _NOT_COUNTED])


def _bytes_in(places: Sequence[Path]) -> int:
    total = 0
    for place in places:
        for path in [place, *place.rglob("*")] if place.is_dir() and not place.is_symlink() else [place]:
            try:
                status = path.lstat()
            except OSError:
                continue  # gone meanwhile
            total += status.st_size if S_ISREG(status.st_mode) else 0
    return total


def _last_used(row: SessionRow) -> str:
    """Return when a session was last used. A time in the future is a wrong clock's, and would keep it for ever."""
    return row.updated_at if row.updated_at <= iso(int((age_time() + _DAY_S) * 1000)) else row.created_at


def _cutoff(retention: Retention) -> str:
    """Return the time before which things are too old; empty, which sorts first, if there is none."""
    limit = _ago(retention.max_age_days)
    return "" if limit is None else iso(int(limit * 1000))


def _ago(days: float | None) -> float | None:
    return None if days is None else age_time() - days * _DAY_S


def _removed(action: str, why: str, principal: str = "", **what: object) -> AuditEntry:
    return storage_entry(f"retention.{action}", "removed", why, principal, **what)
