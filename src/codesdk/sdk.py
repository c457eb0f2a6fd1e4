"""`CodeSDK`: the public face, and the place where all parts are put together.

async with CodeSDK.open(data_dir=".codesdk") as sdk:
    session = await sdk.create_session(runtime="scripted", workspace=".")
    task = await session.start("Summarize this repo")
    print((await task.result()).text)
"""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.ports import Observer, Policy, Subscriber, ToolRunner
from codesdk.contract.records import ApprovalRow, SessionRow, SessionStatus
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Budgets, Limits, SessionConfig, SessionSettings
from codesdk.contract.tools import InteractionMode, PermissionMode
from codesdk.engine import LOCAL, Archive, Engine, Ports, SystemStamper
from codesdk.gateway import GatewayDoor, Provider, providers_from
from codesdk.handles import Session, Task, TaskResult
from codesdk.local import AUDIT, RUNTIMES, ControlServer, DataDir
from codesdk.policy import ModePolicy
from codesdk.redaction import Redactor
from codesdk.runtimes import clean_session, create_runtime, forget_session, resolve, session_folders, sweep
from codesdk.store import Audit, MemoryBlobs, MemoryLog, MemoryUndo, deletion_entry
from codesdk.tools import McpHost, ToolRegistry, builtin_registry

__all__ = ["CodeSDK", "Session", "Task", "TaskResult"]

if TYPE_CHECKING:
    from codesdk.bundle import Manifest
    from codesdk.gateway import Source, Wire
    from codesdk.local import GcReport, Progress, Retention
    from codesdk.tools import ExecOptions, FetchOptions, McpServer


