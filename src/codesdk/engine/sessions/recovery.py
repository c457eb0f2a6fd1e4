"""Stored sessions brought back: state from snapshot and tail, open tasks closed, transcripts cut.

Reads no more of a log than what came after its last snapshot.
"""

from typing import Any

import msgspec

from codesdk.contract.codec import decode
from codesdk.contract.errors import StorageFailure
from codesdk.contract.events import Event, Parent, SessionCreated
from codesdk.contract.ids import artifact_id
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, ContentBlock, Message, ToolResult
from codesdk.contract.ports import Blobs, EventLog, Stamper
from codesdk.contract.records import ArtifactRow, Changes, MessageRow
from codesdk.engine.calls import ledger
from codesdk.engine.log.feed import PAGE_EVENTS, read_page
from codesdk.engine.log.fold import fold
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.state import EMPTY_CHAIN, SessionState, decode_state
from codesdk.engine.log.transcript import row_for
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle


async def load_state(log: EventLog, session_id: str, principal: str) -> SessionState:
    """Return a stored session's state. A damaged frame is passed over; the rest still counts."""
    state = SessionState(session_id=session_id, principal=principal)
    snapshot = await log.snapshot(session_id)
    if snapshot is not None:
        try:
            stored = decode_state(snapshot.state)
            if (stored.session_id, stored.seq) == (session_id, snapshot.seq):
                state = stored
        except ValueError:
            pass  # damaged: the log itself still has everything
    while frames := await log.read(session_id, state.seq, PAGE_EVENTS):
        for frame in frames:
            event = None if frame.damage is not None else decode(frame.data)
            if state.created is None and (event is None or event.type != "session.created"):
                raise _unreadable(session_id)
            if event is not None:
                fold(state, event, Changes())
            state.seq = frame.seq
    if state.created is None:
        raise _unreadable(session_id)
    return state


def _unreadable(session_id: str) -> StorageFailure:
    return StorageFailure(
        f"Session {session_id} has no readable session.created event. Run `codesdk verify {session_id}`.",
        details={"unreadable": session_id},
    )


async def close_interrupted(scope: SessionScope, *, unstored: bool = False) -> None:
    """Close the task that a crash, or a log that could not be written, left open, keeping its open questions."""
    task = scope.state.task
    if task is None:
        return
    inputs: dict[str, ArtifactRef] = {}
    for call in task.calls.values():
        if call.phase == "waiting" and call.approval_id is not None:
            inputs[call.key] = call.input_ref or await scope.put_json(call.input, "input")
    lifecycle.recover(scope.journal, inputs, unstored=unstored)
    await scope.recorder.settle()


async def transcript_at(log: EventLog, state: SessionState, stamper: Stamper, seq: int) -> list[MessageRow]:
    """Return the transcript as it stood at a seq; a task that ran then folds as if stopped there."""
    task = await log.task_at(state.session_id, seq)
    started = task.started_seq if task is not None else None
    limit = seq if started is None else started - 1
    rows = [row for row in await read_transcript(log, state.session_id) if row.seq <= limit]
    if started is not None:
        rows.extend(await _cut_task(log, state, stamper, rows, started, seq))
    return rows


async def read_transcript(log: EventLog, session_id: str) -> list[MessageRow]:
    """Return the whole stored transcript."""
    pages: list[list[MessageRow]] = []
    before: int | None = None
    while page := await log.messages(session_id, before=before, limit=PAGE_EVENTS):
        pages.append(page)
        before = page[0].index
        if before == 0:
            break
    return [row for page in reversed(pages) for row in page]


async def refold_transcript(log: EventLog, blobs: Blobs, session_id: str) -> list[MessageRow]:
    """Return the whole transcript from the log itself, for when a stored message cannot be read."""
    state = SessionState(session_id=session_id, principal="")
    rows: list[MessageRow] = []
    after = 0
    while page := await read_page(log, session_id, after):
        for item in page:
            changes = Changes()
            fold(state, item.event, changes)
            parent = item.event.payload.parent if isinstance(item.event.payload, SessionCreated) else None
            if parent is not None:
                rows.extend(await _forked_rows(blobs, parent))
            rows.extend(changes.messages)
            after = item.event.seq
    return rows


async def _forked_rows(blobs: Blobs, parent: Parent) -> list[MessageRow]:
    data = await blobs.get(parent.transcript_ref.content_hash)
    start = SessionState(session_id="", principal="")
    return [row_for(start, 1, message) for message in msgspec.json.decode(data, type=list[Message])]


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
    journal = Journal(cut, stamper, _discard)
    while cut.seq < seq:
        page = await read_page(log, state.session_id, cut.seq)
        if not page:
            break
        for item in page:
            if item.event.seq > seq:
                cut.seq = seq
                break
            fold(cut, item.event, journal.changes)
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


def _discard(event: Event, frame: bytes) -> None:
    """Take an event that nobody will see."""


async def adopt_rows(
    log: EventLog, rows: list[MessageRow], session_id: str, now: str
) -> tuple[list[MessageRow], list[ArtifactRow]]:
    """Return a transcript as a fork keeps it, and its own rows of the artifacts that it names.

    So it can be read when the parent is gone. Hashes cover no ids of artifacts, so they stay what they are.
    """
    adopted: list[MessageRow] = []
    artifacts: dict[str, ArtifactRow] = {}

    async def own(name: str) -> ArtifactRef | None:
        row = await log.artifact(name)
        if row is None or row.scope == row.principal:
            return None  # an upload belongs to no session
        ref = row.ref
        new_id = artifact_id(session_id, ref.content_hash, ref.content_type, ref.name)
        ref = msgspec.structs.replace(ref, artifact_id=new_id)
        artifacts[new_id] = ArtifactRow(ref=ref, scope=session_id, principal=row.principal, created_at=now)
        return ref

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
        adopted.append(msgspec.structs.replace(row, seq=1, message=message))
    return adopted, list(artifacts.values())


def plain_messages(rows: list[MessageRow]) -> Any:
    """Return a transcript as the JSON document that a fork keeps."""
    return msgspec.to_builtins([row.message for row in rows])
