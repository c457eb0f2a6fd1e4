"""Shortens a conversation that is too large: its oldest turns are left out, after a summary if one is wanted.

The transcript keeps everything. `session.compacted` says what a runtime is given of it from then on.
"""

import msgspec

from codesdk.contract.errors import Conflict, ErrorInfo
from codesdk.contract.events import SessionCompacted
from codesdk.contract.messages import ArtifactRef, Message, Span, Text, user
from codesdk.contract.tools import Actor
from codesdk.engine.log.transcript import estimate_tokens
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.context import load_window
from codesdk.engine.tasks.window import Window

OVER_BUDGET = "The conversation has passed the context budget."
TOO_LARGE = "The model found the conversation too large."
ASKED = "Somebody asked for it."
PROMPT = (
    "Write a summary of the conversation above. It will take the place of these messages for whoever goes on with"
    " the work, and nothing else of them is kept. Say what the user wants and what was decided, which files were"
    " read or changed and how, what was found out, what failed and why, and what is still to be done. Name paths,"
    " identifiers and commands exactly. Do not call any tool; answer with the summary alone."
)
NO_SUMMARY = ErrorInfo(
    code="MODEL_ERROR",
    message="The model wrote no summary, so the conversation is as it was. Try again, or compact with the strategy window.",
    retryable=True,
)
_HEAD = "This is a summary of the conversation before the messages that follow:"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction to come: who wants it and why, and what stays as it is."""

    by: Actor
    reason: str
    first: int
    previews_before: int
    tokens: int


def default_limit(scope: SessionScope) -> int:
    """Return to how many tokens a conversation is compacted if nobody says: half of what there is."""
    return max(1, min(scope.state.context.tokens, scope.settings.context_budget_tokens) // 2)


async def plan(scope: SessionScope, by: Actor, reason: str, limit_tokens: int | None = None) -> Plan:
    """Return what stays of the conversation if it must fit a limit. The running task's messages stay in any case."""
    limit = default_limit(scope) if limit_tokens is None else limit_tokens
    await scope.recorder.settle()
    state, budget = scope.state, scope.settings.context_budget_tokens
    window = Window(state.session_id, state.runtime_name, budget, state.context.compacted)
    await load_window(scope, window)
    window.fit(window.since(state.task.started_seq) if state.task is not None else 0, limit)
    return Plan(
        by=by,
        reason=reason,
        first=window.rows[0].index if window.rows else window.next_index,
        previews_before=window.previews_before,
        tokens=window.tokens,
    )


def check(scope: SessionScope, planned: Plan) -> None:
    """Raise `Conflict` if a plan leaves everything as it is."""
    known = scope.state.context.compacted
    if (planned.first, planned.previews_before) == (known.first, known.previews_before):
        raise Conflict(
            f"There is nothing to compact in session {scope.state.session_id}: what it has fits already."
        )


def carry_out(
    scope: SessionScope, planned: Plan, summary: tuple[str, str, ArtifactRef] | None = None
) -> None:
    """Record a compaction. A summary is its text, the task that wrote it and where it is stored."""
    message: Message | None = None
    if summary is not None:
        text, task_id, _ = summary
        message = Message(
            role="user",
            content=[Text(text=f"{_HEAD}\n\n{text}")],
            message_id=f"summary:{task_id}",
            summary_of=Span(first=0, last=planned.first - 1),
        )
    scope.journal.write(
        SessionCompacted(
            by=planned.by,
            strategy="window" if summary is None else "summary",
            reason=planned.reason,
            first=planned.first,
            previews_before=planned.previews_before,
            tokens_before=scope.state.context.tokens,
            tokens_after=planned.tokens + (estimate_tokens(message) if message is not None else 0),
            summary=message,
            summary_ref=summary[2] if summary is not None else None,
            task_id=summary[1] if summary is not None else None,
        ),
        in_task=False,
    )


def prompt() -> list[Message]:
    """Return the messages of a task that writes a summary."""
    return [user(PROMPT)]
