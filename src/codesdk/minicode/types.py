"""The words of minicode: what an agent is made of, what a turn tells, and what a session keeps.

Pure data and protocols. The loop (`agent`) turns a `TurnRequest` into `TurnEvent`s with a `Model` and a
`ToolExecutor`; who implements those two decides whether it runs alone or as a runtime.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import ContentBlock, Message, Role
from codesdk.contract.tools import Record

ProviderId = Literal["openai", "anthropic", "google", "openai-compatible"]
FinishReason = Literal[
    "stop", "length", "content_filter", "tool_calls", "max_steps", "stop_condition", "aborted", "error"
]


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of one model request or of several, and what they cost; None where no price is known."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_usd: float | None = None

    @property
    def tokens_in(self) -> int:
        """All that the model read."""
        return self.input + self.cache_read + self.cache_write

    def plus(self, other: "Usage") -> "Usage":
        """Return both together. Their cost is known if both are."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost_usd=(self.cost_usd or 0) + (other.cost_usd or 0) if known else None,
        )


NOTHING = Usage(cost_usd=0.0)
"""What a turn has used before its first request."""


class ToolOutput(Record, frozen=True, kw_only=True):
    """What a tool gave back. The model sees `output_message` and nothing else; `details` are for whoever watches."""

    ok: bool
    output_message: str
    details: Any = None
    meta: dict[str, Any] | None = None


class ToolCall(Record, frozen=True, kw_only=True):
    """A call that the model asked for. `input` is as the model wrote it: it has not been checked yet."""

    id: str
    name: str
    input: Any
    index: int = 0


class ToolDefinition(Record, frozen=True, kw_only=True):
    """A tool as the model is told of it."""

    name: str
    description: str
    input_schema: dict[str, Any]


# --- what a model yields --------------------------------------------------------------------------------


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text_delta"):
    """A piece of the answer."""

    block_id: str
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_delta"):
    """A piece of what the model thinks."""

    block_id: str
    text: str


class Retracted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="retracted"):
    """Blocks that were streamed and do not count: the stream broke, and the request is made again."""

    block_ids: list[str]
    reason: str


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The end of a model's stream: the whole message, with everything that the provider wants back next time."""

    message: Message
    calls: list[ToolCall]
    finish_reason: FinishReason
    usage: Usage
    model: str | None = None


ModelItem = TextDelta | ReasoningDelta | ModelMessage


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a model is sent."""

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    message_id: str
    """The id that the answer gets; ids of its blocks are derived from it."""


class Model(Protocol):
    """A model of some provider. Makes one request for each call, and no second one by itself."""

    @property
    def name(self) -> str:
        """Its name, as the provider knows it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem, None]:
        """Yield pieces, then one `ModelMessage`. Raise `CodeSDKError`; `retryable` says whether to try again.

        Closing it ends the request.
        """
        ...


# --- what runs tools ------------------------------------------------------------------------------------


class ToolExecutor(Protocol):
    """Runs the calls of a loop. Alone: directly. As a runtime: through the engine, which may deny."""

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the tools to offer."""
        ...

    async def run(self, call: ToolCall) -> ToolOutput:
        """Run one call, or say why not. Must not raise; cancelling it cancels the tool."""
        ...

    def kept_as(self, call: ToolCall) -> str:
        """Return the id by which the transcript knows a call that has run: the model's, or the engine's own.

        The model is shown that one from then on, so that what it is sent stays the same from turn to turn.
        """
        ...


# --- what a turn tells ----------------------------------------------------------------------------------


class ToolCallEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """The model asked for a tool."""

    call: ToolCall
    message_id: str


class ToolResultEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """A tool gave something back."""

    call_id: str
    name: str
    output: ToolOutput


class ToolErrorEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_error"):
    """A tool failed, does not exist or was not allowed; the model is told what `output` says."""

    call_id: str
    name: str
    output: ToolOutput


class StepFinish(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="step_finish"):
    """One answer of the model is whole."""

    finish_reason: FinishReason
    usage: Usage
    message: Message


class RetryEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="retry"):
    """A request failed and is made again after a while."""

    attempt: int
    delay_s: float
    error: ErrorInfo


class ContextEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="context"):
    """What was left out of a request so that it fits: outputs shown as previews, and whole messages."""

    replaced: list[str]
    """Ids of calls whose output the model got as a preview."""
    omitted: int
    """How many of the oldest messages it did not get."""
    estimated_tokens: int


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="finish"):
    """The turn is over, and went well."""

    finish_reason: FinishReason
    total_usage: Usage


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="abort"):
    """The turn was given up by whoever started it."""

    reason: str
    total_usage: Usage


class TurnError(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The turn failed."""

    error: ErrorInfo
    total_usage: Usage


TurnEvent = (
    TextDelta
    | ReasoningDelta
    | Retracted
    | ToolCallEvent
    | ToolResultEvent
    | ToolErrorEvent
    | StepFinish
    | RetryEvent
    | ContextEvent
    | Finish
    | Abort
    | TurnError
)
"""A turn yields any number of these; the last, and only the last, is a `Finish`, an `Abort` or a `TurnError`."""


StopCondition = Callable[[Sequence[StepFinish]], bool]
"""Looks at the steps of a turn, the last one last, and returns whether the turn ends after it."""


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is sent: text, or blocks with attachments."""

    content: list[ContentBlock]
    role: Role = "user"


class TurnResponse(Record, frozen=True, kw_only=True):
    """How a turn ended, and what it added to the transcript, the user's message first."""

    text: str
    response_messages: list[Message]
    finish_reason: FinishReason
    total_usage: Usage


# --- what a session keeps -------------------------------------------------------------------------------


class CompatibleService(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which openai-compatible service a session talks to, where the application named one."""

    base_url: str
    name: str | None = None


class SessionState(Record, frozen=True, kw_only=True):
    """A session as its file has it. `version` is that of this shape."""

    version: Literal[1] = 1
    id: str
    cwd: str
    created_at: int
    """Milliseconds since 1970, as `updated_at`."""
    updated_at: int
    provider: ProviderId
    model: str
    messages: list[Message] = msgspec.field(default_factory=list[Message])
    metadata: dict[str, Any] | None = None
    usage_totals: Usage | None = None
    openai_compatible: CompatibleService | None = None


class SessionSummary(Record, frozen=True, kw_only=True):
    """One line of a list of sessions."""

    id: str
    cwd: str
    provider: ProviderId
    model: str
    created_at: int
    updated_at: int


class SessionRepository(Protocol):
    """Where sessions are kept. Each method raises `CodeSDKError`: NOT_FOUND, CONFLICT, or what is wrong with the file."""

    async def load(self, session_id: str) -> SessionState: ...
    async def create(self, initial: SessionState) -> None: ...
    async def save(self, state: SessionState, previous: SessionState) -> None:
        """Replace what is stored, if that still is `previous`; otherwise another process was faster: CONFLICT."""
        ...

    async def list(self) -> Sequence[SessionSummary]: ...
    async def delete(self, session_id: str) -> None: ...


class StoredArtifact(Record, frozen=True, kw_only=True):
    """Where the whole of something lies that was too long to show."""

    id: str
    path: str
    size_bytes: int
    media_type: str


class ArtifactStore(Protocol):
    """Where full outputs are kept."""

    async def write_text(self, session_id: str, kind: str, content: str) -> StoredArtifact: ...
    async def write_bytes(
        self, session_id: str, kind: str, data: bytes, media_type: str | None = None
    ) -> StoredArtifact: ...
