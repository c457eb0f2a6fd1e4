"""What the wire formats share: a request as an `Ask`, an answer as `Part`s, and the `Codec` between.

A codec is pure: bytes and JSON in, bytes and JSON out. The server moves the bytes, and a script or a
provider makes the answer; neither knows a format.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, Protocol

import msgspec

from codesdk.contract.models import Tokens, Wire

AskKind = Literal["generate", "count_tokens"]
StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal"]
FaultKind = Literal[
    "invalid",
    "authentication",
    "permission",
    "not_found",
    "too_large",
    "rate_limit",
    "quota",
    "context_too_large",
    "server",
    "unavailable",
    "overloaded",
]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What a path requests. `model` and `stream` are set if the path, not the body, determines them."""

    kind: AskKind
    model: str | None = None
    stream: bool | None = None
    sse: bool = True
    """Whether a stream is server-sent events. Gemini's is a JSON array unless the query has `alt=sse`."""


class AskText(msgspec.Struct, frozen=True, tag="text"):
    """Text in a request."""

    text: str


class AskCall(msgspec.Struct, frozen=True, tag="call"):
    """An earlier tool call of the model. `name` is the tool's wire name."""

    id: str
    name: str
    input: Any


class AskResult(msgspec.Struct, frozen=True, tag="result"):
    """The result of an earlier call, as text. `id` is the call's; older Gemini requests give only names."""

    id: str
    text: str
    is_error: bool = False


class AskOther(msgspec.Struct, frozen=True, tag="other"):
    """Anything else: an image, a document, reasoning, a provider's own kind of item."""

    kind: str


AskBlock = AskText | AskCall | AskResult | AskOther


class AskMessage(msgspec.Struct, frozen=True):
    """One message of a request. `place` is its JSON pointer in the body."""

    role: Literal["system", "user", "assistant", "tool"]
    blocks: Sequence[AskBlock]
    place: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A model request, whatever its format. System texts are messages of role `system`, in order."""

    wire: Wire
    kind: AskKind
    model: str
    stream: bool
    messages: Sequence[AskMessage]
    tools: Sequence[str]
    """The wire names of the tools that are offered to the model."""
    # As it came: exact capture and replay must not lose what the other fields leave out.
    body: dict[str, Any]
    sse: bool = True
    """As in `Route`: the content type of a stream is `text/event-stream`, or else `application/json`."""

    def __repr__(self) -> str:
        return f"Ask({self.wire}, {self.kind}, {self.model})"  # no content: it may hold a secret


class TextChunk(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the answer's text."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True, tag="reasoning"):
    """A piece of the model's reasoning."""

    text: str


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A tool call in the answer. `name` is the tool's wire name."""

    id: str
    name: str
    input: Any


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """The end of an answer. The last part, exactly once."""

    stop_reason: StopReason
    tokens: Tokens | None = None
    refusal: str | None = None


Part = TextChunk | ReasoningChunk | Call | Finish


def joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of an answer with consecutive chunks of one kind made into one, and none that is empty."""
    said = (part for part in parts if not isinstance(part, TextChunk | ReasoningChunk) or part.text)
    for kind, same in groupby(said, type):
        run = list(same)
        if issubclass(kind, TextChunk | ReasoningChunk):
            # At once: a text that grows piece by piece is copied as often as it has pieces.
            texts = [part.text for part in run if isinstance(part, TextChunk | ReasoningChunk)]
            yield kind("".join(texts))
        else:
            yield from run


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal to answer, to be sent as the provider's own error.

    `context_too_large` quotes `tokens` and `limit`; without them, numbers like the provider's.
    """

    status: int
    kind: FaultKind
    message: str
    retry_after_s: float | None = None
    tokens: int | None = None
    limit: int | None = None

    @property
    def retry_after(self) -> str | None:
        """When to try again, in seconds without trailing zeros."""
        if self.retry_after_s is None:
            return None
        return f"{self.retry_after_s:.3f}".rstrip("0").rstrip(".")


class Encoder(Protocol):
    """Turns the parts of one answer into the frames of one stream. Make a new one for each answer."""

    def start(self) -> bytes:
        """Return the beginning of a stream; may be empty."""
        ...

    def feed(self, part: Part) -> bytes:
        """Return the frames of a part. After `Finish` the stream is complete."""
        ...


class Seen(msgspec.Struct, kw_only=True):
    """What was decoded from an answer as it passed."""

    model: str | None = None
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = []
    refusal: str | None = None
    stop_reason: str | None = None
    """A `StopReason`, or the provider's own word if none corresponds."""
    tokens: Tokens | None = None
    error: str | None = None
    unfinished: int = 0
    """How many characters there are of calls that are not complete, and of alternatives that are not read."""


class Decoder(Protocol):
    """Decodes an answer as it passes: a stream in chunks (cut anywhere), or a whole body."""

    def feed(self, chunk: bytes) -> None:
        """Take more bytes of a stream. Must not raise; skip what cannot be read."""
        ...

    def whole(self, body: bytes) -> None:
        """Take the body of an unstreamed answer, or of an error. Must not raise."""
        ...

    def result(self) -> Seen:
        """Return what was seen so far."""
        ...


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format: the functions that read its requests and write and read its answers."""

    wire: Wire
    route: Callable[[str, str, str], Route | None]
    """Method, path (beginning with `/`) and query → the route, or None if it is not one of this format's."""
    parse: Callable[[Route, dict[str, Any]], Ask]
    """Parses a request. Must raise `ValueError`, naming the field, if no provider would accept it."""
    encoder: Callable[[Ask, str], Encoder]
    """Makes an encoder for one streamed answer, whose ids derive from the answer's id."""
    whole: Callable[[Ask, str, Iterable[Part]], bytes]
    """Writes an unstreamed answer."""
    count: Callable[[int], bytes]
    """Writes the answer to a count_tokens request."""
    error: Callable[[Fault], tuple[dict[str, str], bytes]]
    """Returns headers and body of an error in the provider's shape."""
    broken_frame: bytes
    """A frame of a stream that no client of this format can parse."""
    decoder: Callable[[], Decoder]
    """Makes a decoder for one answer."""
