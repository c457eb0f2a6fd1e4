"""An old conversation → a message that sums it up, written by the model itself, on request."""

from collections.abc import Callable, Sequence

import msgspec

from codesdk.contract.errors import TaskFailure, from_info
from codesdk.contract.messages import Message, Span, Text, text_of, user
from codesdk.minicode.agent import Agent, Turn
from codesdk.minicode.types import ToolCall, ToolDefinition, ToolOutput, TurnError, Usage

_ASKED = (
    "Sum up our conversation so far, so that the work can go on from your summary alone: what was asked for, what was"
    " decided and why, which files were read or changed and how, what was found, what is left to do. Leave out greetings"
    " and what no longer matters. Answer with the summary only."
)
_HEAD = "A summary of the conversation so far:\n\n"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What takes the place of the messages that were summed up, and what that took."""

    message: Message
    usage: Usage


async def summarize(agent: Agent, messages: Sequence[Message], new_id: Callable[[], str]) -> Summary:
    """Have an agent's model sum up messages. Raise `CodeSDKError` if it does not."""
    asked = msgspec.structs.replace(agent, tools=_NoTools(), stop_when=(), max_steps=1)
    turn = Turn(asked, [*messages, user(_ASKED)], new_id)
    async for event in turn.events():
        if isinstance(event, TurnError):
            raise from_info(event.error)
    said = "".join(text_of(message.content) for message in turn.added).strip()
    if not said:
        raise TaskFailure("The model wrote no summary. Try again.", code="MODEL_ERROR", retryable=True)
    message = Message(
        role="user", content=[Text(text=_HEAD + said)], summary_of=Span(first=0, last=len(messages) - 1)
    )
    return Summary(message=message, usage=turn.usage)


class _NoTools:
    """Offers nothing. A model that calls something all the same is told so."""

    def definitions(self) -> Sequence[ToolDefinition]:
        return []

    async def run(self, call: ToolCall) -> ToolOutput:
        return ToolOutput(ok=False, output_message="There are no tools here.")

    def kept_as(self, call: ToolCall) -> str:
        return call.id
