"""What is remembered between the frames of one prompt: the message that is being put together, and its calls. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from codesdk.contract.events import OutputCompleted
from codesdk.contract.messages import AssistantBlock, Reasoning, Text
from codesdk.contract.runtime import Draft
from codesdk.runtimes.acp.calls import merged
from codesdk.runtimes.acp.row import Reading
from codesdk.runtimes.program.jsonrpc import Frame
from codesdk.runtimes.program.signals import Signals

BlockKind = Literal["text", "reasoning"]
MAX_CALLS = 10_000
"""How many calls an agent may speak of in one prompt. The engine counts only those that are announced."""
MAX_HELD_BYTES = 128 * 1024 * 1024
"""How much of what an agent says of its calls is kept."""
_RESULTS = ("content", "rawOutput")


class Block(msgspec.Struct):
    """A reasoning or a text of the message that is being put together."""

    kind: BlockKind
    block_id: str
    pieces: list[str] = []

    @property
    def text(self) -> str:
        """All of it. Put together once: adding each piece to a long text would copy that every time."""
        return "".join(self.pieces)


class AgentCall(msgspec.Struct, kw_only=True):
    """A tool call as the agent speaks of it, in an announcement, in updates, or in a question."""

    call_id: str
    told: Frame
    """All that was said of it, the last word of each."""
    message_id: str | None = None
    """The message that it is part of, once that is known; `index` is its place there."""
    index: int = 0
    announced: bool = False
    over: bool = False
    size: int = 0
    """How many bytes were told."""


class State(msgspec.Struct, kw_only=True):
    """The state of one prompt."""

    runtime: str
    session_id: str
    task_id: str
    tools: Mapping[str, str]
    """Our names of the tools, by those on the wire."""
    reading: Reading
    after_name: bool = False
    """Whether the model's id of a call follows the tool's name in the agent's."""
    opines: bool = False
    """Whether the agent's own policy is told of."""
    model: str | None = None
    """The model that it was told to ask."""
    log_in: str = ""
    """The command with which a person logs in, if the agent uses an account of its own."""
    number: int = 0
    blocks: list[Block] = []
    said_in: str | None = None
    """The agent's own id of the message that the last text was part of, if it says one."""
    placed: int = 0
    """How many calls the present message has."""
    under_way: int = 0
    """How many calls have a place in some message, and are not over."""
    held: int = 0
    """How many bytes were told of all calls."""
    excess: str | None = None
    """What the agent does without end. The driver then ends the task."""
    completed: bool = False
    calls: dict[str, AgentCall] = {}
    answers: list[tuple[Any, Frame]] = []
    """What the agent asked → what it is answered. The driver sends them."""
    stopping: bool = False
    acknowledged: bool = False
    """Whether the agent took the prompt and will say later, in an update, that it is done."""
    violation: str | None = None
    """The first thing that the agent did by itself although it must not. The driver then ends the task."""
    signals: Signals = msgspec.field(default_factory=lambda: Signals("acp"))

    @property
    def message_id(self) -> str:
        """The id of the message that is being put together."""
        return f"{self.task_id}.{self.number}"

    def part(self, own_id: Any, frame: Frame) -> list[Draft]:
        """Return the end of a message if a text belongs to another one, by the agent's own ids."""
        before, self.said_in = self.said_in, own_id if isinstance(own_id, str) else None
        if before is None or self.said_in is None or before == self.said_in or self.completed:
            return []
        return self.complete(frame, "end_turn")

    def open_block(self, kind: BlockKind) -> Block:
        """Return the block that a piece of text belongs to. A piece after a complete message begins the next one."""
        if self.completed:
            self.next_message()
        if not self.blocks or self.blocks[-1].kind != kind:
            self.blocks.append(Block(kind, f"{self.message_id}.{len(self.blocks)}"))
        return self.blocks[-1]

    def place_call(self, call: AgentCall) -> None:
        """Give a call of ours its place in a message, unless it has one.

        One that begins after all earlier ones have ended belongs to the next message.
        """
        if call.message_id is not None:
            return
        if self.completed and self.placed and not self.under_way:
            self.next_message()
        call.message_id, call.index = self.message_id, len(self.blocks) + self.placed
        self.placed += 1
        self.under_way += not call.over

    def hear_of(self, own_id: str, call_id: str, update: Frame) -> AgentCall:
        """Return the call that an update is about, with what is known of it now. One that is over stays as it is."""
        call = self.calls.get(own_id)
        if call is None:
            if len(self.calls) >= MAX_CALLS:
                self.excess = f"speaks of more than {MAX_CALLS:,} calls in one prompt"
                return AgentCall(call_id="", told={}, over=True)
            call = self.calls[own_id] = AgentCall(call_id=call_id, told={})
        if not call.over:
            self._tell(call, merged(call.told, update))
            if self.held > MAX_HELD_BYTES:
                self.excess = f"says more than {MAX_HELD_BYTES:,} bytes about its calls"
        return call

    def end_call(self, call: AgentCall) -> None:
        """Note that a call is over. What came of it is of no more use."""
        if not call.over:
            call.over = True
            self.under_way -= call.message_id is not None
            self._tell(call, {name: said for name, said in call.told.items() if name not in _RESULTS})

    def _tell(self, call: AgentCall, told: Frame) -> None:
        size = len(msgspec.json.encode(told))
        self.held += size - call.size
        call.told, call.size = told, size

    def complete(self, frame: Frame | None, stop_reason: str, *, partial: bool = False) -> list[Draft]:
        """Return the whole message, unless that was done already or there is none."""
        if self.completed or (not self.blocks and stop_reason != "tool_use"):
            return []
        self.completed = True
        content: list[AssistantBlock] = [
            Text(text=block.text) if block.kind == "text" else Reasoning(text=block.text)
            for block in self.blocks
        ]
        payload = OutputCompleted(
            message_id=self.message_id, content=content, partial=partial, stop_reason=stop_reason
        )
        return [Draft(payload, frame)]

    def next_message(self) -> None:
        """Begin another message."""
        self.number += 1
        self.blocks = []
        self.placed = 0
        self.completed = False
