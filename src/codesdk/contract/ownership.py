"""Tools owned on the wire: what the gateway takes out of the model requests of a session, and what it puts in.

What is not offered to the model and does not come back from it is never called, whatever the agent would do by
itself. A runtime says how its agent wants to be told of a call (`ToolNaming`) and which requests are not part of
the conversation (`SideMark`); the gateway does the rest.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from codesdk.contract.tools import ToolSpec

GO_ON = "Go on where you left off."
"""What a runtime is told that goes on without a new message. So it is one of ours, although no user said it."""


class CodeNaming(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent calls tools that it only calls from code: by a tool of its own that runs a piece of code."""

    tool: str
    """The agent's tool that runs code."""
    argument: str
    """Its argument with the code."""
    template: str
    """The code, with `{name}` for the wire name of ours and `{input}` for its input as JSON."""


class ToolNaming(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told in place of the name of one of our tools, so that it calls our MCP server."""

    prefix: str = ""
    """Before the wire name, such as `mcp__codesdk__`."""
    namespace: str | None = None
    """In a field of its own beside the name, as the Responses format has it."""
    code: CodeNaming | None = None


class SideMark(msgspec.Struct, frozen=True, kw_only=True):
    """How to recognize a request of the agent that is not part of the conversation. All that is given must hold."""

    text: str | None = None
    """In a system text, an instruction or the last message of the user, compared in lower case."""
    model: str | None = None
    tool: str | None = None
    """A tool that it offers."""


class WireRules(msgspec.Struct, frozen=True, kw_only=True):
    """How tools are owned in one session's model requests."""

    naming: ToolNaming | None = None
    """None: the agent's requests declare our tools, under names of its own, and those are kept."""
    side: tuple[SideMark, ...] = ()
    appends: tuple[str, ...] = ()
    """What the agent may write behind what users said, in the same text: without it the conversation is not known again."""
    tells_breaks: bool = False
    """Whether a stream that breaks off ends with an error in it, and the agent's connection stays whole: some agents
    take a broken one for a lost network, and look for that outside."""
    natives: tuple[str, ...] = ()
    """The wire names of the agent's own tools, and of the provider's, that the session enabled."""


DEFAULT_RULES = WireRules()


MARK_START = "[codesdk:denied:"
MARKED = re.compile(re.escape(MARK_START) + r"[A-Za-z0-9_-]{1,64}\]")
"""Every mark looks like this. Only those that a session issued mean something in it."""


def mark_for(tool_call_id: str) -> str:
    """Return what stands in the place of a denied call in the answer that the agent gets."""
    return f"{MARK_START}{tool_call_id}]"


class WireCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a model's answer that did not reach the agent, because it is none of ours."""

    request_id: str
    name: str
    input: Any
    model_call_id: str | None
    """The id that the model gave the call, if its format has ids."""
    reason: str
    """What the model is told in place of a result."""
    mark: str
    item: dict[str, Any]
    """The call as the model made it: the block, item, call or part of its format."""
    step: int
    """Which of the model's answers it was in; those of one answer to the agent are counted from 0."""
    beside: int = 0
    """How many calls of the same answer reached the agent."""


class WireTap(Protocol):
    """What the gateway needs of the engine for this. Part of `ModelTap`."""

    def tools(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may be offered now. None outside of a task, and while it sums up."""
        ...

    def words(self) -> Sequence[str]:
        """Return what the agent was told by users in the conversation of the running task."""
        ...

    def mark(self) -> str:
        """Return a new text that stands for a denied call in the answer that the agent gets.

        Whatever the agent repeats of it is kept out of the session's transcript.
        """
        ...

    async def denied(self, call: WireCall) -> None:
        """Record a denied call; it is committed when this returns."""
        ...

    async def denials(self) -> Sequence[WireCall]:
        """Return the denied calls of the session, those from before a restart included."""
        ...

    def converse(self) -> None:
        """Note a request of the conversation. A task that has had none, but others with tools, has failed."""
        ...

    def aside(self, request_id: str, tools: Sequence[str]) -> None:
        """Note a request of an unknown kind, from which these tools were taken."""
        ...

    def give_up(self, why: str) -> None:
        """End the task for this reason: its model does not come to an answer that the agent could be given."""
        ...
