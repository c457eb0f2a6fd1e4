"""Where the sessions are that a command looks at: a data directory of this machine, or a daemon.

`Archive` is a place; `RemotePlace` is one behind HTTP. Commands see only what both have.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from codesdk.cli.app import Setup
from codesdk.cli.target.lookup import has_owner, reading
from codesdk.contract.events import Event
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.records import ApprovalRow, ArtifactRow, SessionRow, SessionStatus, StoredFrame, TaskRow
from codesdk.contract.tools import Grant

if TYPE_CHECKING:
    from codesdk.client import CodeSDKClient, RemoteSession


class Place(Protocol):
    """Stored sessions, to be read."""

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]: ...

    async def session(self, session_id: str) -> SessionRow: ...

    async def task(self, task_id: str) -> TaskRow: ...

    async def head(self, session_id: str) -> int: ...

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]: ...

    async def approvals(self, *, session_id: str | None = None) -> list[ApprovalRow]: ...

    async def grants(self, session_id: str) -> list[Grant]: ...

    def frames(
        self, session_id: str, *, after_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[StoredFrame]: ...

    async def event(self, session_id: str, seq: int) -> Event: ...

    async def transcript(self, session_id: str) -> list[Message]: ...

    async def artifacts(
        self, session_id: str, *, after: str | None = None, limit: int = 100
    ) -> list[ArtifactRow]: ...

    async def read_artifact(self, artifact_id: str) -> tuple[ArtifactRef, bytes]: ...


@asynccontextmanager
async def open_place(setup: Setup) -> AsyncGenerator[Place]:
    """Open the place that the options name: a daemon's address first, else the data directory."""
    if setup.url is None:
        async with reading(setup.data_dir) as archive:
            yield archive
        return
    async with connected(setup) as client:
        yield RemotePlace(client)


async def is_owned(setup: Setup) -> bool:
    """Tell whether somebody is there who runs the sessions."""
    return setup.url is not None or await has_owner(setup.data_dir)


@asynccontextmanager
async def connected(setup: Setup) -> "AsyncGenerator[CodeSDKClient]":
    """Connect to the daemon that the options name, or to the one that holds the data directory."""
    from codesdk.client import CodeSDKClient

    async with CodeSDKClient.connect(setup.url, setup.token, None if setup.url else setup.data_dir) as client:
        yield client


def served(setup: Setup) -> bool:
    """Tell whether work goes through a daemon: one that is named, or one that holds the data directory."""
    from codesdk.local import find_daemon

    return setup.url is not None or find_daemon(Path(setup.data_dir)) is not None


class RemotePlace:
    """A daemon's sessions."""

    def __init__(self, client: "CodeSDKClient") -> None:
        self.client = client

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return sessions, newest first."""
        return await self.client.sessions(after=after, limit=limit, status=status)

    async def session(self, session_id: str) -> SessionRow:
        """Return one session's row."""
        return await self._session(session_id).info()

    async def task(self, task_id: str) -> TaskRow:
        """Return one task's row."""
        return await self.client.task(task_id)

    async def head(self, session_id: str) -> int:
        """Return how many events a session has."""
        return await self._session(session_id).head()

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return a page of stored frames."""
        return await self._session(session_id).page(after_seq, limit=limit)

    async def approvals(self, *, session_id: str | None = None) -> list[ApprovalRow]:
        """Return what waits, in a session or in all."""
        if session_id is None:
            return await self.client.approvals()
        return await self._session(session_id).approvals()

    async def grants(self, session_id: str) -> list[Grant]:
        """Return what is approved for a whole session."""
        return await self._session(session_id).grants()

    async def frames(
        self, session_id: str, *, after_seq: int = 0, follow: bool = False
    ) -> AsyncIterator[StoredFrame]:
        """Yield stored frames in order, damaged ones marked; with `follow`, then those that come."""
        session = self._session(session_id)
        while page := await session.page(after_seq):
            for frame in page:
                after_seq = frame.seq
                yield frame
        if follow:
            async for batch in session.frames(after_seq):
                for frame in batch:
                    yield frame

    async def event(self, session_id: str, seq: int) -> Event:
        """Return one stored event."""
        return await self._session(session_id).event(seq)

    async def transcript(self, session_id: str) -> list[Message]:
        """Return a session's messages."""
        return await self._session(session_id).transcript()

    async def artifacts(
        self, session_id: str, *, after: str | None = None, limit: int = 100
    ) -> list[ArtifactRow]:
        """Return a session's artifacts in the order of their ids."""
        principal = (await self.session(session_id)).principal
        found = await self._session(session_id).artifacts(after=after, limit=limit)
        return [
            ArtifactRow(ref=info.ref, scope=session_id, principal=principal, created_at=info.created_at)
            for info in found
        ]

    async def read_artifact(self, artifact_id: str) -> tuple[ArtifactRef, bytes]:
        """Return an artifact and its bytes."""
        return await self.client.artifact(artifact_id), await self.client.read_artifact(artifact_id)

    def _session(self, session_id: str) -> "RemoteSession":
        from codesdk.client import RemoteSession

        return RemoteSession(self.client.connection, session_id)