class CodeSDK:
    """One data directory, opened for work. Get it from `CodeSDK.open`."""

    def __init__(
        self,
        engine: Engine,
        principal: str,
        door: GatewayDoor | None = None,
        audit: Audit | None = None,
        directory: DataDir | None = None,
    ) -> None:
        self.engine = engine
        self.audit = audit
        """The audit of the data directory; None if everything is in memory."""
        self._door = door
        self._directory = directory
        self._principal = principal

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        runtimes: Mapping[str, Runtime] | None = None,
        tools: ToolRunner | None = None,
        run: "ExecOptions | None" = None,
        fetch: "FetchOptions | None" = None,
        policy: Policy | None = None,
        limits: Limits | None = None,
        secrets: Iterable[str] = (),
        providers: "Mapping[Wire, Provider] | None" = None,
        synchronous: Literal["auto", "full", "normal"] = "auto",
        principal: str = LOCAL,
        allow_yolo: bool = False,
        observers: Sequence[Observer] = (),
        subscribers: Sequence[Subscriber] = (),
    ) -> AsyncGenerator["CodeSDK"]:
        """Open a data directory for work; without one, keep everything in memory.

        `runtimes` adds adapters by name, or replaces built-in ones. `tools` replaces the built-in tools;
        `run` and `fetch` switch on those that run programs and read web pages.
        `policy` is asked about every call, on top of the permission mode: `load_policy` reads one from a file.
        Without `allow_yolo` no session may use the mode that asks about nothing. `secrets` never reach an
        event, a log or an artifact. `providers` are where the model gateway passes requests on to; without
        them, the real ones, with the keys that the environment has (ANTHROPIC_API_KEY, OPENAI_API_KEY,
        GEMINI_API_KEY). `observers` hear of every event once it is stored; `subscribers` are given those of their
        types from the store and miss none, even over a crash. Leaving the block stops what runs and waits until
        all is stored.
        """
        async with AsyncExitStack() as stack:
            directory: DataDir | None = None
            audit: Audit | None = None
            state_dir = ""
            door, keys = _model_door(providers)
            hidden = [*secrets, *keys]
            if data_dir is not None:
                directory = await DataDir.open_writer(Path(data_dir), synchronous=synchronous)
                stack.push_async_callback(directory.close)
                state_dir = str(directory.path.resolve() / RUNTIMES)
                await asyncio.to_thread(sweep, state_dir)
                audit = await Audit.open(directory.path / AUDIT, Redactor(hidden))
                stack.push_async_callback(audit.close)
            stack.push_async_callback(door.aclose)
            host = McpHost()
            stack.push_async_callback(host.close)
            ports = Ports(
                log=directory.log if directory else MemoryLog(),
                blobs=directory.blobs if directory else MemoryBlobs(),
                tools=tools or await stack.enter_async_context(_offered(run, fetch)),
                policy=policy or ModePolicy(),
                stamper=SystemStamper(),
                limits=limits or Limits(),
                models=door,
                mcp=host,
                undo=directory.undo if directory else MemoryUndo(),
                state_dir=state_dir,
                clean=functools.partial(clean_session, state_dir) if state_dir else None,
                observers=[*observers, audit] if audit else observers,
                subscribers=[*subscribers, audit] if audit else subscribers,
            )
            engine = Engine(
                ports,
                _Runtimes(runtimes or {}).find,
                owner=f"pid:{os.getpid()}",
                secrets=hidden,
                allow_yolo=allow_yolo,
            )
            await engine.open()
            if audit is not None:
                audit.catch_up = engine.settle_subscribers
            stack.push_async_callback(engine.close)
            if directory is not None:
                control = ControlServer(engine, directory.path)
                await control.start()
                stack.push_async_callback(control.close)
            yield cls(engine, principal, door, audit, directory)

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
    ) -> "Session":
        """Create a session of a runtime on a workspace directory.

        `native_tools` names those of the runtime's own tools that it may run, which CodeSDK cannot confine.
        `plays` is a script or a cassette that the model gateway answers from in place of a provider. The tools of
        `mcp_servers` are offered to the runtime as `mcp.SERVER.tool`, under the same policy and in the same log.
        """
        settings = _with_mode(settings or SessionSettings(), plays)
        if mcp_servers:
            settings = msgspec.structs.replace(settings, mcp_servers=sorted(mcp_servers))
        config = SessionConfig(
            runtime=runtime,
            workspace=_workspace(workspace),
            title=title,
            model=model,
            permission_mode=permission_mode,
            interaction_mode=interaction_mode,
            native_tools=native_tools,
            budgets=budgets,
            settings=settings,
        )
        if mcp_servers:
            from codesdk.tools import secrets_of

            secrets = [*secrets, *secrets_of(mcp_servers)]
        live = await self.engine.create_session(
            config,
            principal=self._principal,
            secrets=secrets,
            key=idempotency_key,
            equipment=plays if isinstance(plays, msgspec.Struct) else None,
        )
        return await self._equip(live.session_id, plays, mcp_servers)

    async def session(
        self,
        session_id: str,
        *,
        secrets: Iterable[str] | None = None,
        plays: "Source | None" = None,
        mcp_servers: "Mapping[str, McpServer] | None" = None,
    ) -> "Session":
        """Return a stored session. Its secrets, its servers and what it plays are not stored: give them again."""
        await self.engine.session(session_id, principal=self._principal, secrets=secrets)
        return await self._equip(session_id, plays, mcp_servers)

    async def _equip(
        self, session_id: str, plays: "Source | None", servers: "Mapping[str, McpServer] | None"
    ) -> "Session":
        """Give a session what is not stored with it."""
        if plays is not None and self._door is not None:
            self._door.choose(session_id, plays)
        if servers:
            from codesdk.tools import AttachedTools, secrets_of

            live = await self.engine.session(
                session_id, principal=self._principal, secrets=secrets_of(servers)
            )
            tools = AttachedTools(servers, self.engine.ports.tools)
            await tools.start()
            await live.attach(tools, tools.close)
        return Session(self.engine, session_id, self._principal)

    def as_principal(self, principal: str) -> "CodeSDK":
        """Return the same engine as another principal sees it: its own sessions and nothing else."""
        return CodeSDK(self.engine, principal, self._door, self.audit, self._directory)

    def model_problems(self, session_id: str) -> Sequence[str]:
        """Return what did not fit between a session's model requests and the script or cassette that it plays."""
        return () if self._door is None else self._door.problems(session_id)

    async def sessions(
        self, *, after: str | None = None, limit: int = 100, status: SessionStatus | None = None
    ) -> list[SessionRow]:
        """Return stored sessions, newest first; `after` is the last id of the page before."""
        return await self.archive.sessions(principal=self._principal, after=after, limit=limit, status=status)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session and everything stored of it, what its runtime wrote down included."""
        await self.engine.delete(session_id, principal=self._principal)
        state_dir = self.engine.ports.state_dir
        if state_dir:
            await asyncio.to_thread(forget_session, state_dir, session_id)
        if self.audit is not None:
            self.audit.note(deletion_entry(self._principal, session_id))

    async def write_bundle(
        self,
        session_id: str,
        target: BinaryIO,
        *,
        max_bytes: int | None = None,
        health: Mapping[str, object] | None = None,
    ) -> "Manifest":
        """Write a session's support bundle, a tar.gz without secrets, into an open file. Return what is in it.

        `health` is what the serving process says of itself; without it, the machine is looked at.
        """
        from codesdk.bundle import MAX_BYTES, Origin, write_bundle

        with contextlib.suppress(StorageFailure):  # a bundle is worth most when something is wrong
            await self.engine.settle_subscribers()
        state_dir = self.engine.ports.state_dir
        origin = Origin(
            archive=self.archive,
            redactor=self.engine.redactor_of(session_id),
            data_dir=Path(state_dir).parent if state_dir else None,
            running=True,
            health=health,
        )
        limit = MAX_BYTES if max_bytes is None else max_bytes
        return await write_bundle(target, origin, session_id, principal=self._principal, max_bytes=limit)

    async def collect(
        self,
        retention: "Retention",
        *,
        dry_run: bool = False,
        rewrite: bool = False,
        progress: "Progress | None" = None,
    ) -> "GcReport":
        """Remove what is over the limits, of all principals, and give the space back while sessions run.

        `rewrite` lets a database of an older version be written anew, which holds up everything else.
        """
        from codesdk.local import collect

        if self._directory is None or self.audit is None:
            raise InvalidRequest("There is nothing to remove: everything is in memory.")
        state_dir = self.engine.ports.state_dir
        return await collect(
            self.engine,
            self._directory,
            self.audit,
            retention,
            folders=lambda session_id: session_folders(state_dir, session_id),
            dry_run=dry_run,
            rewrite=rewrite,
            progress=progress,
        )

    async def approvals(self) -> list[ApprovalRow]:
        """Return what waits for an answer, over all sessions."""
        return await self.archive.approvals(principal=self._principal)

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes that a message can attach."""
        return await self.engine.put_artifact(data, content_type, name, principal=self._principal)

    async def read_artifact(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return an artifact's bytes, or the range [start, end) of them."""
        _, data = await self.archive.read_artifact(artifact_id, start, end, principal=self._principal)
        return data

    @property
    def archive(self) -> Archive:
        """Everything stored, to be read."""
        return self.engine.archive


class _Runtimes:
    """Runtimes by name: the given ones first, built-in ones made when first used."""

    def __init__(self, given: Mapping[str, Runtime]) -> None:
        self._known = dict(given)

    def find(self, name: str) -> Runtime:
        if name not in self._known:
            name = resolve(name)
        if name not in self._known:
            self._known[name] = create_runtime(name)
        return self._known[name]


@asynccontextmanager
async def _offered(run: "ExecOptions | None", fetch: "FetchOptions | None") -> AsyncGenerator[ToolRegistry]:
    """Give the tools that are offered. What runs programs is loaded only if it is switched on."""
    if run is None and fetch is None:
        yield builtin_registry()
        return
    from codesdk.tools import offered_tools

    async with offered_tools(run, fetch) as registry:
        yield registry


def _model_door(providers: "Mapping[Wire, Provider] | None") -> tuple[GatewayDoor, list[str]]:
    """Return the gateway, and the keys that it puts in."""
    known = providers_from() if providers is None else providers
    return GatewayDoor(known), sorted({provider.key for provider in known.values() if provider.key})


def _with_mode(settings: SessionSettings, plays: "Source | None") -> SessionSettings:
    """Return the settings of a session with the mode that goes with what it plays."""
    if plays is None:
        return settings
    return msgspec.structs.replace(settings, gateway="replay" if isinstance(plays, Sequence) else "scripted")


def _workspace(path: str | os.PathLike[str]) -> str:
    try:
        found = Path(path).resolve()
        if found.is_dir():
            return str(found)
    except (OSError, RuntimeError, ValueError):
        pass  # a name that is too long, links in a circle, a null
    raise InvalidRequest(f"The workspace {str(path)[:200]!r} is not a directory.")
