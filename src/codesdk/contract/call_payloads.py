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
    Expects,
    Outcome,
    OutputStream,
    PolicySnapshot,
    PolicySource,
    Question,
    Record,
    SandboxSummary,
    Scope,
    ToolClass,
    ToolIdentity,
    UndoReport,
    Verdict,
)

ApprovalKind = Literal["tool", "budget", "question"]
BudgetLevel = Literal["task", "session", "principal"]


class Asked(Record, frozen=True, kw_only=True):
    """The question of an approval of kind `question`: the fields of `Question`. Others have none of it."""

    text: str | None = None
    options: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    expects: Expects = "text"
    optional: bool = False
    asker: str | None = None

    @property
    def question(self) -> Question | None:
        """The question, or None if this asks for a decision only."""
        if self.text is None:
            return None
        return Question(
            text=self.text,
            options=self.options,
            expects=self.expects,
            optional=self.optional,
            asker=self.asker,
        )


class ToolCallRequested(ToolIdentity, frozen=True, kw_only=True):
    """A tool call attempt is open. The input is inline, or an artifact when it is large.

    An `early` one was made before the runtime told of it: where it belongs is said later, if it is said at all.
    """

    name: str
    tool_class: ToolClass = msgspec.field(name="class")
    input: Any = msgspec.UNSET
    input_ref: ArtifactRef | None = None
    input_redacted: bool = False
    message_id: str | None = None
    index: int | None = None
    early: bool = False


class ToolCallAnnounced(ToolIdentity, frozen=True, kw_only=True):
    """The runtime told of an early call: the message that made it, and its own id of it from now on."""

    message_id: str | None = None
    index: int | None = None


class ToolCallPolicyEvaluated(ToolIdentity, frozen=True, kw_only=True):
    """One opinion on the call; there may be several."""

    source: PolicySource
    result: Verdict
    rule: str | None = None
    reason: str | None = None
    answer_by: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    """Who, besides people, may answer what it asks: `extension:NAME`."""


class ApprovalRequested(Asked, frozen=True, kw_only=True):
    """Somebody must answer, before `expires_at` if that is set. A used-up `budget` waits for ever.

    A `question` is answered with text. The one that a tool call asks has its `tool_call_id`, and outlives a crash; the
    one of an MCP server ends with the call that the server works on.
    """

    approval_id: str
    kind: ApprovalKind
    summary: str
    expires_at: str | None = None
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    budget: BudgetLevel | None = None


class ApprovalAnswered(Record, frozen=True, kw_only=True):
    """The answer. `by` an engine means that time ran out, the task was stopped or the session was closed.

    A question that was answered has the decision `approve` and an `answer`; one that was declined, `deny`.
    """

    approval_id: str
    decision: Decision
    by: Actor
    scope: Scope
    reason: str | None = None
    answer: str | None = None


class ApprovalCarried(Asked, frozen=True, kw_only=True):
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
