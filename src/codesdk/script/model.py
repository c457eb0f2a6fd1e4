"""The scenario format as types: a script is a list of turns, a turn one model answer, a step a part of it.

`load` reads files into these types; the scripted runtime and the model gateway play them. A step's tag is
its key in the file. A step without fields is written `key: true`, one with a single field `key: value`,
one with more `key: {field: value}`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from codesdk.contract.errors import ErrorCode

Chunks = Annotated[tuple[str, ...], Meta(min_length=1)]
"""Text in the pieces in which it streams. A file may give one string instead of a list."""

_LABEL = r"^[A-Za-z][A-Za-z0-9_-]{0,63}\Z"
IN_WORDS = {_LABEL: "a letter followed by letters, digits, _ or -, at most 64 in all"}
"""What a pattern requires, as errors say it."""

Names = tuple[str, ...]
Count = Annotated[int, Meta(ge=0, le=9_007_199_254_740_991)]


class Step(msgspec.Struct, frozen=True, tag_field="step"):
    """The base of all steps."""


class TextStep(Step, frozen=True, tag="text"):
    """Text of the answer. Text steps with only delays between them form one block."""

    chunks: Chunks


class ReasoningStep(Step, frozen=True, tag="reasoning"):
    """The model's reasoning, streamed like text."""

    chunks: Chunks


class CallStep(Step, frozen=True, tag="call"):
    """A tool call. All calls of a turn belong to one message and run side by side."""

    tool: Annotated[str, Meta(min_length=1)]
    input: Any = msgspec.field(default_factory=dict[str, Any])
    id: Annotated[str, Meta(pattern=_LABEL)] | None = None
    offered: bool = True
    """If False, the model calls exactly this name, whether or not it was offered."""


class DelayStep(Step, frozen=True, tag="delay_s"):
    """A pause, in seconds."""

    seconds: Annotated[float, Meta(ge=0, le=86_400)]


class BurstStep(Step, frozen=True, tag="burst"):
    """Many deltas of one size, as fast as the reader takes them."""

    count: Annotated[int, Meta(ge=1, le=10_000_000)]
    size: Annotated[int, Meta(ge=1, le=1_000_000)] = 16
    of: Literal["text", "reasoning"] = "text"


class AwaitSteerStep(Step, frozen=True, tag="await_steer"):
    """Runtime only: wait until the user has added a message to the running task."""


class CrashStep(Step, frozen=True, tag="crash"):
    """Runtime only: the stream raises, or ends without a final message."""

    how: Literal["raise", "end"]


class StallStep(Step, frozen=True, tag="stall"):
    """Runtime only: silence until a stop is requested, or until the task is closed by force."""

    until: Literal["stopped", "closed"]


class MalformedStep(Step, frozen=True, tag="malformed"):
    """Runtime only: something that is not an item, or an item whose payload has the wrong shape."""

    what: Literal["item", "payload"]


class DuplicateStep(Step, frozen=True, tag="duplicate_ids"):
    """Runtime only: announce the last call again, or complete the message twice."""

    what: Literal["call", "message"]


class LateEventsStep(Step, frozen=True, tag="events_after_stop"):
    """Runtime only: from here on, a stop is followed by this many more deltas."""

    deltas: Annotated[int, Meta(ge=1, le=1_000_000)]


class IgnoreStopStep(Step, frozen=True, tag="ignore_stop"):
    """Runtime only: from here on, a stop changes nothing and the script plays on."""


class FailStep(Step, frozen=True, tag="fail"):
    """Runtime only: the runtime reports an error and gives up."""

    code: ErrorCode
    message: str
    retryable: bool = False


class RetractStep(Step, frozen=True, tag="retract"):
    """Runtime only: take back everything this turn has streamed so far."""

    reason: str


class HttpStep(Step, frozen=True, tag="http"):
    """Gateway only: answer with this status instead of a stream."""

    status: Annotated[int, Meta(ge=400, le=599)]
    retry_after_s: Annotated[float, Meta(ge=0)] | None = None
    message: str | None = None


class ResetStep(Step, frozen=True, tag="reset"):
    """Gateway only: the connection breaks."""


class TruncateStep(Step, frozen=True, tag="truncate"):
    """Gateway only: the stream ends cleanly, but without its final event."""


class SilenceStep(Step, frozen=True, tag="silence"):
    """Gateway only: nothing more is sent and the connection stays open."""


class MalformedFrameStep(Step, frozen=True, tag="malformed_frame"):
    """Gateway only: send this instead of a frame."""

    data: str


class ContextTooLargeStep(Step, frozen=True, tag="context_too_large"):
    """Gateway only: refuse the request the way the provider refuses one that is too long."""


class RefusalStep(Step, frozen=True, tag="refusal"):
    """Gateway only: the model declines, in the provider's shape."""

    text: str


class MaxTokensStep(Step, frozen=True, tag="max_tokens"):
    """Gateway only: the answer is cut off at its length limit."""


class EmptyStep(Step, frozen=True, tag="empty"):
    """Gateway only: an answer without any content."""


RuntimeOnlyStep = (
    AwaitSteerStep
    | CrashStep
    | StallStep
    | MalformedStep
    | DuplicateStep
    | LateEventsStep
    | IgnoreStopStep
    | FailStep
    | RetractStep
)
GatewayOnlyStep = (
    HttpStep
    | ResetStep
    | TruncateStep
    | SilenceStep
    | MalformedFrameStep
    | ContextTooLargeStep
    | RefusalStep
    | MaxTokensStep
    | EmptyStep
)
PlainStep = TextStep | ReasoningStep | CallStep | DelayStep | BurstStep
AnyStep = PlainStep | RuntimeOnlyStep | GatewayOnlyStep


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage a turn reports. Without `cost_usd` the price is unknown."""

    input: Count = 0
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0
    cost_usd: Annotated[float, Meta(ge=0)] | None = None


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """What must hold when a turn is requested. See `unmet` for what each field is compared with."""

    user_contains: Names = ()
    tool_result_contains: Names = ()
    offered: Names = ()
    not_offered: Names = ()


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One model message."""

    steps: tuple[AnyStep, ...] = ()
    expect: Expect | None = None
    usage: Usage | None = None
    stop_reason: Annotated[str, Meta(min_length=1)] | None = None

    @property
    def calls(self) -> tuple[CallStep, ...]:
        """The tool calls of the message, in order."""
        return tuple(step for step in self.steps if isinstance(step, CallStep))

    @property
    def effective_stop_reason(self) -> str:
        """The given stop reason, or the one that follows from the calls."""
        return self.stop_reason or ("tool_use" if self.calls else "end_turn")


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario. `asides` answer hidden requests by purpose, without using up a turn."""

    turns: Annotated[tuple[Turn, ...], Meta(min_length=1)]
    name: str | None = None
    loop: bool = False
    asides: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def turn(self, number: int) -> Turn | None:
        """Return the turn to play as answer `number`, counted from 0, or None if none is left."""
        if self.loop:
            return self.turns[number % len(self.turns)]
        return self.turns[number] if number < len(self.turns) else None


def key_of(step: Step) -> str:
    """Return the key of a step in a file."""
    return str(type(step).__struct_config__.tag)
