"""What the engine knows about a session: plain structs, always a fold of its log.

Nothing here grows with history: a finished task leaves a count, a hash, and rows in the store. The encoded
form is the snapshot that a session is loaded from.
"""

import functools
from typing import Any, Literal

import msgspec

from codesdk.contract.capabilities import OutputWay
from codesdk.contract.events import (
    BudgetLevel,
    Compacted,
    SessionCreated,
    UsageReported,
    UsageTotals,
    WorkTotals,
)
from codesdk.contract.messages import ArtifactRef, AssistantBlock, Message, ToolResult
from codesdk.contract.records import Spent
from codesdk.contract.sender import Sender
from codesdk.contract.tools import (
    Actor,
    Change,
    Evaluation,
    ExecutionEnv,
    Grant,
    PermissionMode,
    PolicySnapshot,
    Question,
    SandboxSummary,
    ToolClass,
    ToolIdentity,
)

EMPTY_CHAIN = "sha256:" + "0" * 64
"""The chain of a transcript without messages."""


class CallState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An open tool-call attempt: waiting for a decision, approved, or running."""

    identity: ToolIdentity
    name: str
    tool_class: ToolClass
    permission_mode: PermissionMode = "ask"
    """The mode when it was requested. It is decided under this one, even if the mode has changed since."""
    phase: Literal["waiting", "approved", "running"] = "waiting"
    input: Any = None
    input_ref: ArtifactRef | None = None
    input_redacted: bool = False
    evaluations: list[Evaluation] = []
    approval_id: str | None = None
    summary: str | None = None
    question: Question | None = None
    """What it asks a person, once that was asked."""
    answer: str | None = None
    policy: PolicySnapshot | None = None
    execution_env: ExecutionEnv = "unknown"
    sandbox: SandboxSummary | None = None
    started_at: str | None = None
    closed_because: str | None = None

    @property
    def key(self) -> str:
        """The attempt's key within its task."""
        return call_key(self.identity.tool_call_id, self.identity.attempt)

    @property
    def closing_words(self) -> str:
        """Why a call that did not run was closed, as recorded by the ledger."""
        return self.closed_because or "The call was not run."


