"""How sessions begin: the first event and the first row of a new one, and of one forked from another."""

from typing import Literal

import msgspec

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.events import CONTRACT_VERSION, Parent, SessionCreated
from codesdk.contract.records import Changes, SessionRow
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import ImplicitSources, SessionConfig
from codesdk.engine.log.journal import LOCAL
from codesdk.engine.log.state import EMPTY_CHAIN, SessionState
from codesdk.engine.log.transcript import is_model_message
from codesdk.engine.sessions.endpoints import tool_transport
from codesdk.engine.sessions.recovery import adopt_rows, plain_messages, transcript_at
from codesdk.engine.sessions.scope import Ports, store_artifact
from codesdk.redaction import Redactor


def first_event(config: SessionConfig, runtime: Runtime, principal: str) -> SessionCreated:
    """Return the event that a session of this configuration begins with."""
    check_fit(runtime, config.native_tools, config.settings.implicit_sources)
    return SessionCreated(
        contract_version=CONTRACT_VERSION,
        runtime=runtime.name,
        workspace=config.workspace,
        permission_mode=config.permission_mode,
        interaction_mode=config.interaction_mode,
        native_tools=config.native_tools,
        isolation=_isolation(runtime, principal),
        credential_namespace=principal,
        settings=msgspec.to_builtins(config.settings),
        title=config.title,
        model=config.model,
        budgets=config.budgets,
        mcp_transport=tool_transport(runtime.capabilities()),
    )


def check_fit(
    runtime: Runtime, native_tools: Literal["off"] | list[str], implicit_sources: ImplicitSources
) -> None:
    """Raise `InvalidRequest` if a runtime cannot do what a session asks of it."""
    able = runtime.capabilities()
    if native_tools != "off":
        if not isinstance(native_tools, list):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequest('native_tools is "off" or a list of names.')
        unknown = sorted(set(native_tools) - set(able.native_tools))
        if unknown and not able.native_tools:
            raise InvalidRequest(
                f"The runtime {runtime.name} has no tools of its own, so native_tools cannot name any."
            )
        if unknown:
            raise InvalidRequest(
                f"The runtime {runtime.name} has no tool {', '.join(unknown)} that can be enabled."
                f" It has: {', '.join(sorted(able.native_tools))}."
            )
    if implicit_sources != "off" and not able.instruction_files:
        raise InvalidRequest(f"The runtime {runtime.name} has no instruction files to capture.")


def _isolation(runtime: Runtime, principal: str) -> Isolation:
    """Return how a session is hosted. State is never shared, and who is not alone shares no process with credentials."""
    able = runtime.capabilities()
    mode = able.recommended_isolation_mode
    if principal != LOCAL and mode == "in_process" and able.auth_model not in ("none", "api_key"):
        if "subprocess" not in able.supported_isolation_modes:
            raise Forbidden(
                f"The runtime {runtime.name} keeps credentials on disk and runs inside of CodeSDK, where other"
                " principals do too. Use one that runs as a process of its own."
            )
        mode = "subprocess"
    return Isolation(level="namespaced", mode=mode)


async def forked_event(
    ports: Ports, redactor: Redactor, source: SessionState, seq: int | None, title: str | None
) -> tuple[str, SessionCreated, Changes]:
    """Return the id of a fork at a seq (now, if not given), the event it begins with, and the rows it takes over."""
    at = source.seq if seq is None else seq
    if not 1 <= at <= source.seq:
        raise InvalidRequest(
            f"Session {source.session_id} has events 1 to {source.seq}; it cannot fork at {at}."
        )
    taken = await transcript_at(ports.log, source, ports.stamper, at)
    session_id = ports.stamper.mint("ses")
    rows, artifacts = await adopt_rows(ports.log, taken, session_id, ports.stamper.now())
    kept = await store_artifact(
        ports,
        redactor,
        scope=session_id,
        principal=source.principal,
        data=msgspec.json.encode(plain_messages(rows)),
        content_type="application/json",
        name="transcript",
    )
    parent = Parent(
        session_id=source.session_id,
        seq=at,
        transcript_ref=kept.ref,
        messages=len(rows),
        model_messages=sum(is_model_message(row.message) for row in rows),
        chain=rows[-1].chain if rows else EMPTY_CHAIN,
    )
    payload = msgspec.structs.replace(
        source.config, contract_version=CONTRACT_VERSION, parent=parent, title=title or source.config.title
    )
    return session_id, payload, Changes(messages=rows, artifacts=[kept, *artifacts])


def first_row(session_id: str, principal: str, payload: SessionCreated, now: str) -> SessionRow:
    """Return the row under which a session is registered, before its first event is stored."""
    return SessionRow(
        session_id=session_id,
        principal=principal,
        status="open",
        runtime=payload.runtime,
        workspace=payload.workspace,
        permission_mode=payload.permission_mode,
        created_at=now,
        updated_at=now,
    )
