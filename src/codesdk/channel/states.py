"""What may become of one call: a pure function of its state and what happened.

    new ─▶ pending ─▶ allowed ─────────▶ completed
      │            ├▶ denied ──────────▶
      │            ├▶ denied_timeout ──▶
      │            └▶ transport_failed ▶
      └──▶ watched ────────────────────▶            (the program does not wait for a decision)

A state is left once, so a decision is written at most once. What does not fit a state is ignored and counted.
"""

from typing import Literal, NamedTuple

State = Literal[
    "new", "pending", "watched", "allowed", "denied", "denied_timeout", "transport_failed", "completed"
]
Happening = Literal["request", "watch", "allow", "deny", "timeout", "broken", "done", "failed"]
"""A request that waits, one that does not; a decision or its lack; stdin is gone; the program's result, ok or not."""
Remark = Literal["repeated", "unknown", "late", "unasked", "ignored_denial"]
"""What is wrong: an id that was used before, one that nobody knows, a decision that comes too late, a call that ran
before it was decided, a call that ran although it was denied."""


class Step(NamedTuple):
    """The state after something happened, and what was wrong with it."""

    state: State
    remark: Remark | None = None


_REFUSED: tuple[State, ...] = ("denied", "denied_timeout", "transport_failed")
_STEPS: dict[tuple[State, Happening], Step] = {
    ("new", "request"): Step("pending"),
    ("new", "watch"): Step("watched"),
    ("pending", "allow"): Step("allowed"),
    ("pending", "deny"): Step("denied"),
    ("pending", "timeout"): Step("denied_timeout"),
    ("pending", "broken"): Step("transport_failed"),
    ("pending", "done"): Step("completed", "unasked"),
    ("pending", "failed"): Step("completed"),
    ("allowed", "done"): Step("completed"),
    ("allowed", "failed"): Step("completed"),
    ("watched", "done"): Step("completed"),
    ("watched", "failed"): Step("completed"),
    **{(state, "done"): Step("completed", "ignored_denial") for state in _REFUSED},
    **{(state, "failed"): Step("completed") for state in _REFUSED},
}


def step(state: State, happening: Happening) -> Step:
    """Return what a call becomes. It stays as it is if what happens does not fit."""
    found = _STEPS.get((state, happening))
    if found is not None:
        return found
    if happening in ("request", "watch"):
        return Step(state, "repeated")
    if happening in ("done", "failed"):
        return Step(state, "unknown" if state == "new" else "repeated")
    return Step(state, "late")
