"""The outcomes of one event → who won. Pure, with the semantics of document 001.

The first action that was performed wins. What came too late or found nothing left to do is reconciled; what was
refused or broke has failed.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from codesdk.extensions.outcomes import ActionResult, ActionStatus, AgentEventEmitResult, EnqueueResult

EnqueueStrategy = Literal["prefer_enqueued", "prefer_existing"]
Standing = Literal["winner", "reconciled", "failed"]


class ActionPlan(NamedTuple):
    """The actions of one event: the one that won, those that are reconciled with it, and those that failed."""

    winner: ActionResult | None
    reconciled: list[ActionResult]
    failed: list[ActionResult]


def select_enqueue_winner(
    results: Sequence[AgentEventEmitResult], strategy: EnqueueStrategy = "prefer_enqueued"
) -> EnqueueResult | None:
    """Return the job that counts: the first that is new, or the first that was there, else the first of all."""
    queued = [result for result in results if isinstance(result, EnqueueResult)]
    wanted = "enqueued" if strategy == "prefer_enqueued" else "already_queued"
    return next((result for result in queued if result.status == wanted), queued[0] if queued else None)


def select_first_successful_action(results: Sequence[AgentEventEmitResult]) -> ActionResult | None:
    """Return the first action that was performed."""
    return next((one for one in results if isinstance(one, ActionResult) and one.status == "performed"), None)


def classify_reconciled_action_status(status: ActionStatus) -> Standing:
    """Return how an action with this status stands beside the winner."""
    if status == "performed":
        return "winner"
    return "reconciled" if status in ("already_resolved", "not_eligible", "conflict") else "failed"


def select_action_execution_plan(results: Sequence[AgentEventEmitResult]) -> ActionPlan:
    """Return the winner and, in order, all other actions. A later one that was performed is reconciled."""
    winner = select_first_successful_action(results)
    others = [one for one in results if isinstance(one, ActionResult) and one is not winner]
    failed = [one for one in others if classify_reconciled_action_status(one.status) == "failed"]
    return ActionPlan(winner, [one for one in others if one not in failed], failed)
