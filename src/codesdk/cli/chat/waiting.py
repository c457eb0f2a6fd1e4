"""What waits for an answer: approvals and questions, one in front → a panel above the prompt, and what a key means.

A key answers only what a person has had the time to see: not while a message is being typed, and not in the moment
in which the question appears. Pure, but for the clock that is handed in.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from codesdk.contract import events as ev
from codesdk.contract.call_payloads import ApprovalKind
from codesdk.contract.events import Event
from codesdk.contract.records import ApprovalRow
from codesdk.contract.tools import Question
from codesdk.policy import MODE

CALM_S = 0.7
"""So long no key may have been pressed before one counts as an answer: whoever types has not read the question."""

Verb = Literal["approve", "always", "deny", "show", "reason"]
KEYS: dict[str, tuple[Verb, str]] = {
    "y": ("approve", "yes"),
    "n": ("deny", "no"),
    "a": ("always", "always in this session"),
    "r": ("reason", "no, and why"),
    "s": ("show", "show all of it"),
}


class Waiting(NamedTuple):
    """One approval that is open."""

    approval_id: str
    kind: ApprovalKind
    summary: str
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    expires_at: str | None = None
    question: Question | None = None

    @classmethod
    def of(
        cls,
        asked: ev.ApprovalRequested | ev.ApprovalCarried | ApprovalRow,
        kind: ApprovalKind,
        expires_at: str | None = None,
    ) -> "Waiting":
        """Return what an event or a row says is open."""
        return cls(
            asked.approval_id,
            kind,
            asked.summary,
            asked.tool_call_id,
            asked.attempt,
            asked.input_hash,
            expires_at,
            asked.question,
        )

    @property
    def named(self) -> str:
        """What an answer names: the call, or the approval of a budget."""
        return self.tool_call_id or self.approval_id

    def seconds_left(self, now: datetime) -> int | None:
        """Return how long it waits; None if for ever."""
        if self.expires_at is None:
            return None
        return max(0, int((datetime.fromisoformat(self.expires_at) - now).total_seconds()))


class Desk:
    """Everything that waits in the session, in the order in which it was asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, Waiting] = {}
        self._answering: set[str] = set()
        self._quiet_since = clock()
        self._inputs: dict[str, Any] = {}
        self._rules: dict[str, str] = {}
        self.reason_for: Waiting | None = None
        """The call that is being denied, while the reason is typed."""
        self._takes_line: str | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def front(self) -> Waiting | None:
        """What is asked now."""
        return next((one for one in self._open.values() if one.approval_id not in self._answering), None)

    def pressed(self) -> None:
        """Note that a key was pressed."""
        self._quiet_since = self._clock()

    def calm_in_s(self) -> float:
        """Return how long until a key may count as an answer."""
        return max(0.0, self._quiet_since + CALM_S - self._clock())

    def takes_keys(self, typed: str) -> bool:
        """Return whether the next key is an answer to what is in front."""
        front = self.front
        return (
            front is not None
            and front.question is None
            and not typed
            and not self.reason_for
            and not self.calm_in_s()
        )

    def takes_line(self, typed: str) -> bool:
        """Return whether the line that is typed is the answer to a question: it was empty since that was seen."""
        front = self.front
        if front is None or front.question is None:
            self._takes_line = None
            return False
        if self._takes_line != front.approval_id and not typed and not self.calm_in_s():
            self._takes_line = front.approval_id
        return self._takes_line == front.approval_id

    def choices(self) -> list[tuple[str, str]]:
        """Return the keys that answer what is in front. A budget has no tool to approve, and no input to show."""
        about_call = self.front is not None and self.front.tool_call_id is not None
        return [(key, meaning) for key, (_, meaning) in KEYS.items() if about_call or key in "ynr"]

    def verb(self, key: str) -> Verb | None:
        """Return what a key means now."""
        return KEYS[key][0] if key in dict(self.choices()) else None

    def hold(self, one: Waiting) -> None:
        """Put one aside while its answer is on the way."""
        self._answering.add(one.approval_id)
        self.reason_for = None
        self._quiet_since = self._clock()  # what comes to the front now has to be read first

    def release(self, one: Waiting) -> None:
        """Ask again: the answer was not taken."""
        self._answering.discard(one.approval_id)

    def input_of(self, one: Waiting) -> Any:
        """Return the input of the call that one asks about, if it is known."""
        return self._inputs.get(one.tool_call_id or "")

    def rule_of(self, one: Waiting) -> str | None:
        """Return the rule that makes a call ask, and why."""
        return self._rules.get(one.tool_call_id or "")

    def knows(self, tool_call_id: str, given: Any) -> None:
        """Remember the input of a call."""
        self._inputs[tool_call_id] = given

    def take(self, event: Event) -> None:
        """Follow an event."""
        match event.payload:
            case ev.ApprovalRequested() as p:
                self._add(Waiting.of(p, p.kind, expires_at=p.expires_at))
            case ev.ApprovalCarried() as p:
                self._add(Waiting.of(p, "tool" if p.question is None else "question"))
            case ev.ToolCallPolicyEvaluated(result="ask", rule=str(rule)) as p:
                if not rule.startswith(MODE) and rule != "question":  # that the mode asks is no news
                    self._rules[p.tool_call_id] = f"{rule}: {p.reason}" if p.reason else rule
            case ev.ApprovalAnswered(approval_id=done):
                self._drop(done)
            case ev.ToolCallCompleted(tool_call_id=call) | ev.ToolCallDenied(tool_call_id=call):
                self._inputs.pop(call, None)
                self._rules.pop(call, None)
            case _:
                pass

    def settle(self, rows: list[ApprovalRow]) -> None:
        """Take over what the session says is open, where the past was not followed."""
        known = {row.approval_id for row in rows if row.state in ("waiting", "carried")}
        for gone in [name for name in self._open if name not in known]:
            self._drop(gone)
        for row in rows:
            if row.approval_id in known and row.approval_id not in self._open:
                self._add(Waiting.of(row, row.kind, expires_at=row.expires_at))

    def _add(self, one: Waiting) -> None:
        if self.front is None:
            # Whoever types in this very moment cannot have read it.
            self._quiet_since = self._clock()
        self._open[one.approval_id] = one

    def _drop(self, approval_id: str) -> None:
        was = self.front
        self._open.pop(approval_id, None)
        self._answering.discard(approval_id)
        if self.reason_for is not None and self.reason_for.approval_id == approval_id:
            self.reason_for = None
        if was is not None and self.front is not None and self.front.approval_id != was.approval_id:
            self._quiet_since = self._clock()


def time_left(one: Waiting, now: datetime | None = None) -> str:
    """Return how long an answer can wait, for people."""
    seconds = one.seconds_left(now or datetime.now(UTC))
    if seconds is None:
        return "waits as long as it takes"
    return f"{seconds // 60}:{seconds % 60:02d} left"
