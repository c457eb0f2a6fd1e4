"""`CodeSDK`: the public face. `assembly` puts together what is behind it.

async with CodeSDK.open(data_dir=".codesdk") as sdk:
    session = await sdk.create_session(workspace=".")
    task = await session.start("Summarize this repo")
    print((await task.result()).text)
"""

import asyncio
import contextlib
import copy
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from codesdk.contract.actions import LOCAL, Caller
from codesdk.contract.arguments import check_arguments, check_principal
from codesdk.contract.errors import Conflict, InvalidRequest, NotFound, StorageFailure
from codesdk.contract.ports import Observer, Policy, Subscriber, Synchronous, ToolRunner
from codesdk.contract.process import ProcessFacts
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import GatewayMode, Limits
from codesdk.handles import Handles, Session, Task, TaskResult
from codesdk.local import DataDir, HolderService, KeyFile, is_held
from codesdk.opening import Hosting, Opening
from codesdk.redaction import Redactor
from codesdk.runtimes import session_folders

__all__ = ["CodeSDK", "Session", "Task", "TaskResult"]

if TYPE_CHECKING:
    from codesdk.bundle import Manifest
    from codesdk.contract.api import RuntimeAuth
    from codesdk.contract.retention import GcReport, Progress, Retention
    from codesdk.engine import Archive, Engine, EngineService, Permits
    from codesdk.extensions import ExtensionHost, ExtensionOptions
    from codesdk.gateway import GatewayService, Provider, Source, Wire
    from codesdk.store import Audit
    from codesdk.tools import ExecOptions, FetchOptions

TRIES = 50
PAUSE_S = 0.1


