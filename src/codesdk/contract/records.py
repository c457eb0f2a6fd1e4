"""Rows that the store keeps beside the log: folds of it, changed in the same transaction.

The engine computes them, the store keeps them, `verify` and `replay` compute them again.
"""

from typing import Any, Literal

import msgspec

from codesdk.contract.call_payloads import ApprovalKind, Asked
from codesdk.contract.events import UsageReported
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.tools import Actor, Record, ToolClass

SessionStatus = Literal["open", "closed"]
TaskState = Literal["queued", "running", "completed", "failed", "stopped"]


class Spent(Record, frozen=True, kw_only=True):
    """What model requests used. A request of unknown price adds no cost.

    Of each task, the larger of what the gateway saw and what the runtime said.
    """

    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    @classmethod
    def of(cls, reported: UsageReported) -> "Spent":
        """Return the spending of one report."""
        tokens = reported.input + reported.output + reported.reasoning
        cached = reported.cache_read + reported.cache_write
        return cls(tokens=tokens + cached, cost_usd=reported.cost_usd or 0.0)

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum."""
        return Spent(
            requests=self.requests + other.requests,
            tokens=self.tokens + other.tokens,
            cost_usd=self.cost_usd + other.cost_usd,
        )

    def minus(self, other: "Spent") -> "Spent":
        """Return the difference."""
        return Spent(
            requests=self.requests - other.requests,
            tokens=self.tokens - other.tokens,
            cost_usd=self.cost_usd - other.cost_usd,
        )

    def larger(self, other: "Spent") -> "Spent":
        """Return the larger of each figure."""
        return Spent(
            requests=max(self.requests, other.requests),
            tokens=max(self.tokens, other.tokens),
            cost_usd=max(self.cost_usd, other.cost_usd),
        )


class SessionRow(Record, frozen=True, kw_only=True):
    """A session as lists show it."""

    session_id: str
    principal: str
    status: SessionStatus
    runtime: str
    workspace: str
    permission_mode: str
    created_at: str
    updated_at: str
    title: str | None = None
    model: str | None = None
    active_task_id: str | None = None
    queued: int = 0
    parent_session_id: str | None = None
    goes_on: bool = False
    """Whether its interrupted task goes on by itself once nothing is waited for, here or at the next start."""
    spent: Spent | None = None
    project_id: str | None = None
    """What the application calls the project. Without one, it follows from the workspace's path."""


class TaskRow(Record, frozen=True, kw_only=True):
    """A task as lists show it."""

    task_id: str
    session_id: str
    state: TaskState
    created_at: str
    queued_seq: int | None = None
    started_seq: int | None = None
    ended_seq: int | None = None
    ended_at: str | None = None


class MessageRow(Record, frozen=True, kw_only=True):
    """A transcript message: its place, the event that sealed it, its size, and the chain of
    hashes up to and including it."""

    index: int
    seq: int
    tokens: int
    chain: str
    message: Message


class Supplement(Record, frozen=True, kw_only=True):
    """What stands beside a transcript under an id of its author. No model is given it."""

    supplement_id: str
    by: Actor
    seq: int
    """The event that put it there, or that replaced what was there."""
    time: str
    text: str | None = None
    data: Any = None
    task_id: str | None = None


class SuggestRequest(Record, frozen=True, kw_only=True):
    """A request for suggestions. The event `suggest_request.answered` with its id, after its seq, has the results."""

    suggest_id: str
    session_id: str
    seq: int


class ApprovalRow(Asked, frozen=True, kw_only=True):
    """An approval that waits for an answer, or (state answered, carried) for a resume."""

    approval_id: str
    session_id: str
    state: Literal["waiting", "carried", "approved", "closed"]
    kind: ApprovalKind
    summary: str
    requested_at: str
    expires_at: str | None = None
    task_id: str | None = None
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    tool: str | None = None
    tool_class: ToolClass | None = None


class ArtifactRow(Record, frozen=True, kw_only=True):
    """A stored artifact."""

    ref: ArtifactRef
    scope: str
    """The session that it belongs to, or the principal who uploaded it."""
    principal: str
    created_at: str

    def is_open_to(self, session_id: str, principal: str) -> bool:
        """Return whether a session of this principal may use it: its own, or an upload of its principal.

        The scope alone would not do: it is also a name, and somebody's name may look like a session's id.
        """
        return self.principal == principal and self.scope in (session_id, principal)


class KeyRow(Record, frozen=True, kw_only=True):
    """An idempotency key: the request made under it and its answer."""

    principal: str
    route: str
    key: str
    body_hash: str
    answer: Any


class Changes(msgspec.Struct, kw_only=True):
    """Row changes that belong to the transaction of the appended events."""

    session: SessionRow | None = None
    snapshot: bytes | None = None
    tasks: list[TaskRow] = []
    messages: list[MessageRow] = []
    approvals: list[ApprovalRow] = []
    artifacts: list[ArtifactRow] = []
    keys: list[KeyRow] = []

    def __bool__(self) -> bool:
        """Whether there are any. Most batches are deltas, which change no row."""
        return bool(
            self.session is not None
            or self.snapshot is not None
            or self.tasks
            or self.messages
            or self.approvals
            or self.artifacts
            or self.keys
        )


class StoredFrame(Record, frozen=True, kw_only=True):
    """A frame as read. `damage` says why it cannot be trusted; the bytes are kept as found."""

    seq: int
    data: bytes
    cursor: int = 0
    session_id: str | None = None
    damage: str | None = None


class Snapshot(Record, frozen=True, kw_only=True):
    """A session's folded state and the seq that it covers."""

    seq: int
    state: bytes
