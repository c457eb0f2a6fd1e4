"""How sessions begin: the first event and the first row of a new one, and of one forked from another."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, ParamSpec, TypeVar, get_args

import msgspec

from codesdk.contract.access import COMPATIBLE_URL, key_status
from codesdk.contract.actions import PLAYED, mode_to_play
from codesdk.contract.capabilities import Isolation, IsolationLevel
from codesdk.contract.entry import DEFAULT_RUNTIME
from codesdk.contract.errors import CodeSDKError, Forbidden, InvalidRequest
from codesdk.contract.events import CONTRACT_VERSION, SessionCreated
from codesdk.contract.models import ModelEndpoints, Payer, Wire
from codesdk.contract.options import read_options
from codesdk.contract.ports import Prepared
from codesdk.contract.records import SessionRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import GatewayMode, SessionConfig, SessionSettings
from codesdk.engine.log.journal import LOCAL
from codesdk.engine.sessions.resources import capabilities_of, options_of, tool_transport
from codesdk.foreign import call, name_of

P = ParamSpec("P")
T = TypeVar("T")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")


async def equip(method: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
    """Call a method of the equipper. Whatever it raises is an error of the one action that needs it."""
    try:
        return await call(method, *args, **options)
    except CodeSDKError:
        raise
    except Exception as error:
        raise CodeSDKError(f"The session could not be equipped ({name_of(error)}).") from error


async def default_runtime(
    models: ModelEndpoints | None,
    payer: Payer,
    mode: GatewayMode,
    ready: Callable[[str], Awaitable[Sequence[str]]],
) -> str:
    """Return the runtime of a session that names none. Raise `InvalidRequest` if no model would answer it.

    `ready` finds the runtimes that a principal could use instead.
    """
    status = key_status(get_args(Wire), {} if models is None else models.access(payer, mode), payer)
    if status.ok:
        return DEFAULT_RUNTIME
    others = [name for name in await ready(payer.principal) if name != DEFAULT_RUNTIME]
    # Not AUTH_REQUIRED: over HTTP that would say that the caller's token is refused.
    raise InvalidRequest(
        f"No runtime is named, and {DEFAULT_RUNTIME}, which would be used, has no model to ask. {status.problem}"
        f" {status.to_do} For a service of your own, {COMPATIBLE_URL} has its address."
        + (
            f" Or name a runtime that is ready: {', '.join(others)}."
            if others
            else " No other runtime is ready either: `codesdk runtimes` says what each one lacks."
        )
    )


def settings_with(settings: SessionSettings, prepared: Prepared | None) -> SessionSettings:
    """Return the settings of a new session with what follows from its equipment. Raise `InvalidRequest` if they differ."""
    follows = {} if prepared is None else dict(prepared.settings)
    follows["gateway"] = mode_to_play(settings.gateway, follows.get("gateway"))
    unknown = sorted(set(settings.mcp_servers) - set(follows.get("mcp_servers", ())))
    if unknown:
        raise InvalidRequest(
            f"The settings name the MCP servers {', '.join(unknown)[:200]}, and nobody has said how to reach them. Give"
            " the session mcp_servers; the settings then name them by themselves."
        )
    return msgspec.structs.replace(settings, **follows)


def check_project(project_id: str | None) -> str | None:
    """Return an application's name for a project. Raise `InvalidRequest` if it cannot be one."""
    if project_id is not None and not _PROJECT.fullmatch(project_id):
        raise InvalidRequest(
            "A project_id is 1 to 128 letters, digits or `. _ : @ / -`, and begins with one of the former."
        )
    return project_id


def first_event(
    config: SessionConfig, runtime: Runtime, principal: str, sealed: Sequence[str] = ()
) -> SessionCreated:
    """Return the `session.created` event for this configuration. `sealed` names what it is equipped with."""
    check_fit(runtime, config.native_tools, config.settings)
    read_options(options_of(runtime), config.settings.runtime_config, runtime.name)
    return SessionCreated(
        contract_version=CONTRACT_VERSION,
        runtime=runtime.name,
        workspace=config.workspace,
        permission_mode=config.permission_mode,
        interaction_mode=config.interaction_mode,
        native_tools=config.native_tools,
        isolation=_isolation(runtime, principal, config.isolation),
        credential_namespace=config.credential_namespace or principal,
        settings=msgspec.to_builtins(config.settings),
        title=config.title,
        model=config.model,
        budgets=config.budgets,
        mcp_transport=tool_transport(runtime, config.settings.runtime_config),
        sealed=list(sealed),
        project_id=config.project_id,
    )


def check_fit(runtime: Runtime, native_tools: Literal["off"] | list[str], settings: SessionSettings) -> None:
    """Raise `InvalidRequest` if a runtime cannot do what a session needs."""
    capabilities = capabilities_of(runtime)
    if native_tools != "off":
        unknown = sorted(set(native_tools) - set(capabilities.native_tools))
        if unknown and not capabilities.native_tools:
            raise InvalidRequest(
                f"The runtime {runtime.name} has no tools of its own, so native_tools cannot name any."
            )
        if unknown:
            raise InvalidRequest(
                f"The runtime {runtime.name} has no tool {', '.join(unknown)} that can be enabled."
                f" It has: {', '.join(sorted(capabilities.native_tools))}."
            )
    if settings.implicit_sources != "off" and not capabilities.instruction_files:
        raise InvalidRequest(f"The runtime {runtime.name} has no instruction files to capture.")
    # What passes the gateway is captured exactly, so a runtime that cannot say so sends nothing there.
    if settings.gateway != "passthrough" and capabilities.input_capture != "exact":
        played = PLAYED.get(settings.gateway)
        raise InvalidRequest(
            f"The runtime {runtime.name} asks no model through the gateway, so "
            + (f"{played} would not be played" if played else "no model's answers can be recorded")
            + " there. Leave it out, or use another runtime."
        )


def _isolation(runtime: Runtime, principal: str, level: IsolationLevel) -> Isolation:
    """Return how a session is isolated: as its runtime says it runs, for nobody hosts it in another way here.

    Principals share no state, and no process that holds credentials.
    """
    capabilities = capabilities_of(runtime)
    mode = capabilities.recommended_isolation_mode
    if principal != LOCAL and mode == "in_process" and capabilities.auth_model not in ("none", "api_key"):
        raise Forbidden(
            f"The runtime {runtime.name} keeps credentials on disk and runs inside CodeSDK, where other"
            " principals do too. The operator can give it a process of its own: with --hosting subprocess if it is"
            " built in, or as an adapter with --external NAME=COMMAND."
        )
    return Isolation(level=level, mode=mode)


def first_row(session_id: str, principal: str, payload: SessionCreated, now: str) -> SessionRow:
    """Return the row that registers a session before its first event is stored."""
    return SessionRow(
        session_id=session_id,
        principal=principal,
        status="open",
        runtime=payload.runtime,
        workspace=payload.workspace,
        permission_mode=payload.permission_mode,
        created_at=now,
        updated_at=now,
        project_id=payload.project_id,
    )
