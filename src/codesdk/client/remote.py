"""`CodeSDKClient`: the library's handles, with a daemon behind them.

async with CodeSDKClient.connect("http://127.0.0.1:8000") as client:
    session = await client.create_session(runtime="scripted", workspace=".")
    task = await session.start("Summarize this repo")
    print((await task.result()).text)
"""

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

import msgspec

from codesdk.client.address import finder
from codesdk.client.connection import Connection
from codesdk.client.handles import PAGE, RemoteSession
from codesdk.contract import api
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import CONTRACT_VERSION
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.records import ApprovalRow, SessionRow, SessionStatus, TaskRow
from codesdk.contract.settings import Budgets, SessionSettings
from codesdk.contract.tools import InteractionMode, PermissionMode

if TYPE_CHECKING:
    from codesdk.gateway import Source
    from codesdk.local import GcReport, Retention
    from codesdk.tools import McpServer


class CodeSDKClient:
    """A daemon's sessions, as its caller may see them. Get it from `CodeSDKClient.connect`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str | None = None,
        token: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> AsyncGenerator["CodeSDKClient"]:
        """Connect to a daemon: at `url`, at the one that serves `data_dir`, or at CODESDK_URL.

        The token is the given one, that of CODESDK_TOKEN or, for a daemon of this machine, the one in the lock file
        of its data directory. Leaving the block ends streams; what runs in the daemon goes on.
        """
        client = cls(Connection(finder(url, token, data_dir)))
        try:
            await client._greet()
            yield client
        finally:
            await client.connection.close()

    async def _greet(self) -> None:
        """Fail at once, and in plain words, if nobody is there or the wrong one."""
        health = await self.connection.get("/v1/health", api.Health, patience_s=0.0)
        if health.contract_version != CONTRACT_VERSION:
            raise InvalidRequest(
                f"The daemon at {self.connection.url} speaks version {health.contract_version} of the contract and"
                f" this client version {CONTRACT_VERSION}: use the same release of CodeSDK on both sides."
            )

    async def create_session(
        self,
        *,
        runtime: str,
        workspace: str | os.PathLike[str] = ".",
        permission_mode: PermissionMode = "ask",
        interaction_mode: InteractionMode = "interactive",
        native_tools: Literal["off"] | list[str] = "off",
        title: str | None = None,
        model: str | None = None,
        budgets: Budgets | None = None,
        settings: SessionSettings | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
        secrets: Iterable[str] = (),
        idempotency_key: str | None = None,
        recording: str | None = None,
    ) -> RemoteSession:
        """Create a session of a runtime on a workspace: a directory on the daemon's machine.

        `plays` may be a script; a cassette stays where it is, and `recording` names the recorded session whose
        answers are played. `native_tools` and `mcp_servers` need the scope admin.
        """
        body = api.NewSession(
            runtime=runtime,
            workspace=_absolute(workspace),
            permission_mode=permission_mode,
            interaction_mode=interaction_mode,
            native_tools=native_tools,
            title=title,
            model=model,
            budgets=budgets,
            settings=settings or SessionSettings(),
            script=_script(plays),
            mcp_servers=_servers(mcp_servers),
            secrets=list(secrets),
            recording=recording,
        )
        row = await self.connection.post("/v1/sessions", body, SessionRow, key=idempotency_key)
        return RemoteSession(self.connection, row.session_id)

    async def session(
        self,
        session_id: str,
        *,
        secrets: Iterable[str] | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
    ) -> RemoteSession:
        """Return a stored session. Its secrets, its servers and what it plays are not stored: give them again."""
        session = RemoteSession(self.connection, session_id)
        if secrets is None and plays is None and not mcp_servers:
            await session.info()
            return session
        body = api.Equipment(
            script=_script(plays), mcp_servers=_servers(mcp_servers), secrets=list(secrets or ())
        )
        await self.connection.post(f"{session.path}/equipment", body, SessionRow)
        return session

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return stored sessions, newest first; `after` is the last id of the page before."""
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

    async def delete_session(self, session_id: str) -> None:
        """Remove a session and everything stored of it, what its runtime wrote down included."""
        await self.connection.delete(f"/v1/sessions/{quote(session_id, safe='')}")

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer, over all sessions."""
        return (await self.connection.get("/v1/approvals", api.ApprovalPage)).approvals

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self.connection.upload("/v1/artifacts", data, content_type, ArtifactRef, name=name)

    async def read_artifact(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return an artifact's bytes, or the range [start, end) of them."""
        path = f"/v1/artifacts/{quote(artifact_id, safe='')}"
        if start == 0 and end is None:
            return await self.connection.download(f"{path}/content", {})
        size = (await self.connection.get(path, ArtifactRef)).size_bytes
        end = size if end is None else min(end, size)
        if start >= end:
            return b""
        return await self.connection.download(f"{path}/content", {"range": f"bytes={start}-{end - 1}"})

    async def artifact(self, artifact_id: str) -> ArtifactRef:
        """Return what is known of an artifact."""
        return await self.connection.get(f"/v1/artifacts/{quote(artifact_id, safe='')}", ArtifactRef)

    async def task(self, task_id: str) -> TaskRow:
        """Return a task, of whatever session."""
        return await self.connection.get(f"/v1/tasks/{quote(task_id, safe='')}", TaskRow)

    async def runtimes(self) -> list[api.RuntimeInfo]:
        """Return the runtimes that sessions can be created with."""
        return (await self.connection.get("/v1/runtimes", api.RuntimePage)).runtimes

    async def runtime_auth(self, name: str) -> api.RuntimeAuth:
        """Ask whether a runtime is installed and logged in on the daemon's machine."""
        return await self.connection.get(f"/v1/runtimes/{quote(name, safe='')}/auth", api.RuntimeAuth)

    async def whoami(self) -> api.TokenInfo:
        """Return who this client is to the daemon, and what it may do."""
        return await self.connection.get("/v1/whoami", api.TokenInfo)

    async def collect(self, retention: "Retention", *, dry_run: bool = False) -> "GcReport":
        """Have the daemon remove what is over the limits, of all principals. Needs the scope admin."""
        from codesdk.local import GcReport

        limits = msgspec.structs.asdict(retention)
        return await self.connection.post("/v1/gc", api.Collecting(**limits, dry_run=dry_run), GcReport)

    async def usage(self) -> api.UsageAnswer:
        """Return what all sessions have spent."""
        return await self.connection.get("/v1/usage", api.UsageAnswer)


def _absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that means the same wherever the daemon was started."""
    return str(Path(path).absolute())


def _script(plays: "Source | None") -> dict[str, Any] | None:
    if plays is None:
        return None
    from codesdk.script import Script, dump

    if not isinstance(plays, Script):
        raise InvalidRequest(
            "Only a script can be sent to a daemon; a cassette or a model of one's own cannot."
        )
    return dump(plays)


def _servers(given: "Mapping[str, McpServer] | None") -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.to_builtins(dict(given or {})))
