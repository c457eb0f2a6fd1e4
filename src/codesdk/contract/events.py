"""Events: the envelope, one typed payload per event type, and the table that joins them.

The recorder builds `Event`s; everyone else reads them. `EVENT_TYPES` is the whole list.
"""

from typing import Any, Literal

import msgspec

from codesdk.contract.capabilities import Isolation, McpTransport, ResumeModel
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import ArtifactRef, AssistantBlock, Message
from codesdk.contract.settings import Budgets
from codesdk.contract.tools import (
    Actor,
    Change,
    Decision,
    ExecutedBy,
    ExecutionEnv,
    InteractionMode,
    ManifestEntry,
    Outcome,
    OutputStream,
    PermissionMode,
    PolicySnapshot,
    PolicySource,
    Record,
    SandboxSummary,
    Scope,
    ToolClass,
    ToolIdentity,
    Verdict,
)

SCHEMA_VERSION = 1
CONTRACT_VERSION = 1

Purpose = Literal["main", "title", "router", "compaction", "count_tokens"]
"""What a model request is for, as far as the gateway can tell. A runtime may use other words."""
BudgetLevel = Literal["task", "session", "principal"]
DeltaKind = Literal["text_delta", "json_delta", "code_delta", "reasoning_delta", "unknown_delta"]


class Trace(Record, frozen=True, kw_only=True):
    """Whose event it is. A fact that belongs to no task has no `task_id`."""

    session_id: str
    task_id: str | None = None
    request_id: str | None = None
    client_id: str | None = None
    user_id: str | None = None


class RuntimeInfo(Record, frozen=True, kw_only=True):
    """Which runtime it came from, and the runtime's own message where it is kept."""

    name: str
    model: str | None = None
    runtime_session_id: str | None = None
    raw: Any = None
    raw_ref: ArtifactRef | None = None


class Event(Record, frozen=True, kw_only=True):
    """One stored event. `payload` is the struct that `EVENT_TYPES` names for `type`;
    for a type this version does not know it is the decoded JSON object, unchanged."""

    schema_version: int
    seq: int
    time: str
    type: str
    trace: Trace
    runtime: RuntimeInfo
    payload: Any


