"""Loads stored sessions: their state (a snapshot and the events after it) and transcripts (rows, or the log).

Loading a state reads only what came after the last snapshot. Nothing here takes ownership.
"""

import msgspec

from codesdk.contract.codec import decode
from codesdk.contract.errors import StorageFailure
from codesdk.contract.events import Parent, SessionCreated
from codesdk.contract.messages import Message
from codesdk.contract.ports import Blobs, EventLog
from codesdk.contract.records import Changes, MessageRow
from codesdk.engine.log.feed import PAGE_EVENTS, read_events
from codesdk.engine.log.fold import fold
from codesdk.engine.log.state import SessionState, decode_state
from codesdk.engine.log.transcript import row_for


async def load_state(log: EventLog, session_id: str, principal: str) -> SessionState:
    """Return a stored session's state. A damaged frame is skipped; the rest still counts."""
    state = SessionState(session_id=session_id, principal=principal)
    snapshot = await log.snapshot(session_id)
    if snapshot is not None:
        try:
            stored = decode_state(snapshot.state)
            if (stored.session_id, stored.seq) == (session_id, snapshot.seq):
                state = stored
        except ValueError:
            pass  # the snapshot is damaged, but the log still has everything
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
    """Return the whole transcript from the log itself, for when a stored message row cannot be read."""
    state = SessionState(session_id=session_id, principal="")
    rows: list[MessageRow] = []
    async for event in read_events(log, session_id):
        changes = Changes()
        fold(state, event, changes)
        if isinstance(event.payload, SessionCreated) and event.payload.parent is not None:
            rows.extend(await _forked_rows(blobs, event.payload.parent))
        rows.extend(changes.messages)
    return rows


async def _forked_rows(blobs: Blobs, parent: Parent) -> list[MessageRow]:
    data = await blobs.get(parent.transcript_ref.content_hash)
    start = SessionState(session_id="", principal="")
    return [row_for(start, 1, message) for message in msgspec.json.decode(data, type=list[Message])]
