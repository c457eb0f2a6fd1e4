"""A model message while claude streams it: deltas, then one completed message, less what claude gave up of it. Pure."""

from collections.abc import Iterator
from typing import Any

from codesdk.contract.events import DeltaKind, OutputCompleted, OutputDelta, OutputRetracted, UsageReported
from codesdk.contract.messages import AssistantBlock
from codesdk.contract.models import MAX_TOKENS
from codesdk.contract.runtime import Draft

Frame = dict[str, Any]
_DELTAS: dict[str, tuple[DeltaKind, str]] = {
    "text_delta": ("text_delta", "text"),
    "thinking_delta": ("reasoning_delta", "thinking"),
    "input_json_delta": ("json_delta", "partial_json"),
}


class OpenMessage:
    """What has come of a message so far. `streams`: its parts come as stream events, and its end is one, too."""

    def __init__(self, message_id: str, model: str | None, *, streams: bool) -> None:
        self.id = message_id
        self.model = model
        self.streams = streams
        self.blocks = 0
        """How many blocks are whole."""
        self.content: list[AssistantBlock] = []
        self.stop_reason: str | None = None
        self.usage: Frame = {}
        self.partial = False
        self._begun: set[int] = set()
        self._calls: dict[int, str] = {}

    def begin_block(self, event: Frame) -> None:
        """Note which call a block holds, if it is one: its deltas do not say so."""
        block = event["content_block"]
        if block["type"] == "tool_use":
            self._calls[event["index"]] = block["id"]

    def delta(self, event: Frame, frame: Frame) -> Iterator[Draft]:
        """Yield the piece of a block that a stream event brings. The signature of a thought is none."""
        kind, field = _DELTAS.get(event["delta"]["type"], (None, ""))
        text: str = event["delta"][field] if kind else ""
        if kind and text:
            self._begun.add(event["index"])
            piece = OutputDelta(
                kind=kind,
                block_id=self._block_id(event["index"]),
                message_id=self.id,
                delta=text,
                tool_call_id=self._calls.get(event["index"]),
            )
            yield Draft(piece, frame)

    def close(self, frame: Frame) -> Iterator[Draft]:
        """Yield the whole message and its usage. Blocks that claude abandoned are retracted first."""
        abandoned: Frame = frame.get("abandoned_blocks") or {}
        first: int = abandoned.get("from_block_index", self.blocks)
        lost = [self._block_id(index) for index in sorted(self._begun) if index >= first]
        if lost:
            reason = "The stream broke off before these were whole."
            yield Draft(OutputRetracted(block_ids=lost, reason=reason), frame)
        if lost and not self.blocks:
            return
        completed = OutputCompleted(
            message_id=self.id, content=self.content, partial=self.partial, stop_reason=self.stop_reason
        )
        yield Draft(completed, frame)
        if any(isinstance(count, int) and count for count in self.usage.values()):
            yield Draft(self._used())

    def _block_id(self, index: int) -> str:
        return f"{self.id}.{index}"

    def _used(self) -> UsageReported:
        return UsageReported(
            model=self.model,
            input=self._count("input_tokens"),
            output=self._count("output_tokens"),
            cache_read=self._count("cache_read_input_tokens"),
            cache_write=self._count("cache_creation_input_tokens"),
            reasoning=0,
            cost_usd=None,
            source="runtime",
        )

    def _count(self, name: str) -> int:
        value = self.usage.get(name)
        return value if isinstance(value, int) and 0 < value <= MAX_TOKENS else 0
