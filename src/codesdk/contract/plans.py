"""A runtime's plan ↔ a `runtime.notice` of the kind `plan`: what it means to do, and how far it is.

Each notice has the whole plan and takes the place of the one before it. Written strictly, read leniently: a runtime
may write what it likes into a notice.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from codesdk.contract.payloads import RuntimeNotice

KIND = "plan"
PlanStatus = Literal["pending", "in_progress", "completed"]
PlanPriority = Literal["high", "medium", "low"]


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a runtime means to do."""

    content: str
    status: PlanStatus = "pending"
    priority: PlanPriority = "medium"


def plan_notice(entries: Sequence[PlanEntry]) -> RuntimeNotice:
    """Return a plan as an event carries it."""
    done = sum(entry.status == "completed" for entry in entries)
    now = next((f", now: {entry.content}" for entry in entries if entry.status == "in_progress"), "")
    message = f"The plan: {done} of {len(entries)} done{now}."
    return RuntimeNotice(kind=KIND, message=message, details={"entries": msgspec.to_builtins(entries)})


def plan_in(notice: RuntimeNotice) -> list[PlanEntry] | None:
    """Return the plan in a notice, without what is no entry of one; None if the notice is of another kind."""
    return entries_in(notice.details.get("entries")) if notice.kind == KIND else None


def entries_in(value: Any) -> list[PlanEntry]:
    """Return the entries in what a runtime says, each an object with the fields of `PlanEntry`."""
    found: list[PlanEntry] = []
    for one in cast("list[Any]", value) if isinstance(value, list) else []:
        try:
            found.append(msgspec.convert(one, PlanEntry))
        except msgspec.ValidationError:
            continue
    return found