class CodeSDK(Handles):
    """One data directory, opened for work. Get it from `CodeSDK.open`."""

    def __init__(
        self,
        service: "EngineService | HolderService",
        engine: "Engine | None" = None,
        *,
        gateway: "GatewayService | None" = None,
        audit: "Audit | None" = None,
        directory: DataDir | None = None,
        keys: KeyFile | None = None,
        external: Mapping[str, Runtime] | None = None,
        extensions: "ExtensionHost | None" = None,
    ) -> None:
        super().__init__(service)
        self.archive: Archive = service
        """Everything stored, to be read."""
        self.audit = audit
        """The audit of the data directory; None if everything is in memory or another process writes it."""
        self._engine = engine
        self._gateway = gateway
        self._directory = directory
        self.external: Mapping[str, Runtime] = external or {}
        """The executables that this process has as runtimes, by full name."""
        self._extensions = extensions
        self.keys = keys or KeyFile(directory.path if directory else None)
        """The provider keys of principals: stored here, used by the gateway, never shown."""

    @property
    def engine(self) -> "Engine":
        """The engine of this process. `Conflict` if another process holds the data directory."""
        if self._engine is None:
            raise Conflict("Another process holds this data directory; its engine is there.")
        return self._engine

    @property
    def extensions(self) -> "ExtensionHost":
        """The extensions of this process. `NotFound` if it was opened without."""
        if self._extensions is None:
            raise NotFound("No extensions are switched on here. The operator does that: docs/extensions.md.")
        return self._extensions

    @property
    def is_holder(self) -> bool:
        """Whether sessions run in this process. If not, another holds the data directory, and they run there."""
        return self._engine is not None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        runtimes: Mapping[str, Runtime] | None = None,
        external: Mapping[str, Sequence[str] | str] | None = None,
        hosting: Hosting = "in_process",
        tools: ToolRunner | None = None,
        run: "ExecOptions | None" = None,
        fetch: "FetchOptions | None" = None,
        policy: Policy | str | None = None,
        limits: Limits | None = None,
        secrets: Iterable[str] = (),
        providers: "Mapping[Wire, Provider] | None" = None,
        synchronous: Synchronous = "auto",
        principal: str = LOCAL,
        allow_yolo: bool = False,
        logins: Sequence[str] = (),
        allow_untested: bool = False,
        permits: "Permits | None" = None,
        observers: Sequence[Observer] = (),
        subscribers: Sequence[Subscriber] = (),
        extensions: "ExtensionOptions | None" = None,
        share: bool = True,
        goes_on: bool = True,
    ) -> AsyncGenerator["CodeSDK"]:
        """Open a data directory for work; without one, keep everything in memory.

        If another process holds the directory, sessions are worked on through it. What shapes an engine (runtimes,
        tools, policy, secrets and so on) cannot be given then: that is a `Conflict`, and so is `share=False`.

        `runtimes` adds adapters by name, or replaces built-in ones. `external` adds executables that speak the adapter
        protocol (docs/adapter-protocol.md): each is the runtime `external:NAME`. With `hosting="subprocess"` the built-in
        ones run in processes of their own, too, and none in this one. `tools` replaces the built-in tools;
        `run` and `fetch` switch on those that run programs and read web pages.
        `policy` is asked about every call, on top of the permission mode: the name of a preset, such as "edits", or
        one that `load_policy` read from a file.
        Without `allow_yolo` no session may use the mode that asks about nothing; without `allow_untested` no runtime
        drives a program whose version was neither tested nor certified. `logins` names the runtimes whose own account
        logins may be used where there is no key (docs/logins.md); without it, CODESDK_LOGINS does. `permits` says all
        that the operator permits, in place of these. `secrets` never reach an event, a log or an artifact. `providers` are where
        the model gateway passes requests on to; without them, the real ones, with the keys that the environment has
        (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY). `observers` are told of every event once it is stored;
        `subscribers` are given those of their types from the store and miss none, even over a crash. `extensions` says
        where to find code that reacts to events (docs/extensions.md).
        Leaving the block stops what runs and waits until all is stored. A session with the setting
        `on_interrupt="resume"` is interrupted instead, and goes on at the next start, unless that says `goes_on=False`.
        """
        opening = Opening(
            data_dir=data_dir,
            runtimes=runtimes,
            external=external,
            hosting=hosting,
            tools=tools,
            run=run,
            fetch=fetch,
            policy=policy,
            limits=limits,
            secrets=secrets,
            providers=providers,
            synchronous=synchronous,
            principal=principal,
            allow_yolo=allow_yolo,
            logins=logins,
            allow_untested=allow_untested,
            permits=permits,
            observers=observers,
            subscribers=subscribers,
            extensions=extensions,
            share=share,
            goes_on=goes_on,
        ).checked()
        caller = Caller.of(principal)
        async with AsyncExitStack() as stack:
            directory: DataDir | None = None
            if data_dir is not None:
                may_share = share and not opening.shapes_engine
                directory, held = await _enter(Path(data_dir), synchronous, may_share=may_share)
                stack.push_async_callback(directory.close)
                if held:
                    yield cls(HolderService(directory, caller), directory=directory)
                    return
            # Loaded here: whoever works through another process needs no engine of its own.
            from codesdk.assembly import assemble
            from codesdk.engine import EngineService

            parts = await assemble(opening, directory, stack)
            yield cls(
                EngineService(parts.engine, caller),
                parts.engine,
                gateway=parts.gateway,
                audit=parts.audit,
                directory=directory,
                keys=parts.keys,
                external=parts.external,
                extensions=parts.extensions,
            )

    def as_caller(self, caller: Caller) -> "CodeSDK":
        """Return the same sessions as another caller may use them."""
        other = copy.copy(self)
        if self._engine is not None:
            from codesdk.engine import EngineService

            other.service = other.archive = EngineService(self._engine, caller)
        else:
            assert self._directory is not None, "without an engine there is a directory"
            other.service = other.archive = HolderService(self._directory, caller)
        return other

    def as_principal(self, principal: str) -> "CodeSDK":
        """Return the same sessions as another principal sees them: its own and nothing else."""
        check_principal(principal)
        return self.as_caller(Caller.of(principal))

    async def runtime_auth(self, name: str) -> "RuntimeAuth":
        """Return whether a task on a runtime could begin: its program is there, and there is a key or a login."""
        check_arguments(runtime=name)
        service = cast("EngineService | HolderService", self.service)  # sessions run here or in the holder
        return await service.runtime_auth(name)

    def model_problems(self, session_id: str) -> Sequence[str]:
        """Return what did not fit between a session's model requests and the script or cassette that it plays."""
        return () if self._gateway is None else self._gateway.problems(session_id)

    async def write_bundle(
        self,
        session_id: str,
        target: BinaryIO,
        *,
        max_bytes: int | None = None,
        health: Mapping[str, object] | None = None,
        launch: Mapping[str, object] | None = None,
    ) -> "Manifest":
        """Write a session's support bundle, a tar.gz without secrets, into an open file. Return what is in it.

        `health` is what a daemon says of itself, beside what is found out of the machine; `launch` is what it was
        started with, beside the limits and permits of the engine.
        """
        from codesdk.bundle import MAX_BYTES, Origin, write_bundle

        check_arguments(session_id=session_id, max_bytes=max_bytes)
        if not callable(getattr(target, "write", None)):
            raise InvalidRequest(
                f"Invalid argument: target: expected an open file, got `{type(target).__name__}`."
            )
        if self._engine is not None:
            with contextlib.suppress(StorageFailure):  # a bundle is worth most when something is wrong
                await self._engine.settle_subscribers()
        origin = Origin(
            archive=self.archive,
            redactor=await self._redactor_of(session_id),
            data_dir=self._directory.path if self._directory else None,
            running=True,
            process=await self._facts(session_id, health, launch),
        )
        return await write_bundle(
            target, origin, session_id, max_bytes=MAX_BYTES if max_bytes is None else max_bytes
        )

    async def _facts(
        self, session_id: str, health: Mapping[str, object] | None, launch: Mapping[str, object] | None
    ) -> ProcessFacts | None:
        """Return what the process that runs the sessions says of itself: this one, or the holder."""
        if self._engine is None:
            assert isinstance(self.service, HolderService), "sessions run here or in the holder"
            return await self.service.describe(session_id)
        from codesdk.assembly import facts_of

        found = await facts_of(self._engine, session_id)
        return msgspec.structs.replace(
            found,
            launch={**found.launch, **msgspec.to_builtins(launch or {}, enc_hook=str)},
            health=None if health is None else dict(health),
        )

    async def _redactor_of(self, session_id: str) -> Redactor:
        if self._engine is not None:
            return await self._engine.redactor_of(session_id)
        from codesdk.engine import unseal

        assert self._directory is not None, "without an engine there is a directory"
        sealed = await unseal(self._directory.equipment, session_id)
        return Redactor([*sealed.secrets, *self.keys.secrets()])

    async def collect(
        self,
        retention: "Retention",
        *,
        dry_run: bool = False,
        rewrite: bool = False,
        progress: "Progress | None" = None,
    ) -> "GcReport":
        """Remove what is over the limits, of all principals, and give the space back while sessions run.

        `rewrite` lets a database of an older version be written again, which holds up everything else.
        """
        from codesdk.local import collect

        check_arguments(dry_run=dry_run, rewrite=rewrite)
        if self._directory is None or self.audit is None:
            raise InvalidRequest("There is nothing to remove: everything is in memory, or another process's.")
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

    def _playable(self, plays: "Source | None") -> tuple[dict[str, Any] | None, GatewayMode | None]:
        if plays is None or self._gateway is None or _is_script(plays):
            return super()._playable(plays)
        from codesdk.gateway import Exchange, ReplayBackend, ScriptedModel

        # The gateway is here, so it can be given the very object. No action carries it, so it is not sealed either.
        if isinstance(plays, ScriptedModel):
            return None, "scripted"
        if isinstance(plays, ReplayBackend):
            return None, "replay"
        given = cast("object", plays)
        if isinstance(given, list | tuple) and all(
            isinstance(one, Exchange) for one in cast("list[object]", given)
        ):
            return None, "replay"
        raise InvalidRequest(
            f"Invalid argument: plays: expected a Script, a cassette or a ScriptedModel, got `{type(plays).__name__}`."
            " load_script and load_cassette read one from a file."
        )

    def _play(self, session_id: str, plays: "Source | None") -> None:
        if plays is not None and self._gateway is not None and not _is_script(plays):
            self._gateway.choose(session_id, plays)


def _is_script(plays: "Source") -> bool:
    """Return whether an action can carry what is to be played, so that it is sealed with the session."""
    from codesdk.script import Script

    return isinstance(plays, Script)


async def _enter(path: Path, synchronous: Synchronous, *, may_share: bool) -> tuple[DataDir, bool]:
    """Return a directory to write, or to work in through its holder, and which of the two it is.

    A process that is about to open or close the directory holds it without listening, so try for a while.
    """
    for left in reversed(range(TRIES)):
        try:
            return await DataDir.open_writer(path, synchronous=synchronous), False
        except Conflict:
            if not may_share or not left:
                raise
        if await is_held(path):
            return await DataDir.open_reader(path), True
        await asyncio.sleep(PAUSE_S)
    raise AssertionError("the last try returns or raises")
