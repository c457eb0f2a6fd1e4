"""Makes the first event and the rows of a fork from a stored session at a seq.

Only the transcript up to that seq is copied; a task that was running there counts as stopped.
"""

from contextlib import aclosing

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import CONTRACT_VERSION, Parent, SessionCreated
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, ContentBlock, ToolResult
from codesdk.contract.ports import EventLog, Stamper
from codesdk.contract.records import ArtifactRow, Changes, MessageRow
from codesdk.contract.runtime import Runtime
from codesdk.engine.calls import ledger
from codesdk.engine.log.feed import read_events
from codesdk.engine.log.fold import fold
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.loading import read_transcript
from codesdk.engine.log.state import EMPTY_CHAIN, SessionState
from codesdk.engine.log.transcript import is_model_message
from codesdk.engine.sessions.resources import tool_transport
from codesdk.engine.sessions.scope import Ports, adopt_artifact, store_artifact
from codesdk.engine.tasks import lifecycle
from codesdk.redaction import Redactor


async def forked_event(
    ports: Ports, redactor: Redactor, source: SessionState, seq: int | None, title: str | None
) -> tuple[str, SessionCreated, Changes]:
    """Return the id of a fork at a seq (default: the last), its first event, and the rows it takes over."""
    at = source.seq if seq is None else seq
    if not 1 <= at <= source.seq:
        raise InvalidRequest(
            f"Session {source.session_id} has events 1 to {source.seq}; it cannot fork at {at}."
        )
    taken = await transcript_at(ports.log, source, ports.stamper, at)
    session_id = ports.stamper.mint("ses")
    rows, artifacts = await adopt_rows(ports.log, taken, source, session_id, ports.stamper.now())
    kept = await store_artifact(
        ports,
        redactor,
        scope=session_id,
        principal=source.principal,
        data=msgspec.json.encode([row.message for row in rows]),
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
        compacted=source.context.compacted if 0 < source.context.compacted_seq <= at else None,
    )
    payload = msgspec.structs.replace(
        source.config, contract_version=CONTRACT_VERSION, parent=parent, title=title or source.config.title
    )
    return session_id, payload, Changes(messages=rows, artifacts=[kept, *artifacts])


def on_runtime(payload: SessionCreated, source: SessionState, runtime: Runtime) -> SessionCreated:
    """Return a fork's first event for the runtime that its source was moved to."""
    return msgspec.structs.replace(
        payload,
        runtime=runtime.name,
        model=source.next_model or source.model,
        mcp_transport=tool_transport(runtime, payload.settings.get("runtime_config", {})),
    )


async def transcript_at(log: EventLog, state: SessionState, stamper: Stamper, seq: int) -> list[MessageRow]:
    """Return the transcript as it stood at a seq. A task that was running there counts as stopped."""
    task = await log.task_at(state.session_id, seq)
    started = task.started_seq if task is not None else None
    # The stored rows of a task may hold what came after `seq`, so that task is folded again up to there.
    limit = seq if started is None else started - 1
    rows = [row for row in await read_transcript(log, state.session_id) if row.seq <= limit]
    if started is not None:
        rows.extend(await _cut_task(log, state, stamper, rows, started, seq))
    return rows


async def _cut_task(
    log: EventLog,
    state: SessionState,
    stamper: Stamper,
    rows: list[MessageRow],
    started: int,
    seq: int,
) -> list[MessageRow]:
    cut = SessionState(
        session_id=state.session_id,
        principal=state.principal,
        created=state.created,
        seq=started - 1,
        messages=len(rows),
        chain=rows[-1].chain if rows else EMPTY_CHAIN,
    )
    journal = Journal(cut, stamper, lambda event, frame: None)  # these events exist only to be folded
    async with aclosing(read_events(log, state.session_id, started - 1)) as events:
        async for event in events:
            if event.seq > seq:
                break
            fold(cut, event, journal.changes)
    if cut.task is not None:
        _stop_short(journal)
    return journal.changes.messages


def _stop_short(journal: Journal) -> None:
    """End a folded task as a stop would have."""
    lifecycle.ask_stop(journal, lifecycle.ENGINE, "forked here")
    task = journal.state.task
    if task is not None:
        for call in list(task.calls.values()):
            ledger.completed(
                journal, call, is_error=True, result_preview="Cut off: the session was forked here."
            )
        lifecycle.end(journal)


async def adopt_rows(
    log: EventLog, rows: list[MessageRow], source: SessionState, session_id: str, now: str
) -> tuple[list[MessageRow], list[ArtifactRow]]:
    """Return a transcript as a fork keeps it, and the fork's own rows for the artifacts that it names.

    The fork stays readable when the parent is deleted. Hashes do not cover artifact ids, so they stay valid.
    """
    kept: list[MessageRow] = []
    artifacts: dict[str, ArtifactRow] = {}

    async def own(name: str) -> ArtifactRef | None:
        row = await log.artifact(name)
        if row is None or row.principal != source.principal:
            return None  # a runtime can name anything, and what it names may be somebody else's
        if row.scope == row.principal:
            return None  # an upload belongs to no session
        adopted = adopt_artifact(row, session_id, now)
        artifacts[adopted.ref.artifact_id] = adopted
        return adopted.ref

    for row in rows:
        content: list[ContentBlock] = []
        for block in row.message.content:
            if isinstance(block, ArtifactBlock) and (ref := await own(block.artifact_id)) is not None:
                block = msgspec.structs.replace(block, artifact_id=ref.artifact_id)
            elif isinstance(block, ToolResult) and block.result_ref is not None:
                ref = await own(block.result_ref.artifact_id)
                block = msgspec.structs.replace(block, result_ref=ref or block.result_ref)
            content.append(block)
        message = msgspec.structs.replace(row.message, content=content)
        kept.append(msgspec.structs.replace(row, seq=1, message=message))
    return kept, list(artifacts.values())
