"""Payloads of events about tool calls and approvals: one struct per event type.

All others are in `payloads`; `events` puts each into its envelope.
"""

from typing import Any, Literal

import msgspec

from codesdk.contract.messages import ArtifactRef
from codesdk.contract.tools import (
    Actor,
    Change,
    Decision,
    ExecutedBy,
    ExecutionEnv,
    Outcome,
    OutputStream,
    PolicySnapshot,
    PolicySource,
    Record,
    SandboxSummary,
    Scope,
    ToolClass,
    ToolIdentity,
    UndoReport,
    Verdict,
)

BudgetLevel = Literal["task", "session", "principal"]


class ToolCallRequested(ToolIdentity, frozen=True, kw_only=True):
    """A tool call attempt is open. The input is inline, or an artifact when it is large."""

    name: str
    tool_class: ToolClass = msgspec.field(name="class")
    input: Any = msgspec.UNSET
    input_ref: ArtifactRef | None = None
    input_redacted: bool = False
    message_id: str | None = None
    index: int | None = None


class ToolCallPolicyEvaluated(ToolIdentity, frozen=True, kw_only=True):
    """One opinion on the call; there may be several."""

    source: PolicySource
    result: Verdict
    rule: str | None = None
    reason: str | None = None


class ApprovalRequested(Record, frozen=True, kw_only=True):
    """Somebody must answer, before `expires_at` if that is set. A used-up `budget` waits for ever."""

    approval_id: str
    kind: Literal["tool", "budget"]
    summary: str
    expires_at: str | None = None
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    budget: BudgetLevel | None = None


class ApprovalAnswered(Record, frozen=True, kw_only=True):
    """The answer. `by` an engine means that time ran out, the task was stopped or the session was closed."""

    approval_id: str
    decision: Decision
    by: Actor
    scope: Scope
    reason: str | None = None


class ApprovalCarried(Record, frozen=True, kw_only=True):
    """A question that outlived a crash: still listed, still answerable, run by `resume`."""

    approval_id: str
    tool_call_id: str
    attempt: int
    name: str
    tool_class: ToolClass = msgspec.field(name="class")
    summary: str
    input_ref: ArtifactRef
    input_hash: str
    input_redacted: bool = False


class GrantRevoked(Record, frozen=True, kw_only=True):
    """A tool that was approved for the session is asked about again."""

    tool: str
    by: Actor


class ToolCallApproved(ToolIdentity, frozen=True, kw_only=True):
    """The one effective decision on the attempt: it may run."""

    name: str
    by: Actor
    policy_snapshot: PolicySnapshot
    reason: str | None = None


class ToolCallDenied(ToolIdentity, frozen=True, kw_only=True):
    """The one effective decision on the attempt: it does not run. `carried` if a crash decided it."""

    name: str
    by: Actor
    policy_snapshot: PolicySnapshot
    reason: str
    carried: bool = False


class ToolCallStarted(ToolIdentity, frozen=True, kw_only=True):
    """The tool starts. Stored before it does."""

    name: str
    execution_env: ExecutionEnv
    sandbox: SandboxSummary


class ToolOutputDelta(ToolIdentity, frozen=True, kw_only=True):
    """Output of a running tool."""

    stream: OutputStream
    delta: str


class ToolOutputCompleted(ToolIdentity, frozen=True, kw_only=True):
    """The output ended: how much there was, and where all of it is stored."""

    bytes: int
    truncated: bool
    refs: list[ArtifactRef]


class ToolCallCompleted(ToolIdentity, frozen=True, kw_only=True):
    """The attempt is over. `outcome` unknown means: it started, and nobody saw how it ended."""

    name: str
    executed_by: ExecutedBy
    execution_env: ExecutionEnv
    policy_snapshot: PolicySnapshot
    sandbox: SandboxSummary
    is_error: bool
    outcome: Outcome
    duration_ms: int
    changes: list[Change]
    result_ref: ArtifactRef | None = None
    result_preview: Any = None
    exit_code: int | None = None


class FilesUndone(UndoReport, frozen=True, kw_only=True):
    """Somebody undid what tools did to files: everything that could be undone, the newest change first."""

    by: Actor