class UsageTotals(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens and cost of a task. `cost_usd` is null as soon as one part of it is unknown."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_usd: float | None = None


class Parent(Record, frozen=True, kw_only=True):
    """Where a forked session branched off, and the transcript it started from: its messages, how
    many there are, how many of them the model wrote, and the chain of their hashes."""

    session_id: str
    seq: int
    transcript_ref: ArtifactRef
    messages: int
    model_messages: int
    chain: str


class Resumes(Record, frozen=True, kw_only=True):
    """The interrupted task that this one continues."""

    task_id: str


class Omission(Record, frozen=True, kw_only=True):
    """A run of transcript messages left out of a compiled input, by their indexes, both included."""

    first: int
    last: int
    reason: str


class Replacement(Record, frozen=True, kw_only=True):
    """A tool result that was handed over as a preview and a reference."""

    tool_call_id: str
    content_hash: str


class ContextWindow(Record, frozen=True, kw_only=True):
    """How a compiled input was made to fit."""

    strategy: Literal["full", "drop_oldest", "delta", "runtime"]
    budget_tokens: int
    estimated_tokens: int
    omitted: list[Omission]
    replaced: list[Replacement]


class SessionCreated(Record, frozen=True, kw_only=True):
    """A session exists. Always the first event. `mcp_transport` is how its runtime gets its tools, if over MCP."""

    contract_version: int
    runtime: str
    workspace: str
    permission_mode: PermissionMode
    interaction_mode: InteractionMode
    native_tools: Literal["off"] | list[str]
    isolation: Isolation
    credential_namespace: str
    settings: dict[str, Any]
    title: str | None = None
    model: str | None = None
    budgets: Budgets | None = None
    parent: Parent | None = None
    mcp_transport: McpTransport | None = None


class SessionResumed(Record, frozen=True, kw_only=True):
    """A session is picked up again; `lost` says what could not be carried over."""

    resume_model: ResumeModel
    from_seq: int
    runtime: str
    lost: list[str]
    mcp_transport: McpTransport | None = None


class SessionClosed(Record, frozen=True, kw_only=True):
    """The session takes no more tasks."""

    reason: str


class TaskQueued(Record, frozen=True, kw_only=True):
    """A task waits for its turn. Has no `trace.task_id`, so that `task.started` stays first."""

    task_id: str
    messages: list[Message]


class TaskStarted(Record, frozen=True, kw_only=True):
    """A task begins; `executed` is false if it was ended before it ever ran."""

    messages: list[Message]
    runtime_config: dict[str, Any]
    executed: bool
    resumes: Resumes | None = None


class TaskSteered(Record, frozen=True, kw_only=True):
    """More user input reached the running task."""

    messages: list[Message]


class ModelInput(Record, frozen=True, kw_only=True):
    """What was handed to the runtime (compiled) or what the runtime sent to the model (exact)."""

    capture: Literal["compiled", "exact"]
    input_ref: ArtifactRef
    input_hash: str
    implicit_sources_ref: ArtifactRef
    tool_manifest: list[ManifestEntry]
    runtime_config: dict[str, Any]
    context_window: ContextWindow
    request_id: str | None = None


class RequestStarted(Record, frozen=True, kw_only=True):
    """The runtime asks a model for something."""

    request_id: str
    purpose: str
    model: str | None = None


class RequestCompleted(Record, frozen=True, kw_only=True):
    """The model's answer ended."""

    request_id: str
    status: str
    duration_ms: int
    http_status: int | None = None
    time_to_first_byte_ms: int | None = None


class OutputDelta(Record, frozen=True, kw_only=True):
    """A piece of a block while it streams. Deltas are not authoritative."""

    kind: DeltaKind
    block_id: str
    message_id: str
    delta: str
    tool_call_id: str | None = None
    language: str | None = None


class OutputRetracted(Record, frozen=True, kw_only=True):
    """Streamed blocks that the runtime took back."""

    block_ids: list[str]
    reason: str


class OutputCompleted(Record, frozen=True, kw_only=True):
    """A model message as it counts. Once per `message_id`; `partial` if it was cut off."""

    message_id: str
    content: list[AssistantBlock]
    partial: bool = False
    stop_reason: str | None = None


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
    """Somebody must answer before `expires_at`, if there is such a time. A `budget` that is used up waits for ever."""

    approval_id: str
    kind: Literal["tool", "budget"]
    summary: str
    expires_at: str | None = None
    tool_call_id: str | None = None
    attempt: int | None = None
    input_hash: str | None = None
    budget: BudgetLevel | None = None


class ApprovalAnswered(Record, frozen=True, kw_only=True):
    """The answer. `by` an engine means that time ran out, a stop came or the session closed."""

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
    """The output ended: how much there was, and where the whole of it is."""

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


class UsageReported(Record, frozen=True, kw_only=True):
    """Tokens of one model request. `cost_usd` is null when the price is not known."""

    model: str | None
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_usd: float | None
    source: Literal["gateway", "runtime"]
    request_id: str | None = None


class RuntimeNotice(Record, frozen=True, kw_only=True):
    """Something worth knowing. The engine's own kinds: stop_requested, recovered, violation,
    late_event, unknown_frame, undone, warning."""

    kind: str
    message: str
    details: dict[str, Any]


class ArtifactCreated(Record, frozen=True, kw_only=True):
    """Bytes were stored."""

    artifact: ArtifactRef
    reason: str


class TaskCompleted(Record, frozen=True, kw_only=True):
    """The task ended well."""

    text: str
    stop_reason: str
    usage: UsageTotals
    duration_ms: int


class TaskFailed(Record, frozen=True, kw_only=True):
    """The task ended with an error."""

    error: ErrorInfo
    usage: UsageTotals
    duration_ms: int


class TaskStopped(Record, frozen=True, kw_only=True):
    """The task was stopped."""

    reason: str
    by: Actor
    usage: UsageTotals
    duration_ms: int


EVENT_TYPES: dict[str, type[Record]] = {
    "session.created": SessionCreated,
    "session.resumed": SessionResumed,
    "session.closed": SessionClosed,
    "task.queued": TaskQueued,
    "task.started": TaskStarted,
    "task.steered": TaskSteered,
    "model.input": ModelInput,
    "runtime.request.started": RequestStarted,
    "runtime.request.completed": RequestCompleted,
    "model.output.delta": OutputDelta,
    "model.output.retracted": OutputRetracted,
    "model.output.completed": OutputCompleted,
    "tool.call.requested": ToolCallRequested,
    "tool.call.policy_evaluated": ToolCallPolicyEvaluated,
    "approval.requested": ApprovalRequested,
    "approval.answered": ApprovalAnswered,
    "approval.carried": ApprovalCarried,
    "tool.call.approved": ToolCallApproved,
    "tool.call.denied": ToolCallDenied,
    "tool.call.started": ToolCallStarted,
    "tool.output.delta": ToolOutputDelta,
    "tool.output.completed": ToolOutputCompleted,
    "tool.call.completed": ToolCallCompleted,
    "usage.reported": UsageReported,
    "runtime.notice": RuntimeNotice,
    "artifact.created": ArtifactCreated,
    "task.completed": TaskCompleted,
    "task.failed": TaskFailed,
    "task.stopped": TaskStopped,
}
TYPE_OF: dict[type, str] = {payload: name for name, payload in EVENT_TYPES.items()}
TERMINAL_TYPES = frozenset({"task.completed", "task.failed", "task.stopped"})
"""The three types of which each task has exactly one, as its last event."""
