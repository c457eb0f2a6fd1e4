"""`create_minicode()`: configuration, plugins, tools, models and files put together into an agent one can talk to.

The place where the parts of minicode meet when it runs alone; `runtime/` is the other one.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import Conflict, InvalidRequest, NotFound
from codesdk.contract.ids import ulid
from codesdk.contract.validation import read_as
from codesdk.minicode.agent import Agent
from codesdk.minicode.config import (
    LoadedConfig,
    ModelNameSchema,
    ProviderIdSchema,
    ResolvedSdkConfig,
    load_config,
)
from codesdk.minicode.models import ModelSettings, open_model
from codesdk.minicode.options import AgentOverrides, ProviderModels, RuntimeCatalog, RuntimeOverride
from codesdk.minicode.plugins import Composition, HookContext, LoadedPlugin, TurnHooks, load_plugins
from codesdk.minicode.session import Hearing, Session
from codesdk.minicode.storage import FsArtifactStore, FsSessionRepository, check_session_id
from codesdk.minicode.tools import DirectExecutor, Tool, builtin_tools, find_workspace, open_tool_sandbox
from codesdk.minicode.types import CompatibleService, SessionState, SessionSummary, StopCondition
from codesdk.sandbox import Sandbox

INSTRUCTIONS = (
    "You are a coding agent. You work in the directory {cwd}, with the tools that are offered to you. Look before you"
    " change something, and check what you have changed. Answer briefly."
)
_RUNTIME = frozenset(RuntimeOverride.__annotations__)
_AGENT = frozenset(AgentOverrides.__annotations__)


async def create_minicode(
    *,
    cwd: str | os.PathLike[str] | None = None,
    config_overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    agent: AgentOverrides | None = None,
) -> "Minicode":
    """Return an agent with everything it needs, for a directory: the current one, unless `cwd` names another.

    `config_overrides` win over files and environment; `env` takes the place of `os.environ`. Raise `CodeSDKError`,
    which names the file and the field, for a configuration or a plugin that cannot be used.
    """
    config = await asyncio.to_thread(load_config, cwd, config_overrides, env)
    given = _known("agent", agent or {}, _AGENT)
    environment = dict(os.environ if env is None else env)
    # Each session makes its own, for its directory; here they stand for their names, which no plugin may take.
    own = given.get("tools")
    if own is None:
        own = _builtin(config, str(config.directory), open_tool_sandbox(config.resolved.sandbox), environment)
    composed = await load_plugins(config, own, sdk_version=version("codesdk"))
    return Minicode(config, composed, given, environment, added=composed.tools[len(own) :])


class Minicode:
    """One configuration, and the sessions that use it. Close it, or use it in `async with`."""

    def __init__(
        self,
        config: LoadedConfig,
        composed: Composition,
        agent: AgentOverrides,
        env: Mapping[str, str],
        *,
        added: Sequence[Tool],
    ) -> None:
        self._config = config
        self._composed = composed
        self._agent = agent
        self._env = env
        self._added = added
        paths = config.resolved.paths
        self._repository = FsSessionRepository(Path(paths.sessions))
        self._artifacts = FsArtifactStore(Path(paths.artifacts))
        self._open: set[Session] = set()

    @property
    def config(self) -> ResolvedSdkConfig:
        """The configuration that holds. There is no secret in it."""
        return self._config.resolved

    @property
    def warnings(self) -> Sequence[str]:
        """What of the configuration was ignored, and why, in sentences."""
        return self._config.warnings

    def get_runtime_catalog(self) -> RuntimeCatalog:
        """Return the providers and the models to choose from."""
        listed = self.config.catalog.items()
        return RuntimeCatalog(providers=[ProviderModels(id=each, models=models) for each, models in listed])

    def get_loaded_plugins(self) -> list[LoadedPlugin]:
        """Return the plugins in use, in their order."""
        return list(self._composed.plugins)

    async def open_session(
        self,
        *,
        id: str | None = None,  # noqa: A002 - its name everywhere else
        create_if_missing: bool = True,
        cwd: str | os.PathLike[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        runtime: RuntimeOverride | None = None,
    ) -> Session:
        """Open a session: the one with this id, or a new one. Close it when done; its file stays.

        `runtime` chooses provider and model of a new session. One that exists can change its model, not its provider.
        """
        wanted = _known("runtime", runtime or {}, _RUNTIME)
        if "model" in wanted:
            ModelNameSchema.parse(wanted["model"], "runtime.model")
        if metadata is not None:
            metadata = read_as(dict[str, Any], dict(metadata), "metadata")
        state = None if id is None else await self._load(id, create_if_missing)
        if state is None:
            state = self._new(id, cwd, metadata, wanted)
            opened = await self._start(state)
            try:
                await self._repository.create(state)
            except BaseException:
                await opened.close()
                raise
            return opened
        changed = _changed(state, cwd, metadata, wanted)
        opened = await self._start(changed)
        try:
            if changed != state:
                await self._repository.save(changed, state)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def list_sessions(self) -> list[SessionSummary]:
        """Return all stored sessions, the last used first. Files that are damaged are left out, and logged."""
        return list(await self._repository.list())

    async def delete_session(self, id: str) -> None:  # noqa: A002 - its name everywhere else
        """Delete a session and what it kept. Raise `NotFound` if there is none."""
        if any(session.id == id for session in self._open):
            raise Conflict(f"The session {id} is open. Close it first.")
        await self._repository.delete(id)
        await self._artifacts.delete(id)

    async def close(self) -> None:
        """Close all sessions that are open. Raise `CodeSDKError` if one has a turn that cannot be stored."""
        closing = await asyncio.gather(*(each.close() for each in list(self._open)), return_exceptions=True)
        for failed in closing:
            if isinstance(failed, BaseException):
                raise failed

    async def __aenter__(self) -> "Minicode":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- a session ------------------------------------------------------------------------------------

    async def _load(self, session_id: str, create_if_missing: bool) -> SessionState | None:
        try:
            return await self._repository.load(session_id)
        except NotFound:
            if create_if_missing:
                return None
            raise

    def _new(
        self,
        session_id: str | None,
        cwd: str | os.PathLike[str] | None,
        metadata: Mapping[str, Any] | None,
        wanted: RuntimeOverride,
    ) -> SessionState:
        now = int(time.time() * 1000)
        provider = ProviderIdSchema.parse(wanted.get("provider", self.config.provider), "runtime.provider")
        compatible = _compatible(wanted)
        if compatible is not None and provider != "openai-compatible":
            raise InvalidRequest("runtime.openai_compatible is only for the provider openai-compatible.")
        return SessionState(
            id=check_session_id(session_id or f"ses_{ulid(now, secrets.randbits(80))}"),
            cwd=find_workspace(self._config.directory if cwd is None else cwd).path,
            created_at=now,
            updated_at=now,
            provider=provider,
            model=wanted.get("model") or self._config.model_for(provider),
            metadata=None if metadata is None else dict(metadata),
            openai_compatible=compatible,
        )

    async def _start(self, state: SessionState) -> Session:
        """Return a session at work: its model is open, its tools know its directory."""
        workspace = find_workspace(state.cwd)
        settings = self._settings(state)
        sandbox = open_tool_sandbox(self.config.sandbox)
        tools = DirectExecutor(
            [*self._own_tools(state, sandbox), *self._added],
            session_id=state.id,
            cwd=workspace.path,
            limits=self.config.tools,
            artifacts=self._artifacts,
        )
        model = await open_model(settings, lambda artifact_id: self._artifacts.read(state.id, artifact_id))
        worker = Agent(
            model=model,
            tools=tools,
            instructions=self._instructions(workspace.path),
            stop_when=_conditions(self._agent.get("stop_when")),
            max_steps=self.config.agent.max_steps,
            context_tokens=settings.context_tokens,
        )

        async def close() -> None:
            self._open.discard(session)
            await model.aclose()
            await sandbox.close()

        session = Session(
            state,
            worker=worker,
            repository=self._repository,
            artifacts=self._artifacts,
            hear=self._hear,
            close=close,
        )
        self._open.add(session)
        return session

    def _settings(self, state: SessionState) -> ModelSettings:
        access = self._config.access(state.provider, state.openai_compatible)
        return ModelSettings(
            provider=state.provider,
            model=state.model,
            key=access.api_key,
            base_url=access.base_url,
            service=access.name or "",
        )

    def _own_tools(self, state: SessionState, sandbox: Sandbox) -> Sequence[Tool]:
        own = self._agent.get("tools")
        if own is not None:
            return own
        kept = str(self._artifacts.directory_of(state.id))
        return _builtin(self._config, state.cwd, sandbox, self._env, kept)

    def _instructions(self, cwd: str) -> str:
        own = self._agent.get("instructions")
        if own is None:
            own = "\n\n".join(filter(None, (INSTRUCTIONS.format(cwd=cwd), self.config.agent.instructions)))
        return "\n\n".join((own, *self._composed.instructions))

    def _hear(self, state: SessionState) -> Hearing:
        context = HookContext(session_id=state.id, cwd=state.cwd)
        return TurnHooks(self._composed.hooks, context, self.config.hooks)


def _builtin(
    config: LoadedConfig, cwd: str, sandbox: Sandbox, env: Mapping[str, str], artifacts: str | None = None
) -> list[Tool]:
    return builtin_tools(
        find_workspace(cwd),
        limits=config.resolved.tools,
        sandbox=sandbox,
        settings=config.resolved.sandbox,
        env=env,
        artifacts_dir=artifacts,
    )


def _changed(
    state: SessionState,
    cwd: str | os.PathLike[str] | None,
    metadata: Mapping[str, Any] | None,
    wanted: RuntimeOverride,
) -> SessionState:
    """Return a stored session as it is opened now. Raise `Conflict` for what cannot be changed."""
    provider = wanted.get("provider", state.provider)
    if provider != state.provider:
        raise Conflict(
            f"The session {state.id} is with {state.provider}, and a session keeps its provider."
            f" To use {provider}, open a new session: leave the id out, or give another one."
        )
    if cwd is not None and os.path.realpath(cwd) != state.cwd:
        raise Conflict(
            f"The session {state.id} works in {state.cwd}, and a session keeps its directory. Open a new one there."
        )
    compatible = _compatible(wanted)
    if compatible is not None and compatible != state.openai_compatible:
        raise Conflict(
            f"The session {state.id} keeps the service it began with. Open a new session for another one."
        )
    return msgspec.structs.replace(
        state,
        model=wanted.get("model") or state.model,
        metadata=state.metadata if metadata is None else dict(metadata),
    )


def _compatible(wanted: RuntimeOverride) -> CompatibleService | None:
    given = wanted.get("openai_compatible")
    if given is None:
        return None
    try:
        return msgspec.convert(dict(given), CompatibleService)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise InvalidRequest(f"runtime.openai_compatible: {error}.") from None


def _conditions(given: StopCondition | Sequence[StopCondition] | None) -> tuple[StopCondition, ...]:
    if given is None:
        return ()
    return (given,) if callable(given) else tuple(given)


def _known(what: str, given: Any, names: frozenset[str]) -> Any:
    """Return options. Raise `InvalidRequest` for one that does not exist, which would otherwise be ignored."""
    for name in given:
        if name not in names:
            raise InvalidRequest(f"{what} has no {name!r}. It may have: {', '.join(sorted(names))}.")
    return given
