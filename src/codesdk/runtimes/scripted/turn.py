"""One turn of a script → the items that the scripted runtime yields for it. Pure: no clock, no waiting.

What the driver has to do itself (wait, crash, give up) passes through as the step that
asks for it. Ids follow from the task, the number of the turn and the place of the step.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from codesdk.contract.errors import ErrorCode, ErrorInfo
from codesdk.contract.events import OutputCompleted, OutputDelta, OutputRetracted, UsageReported
from codesdk.contract.messages import AssistantBlock, Reasoning, Text
from codesdk.contract.runtime import Draft, Failed, Finished, RuntimeItem, ToolAnnouncement
from codesdk.runtimes.scripted import NAME
from codesdk.script import model


class AwaitReplies(msgspec.Struct, frozen=True):
    """Wait until all of these calls have a result or a denial."""

    call_ids: list[str]


Control = (
    AwaitReplies
    | model.DelayStep
    | model.AwaitSteerStep
    | model.StallStep
    | model.CrashStep
    | model.LateEventsStep
    | model.IgnoreStopStep
)


class End(msgspec.Struct, frozen=True):
    """The last item of the stream, or None for a stream that ends without one."""

    item: Finished | Failed | None


class Emit(msgspec.Struct, frozen=True):
    """An item to yield, `count` times over."""

    item: RuntimeItem
    count: int = 1


Part = Emit | End | Control


class TurnPlay:
    """One turn being played: iterate `parts` to its end, then look at `call_ids`."""

    def __init__(self, turn: model.Turn, task_id: str, number: int, model_name: str | None) -> None:
        self.turn = turn
        self.number = number
        self.message_id = f"{task_id}.{number}"
        self.call_ids: list[str] = []
        self._model = model_name
        self._content: list[AssistantBlock] = []
        self._block: _Block | None = None
        self._retractable: list[str] = []
        self._calls: list[ToolAnnouncement] = []

    def parts(self) -> Iterator[Part]:
        """Yield what the turn is made of, in order."""
        # A step may ask for the message to be completed twice, as a broken runtime does.
        completions = 1
        for index, step in enumerate(self.turn.steps):
            match step:
                case model.TextStep() | model.ReasoningStep() | model.BurstStep():
                    yield from self._stream(index, step)
                case model.CallStep():
                    yield Emit(self._announce(index, step))
                case model.RetractStep():
                    yield from self._retract(index, step)
                case model.MalformedStep():
                    yield Emit(self._malformed(index, step))
                case model.DuplicateStep(what="message"):
                    completions += 1
                case model.DuplicateStep():
                    if self._calls:
                        yield Emit(self._calls[-1])
                case model.FailStep():
                    yield End(failed(step.code, step.message, self._raw("fail", index), step.retryable))
                case model.CrashStep(how="end"):
                    yield End(None)
                case _:
                    yield cast("Control", step)  # a gateway's step is refused before a script is played
        self._close_block()
        completed = OutputCompleted(
            message_id=self.message_id,
            content=list(self._content),
            stop_reason=self.turn.effective_stop_reason,
        )
        yield Emit(Draft(completed, self._raw("completed")), completions)
        if self.turn.usage is not None:
            counts = msgspec.structs.asdict(self.turn.usage)
            usage = UsageReported(model=self._model, source="runtime", **counts)
            yield Emit(Draft(usage, self._raw("usage")))

    def late_delta(self) -> Draft:
        """Return a delta as it comes from a runtime that was asked to stop and does not."""
        return self._delta("text_delta", f"{self.message_id}.late", "late ", self._raw("events_after_stop"))

    def _stream(
        self, index: int, step: model.TextStep | model.ReasoningStep | model.BurstStep
    ) -> Iterator[Emit]:
        kind = step.of if isinstance(step, model.BurstStep) else model.key_of(step)
        block = self._block
        if block is None or block.kind != kind:
            self._close_block()
            block = self._block = _Block(kind, f"{self.message_id}.{index}")
            self._retractable.append(block.id)
        raw = self._raw(model.key_of(step), index)
        delta_kind = "reasoning_delta" if kind == "reasoning" else "text_delta"
        if isinstance(step, model.BurstStep):
            chunk = ("burst " * (step.size // 6 + 1))[: step.size]
            block.pieces.append(chunk * step.count)
            yield Emit(self._delta(delta_kind, block.id, chunk, raw), step.count)
            return
        for chunk in step.chunks:
            block.pieces.append(chunk)
            yield Emit(self._delta(delta_kind, block.id, chunk, raw))

    def _announce(self, index: int, step: model.CallStep) -> ToolAnnouncement:
        self._close_block()
        place = len(self._content) + len(self._calls)
        if self._calls:
            place = max(place, cast("int", self._calls[-1].index) + 1)
        call = ToolAnnouncement(
            name=step.tool,
            input=step.input,
            runtime_tool_call_id=f"{self.message_id}.{step.id or index}",
            message_id=self.message_id,
            index=place,
            raw=self._raw("call", index),
        )
        self._calls.append(call)
        self.call_ids.append(cast("str", call.runtime_tool_call_id))
        return call

    def _retract(self, index: int, step: model.RetractStep) -> Iterator[Emit]:
        self._block = None
        self._content.clear()
        if self._retractable:
            payload = OutputRetracted(block_ids=self._retractable, reason=step.reason)
            self._retractable = []
            yield Emit(Draft(payload, self._raw("retract", index)))

    def _malformed(self, index: int, step: model.MalformedStep) -> RuntimeItem:
        raw = self._raw("malformed", index)
        if step.what == "item":
            return cast("RuntimeItem", raw)
        return self._delta("text_delta", f"{self.message_id}.{index}", cast("str", {"not": "text"}), raw)

    def _delta(self, kind: Any, block_id: str, text: str, raw: Any) -> Draft:
        payload = OutputDelta(kind=kind, block_id=block_id, message_id=self.message_id, delta=text)
        return Draft(payload, raw)

    def _close_block(self) -> None:
        if self._block is not None:
            text = "".join(self._block.pieces)
            self._content.append(Reasoning(text=text) if self._block.kind == "reasoning" else Text(text=text))
            self._block = None

    def _raw(self, kind: str, index: int | None = None) -> dict[str, Any]:
        raw: dict[str, Any] = {"turn": self.number, "kind": kind}
        if index is not None:
            raw["step"] = index
        return raw


class _Block(msgspec.Struct):
    """A block while it streams."""

    kind: str
    id: str
    pieces: list[str] = []


def failed(code: ErrorCode, message: str, raw: Any, retryable: bool = False) -> Failed:
    """Return the end of a task that failed."""
    return Failed(error=ErrorInfo(code=code, message=message, retryable=retryable, runtime=NAME), raw=raw)
