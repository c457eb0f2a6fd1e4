"""Stored sessions of one principal, read without owning them: rows, events, transcripts, artifacts.

Implements `SessionReader` and never writes. What belongs to another principal is not found.
"""

from collections.abc import AsyncIterator
from typing import Any

from codesdk.contract.actions import LOCAL
from codesdk.contract.codec import decode
from codesdk.contract.errors import NotFound, StorageFailure
from codesdk.contract.events import Event, TranscriptSupplemented
from codesdk.contract.jobs import JobDetail, JobRow, JobState
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.ports import Blobs, EventLog
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    SessionRow,
    SessionStatus,
    StoredFrame,
    Supplement,
    TaskRow,
)
from codesdk.contract.tools import Grant
from codesdk.engine.log.feed import PAGE_EVENTS, unknown_session
from codesdk.engine.log.loading import load_state, read_transcript, refold_transcript

POLL_S = 1.0


class Archive:
    """A log and its artifacts, as one principal may see them."""

    def __init__(self, log: EventLog, blobs: Blobs, principal: str = LOCAL) -> None:
        self.log = log
        self.blobs = blobs
        self.principal = principal

    def as_principal(self, principal: str) -> "Archive":
        """Return the same log as another principal sees it."""
        return Archive(self.log, self.blobs, principal)

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return sessions, newest first; `after` is the last id of the page before."""
        return await self.log.sessions(after=after, limit=limit, principal=self.principal, status=status)

    async def session(self, session_id: str) -> SessionRow:
        """Return one session's row."""
        row = await self.log.session(session_id)
        if row is None or row.principal != self.principal:
            raise unknown_session(session_id)
        return row

    async def task(self, task_id: str) -> TaskRow:
        """Return one task's row."""
        row = await self.log.task(task_id, self.principal)
        if row is None:
            raise NotFound(f"There is no task {task_id}.")
        return row

    async def tasks(self, session_id: str, *, limit: int = 100) -> list[TaskRow]:
        """Return a session's tasks, newest first."""
        await self.session(session_id)
        return await self.log.tasks(session_id, limit=limit)

    async def head(self, session_id: str) -> int:
        """Return how many events a session has."""
        return await self.log.head(session_id)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return a page of stored frames."""
        return await self.log.read(session_id, after_seq, limit)

    async def approvals(self, *, session_id: str | None = None) -> list[ApprovalRow]:
        """Return the approvals that wait for an answer, and those that wait for a resume."""
        return await self.log.approvals(principal=self.principal, session_id=session_id)

    async def grants(self, session_id: str) -> list[Grant]:
        """Return what was approved for the whole of a session."""
        await self.session(session_id)
        return (await load_state(self.log, session_id, self.principal)).grants

    async def values(self, session_id: str) -> dict[str, Any]:
        """Return what apps and extensions keep in a session's settings."""
        await self.session(session_id)
        return dict((await load_state(self.log, session_id, self.principal)).values)

    async def frames(
        self, session_id: str, *, after_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[StoredFrame]:
        """Yield stored frames in order, damaged ones marked. With `follow`, keep waiting for more."""
        await self.session(session_id)
        while True:
            page = await self.log.read(session_id, after_seq, PAGE_EVENTS)
            for frame in page:
                after_seq = frame.seq
                yield frame
            if not page:
                if not follow:
                    return
                await self.log.changed(POLL_S)

    async def event(self, session_id: str, seq: int) -> Event:
        """Return one stored event."""
        frames = await self.log.read(session_id, seq - 1, 1)
        if not frames or frames[0].seq != seq or frames[0].damage is not None:
            raise NotFound(f"Event {seq} of session {session_id} cannot be read.")
        return decode(frames[0].data)

    async def transcript(self, session_id: str) -> list[Message]:
        """Return the session's messages that are complete so far."""
        await self.session(session_id)
        try:
            rows = await read_transcript(self.log, session_id)
        except StorageFailure:
            rows = await refold_transcript(self.log, self.blobs, session_id)
        return [row.message for row in rows]

    async def supplements(self, session_id: str) -> list[Supplement]:
        """Return what stands beside the session's transcript, in the order in which it was put there."""
        await self.session(session_id)
        places = (await load_state(self.log, session_id, self.principal)).supplements
        found = [await self._supplement(session_id, seq) for seq in sorted(places.values())]
        return [one for one in found if one is not None]

    async def _supplement(self, session_id: str, seq: int) -> Supplement | None:
        try:
            event = await self.event(session_id, seq)
        except (NotFound, ValueError):  # damaged: `codesdk verify` names it
            return None
        return supplement_of(event)

    async def artifacts(
        self, session_id: str, *, after: str | None = None, limit: int = 100
    ) -> list[ArtifactRow]:
        """Return a session's artifacts in the order of their ids."""
        await self.session(session_id)
        return await self.log.artifacts(session_id, after=after, limit=limit)

    async def read_artifact(
        self, artifact_id: str, start: int = 0, end: int | None = None
    ) -> tuple[ArtifactRef, bytes]:
        """Return an artifact and its bytes, or the range [start, end) of them."""
        row = await self.log.artifact(artifact_id)
        if row is None or row.principal != self.principal:
            raise NotFound(f"There is no artifact {artifact_id}.")
        return row.ref, await self.blobs.get(row.ref.content_hash, start, end)

    async def jobs(
        self,
        *,
        state: JobState | None = None,
        job_type: str | None = None,
        session_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        """Return the jobs of extensions, newest first; `after` is the last id of the page before."""
        return await self.log.jobs(
            principal=self.principal,
            state=state,
            job_type=job_type,
            session_id=session_id,
            after=after,
            limit=limit,
        )

    async def job(self, job_id: str) -> JobDetail:
        """Return a job with what its handler is given."""
        row, payload = await self.log.job(job_id), await self.log.job_payload(job_id)
        if row is None or payload is None or row.principal != self.principal:
            raise unknown_job(job_id)
        return JobDetail.of(row, payload)


def supplement_of(event: Event) -> Supplement | None:
    """Return what an event puts beside the transcript, or None."""
    payload = event.payload
    if not isinstance(payload, TranscriptSupplemented):
        return None
    return Supplement(
        supplement_id=payload.supplement_id,
        by=payload.by,
        seq=event.seq,
        time=event.time,
        text=payload.text,
        data=payload.data,
        task_id=payload.task_id,
    )


def unknown_job(job_id: str) -> NotFound:
    """Return the error for a job that does not exist, or no longer, or is not the caller's."""
    return NotFound(f"There is no job {job_id}. `codesdk jobs` lists those there are.")
