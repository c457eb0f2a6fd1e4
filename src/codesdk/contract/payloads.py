"""Payloads of events about sessions, tasks, models and runtimes: one struct per event type.

Those of tool calls and approvals are in `call_payloads`; `events` puts each into its envelope.
"""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from codesdk.contract.capabilities import Isolation, McpTransport, OutputWay, ResumeModel
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import ArtifactRef, AssistantBlock, Message
from codesdk.contract.settings import Budgets, CompactStrategy, SettingsChange
from codesdk.contract.tools import Actor, Change, InteractionMode, ManifestEntry, PermissionMode, Record

Purpose = Literal["main", "title", "router", "compaction", "count_tokens", "models"]
"""What a model request is for, as far as the gateway can tell. A runtime may report others.

The last two ask no model: they count tokens, and list the models that there are.
"""
DeltaKind = Literal["text_delta", "json_delta", "code_delta", "reasoning_delta", "unknown_delta"]


class UsageTotals(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens and cost of a task. `cost_usd` is null as soon as one part of it is unknown."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_usd: float | None = None


class Compacted(Record, frozen=True, kw_only=True):
    """How much of a transcript is given to a runtime, as the last `session.compacted` says."""

    first: int = 0
    previews_before: int = 0
    summary: int | None = None
    """The index of the message that sums up the older ones."""


class Denial(Record, frozen=True, kw_only=True):
    """A call that did not run, and why, as far as it fits."""

    tool_call_id: str
    name: str
    reason: str


class WorkTotals(Record, frozen=True, kw_only=True):
    """What the calls of a task came to. Both lists have the first `MAX_LISTED`; the counts are whole."""

    calls: int = 0
    """How many were requested."""
    denied: int = 0
    denials: list[Denial] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    changed: int = 0
    """How many files were changed; one that two calls changed counts once."""
    changes: list[Change] = []  # noqa: RUF012
    """The changed files, each as the last call left it."""


MAX_LISTED = 100
"""How many denials and changed files the end of a task lists."""


class Parent(Record, frozen=True, kw_only=True):
    """Where a forked session branched off, and the transcript it started from: its messages, how many there
    are, how many of them the model wrote, the chain of their hashes, and how it was compacted."""

    session_id: str
    seq: int
    transcript_ref: ArtifactRef
    messages: int
    model_messages: int
    chain: str
    compacted: Compacted | None = None


class Resumes(Record, frozen=True, kw_only=True):
    """The interrupted task that this one continues. With `by`, nobody asked for it: the engine went on by itself,
    for the `attempt`th time in a row."""

    task_id: str
    by: Actor | None = None
    attempt: int | None = None


class Omission(Record, frozen=True, kw_only=True):
    """A run of transcript messages left out of a compiled input, by their indexes, both included."""

    first: int
    last: int
    reason: str


class Replacement(Record, frozen=True, kw_only=True):
    """A tool result that was given to the runtime as a preview and a reference."""

    tool_call_id: str
    content_hash: str


ContextStrategy = Literal["full", "window", "delta"]
"""How a task's input was made: the whole conversation, as much of it as fits, or the new messages only, for a
runtime that goes on with its own copy of the conversation."""


class ContextWindow(Record, frozen=True, kw_only=True):
    """How a compiled input was made to fit. An exact one names the strategy of the compiled input that it follows."""

    strategy: ContextStrategy
    budget_tokens: int
    estimated_tokens: int
    """About how many tokens the messages have."""
    omitted: list[Omission]
    replaced: list[Replacement]
    overhead_tokens: int | None = None
    """In an exact input: about how many tokens the runtime's own prompt and the tools have, beside the messages."""


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
    sealed: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one
    """What the session is equipped with (`secrets`, `mcp_servers`, `script`, `recording`): kept beside the log."""
    project_id: str | None = None
    """What the application calls the project. Without one, it follows from the workspace's path."""


class SessionResumed(Record, frozen=True, kw_only=True):
    """A session continues from its transcript; `lost` says what could not be carried over. With `by`, nobody asked for it:
    the engine went on by itself."""

    resume_model: ResumeModel
    from_seq: int
    runtime: str
    lost: list[str]
    mcp_transport: McpTransport | None = None
    runtime_config: dict[str, Any] | None = None
    """What is left of the session's options, if another runtime does not know all of them."""
    by: Actor | None = None


class SessionClosed(Record, frozen=True, kw_only=True):
    """The session takes no more tasks."""

    reason: str


RecoveryCause = Literal["INTERRUPTED", "STORAGE_FAILED", "SHUTDOWN"]


class SessionRecovered(Record, frozen=True, kw_only=True):
    """The engine found a task that nobody had ended, and closes it: the events that follow do. `cause` is the
    code of the error that it ends with: the process died, or the log could not be written. With the cause SHUTDOWN
    the engine itself interrupted the task, in order, when it was closed."""

    task_id: str
    cause: RecoveryCause
    open_calls: list[str]
    """The attempts that were open, as `id#attempt`."""


class SessionNotResumed(Record, frozen=True, kw_only=True):
    """The interrupted task was to go on by itself (`on_interrupt`), and does not: it was tried too often, its equipment
    is missing, or it was refused. Whoever resumes the session has it tried again."""

    task_id: str
    cause: Literal["attempts", "equipment", "refused"]
    message: str
    attempts: int
    missing: list[str] = []  # noqa: RUF012 - msgspec copies it, and leaves out an empty one


class ClockChanged(Record, frozen=True, kw_only=True):
    """The machine's clock was set back: the session's last event has the time `before`, and it is `after` now.

    Written once for each time that happens. Only here may the times of a session's events go back.
    """

    before: str
    after: str


class SettingsChanged(SettingsChange, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Somebody changed the session's settings: only the fields that are present."""

    by: Actor
    sealed: list[str] | UnsetType = UNSET
    """What the session is equipped with from now on, if that changed."""
    equipped: list[str] | UnsetType = UNSET
    """What it was given just now, in place of what it had, unless that was only secrets."""

    def given(self) -> dict[str, Any]:
        """Return the fields that changed, by name."""
        sealed: dict[str, Any] = {} if self.sealed is UNSET else {"sealed": self.sealed}
        return SettingsChange.given(self) | sealed


class SessionCompacted(Record, frozen=True, kw_only=True):
    """Less of the conversation is given to the runtime from now on. The transcript itself keeps everything.

    The runtime's own copy of the conversation is abandoned; the next task begins a new one from the transcript.
    """

    by: Actor
    strategy: CompactStrategy
    reason: str
    first: int
    """The oldest message that is still given to the runtime, by its index."""
    previews_before: int
    """Tool results in messages before this one are given as previews."""
    tokens_before: int
    tokens_after: int
    summary: Message | None = None
    """Becomes the next message of the transcript, and is given to the runtime before all others."""
    summary_ref: ArtifactRef | None = None
    task_id: str | None = None
    """The task that wrote the summary."""


class TranscriptSupplemented(Record, frozen=True, kw_only=True):
    """Something stands beside the transcript from now on, in place of what its author had put there under this id.

    For people and applications: it is shown with the transcript, and no model is ever given it.
    """

    supplement_id: str
    by: Actor
    text: str | None = None
    data: Any = None
    """Plain JSON, for whoever knows what the author means by it. There is a text, or this, or both."""
    task_id: str | None = None
    """The task that it is about."""


class SuggestRequested(Record, frozen=True, kw_only=True):
    """Somebody asks extensions what to ask the session for next."""

    suggest_id: str
    by: Actor
    text: str | None = None
    """What the suggestions are to be about."""


OutcomeKind = Literal["enqueue_result", "action_result", "handler_result", "handler_error"]


class HandlerOutcome(Record, frozen=True, kw_only=True):
    """What came of one handler of an extension: the fields of its kind of envelope, and no others."""

    kind: OutcomeKind
    module_name: str
    """The extension."""
    event_type: str
    value: Any = None
    """Of a `handler_result`: whatever the handler returned."""
    status: str | None = None
    """Of an `enqueue_result` or an `action_result`."""
    job: dict[str, Any] | None = None
    action_type: str | None = None
    request_id: str | None = None
    error: Literal["error", "timeout"] | None = None
    message: str | None = None


class SuggestAnswered(Record, frozen=True, kw_only=True):
    """All extensions were asked. `results` has what came of each of their handlers, in the order of the calls."""

    suggest_id: str
    by: Actor
    results: list[HandlerOutcome]


class TaskQueued(Record, frozen=True, kw_only=True):
    """A task is queued. Has no `trace.task_id`, so that `task.started` stays the first event of a task."""

    task_id: str
    messages: list[Message]
    output_schema: dict[str, Any] | None = None


class TaskStarted(Record, frozen=True, kw_only=True):
    """A task begins; `executed` is false if it was ended before it ever ran."""

    messages: list[Message]
    runtime_config: dict[str, Any]
    executed: bool
    resumes: Resumes | None = None
    summarizes_before: int | None = None
    """The task writes a summary of the messages before this one, and its own are not part of the transcript."""
    output_schema: dict[str, Any] | None = None
    """What the task's result must fit."""
    output_way: OutputWay | None = None
    """How the runtime gives that result."""


class TaskSteered(Record, frozen=True, kw_only=True):
    """More input reached the running task. With `by`, no user said it: the engine asks for the result that the task's
    output schema demands, at the start of the task and again each time that the runtime ends without it."""

    messages: list[Message]
    by: Actor | None = None
    """Who sent it, if that was not a person."""


class TaskStopRequested(Record, frozen=True, kw_only=True):
    """Somebody asked the running task to stop. From here on it starts nothing new."""

    reason: str
    by: Actor


class ModelInput(Record, frozen=True, kw_only=True):
    """What was given to the runtime (compiled) or what the runtime sent to the model (exact)."""

    capture: Literal["compiled", "exact"]
    input_ref: ArtifactRef
    input_hash: str
    implicit_sources_ref: ArtifactRef
    tool_manifest: list[ManifestEntry]
    runtime_config: dict[str, Any]
    context_window: ContextWindow
    request_id: str | None = None


class RequestStarted(Record, frozen=True, kw_only=True):
    """The runtime sent a request to a model."""

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
    """The authoritative model message, once per `message_id`; `partial` if it was cut off."""

    message_id: str
    content: list[AssistantBlock]
    partial: bool = False
    stop_reason: str | None = None


MAX_REPORTED_TOKENS = 100_000_000
MAX_REPORTED_COST_USD = 10_000.0
"""The most that one report of usage may claim. More is a mistake or a lie, and would spoil every sum."""


class UsageReported(Record, frozen=True, kw_only=True):
    """Tokens of one model request. `cost_usd` is null when the price is not known.

    `source` is `gateway` only where the gateway itself saw the answer; what a runtime drafts is always its own word.
    """

    model: str | None
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_usd: float | None
    source: Literal["gateway", "runtime"]
    request_id: str | None = None
    estimated: bool = False
    """Whether the gateway counted what passed, because the provider did not get to say."""

    @property
    def is_plausible(self) -> bool:
        """Whether no figure is negative or beyond what one report may claim."""
        figures = (self.input, self.output, self.cache_read, self.cache_write, self.reasoning)
        cost = 0.0 if self.cost_usd is None else self.cost_usd
        return (
            all(0 <= figure <= MAX_REPORTED_TOKENS for figure in figures)
            and 0 <= cost <= MAX_REPORTED_COST_USD
        )


class RuntimeNotice(Record, frozen=True, kw_only=True):
    """What a runtime says of itself, or the engine of a runtime. It changes no state, and no audit record
    comes from it: a runtime may write what it likes here."""

    kind: str
    message: str
    details: dict[str, Any]


class ArtifactCreated(Record, frozen=True, kw_only=True):
    """Bytes were stored."""

    artifact: ArtifactRef
    reason: str


class TaskCompleted(Record, frozen=True, kw_only=True):
    """The task ended well. With an output schema it has `data` that fits it, or a reference if that is large."""

    text: str
    stop_reason: str
    usage: UsageTotals
    duration_ms: int
    work: WorkTotals = WorkTotals()
    data: dict[str, Any] | None = None
    data_ref: ArtifactRef | None = None


class TaskFailed(Record, frozen=True, kw_only=True):
    """The task ended with an error."""

    error: ErrorInfo
    usage: UsageTotals
    duration_ms: int
    work: WorkTotals = WorkTotals()


class TaskStopped(Record, frozen=True, kw_only=True):
    """The task was stopped."""

    reason: str
    by: Actor
    usage: UsageTotals
    duration_ms: int
    work: WorkTotals = WorkTotals()
