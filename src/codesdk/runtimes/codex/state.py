"""What is remembered between the frames of one codex turn: the message that is being put together, and open calls. Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from codesdk.contract.events import OutputCompleted
from codesdk.contract.messages import AssistantBlock, Reasoning, Text
from codesdk.contract.runtime import Draft
from codesdk.runtimes.codex.native import Frame, OwnCall
from codesdk.runtimes.program.signals import Signals

BlockKind = Literal["text", "reasoning"]
QUIET = frozenset(
    {
        "account/rateLimits/updated",
        "account/updated",
        "item/commandExecution/outputDelta",
        "item/fileChange/outputDelta",
        "item/fileChange/patchUpdated",
        "item/mcpToolCall/progress",
        "item/reasoning/summaryPartAdded",
        "mcpServer/startupStatus/updated",
        "remoteControl/status/changed",
        "serverRequest/resolved",
        "skills/changed",
        "thread/closed",
        "thread/name/updated",
        "thread/readState/changed",
        "thread/settings/updated",
        "thread/started",
        "thread/status/changed",
        "turn/diff/updated",
        "turn/started",
    }
)
"""Known frames that no event would be made of."""


class Block(msgspec.Struct):
    """A reasoning or text item of the message that is being put together."""

    kind: BlockKind
    text: str = ""
    done: bool = False


class State(msgspec.Struct, kw_only=True):
    """The state of one turn."""

    turn_id: str
    model: str
    tools: Mapping[str, str]
    """Our names of the tools, by those on the wire."""
    number: int = 0
    blocks: dict[str, Block] = {}
    calls: int = 0
    completed: bool = False
    open_calls: set[str] = set()
    signals: Signals = msgspec.field(default_factory=lambda: Signals("codex"))
    natives: frozenset[str] = frozenset()
    """Codex's own tools that the session enables. If there are any, codex asks about calls of all of them."""
    workspace: str = ""
    login: bool = False
    """Whether codex uses an account of its own."""
    own: dict[str, OwnCall] = {}
    """Calls of codex's own tools that have not ended."""
    violation: str | None = None
    """The first thing that codex did by itself although it must not. The driver then ends the turn."""

    @property
    def message_id(self) -> str:
        """The id of the message that is being put together."""
        return f"{self.turn_id}.{self.number}"

    def open_block(self, item_id: str, kind: BlockKind) -> Block:
        """Return the block of an item, begun if it is new. An item after a complete message begins the next one."""
        if self.completed:
            self.next_message()
        return self.blocks.setdefault(item_id, Block(kind))

    def close_block(self, item_id: str, kind: BlockKind, text: str) -> None:
        """Take an item as codex says it at its end: that is what counts, not what was streamed of it."""
        block = self.open_block(item_id, kind)
        block.text, block.done = text or block.text, True

    def complete(self, frame: Frame | None, stop_reason: str, *, partial: bool = False) -> list[Draft]:
        """Return the whole message, unless that was done already or there is none."""
        if self.completed or (not self.blocks and stop_reason != "tool_use"):
            return []
        self.completed = True
        content: list[AssistantBlock] = [
            Text(text=block.text) if block.kind == "text" else Reasoning(text=block.text)
            for block in self.blocks.values()
            if block.text
        ]
        payload = OutputCompleted(
            message_id=self.message_id, content=content, partial=partial, stop_reason=stop_reason
        )
        return [Draft(payload, frame)]

    def next_message(self) -> None:
        """Begin another message."""
        self.number += 1
        self.blocks = {}
        self.calls = 0
        self.completed = False