class OpenBlock(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A streaming block: its text so far, in order of arrival."""

    block_id: str
    kind: str
    message_id: str
    language: str | None
    chunks: list[str]


class CallPart(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A tool call's place in a message under assembly."""

    tool_call_id: str
    attempt: int
    name: str
    input: Any
    index: int | None
    result: ToolResult | None = None


class Part(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message under assembly: a user's, or the model's with its calls."""

    message_id: str
    user: Message | None = None
    content: list[AssistantBlock] | None = None
    calls: list[CallPart] = []
    early: bool = False
    """It only holds a call whose place is not known yet."""


class Repeated(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The last call of a task that is over: what was called, what came of it, and how often in a row."""

    call: tuple[str, str] = ("", "")
    """The tool and the hash of the input."""
    outcome: tuple[bool, Any, str | None] = (False, None, None)
    """Whether it was an error, the result, and the hash of one that is stored apart."""
    times: int = 0


class StopAsked(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Who asked the task to stop, and why."""

    by: Actor
    reason: str


class Tally(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one source reported in a task. The cost is unknown as soon as one part of it is.

    Per source, so that a request seen by gateway and runtime is not counted twice.
    """

    totals: UsageTotals = UsageTotals()
    cost_known: bool = True


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The input of the last accepted call of `task.answer`, as it is stored."""

    data: dict[str, Any] | None = None
    data_ref: ArtifactRef | None = None


class ActiveTask(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The one running task of a session."""

    task_id: str
    started_seq: int
    started_at: str
    created_at: str
    queued_seq: int | None = None
    calls: dict[str, CallState] = {}
    seen_calls: dict[str, ToolIdentity] = {}
    decisions: dict[str, bool] = {}
    blocks: dict[str, OpenBlock] = {}
    streaming: dict[str, list[str]] = {}
    """The open blocks of each message: a runtime may leave thousands of messages open."""
    completed_messages: dict[str, int] = {}
    parts: dict[str, Part] = {}
    """The parts of the transcript that are not sealed yet, in order, by the keys of `transcript`."""
    usage: UsageTotals = UsageTotals()
    tallies: dict[str, Tally] = {}
    seen: Spent = Spent()
    """What the gateway saw."""
    claimed: Spent = Spent()
    """What the runtime said."""
    turns: int = 0
    """How many requests its messages took, as far as no gateway counts them."""
    called: bool = False
    """Whether a call has ended since its last message: the next one is the answer to another request."""
    spent: Spent = Spent()
    """The larger of both, which is what budgets count."""
    work: WorkTotals = WorkTotals()
    repeated: Repeated = msgspec.field(default_factory=Repeated)
    changed: dict[str, Change] = {}
    """What calls changed, by path."""
    text: str = ""
    stop: StopAsked | None = None
    resumes: str | None = None
    resumed_by: Actor | None = None
    """The engine, if nobody asked for it."""
    summarizes_before: int | None = None
    """Set for a task that writes a summary of older messages. Its own are not part of the transcript."""
    asked: list[Message] = []
    """The messages of such a task."""
    output_schema: dict[str, Any] | None = None
    output_way: OutputWay | None = None
    answer: Answer | None = None
    """What was given with the tool."""
    refusal: str | None = None
    """Why the last answer that was not accepted was refused."""
    refused: int = 0
    """How many answers were refused."""
    reminded: int = 0
    """How often the engine has asked for the result again."""
    sender: Sender = Sender()
    """The request that started it."""


class QueuedTask(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task that waits for its turn."""

    task_id: str
    messages: list[Message]
    created_at: str
    seq: int
    output_schema: dict[str, Any] | None = None
    sender: Sender = Sender()


class Carried(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call whose question outlived a crash. `approved` is null until somebody answers."""

    approval_id: str
    tool_call_id: str
    attempt: int
    name: str
    tool_class: ToolClass
    summary: str
    input_ref: ArtifactRef
    input_hash: str
    input_redacted: bool
    requested_at: str
    task_id: str | None = None
    """The interrupted task that asked. It stays the asker when another one has gone on."""
    question: Question | None = None
    approved: bool | None = None
    by: Actor | None = None
    reason: str | None = None
    answer: str | None = None

    @property
    def identity(self) -> ToolIdentity:
        """The attempt that nobody had answered."""
        return ToolIdentity(tool_call_id=self.tool_call_id, attempt=self.attempt, input_hash=self.input_hash)


class BudgetQuestion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An open question whether to raise a budget. One that was asked inside a task ends with it."""

    level: BudgetLevel
    task_id: str | None = None


class ServerQuestion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An open question of an MCP server. It ends with the call that the server works on."""

    question: Question
    task_id: str | None = None


class Context(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What of the transcript a runtime is given, and how much of it its own conversation has."""

    compacted: Compacted = Compacted()
    compacted_seq: int = 0
    tokens: int = 0
    """About how many tokens the conversation has that the runtime works in."""
    native: bool = False
    """Whether a runtime that keeps its own conversation may go on with it: it was begun with this session's
    messages, and nothing was left out since."""
    untold: int | None = None
    """The index of the first message that no runtime was given yet, while there is one: a task may end before it is."""
    too_large: bool = False
    """Whether the last task failed because the conversation was too large."""


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything the engine keeps of a session between two events."""

    session_id: str
    principal: str
    seq: int = 0
    time: str = ""
    """The time of the last event."""
    created: SessionCreated | None = None
    created_at: str = ""
    updated_at: str = ""
    closed: bool = False
    runtime_name: str = ""
    model: str | None = None
    next_model: str | None = None
    """The model chosen for the next task."""
    values: dict[str, Any] = {}
    supplements: dict[str, int] = {}
    """What stands beside the transcript: the key of each, and the event that has it."""
    suggest_requests: list[str] = []
    """The newest requests for suggestions that nobody has answered."""
    runtime_session_id: str | None = None
    task: ActiveTask | None = None
    queue: list[QueuedTask] = []
    carried: list[Carried] = []
    grants: list[Grant] = []
    budget_questions: dict[str, BudgetQuestion] = {}
    server_questions: dict[str, ServerQuestion] = {}
    raises: dict[BudgetLevel, int] = {}
    spent: Spent = Spent()
    interrupted_task: str | None = None
    interrupted_schema: dict[str, Any] | None = None
    """The output schema of the interrupted task, which is that of the task that takes it up."""
    attempts: int = 0
    """How often in a row the engine went on with it by itself."""
    waits_for_raise: bool = False
    """Whether it was a budget that interrupted it, and nobody has raised it since."""
    not_resumed: str | None = None
    """The interrupted or queued task that the engine no longer takes up by itself."""
    last_task: str | None = None
    messages: int = 0
    chain: str = EMPTY_CHAIN
    model_messages: int = 0
    context: Context = msgspec.field(default_factory=Context)
    denied_since: int = 0
    """The seq of the start of the first task with a call that was kept from the runtime; 0 if there was none."""
    turns_played: int = 0
    """How many turns of its script the gateway has played: the requests of the conversation since it was given."""

    @property
    def config(self) -> SessionCreated:
        """What the session was created with, with later changes applied."""
        if self.created is None:
            raise ValueError(f"session {self.session_id} has no session.created event")
        return self.created

    @property
    def next_task(self) -> str | None:
        """The task that a resume takes up: the interrupted one, or the first that is queued."""
        return self.interrupted_task or (self.queue[0].task_id if self.queue else None)

    @property
    def goes_on(self) -> bool:
        """Whether its interrupted task goes on by itself once nothing is waited for."""
        return (
            self.task is None
            and self.next_task not in (None, self.not_resumed)
            and not self.closed
            and self.config.settings.get("on_interrupt") == "resume"
        )

    @property
    def awaits_person(self) -> bool:
        """Whether a carried question or a budget needs an answer before the interrupted task goes on."""
        unanswered = any(carried.approved is None for carried in self.carried)
        return unanswered or bool(self.budget_questions) or self.waits_for_raise

    def is_open(self, call: CallState) -> bool:
        """Return whether a call is still open."""
        return self.task is not None and self.task.calls.get(call.key) is call

    @property
    def waiting_approvals(self) -> int:
        """How many questions nobody has answered yet."""
        calls = self.task.calls.values() if self.task else ()
        asked = sum(1 for call in calls if call.phase == "waiting" and call.approval_id is not None)
        return (
            asked
            + len(self.budget_questions)
            + len(self.server_questions)
            + sum(1 for carried in self.carried if carried.approved is None)
        )


MAX_SUGGEST_REQUESTS = 32
"""How many requests for suggestions can be open. An older one can no longer be answered."""


def supplement_key(by: Actor, supplement_id: str) -> str:
    """Return the key in `SessionState.supplements`: ids are their author's own. They hold no colon, so it is unique."""
    return f"{by.kind}:{by.id or ''}:{supplement_id}"


def call_key(tool_call_id: str, attempt: int) -> str:
    """Return the key of an attempt in `ActiveTask.calls`."""
    return f"{tool_call_id}#{attempt}"


def add_usage(tallies: dict[str, Tally], reported: UsageReported) -> UsageTotals:
    """Add a report to its source's tally. Return the totals that count: the gateway's if it has any."""
    tally = tallies.setdefault(reported.source, Tally())
    total = tally.totals
    tally.cost_known = tally.cost_known and reported.cost_usd is not None
    cost = (total.cost_usd or 0.0) + (reported.cost_usd or 0.0)
    tally.totals = UsageTotals(
        input=total.input + reported.input,
        output=total.output + reported.output,
        cache_read=total.cache_read + reported.cache_read,
        cache_write=total.cache_write + reported.cache_write,
        reasoning=total.reasoning + reported.reasoning,
        cost_usd=cost if tally.cost_known else None,
    )
    return tallies.get("gateway", tally).totals


_encoder = msgspec.json.Encoder()


def encode_state(state: SessionState) -> bytes:
    """Return the snapshot of a state."""
    return _encoder.encode(state)


def decode_state(data: bytes) -> SessionState:
    """Return the state of a snapshot. Raise `ValueError` if it is not one."""
    return _decoder().decode(data)


@functools.cache
def _decoder() -> msgspec.json.Decoder[SessionState]:
    """Return what reads snapshots. Made with the first one: it knows every struct in a state."""
    return msgspec.json.Decoder(SessionState)
