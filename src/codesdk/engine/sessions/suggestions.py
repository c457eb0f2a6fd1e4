"""Requests for suggestions: one event asks extensions, who hear of it like of any other, and one has what they said.

The engine waits for nobody. Whoever asked follows the log for the answer, also over a restart.
"""

from collections.abc import Sequence

import msgspec

from codesdk.contract.errors import SETTLED, Conflict
from codesdk.contract.events import TYPE_OF, HandlerOutcome, SuggestAnswered, SuggestRequested
from codesdk.contract.records import KeyRow, SuggestRequest
from codesdk.contract.tools import Actor
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.tasks.validation import check_settings

MAX_TEXT_BYTES = 64 * 1024
MAX_RESULTS_BYTES = 1024 * 1024
"""How large what all handlers said may be, as JSON."""


async def request_suggestions(
    session: LiveSession, text: str | None, by: Actor, key: KeyRow | None = None
) -> SuggestRequest:
    """Ask for suggestions. Raise `Conflict` if there is nobody to ask."""
    scope, listeners = session.scope, session.scope.ports.listeners
    kind, runtime = TYPE_OF[SuggestRequested], session.state.runtime_name
    if listeners is None or not listeners.hears(kind, runtime):
        raise Conflict(
            f"No extension here makes suggestions for sessions of {runtime}. Load one that subscribes to {kind}."
        )
    if text is not None:
        check_settings(text, "The text", MAX_TEXT_BYTES)
        text = scope.redactor.text(text)
    suggest_id = scope.ports.stamper.mint("sug")
    event = session.recorder.journal.write(
        SuggestRequested(suggest_id=suggest_id, by=by, text=text), in_task=False
    )
    asked = SuggestRequest(suggest_id=suggest_id, session_id=session.session_id, seq=event.seq)
    await session.recorder.commit(key, asked)
    return asked


async def answer_suggest(
    session: LiveSession,
    suggest_id: str,
    results: Sequence[HandlerOutcome],
    by: Actor,
    key: KeyRow | None = None,
) -> None:
    """Record what was suggested. Raise `Conflict` if there is no such request, or it has an answer."""
    data = check_settings(results, "The results", MAX_RESULTS_BYTES)
    if suggest_id not in session.state.suggest_requests:
        raise Conflict(
            f"No request {suggest_id} for suggestions waits in session {session.session_id}. It may be answered already.",
            details={SETTLED: True},
        )
    plain = session.scope.redactor.value(msgspec.json.decode(data))
    answer = SuggestAnswered(
        suggest_id=suggest_id, by=by, results=msgspec.convert(plain, list[HandlerOutcome])
    )
    session.recorder.journal.write(answer, in_task=False)
    await session.recorder.commit(key, None)
