"""Events: the envelope, one class per event type, and `Event`, the union of them all.

The journal makes events, `codec` reads them back; the payloads are in `payloads` and `call_payloads`.
To add a type: its payload there, its class here, its place in `KnownEvent`.
"""

# ruff: noqa: F403, F405

from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

# The payloads are part of this module's surface: whoever reads events finds all of it here.
from codesdk.contract.call_payloads import *
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.payloads import *
from codesdk.contract.tools import Record

SCHEMA_VERSION = 1
CONTRACT_VERSION = 1

Json = dict[str, Any] | list[Any] | str | int | float | bool | None


class Trace(Record, frozen=True, kw_only=True):
    """Whose event it is. A fact that belongs to no task has no `task_id`."""

    session_id: str
    task_id: str | None = None
    request_id: str | None = None
    """The request that brought it about: inside a task, the one that started it."""
    client_id: str | None = None
    user_id: str | None = None
    traceparent: str | None = None
    """The span of whoever sent the request, on the events that the request wrote itself."""


class RuntimeInfo(Record, frozen=True, kw_only=True):
    """Which runtime it came from, and the runtime's own message where it is kept."""

    name: str
    model: str | None = None
    runtime_session_id: str | None = None
    raw: Any = None
    raw_ref: ArtifactRef | None = None


class Envelope(Record, frozen=True, kw_only=True, tag_field="type"):
    """What every event carries beside its payload. The tag, `type`, comes first in the stored form."""

    schema_version: int
    seq: int
    time: str
    trace: Trace
    runtime: RuntimeInfo


class SessionCreatedEvent(Envelope, frozen=True, kw_only=True, tag="session.created"):
    type: ClassVar[Literal["session.created"]] = "session.created"
    payload: SessionCreated


class SessionResumedEvent(Envelope, frozen=True, kw_only=True, tag="session.resumed"):
    type: ClassVar[Literal["session.resumed"]] = "session.resumed"
    payload: SessionResumed


class SessionClosedEvent(Envelope, frozen=True, kw_only=True, tag="session.closed"):
    type: ClassVar[Literal["session.closed"]] = "session.closed"
    payload: SessionClosed


class SessionRecoveredEvent(Envelope, frozen=True, kw_only=True, tag="session.recovered"):
    type: ClassVar[Literal["session.recovered"]] = "session.recovered"
    payload: SessionRecovered


class SessionNotResumedEvent(Envelope, frozen=True, kw_only=True, tag="session.not_resumed"):
    type: ClassVar[Literal["session.not_resumed"]] = "session.not_resumed"
    payload: SessionNotResumed


class ClockChangedEvent(Envelope, frozen=True, kw_only=True, tag="session.clock_changed"):
    type: ClassVar[Literal["session.clock_changed"]] = "session.clock_changed"
    payload: ClockChanged


class SessionCompactedEvent(Envelope, frozen=True, kw_only=True, tag="session.compacted"):
    type: ClassVar[Literal["session.compacted"]] = "session.compacted"
    payload: SessionCompacted


class SettingsChangedEvent(Envelope, frozen=True, kw_only=True, tag="session.settings_changed"):
    type: ClassVar[Literal["session.settings_changed"]] = "session.settings_changed"
    payload: SettingsChanged


class TranscriptSupplementedEvent(Envelope, frozen=True, kw_only=True, tag="transcript.supplemented"):
    type: ClassVar[Literal["transcript.supplemented"]] = "transcript.supplemented"
    payload: TranscriptSupplemented


class SuggestRequestedEvent(Envelope, frozen=True, kw_only=True, tag="suggest_request.requested"):
    type: ClassVar[Literal["suggest_request.requested"]] = "suggest_request.requested"
    payload: SuggestRequested


class SuggestAnsweredEvent(Envelope, frozen=True, kw_only=True, tag="suggest_request.answered"):
    type: ClassVar[Literal["suggest_request.answered"]] = "suggest_request.answered"
    payload: SuggestAnswered


class TaskQueuedEvent(Envelope, frozen=True, kw_only=True, tag="task.queued"):
    type: ClassVar[Literal["task.queued"]] = "task.queued"
    payload: TaskQueued


class TaskStartedEvent(Envelope, frozen=True, kw_only=True, tag="task.started"):
    type: ClassVar[Literal["task.started"]] = "task.started"
    payload: TaskStarted


