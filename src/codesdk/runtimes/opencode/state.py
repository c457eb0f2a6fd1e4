"""What is remembered between the frames of one task of opencode: the message that is being put together, and calls. Pure.

A message of opencode is the answer to one model request, and one of ours. If it says more after a call of it has
started, that is another one of ours.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import OutputCompleted
from codesdk.contract.messages import AssistantBlock, Reasoning, Text
from codesdk.contract.models import Wire
from codesdk.contract.runtime import Draft
from codesdk.runtimes.program.jsonrpc import Frame
from codesdk.runtimes.program.signals import Signals

BlockKind = Literal["text", "reasoning"]
CallState = Literal["announced", "ended"]


class Block(msgspec.Struct):
    """A reasoning or text part of the message that is being put together."""

    kind: BlockKind
    text: str = ""
    done: bool = False


class Retry(msgspec.Struct, frozen=True):
    """Opencode waits to ask the model again."""

    attempt: int
    message: str
    next_ms: int
    """When, in milliseconds since 1970."""


class State(msgspec.Struct, kw_only=True):
    """The state of one task."""

    session_id: str
    model: str
    wire: Wire = "chat"
    tools: Mapping[str, str]
    """Our names of the tools, by opencode's."""
    answers: set[str] = set()
    """Opencode's messages of this task that are the model's. All others are the user's."""
    current: str = ""
    number: int = 0
    blocks: dict[str, Block] = {}
    calls: int = 0
    completed: bool = False
    parts: dict[str, CallState] = {}
    """The tool calls of this task, by their parts."""
    signals: Signals = msgspec.field(default_factory=lambda: Signals("opencode"))
    retry: Retry | None = None
    """That it waits to ask again. The driver decides whether it may, and takes this away."""
    failure: ErrorInfo | None = None
    """Why the driver must end the task, or has."""
    violation: str | None = None
    """The first thing that opencode did by itself although it must not. The driver then ends the program."""

    @property
    def message_id(self) -> str:
        """The id of the message that is being put together."""
        return f"{self.current}.{self.number}" if self.number else self.current

    def turn_to(self, message: str, frame: Frame) -> list[Draft]:
        """Begin with another message of opencode's, unless it is the present one. Return the end of that."""
        if message == self.current:
            return []
        ended = self.complete(frame, "end_turn")
        self.current, self.number = message, 0
        self._clear()
        return ended

    def open_block(self, part: str, kind: BlockKind) -> Block:
        """Return the block of a part, begun if it is new. A part after a complete message begins the next one."""
        if self.completed and part not in self.blocks:
            self.number += 1
            self._clear()
        return self.blocks.setdefault(part, Block(kind))

    def complete(self, frame: Frame | None, stop_reason: str, *, partial: bool = False) -> list[Draft]:
        """Return the whole message, unless that was done already or there is none."""
        if self.completed:
            return []
        content: list[AssistantBlock] = [
            Text(text=block.text) if block.kind == "text" else Reasoning(text=block.text)
            for block in self.blocks.values()
            if block.text
        ]
        if not content and stop_reason != "tool_use":
            return []
        self.completed = True
        payload = OutputCompleted(
            message_id=self.message_id, content=content, partial=partial, stop_reason=stop_reason
        )
        return [Draft(payload, frame)]

    def _clear(self) -> None:
        self.blocks, self.calls, self.completed = {}, 0, False
