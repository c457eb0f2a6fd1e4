"""What `CodeSDK.open` was given → an engine that runs, with everything it is built on.

Whatever is started here is closed by the stack of whoever opens, in the opposite order.
"""

import asyncio
import functools
import logging
import secrets as random_names
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract.actions import Action, Caller, CancelJob
from codesdk.contract.entry import EXTERNAL, WRAPPED
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.process import ProcessFacts
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Limits
from codesdk.engine import Archive, Editors, Engine, Permits, Ports, SystemStamper
from codesdk.equipment import SessionEquipper
from codesdk.gateway import Accounts, GatewayService, providers_from
from codesdk.local import AUDIT, RUNTIMES, DataDir, KeyFile
from codesdk.opening import Hosting, Opening
from codesdk.policy import ModePolicy
from codesdk.redaction import Redactor
from codesdk.runtimes import (
    clean_session,
    create_runtime,
    forget_session,
    logins_from,
    read_logins,
    resolve,
    runtime_names,
)
from codesdk.store import MemoryBlobs, MemoryEquipment, MemoryLog, MemoryUndo

if TYPE_CHECKING:
    from codesdk.contract.jobs import JobRow
    from codesdk.extending import Extending
    from codesdk.extensions import ExtensionHost
    from codesdk.store import Audit
    from codesdk.tools import ExecOptions, FetchOptions, ToolRegistry

_log = logging.getLogger("codesdk.sdk")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that is open, and what stands beside it."""

    engine: Engine
    gateway: GatewayService
    audit: "Audit | None"
    """None if everything is in memory."""
    keys: KeyFile
    external: Mapping[str, Runtime]
    extensions: "ExtensionHost | None"


async def assemble(opening: Opening, directory: DataDir | None, stack: AsyncExitStack) -> Parts:
    """Put everything together and start it. Without a directory, all is kept in memory."""
    providers = providers_from() if opening.providers is None else opening.providers
    keys = KeyFile(directory.path if directory else None)
    gateway = GatewayService(Accounts(providers, keys))
    # The gateway puts the keys into requests; no event, log or artifact may hold one.
    own = {provider.key for provider in providers.values() if provider.key}
    hidden = [*opening.secrets, *sorted({*own, *keys.secrets()})]
    audit = await _audit(directory, hidden, stack)
    ports = await _ports(opening, directory, audit, gateway, keys, stack)
    external: Mapping[str, Runtime] = await _added(opening.external, stack) if opening.external else {}
    given = {**external, **(opening.runtimes or {})}
    extending = _extending(opening, directory, ports, given, audit)
    if extending is not None:
        observers = [*ports.observers, extending.subscription]
        ports = msgspec.structs.replace(ports, observers=observers, listeners=extending)
    known = _Runtimes(given, opening.hosting)
    engine = Engine(
        ports,
        known.find,
        runtimes=known.names,
        owner=directory.owner if directory else random_names.token_hex(8),
        secrets=hidden,
        permits=opening.permits or _own_permits(opening),
        launch={"commands": opening.run, "fetch": opening.fetch},
        goes_on=opening.goes_on,
    )
    await _start(engine, extending, directory, audit, stack)
    return Parts(
        engine=engine,
        gateway=gateway,
        audit=audit,
        keys=keys,
        external=external,
        extensions=None if extending is None else extending.host,
    )


async def _start(
    engine: Engine,
    extending: "Extending | None",
    directory: DataDir | None,
    audit: "Audit | None",
    stack: AsyncExitStack,
) -> None:
    """Start the engine, then what acts on its sessions from outside."""
    await engine.open()
    if audit is not None:  # made before the engine, which is one of its sources
        audit.catch_up = engine.settle_subscribers
    stack.push_async_callback(engine.close)
    engine.watch_jobs(functools.partial(_tell_of_job, audit, extending))
    if extending is not None:
        stack.push_async_callback(extending.close)
        await extending.start(engine)
    if directory is not None:
        from codesdk.local import ControlServer

        control = ControlServer(engine, directory.path, describe=functools.partial(facts_of, engine))
        await control.start()
        stack.push_async_callback(control.close)


async def facts_of(engine: Engine, session_id: str) -> ProcessFacts:
    """Return what this process says of itself in a session's support bundle, without secrets."""
    from codesdk.bundle import process_facts

    found = await process_facts(engine.ports.policy, engine.launch)
    redactor = await engine.redactor_of(session_id)
    return msgspec.convert(redactor.value(msgspec.to_builtins(found)), type=ProcessFacts)


def _extending(
    opening: Opening,
    directory: DataDir | None,
    ports: Ports,
    given: Mapping[str, Runtime],
    audit: "Audit | None",
) -> "Extending | None":
    if opening.extensions is None:
        return None
    from codesdk.extending import Extending

    path = directory.path if directory else None
    return Extending(opening.extensions, ports.log, path, [*given], audit, ports.stamper)


async def _audit(directory: DataDir | None, secrets: Iterable[str], stack: AsyncExitStack) -> "Audit | None":
    if directory is None:
        return None
    from codesdk.store import Audit

    audit = await Audit.open(directory.path / AUDIT, Redactor(secrets))
    stack.push_async_callback(audit.close)
    return audit


