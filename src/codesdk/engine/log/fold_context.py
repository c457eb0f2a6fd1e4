"""Applies events about what a runtime is given of a conversation to a session's state. A part of `fold`."""

from typing import Any

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.records import Changes
from codesdk.engine.log import transcript
from codesdk.engine.log.state import Context, SessionState


def _compacted(state: SessionState, event: Event, payload: ev.SessionCompacted, changes: Changes) -> None:
    summary = state.context.compacted.summary
    if payload.summary is not None:
        row = transcript.row_for(state, event.seq, payload.summary)
        changes.messages.append(row)
        summary = row.index
    state.context = Context(
        compacted=ev.Compacted(first=payload.first, previews_before=payload.previews_before, summary=summary),
        compacted_seq=event.seq,
        tokens=payload.tokens_after,
        untold=state.context.untold,
    )


def _model_input(state: SessionState, event: Event, payload: ev.ModelInput, _: Changes) -> None:
    task = state.task
    if task is None or payload.capture != "compiled":
        return
    state.context.untold = None
    if payload.context_window.strategy == "delta":
        return
    # The runtime begins another conversation. It is known to have taken it up once the model has answered.
    state.context.native = False
    if task.summarizes_before is None:
        state.context.tokens = payload.context_window.estimated_tokens


CONTEXT_HANDLERS: dict[type, Any] = {
    ev.SessionCompacted: _compacted,
    ev.ModelInput: _model_input,
}
