"""`HttpService`: a daemon's sessions as a `SessionService`. A method is a request, an action has its route.

The body of a request is the action, without the fields that are in its path.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from codesdk.client.connection import DaemonConnection
from codesdk.client.stream import EventStream
from codesdk.contract import api
from codesdk.contract.actions import Action
from codesdk.contract.codec import decode, place_of
from codesdk.contract.errors import NotFound
from codesdk.contract.events import Event
from codesdk.contract.jobs import JobDetail, JobRow, JobState
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    SessionRow,
    SessionStatus,
    StoredFrame,
    Supplement,
    TaskRow,
)
from codesdk.contract.sender import Sender
from codesdk.contract.service import Published
from codesdk.contract.tools import Grant, Record
from codesdk.contract.validation import check_key, checked

PAGE = 1000
CHECK_S = 3600.0
"""How long the check of a log may take."""
_DAMAGED = "the daemon cannot read it"
_NAME = re.compile(r"\{(\w+)\}")

R = TypeVar("R")


class _Page(Record, frozen=True, kw_only=True):
    """A page of events, each one kept as it was sent."""

    events: list[msgspec.Raw]
    head: int = 0
    damaged: list[int] = msgspec.field(default_factory=list[int])


class HttpService:
    """The sessions of a daemon, as its caller may use them."""

    def __init__(self, connection: DaemonConnection, sender: Sender | None = None) -> None:
        self.connection = connection
        self._sender = sender or Sender()

    def traced(self, sender: Sender) -> "HttpService":
        """Return the same sessions for requests that say this of themselves."""
        return HttpService(self.connection, self._sender.named(sender))

    async def execute(self, action: Action[R], *, key: str | None = None) -> R:
        """Have the daemon carry out an action."""
        check_key(key)
        action = checked(action)  # else JSON would carry what is not meant: bytes become text
        kind = type(action)
        method, _, path = kind.route.partition(" ")
        given: dict[str, Any] = msgspec.to_builtins(action)
        given.pop(str(kind.__struct_config__.tag_field))
        path = _NAME.sub(lambda found: quote(str(given.pop(found[1])), safe=""), path)
        if method == "DELETE":
            await self.connection.delete(path, key=key, sender=self._sender)
            return msgspec.convert(None, type=kind.result_type())
        return await self.connection.post(path, given, kind.result_type(), key=key, sender=self._sender)

    def follow(self, session_id: str, after_seq: int = 0) -> AsyncGenerator[list[Published]]:
        """Yield events as they come, over as many connections as it takes, until the client is closed."""
        return EventStream(self.connection, f"{_session(session_id)}/events", after_seq).batches()

    async def put_artifact(
        self, data: bytes, content_type: str, name: str | None = None, *, key: str | None = None
    ) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self.connection.upload(
            "/v1/artifacts", data, content_type, ArtifactRef, key=key, name=name
        )

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return sessions, newest first; `after` is the last id of the page before."""
        found: list[SessionRow] = []
        while len(found) < limit:
            wanted = min(limit - len(found), PAGE)
            page = await self.connection.get(
                "/v1/sessions", api.SessionPage, after=after, limit=wanted, status=status
            )
            found += page.sessions
            after = page.next
            if after is None:
                break
        return found

    async def session(self, session_id: str) -> SessionRow:
        """Return one session's row."""
        return await self.connection.get(_session(session_id), SessionRow)

    async def task(self, task_id: str) -> TaskRow:
        """Return one task's row."""
        return await self.connection.get(f"/v1/tasks/{quote(task_id, safe='')}", TaskRow)

    async def tasks(self, session_id: str, *, limit: int = 100) -> list[TaskRow]:
        """Return a session's tasks, newest first."""
        return (await self.connection.get(f"{_session(session_id)}/tasks", api.TaskPage, limit=limit)).tasks

    async def head(self, session_id: str) -> int:
        """Return how many events a session has."""
        path = f"{_session(session_id)}/events"
        return (await self.connection.get(path, _Page, stream="page", limit=1)).head

    async def read(self, session_id: str, after_seq: int, limit: int = PAGE) -> list[StoredFrame]:
        """Return a page of stored frames; those that cannot be read are marked."""
        path = f"{_session(session_id)}/events"
        found = await self.connection.get(
            path, _Page, stream="page", after_seq=after_seq, limit=min(limit, PAGE)
        )
        frames = [StoredFrame(seq=place_of(event)[0], data=bytes(event)) for event in found.events]
        frames += [StoredFrame(seq=seq, data=b"", damage=_DAMAGED) for seq in found.damaged]
        return sorted(frames, key=lambda frame: frame.seq)

    async def frames(
        self, session_id: str, *, after_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[StoredFrame]:
        """Yield stored frames in order, damaged ones marked; with `follow`, then new ones as they come."""
        while page := await self.read(session_id, after_seq):
            for frame in page:
                after_seq = frame.seq
                yield frame
        if follow:
            async with aclosing(self.follow(session_id, after_seq)) as batches:
                async for batch in batches:
                    for item in batch:
                        yield StoredFrame(seq=item.seq, data=item.frame)

    async def event(self, session_id: str, seq: int) -> Event:
        """Return one stored event."""
        page = await self.read(session_id, seq - 1, 1) if seq > 0 else []
        if not page or page[0].seq != seq or page[0].damage is not None:
            raise NotFound(f"Event {seq} of session {session_id} cannot be read.")
        return decode(page[0].data)

    async def transcript(self, session_id: str) -> list[Message]:
        """Return a session's messages."""
        return (await self._transcript(session_id)).messages

    async def supplements(self, session_id: str) -> list[Supplement]:
        """Return what stands beside a session's messages."""
        return (await self._transcript(session_id)).supplements

    async def _transcript(self, session_id: str) -> api.Transcript:
        return await self.connection.get(f"{_session(session_id)}/transcript", api.Transcript)

    async def approvals(self, *, session_id: str | None = None) -> list[ApprovalRow]:
        """Return what waits for an answer, in one session or in all."""
        path = "/v1/approvals" if session_id is None else f"{_session(session_id)}/approvals"
        return (await self.connection.get(path, api.ApprovalPage)).approvals

    async def grants(self, session_id: str) -> list[Grant]:
        """Return what is approved for a whole session."""
        return (await self.connection.get(f"{_session(session_id)}/grants", api.GrantPage)).grants

    async def artifacts(
        self, session_id: str, *, after: str | None = None, limit: int = 100
    ) -> list[ArtifactRow]:
        """Return a session's artifacts in the order of their ids."""
        path = f"{_session(session_id)}/artifacts"
        page = await self.connection.get(path, api.ArtifactPage, after=after, limit=limit)
        principal = (await self.session(session_id)).principal if page.artifacts else ""
        return [
            ArtifactRow(ref=info.ref, scope=session_id, principal=principal, created_at=info.created_at)
            for info in page.artifacts
        ]

    async def read_artifact(
        self, artifact_id: str, start: int = 0, end: int | None = None
    ) -> tuple[ArtifactRef, bytes]:
        """Return an artifact and its bytes, or the range [start, end) of them."""
        path = f"/v1/artifacts/{quote(artifact_id, safe='')}"
        ref = await self.connection.get(path, ArtifactRef)
        if start == 0 and end is None:
            return ref, await self.connection.download(f"{path}/content", {})
        end = ref.size_bytes if end is None else min(end, ref.size_bytes)
        if start >= end:
            return ref, b""
        wanted = {"range": f"bytes={start}-{end - 1}"}
        return ref, await self.connection.download(f"{path}/content", wanted)

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
        found: list[JobRow] = []
        while len(found) < limit:
            page = await self.connection.get(
                "/v1/jobs",
                api.JobPage,
                state=state,
                type=job_type,
                session_id=session_id,
                after=after,
                limit=min(limit - len(found), PAGE),
            )
            found += page.jobs
            after = page.next
            if after is None:
                break
        return found

    async def job(self, job_id: str) -> JobDetail:
        """Return a job with what its handler is given."""
        return await self.connection.get(f"/v1/jobs/{quote(job_id, safe='')}", JobDetail)

    async def verify(self, session_id: str) -> api.CheckReport:
        """Have the daemon check a log against the contract."""
        return await self.connection.get(f"{_session(session_id)}/verify", api.CheckReport, answer_s=CHECK_S)

    async def replay(self, session_id: str) -> api.CheckReport:
        """Have the daemon play a log through a fresh engine and compare."""
        return await self.connection.get(f"{_session(session_id)}/replay", api.CheckReport, answer_s=CHECK_S)


def _session(session_id: str) -> str:
    return f"/v1/sessions/{quote(session_id, safe='')}"