class TaskSteeredEvent(Envelope, frozen=True, kw_only=True, tag="task.steered"):
    type: ClassVar[Literal["task.steered"]] = "task.steered"
    payload: TaskSteered


class TaskStopRequestedEvent(Envelope, frozen=True, kw_only=True, tag="task.stop_requested"):
    type: ClassVar[Literal["task.stop_requested"]] = "task.stop_requested"
    payload: TaskStopRequested


class ModelInputEvent(Envelope, frozen=True, kw_only=True, tag="model.input"):
    type: ClassVar[Literal["model.input"]] = "model.input"
    payload: ModelInput


class RequestStartedEvent(Envelope, frozen=True, kw_only=True, tag="runtime.request.started"):
    type: ClassVar[Literal["runtime.request.started"]] = "runtime.request.started"
    payload: RequestStarted


class RequestCompletedEvent(Envelope, frozen=True, kw_only=True, tag="runtime.request.completed"):
    type: ClassVar[Literal["runtime.request.completed"]] = "runtime.request.completed"
    payload: RequestCompleted


class OutputDeltaEvent(Envelope, frozen=True, kw_only=True, tag="model.output.delta"):
    type: ClassVar[Literal["model.output.delta"]] = "model.output.delta"
    payload: OutputDelta


class OutputRetractedEvent(Envelope, frozen=True, kw_only=True, tag="model.output.retracted"):
    type: ClassVar[Literal["model.output.retracted"]] = "model.output.retracted"
    payload: OutputRetracted


class OutputCompletedEvent(Envelope, frozen=True, kw_only=True, tag="model.output.completed"):
    type: ClassVar[Literal["model.output.completed"]] = "model.output.completed"
    payload: OutputCompleted


class ToolCallRequestedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.requested"):
    type: ClassVar[Literal["tool.call.requested"]] = "tool.call.requested"
    payload: ToolCallRequested


class ToolCallAnnouncedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.announced"):
    type: ClassVar[Literal["tool.call.announced"]] = "tool.call.announced"
    payload: ToolCallAnnounced


class ToolCallPolicyEvaluatedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.policy_evaluated"):
    type: ClassVar[Literal["tool.call.policy_evaluated"]] = "tool.call.policy_evaluated"
    payload: ToolCallPolicyEvaluated


class ApprovalRequestedEvent(Envelope, frozen=True, kw_only=True, tag="approval.requested"):
    type: ClassVar[Literal["approval.requested"]] = "approval.requested"
    payload: ApprovalRequested


class ApprovalAnsweredEvent(Envelope, frozen=True, kw_only=True, tag="approval.answered"):
    type: ClassVar[Literal["approval.answered"]] = "approval.answered"
    payload: ApprovalAnswered


class ApprovalCarriedEvent(Envelope, frozen=True, kw_only=True, tag="approval.carried"):
    type: ClassVar[Literal["approval.carried"]] = "approval.carried"
    payload: ApprovalCarried


class GrantRevokedEvent(Envelope, frozen=True, kw_only=True, tag="grant.revoked"):
    type: ClassVar[Literal["grant.revoked"]] = "grant.revoked"
    payload: GrantRevoked


class ToolCallApprovedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.approved"):
    type: ClassVar[Literal["tool.call.approved"]] = "tool.call.approved"
    payload: ToolCallApproved


class ToolCallDeniedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.denied"):
    type: ClassVar[Literal["tool.call.denied"]] = "tool.call.denied"
    payload: ToolCallDenied


class ToolCallStartedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.started"):
    type: ClassVar[Literal["tool.call.started"]] = "tool.call.started"
    payload: ToolCallStarted


class ToolOutputDeltaEvent(Envelope, frozen=True, kw_only=True, tag="tool.output.delta"):
    type: ClassVar[Literal["tool.output.delta"]] = "tool.output.delta"
    payload: ToolOutputDelta


class ToolOutputCompletedEvent(Envelope, frozen=True, kw_only=True, tag="tool.output.completed"):
    type: ClassVar[Literal["tool.output.completed"]] = "tool.output.completed"
    payload: ToolOutputCompleted


class ToolCallCompletedEvent(Envelope, frozen=True, kw_only=True, tag="tool.call.completed"):
    type: ClassVar[Literal["tool.call.completed"]] = "tool.call.completed"
    payload: ToolCallCompleted


