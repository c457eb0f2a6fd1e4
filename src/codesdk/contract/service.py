"""Sessions as everything above the engine sees them: to be read, followed and changed.

`SessionService` has three implementations: the engine of this process, a daemon over HTTP, and the holder of
a data directory over its control socket. Handles and commands use only this, so they work with all three.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol, TypeVar

import msgspec

from codesdk.contract.actions import Action
from codesdk.contract.codec import decode
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
from codesdk.contract.tools import Grant

R = TypeVar("R")


class Published(msgspec.Struct, eq=False, gc=False):
    """A committed event and its one encoding, shared by all senders. Decoded only when needed.

    Not watched by the garbage collector: feeds hold many, and nothing in one refers back to it.
    """

    seq: int
    frame: bytes
    decoded: Event | None = None
    framed: bytes | None = None

    @property
    def event(self) -> Event:
        """The event itself."""
        if self.decoded is None:
            self.decoded = decode(self.frame)
        return self.decoded

    @property
    def streamed(self) -> bytes:
        """The event as a server-sent event, made when it is first sent."""
        if self.framed is None:
            self.framed = stream_frame(self.seq, self.frame)
        return self.framed


def stream_frame(seq: int, frame: bytes) -> bytes:
    """Return a stored frame as a server-sent event. Its id is the seq; encoded JSON has no line breaks."""
    return b"id: %d\ndata: %b\n\n" % (seq, frame)


class SessionReader(Protocol):
    """Stored sessions of one principal, to be read. Another principal's are not found."""

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return sessions, newest first; `after` is the last id of the page before."""
        ...

    async def session(self, session_id: str) -> SessionRow: ...

    async def task(self, task_id: str) -> TaskRow: ...

    async def tasks(self, session_id: str, *, limit: int = 100) -> list[TaskRow]:
        """Return a session's tasks, newest first."""
        ...

    async def head(self, session_id: str) -> int:
        """Return how many events a session has."""
        ...

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return a page of stored frames; those that cannot be read are marked."""
        ...

    def frames(
        self, session_id: str, *, after_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[StoredFrame]:
        """Yield stored frames in order, damaged ones marked. With `follow`, keep waiting for more."""
        ...

    async def event(self, session_id: str, seq: int) -> Event: ...

    async def transcript(self, session_id: str) -> list[Message]:
        """Return a session's messages that are complete so far."""
        ...

    async def supplements(self, session_id: str) -> list[Supplement]:
        """Return what stands beside a session's transcript, in the order in which it was put there."""
        ...

    async def approvals(self, *, session_id: str | None = None) -> list[ApprovalRow]:
        """Return what waits for an answer, or for a resume, in one session or in all."""
        ...

    async def grants(self, session_id: str) -> list[Grant]:
        """Return what was approved for a whole session."""
        ...

    async def artifacts(
        self, session_id: str, *, after: str | None = None, limit: int = 100
    ) -> list[ArtifactRow]:
        """Return a session's artifacts in the order of their ids."""
        ...

    async def read_artifact(
        self, artifact_id: str, start: int = 0, end: int | None = None
    ) -> tuple[ArtifactRef, bytes]:
        """Return an artifact and its bytes, or the range [start, end) of them."""
        ...

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
        ...

    async def job(self, job_id: str) -> JobDetail:
        """Return a job with what its handler is given."""
        ...


class SessionService(SessionReader, Protocol):
    """Sessions of one principal, to be read, followed and changed."""

    def traced(self, sender: Sender) -> "SessionService":
        """Return the same sessions for requests that say this of themselves, in place of what is said so far."""
        ...

    async def execute(self, action: Action[R], *, key: str | None = None) -> R:
        """Carry out an action, once per idempotency key, and return its result."""
        ...

    def follow(self, session_id: str, after_seq: int = 0) -> AsyncGenerator[list[Published]]:
        """Yield batches of events after a seq, stored ones first, then live ones, without gap or repeat."""
        ...

    async def put_artifact(
        self, data: bytes, content_type: str, name: str | None = None, *, key: str | None = None
    ) -> ArtifactRef:
        """Store bytes that a message can attach."""
        ...
