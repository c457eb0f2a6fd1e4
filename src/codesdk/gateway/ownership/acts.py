"""What the wire formats share in owning tools: a `Plan` for each request, and the `Acts` that each format has.

Pure: bytes and JSON in, bytes and JSON out. `backend` moves the bytes, asks the model again and tells the engine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from codesdk.contract.ownership import ToolNaming
from codesdk.contract.tools import ToolSpec


class DeniedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is none of ours, as the model made it: `item` is the block, item, call or part of its format."""

    mark: str
    """What stands in its place in the answer that the agent got."""
    name: str
    input: Any
    model_call_id: str | None
    item: dict[str, Any]
    reason: str
    """What the model is told in place of a result."""
    step: int
    """Which of the model's answers it was in; those of one answer to the agent are counted from 0."""
    beside: int = 0
    """How many calls of the same step reached the agent. With none, what follows its mark is of a later step."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is turned into, and its answer with it."""

    tools: Mapping[str, ToolSpec]
    """Our tools by the names that the model sees. Empty for a side request."""
    naming: ToolNaming | None
    natives: frozenset[str]
    """Wire names of tools of the agent's own that pass in both directions."""
    denied: Mapping[str, DeniedCall]
    """Earlier denied calls by mark: where the agent repeats a mark, the model is shown its call and our denial."""
    new_mark: Callable[[], str]
    reason_for: Callable[[str], str]
    """The name of a denied call → what the model is told."""


class AnswerActs(Protocol):
    """Rewrites one answer to the agent. It may be made of several answers of the model, in steps.

    All events but the last pass at once. The end of a step waits until the caller knows whether another follows.
    """

    @property
    def denied(self) -> Sequence[DeniedCall]:
        """The complete calls of the present step that were denied."""
        ...

    @property
    def passed(self) -> int:
        """How many calls of the present step reach the agent."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the present step came to its end. If not, it was cut off or failed: do not ask again."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Take bytes of a stream, cut anywhere; return what the agent gets now. Must not raise."""
        ...

    def end(self) -> bytes:
        """Return the end of the stream: what was held back of the last step, with the usage of all steps."""
        ...

    def next_step(self) -> None:
        """Begin another step: the model was asked again, and its answer continues this one."""
        ...

    def whole(self, body: bytes) -> bytes:
        """Rewrite an unstreamed answer, for the last step with the content of those before it. Must not raise."""
        ...


class Acts(Protocol):
    """The acts of one wire format."""

    def request(self, body: dict[str, Any], plan: Plan) -> dict[str, Any]:
        """Return a request as the model gets it: no tools but ours and the enabled ones, our names, no marks."""
        ...

    def answer(self, plan: Plan, body: dict[str, Any]) -> AnswerActs:
        """Return what rewrites the answer to a request. `body` is the request as it is sent."""
        ...

    def again(self, body: dict[str, Any], answer: AnswerActs) -> dict[str, Any]:
        """Return the request that asks the model again: with its last answer, and our denials as results."""
        ...