class FilesUndoneEvent(Envelope, frozen=True, kw_only=True, tag="files.undone"):
    type: ClassVar[Literal["files.undone"]] = "files.undone"
    payload: FilesUndone


class UsageReportedEvent(Envelope, frozen=True, kw_only=True, tag="usage.reported"):
    type: ClassVar[Literal["usage.reported"]] = "usage.reported"
    payload: UsageReported


class RuntimeNoticeEvent(Envelope, frozen=True, kw_only=True, tag="runtime.notice"):
    type: ClassVar[Literal["runtime.notice"]] = "runtime.notice"
    payload: RuntimeNotice


class ArtifactCreatedEvent(Envelope, frozen=True, kw_only=True, tag="artifact.created"):
    type: ClassVar[Literal["artifact.created"]] = "artifact.created"
    payload: ArtifactCreated


class TaskCompletedEvent(Envelope, frozen=True, kw_only=True, tag="task.completed"):
    type: ClassVar[Literal["task.completed"]] = "task.completed"
    payload: TaskCompleted


class TaskFailedEvent(Envelope, frozen=True, kw_only=True, tag="task.failed"):
    type: ClassVar[Literal["task.failed"]] = "task.failed"
    payload: TaskFailed


class TaskStoppedEvent(Envelope, frozen=True, kw_only=True, tag="task.stopped"):
    type: ClassVar[Literal["task.stopped"]] = "task.stopped"
    payload: TaskStopped


class UnknownEvent(Record, frozen=True, kw_only=True):
    """An event of a type or of a schema version that this version does not know: its payload is plain JSON.

    Checkers see a literal for `type`, one that no event has: only so does a comparison with the name of a
    known type rule this class out.
    """

    if TYPE_CHECKING:
        type: Literal["?"]
    else:
        type: str
    schema_version: int
    seq: int
    time: str
    trace: Trace
    runtime: RuntimeInfo
    payload: Json


KnownEvent = (
    SessionCreatedEvent
    | SessionResumedEvent
    | SessionClosedEvent
    | SessionRecoveredEvent
    | SessionNotResumedEvent
    | ClockChangedEvent
    | SettingsChangedEvent
    | SessionCompactedEvent
    | TranscriptSupplementedEvent
    | SuggestRequestedEvent
    | SuggestAnsweredEvent
    | TaskQueuedEvent
    | TaskStartedEvent
    | TaskSteeredEvent
    | TaskStopRequestedEvent
    | ModelInputEvent
    | RequestStartedEvent
    | RequestCompletedEvent
    | OutputDeltaEvent
    | OutputRetractedEvent
    | OutputCompletedEvent
    | ToolCallRequestedEvent
    | ToolCallAnnouncedEvent
    | ToolCallPolicyEvaluatedEvent
    | ApprovalRequestedEvent
    | ApprovalAnsweredEvent
    | ApprovalCarriedEvent
    | GrantRevokedEvent
    | ToolCallApprovedEvent
    | ToolCallDeniedEvent
    | ToolCallStartedEvent
    | ToolOutputDeltaEvent
    | ToolOutputCompletedEvent
    | ToolCallCompletedEvent
    | FilesUndoneEvent
    | UsageReportedEvent
    | RuntimeNoticeEvent
    | ArtifactCreatedEvent
    | TaskCompletedEvent
    | TaskFailedEvent
    | TaskStoppedEvent
)
Event = KnownEvent | UnknownEvent
TaskEndEvent = TaskCompletedEvent | TaskFailedEvent | TaskStoppedEvent

EVENTS: tuple[type[KnownEvent], ...] = get_args(KnownEvent)
EVENT_TYPES: dict[str, type[Record]] = {event.type: event.__annotations__["payload"] for event in EVENTS}
"""The payload of each event type."""
EVENT_OF: dict[type, type[KnownEvent]] = {EVENT_TYPES[event.type]: event for event in EVENTS}
"""The event that carries a payload of this type."""
TYPE_OF: dict[type, str] = {payload: name for name, payload in EVENT_TYPES.items()}
TERMINAL_TYPES = frozenset(event.type for event in get_args(TaskEndEvent))
"""The three types of which each task has exactly one, as its last event."""