async def _ports(
    opening: Opening,
    directory: DataDir | None,
    audit: "Audit | None",
    gateway: GatewayService,
    keys: KeyFile,
    stack: AsyncExitStack,
) -> Ports:
    """Put together what an engine is built on."""
    from codesdk.tools import McpHost  # whoever works through a holder runs no tools

    state_dir = ""
    if directory is not None:
        state_dir = str(directory.path.resolve() / RUNTIMES)
    # Closed after the engine, whose runtimes still talk to both while they end.
    stack.push_async_callback(gateway.aclose)
    host = McpHost()
    stack.push_async_callback(host.close)
    log = directory.log if directory else MemoryLog()
    blobs = directory.blobs if directory else MemoryBlobs()
    offered = opening.tools or await stack.enter_async_context(_offered(opening.run, opening.fetch))

    async def forget(caller: Caller, session_id: str) -> None:
        if state_dir:
            await asyncio.to_thread(forget_session, state_dir, session_id)
        if audit is not None and caller.actor.kind == "user":
            from codesdk.store import deletion_entry

            audit.note(deletion_entry(caller, session_id))

    return Ports(
        log=log,
        blobs=blobs,
        tools=offered,
        policy=opening.rules or ModePolicy(),
        stamper=SystemStamper(),
        limits=opening.limits or Limits(),
        models=gateway,
        keys=keys,
        mcp=host,
        undo=directory.undo if directory else MemoryUndo(),
        equipment=directory.equipment if directory else MemoryEquipment(),
        state_dir=state_dir,
        clean=functools.partial(clean_session, state_dir) if state_dir else None,
        observers=[*opening.observers, audit] if audit else opening.observers,
        subscribers=[*opening.subscribers, audit] if audit else opening.subscribers,
        equipper=SessionEquipper(gateway, offered, Archive(log, blobs)),
        forget=forget,
        # An editor opens files by their names, outside of any sandbox. What a command put in the place of one while
        # it is asked would be read and written there: so where commands run, no editor is asked.
        editors=None if _runs_commands(opening) else Editors(),
    )


def _runs_commands(opening: Opening) -> bool:
    """Return whether a session may run programs. Does not ask our own tools, which are loaded when one is needed."""
    from codesdk.tools import EXEC

    given = opening.tools.specs() if opening.tools is not None else ()
    return opening.run is not None or any(spec.name == EXEC for spec in given)


@asynccontextmanager
async def _offered(run: "ExecOptions | None", fetch: "FetchOptions | None") -> AsyncGenerator["ToolRegistry"]:
    """Give the tools that are offered. What runs programs is loaded only if it is switched on."""
    if run is None and fetch is None:
        from codesdk.tools import builtin_registry

        yield builtin_registry()
        return
    from codesdk.tools import offered_tools

    async with offered_tools(run, fetch) as registry:
        yield registry


def _own_permits(opening: Opening) -> Permits:
    """Return what an application permits itself: it is its own operator. Logins are switched on on purpose only."""
    return Permits(
        allow_yolo=opening.allow_yolo,
        allow_untested=opening.allow_untested,
        script_files=True,
        agent_commands=True,
        share_keys=True,
        isolation=("namespaced", "ephemeral", "shared"),
        namespaces=("*",),
        logins=read_logins(",".join(opening.logins)) if opening.logins else logins_from(),
    )


class _Runtimes:
    """Runtimes by name: the given ones first, built-in ones made when first used."""

    def __init__(self, given: Mapping[str, Runtime], hosting: "Hosting") -> None:
        self._known = dict(given)
        self._hosting = hosting

    def names(self) -> list[str]:
        return list(dict.fromkeys((*runtime_names(), *self._known)))

    def find(self, name: str) -> Runtime:
        if name not in self._known:
            name = resolve(name)
        if name not in self._known and name.startswith(EXTERNAL):
            raise InvalidRequest(
                f"There is no runtime {name} here. The operator adds it: --external {name.removeprefix(EXTERNAL)}=COMMAND, or"
                " CodeSDK.open(external=…)."
            )
        if name not in self._known:
            self._known[name] = self._made(name)
        return self._known[name]

    def _made(self, name: str) -> Runtime:
        if name == WRAPPED:
            from codesdk.runtimes import WrappedRuntime

            return WrappedRuntime()
        if self._hosting == "in_process":
            return create_runtime(name)
        from codesdk.runtimes import hosted_runtime

        return hosted_runtime(name)


async def _added(commands: Mapping[str, Sequence[str] | str], stack: AsyncExitStack) -> Mapping[str, Runtime]:
    """Have executables say what they are. One that does not keeps nobody else from working."""
    from codesdk.runtimes import external_runtimes, introduced

    made = external_runtimes(commands)
    for problem in await stack.enter_async_context(introduced([*made.values()])):
        _log.warning("%s", problem.message)
    return made


def _tell_of_job(
    audit: "Audit | None", extending: "Extending | None", action: Action[Any], caller: Caller, row: "JobRow"
) -> None:
    """Record that somebody has changed a job, and tell whoever runs it."""
    if audit is not None:
        from codesdk.store import job_entry

        audit.note(job_entry(caller, "cancel" if isinstance(action, CancelJob) else "retry", row))
    if extending is not None:
        extending.host.jobs.changed(row)
