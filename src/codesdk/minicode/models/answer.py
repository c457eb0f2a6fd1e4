"""The events of pydantic-ai's stream → pieces as they come; its response → the whole message, its calls and its usage. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)

from codesdk.contract.messages import ContentBlock, Message, Reasoning, Text, ToolUse
from codesdk.contract.models import Tokens
from codesdk.contract.text import mend
from codesdk.minicode.models.details import Note, with_notes
from codesdk.minicode.types import ReasoningDelta, TextDelta, ToolCall


def piece_of(event: object, message_id: str) -> TextDelta | ReasoningDelta | None:
    """Return the piece of text or thought in an event, if there is one."""
    match event:
        case PartStartEvent(index=index, part=TextPart(content=text) | ThinkingPart(content=text) as part):
            thought = isinstance(part, ThinkingPart)
        case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
            thought = False
        case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=str(text))):
            thought = True
        case _:
            return None
    if not text:
        return None
    kind = ReasoningDelta if thought else TextDelta
    return kind(block_id=f"{message_id}.{index}", text=mend(text))


def message_of(
    response: ModelResponse, message_id: str, origin: str, names: Mapping[str, str]
) -> tuple[Message, list[ToolCall]]:
    """Return the message of a response and its calls, by our names. Every call has an id of its own."""
    content: list[ContentBlock] = []
    notes: list[Note] = []
    taken: set[str] = set()
    for part in response.parts:
        match part:
            case TextPart(content=text) if text:
                content.append(Text(text=mend(text)))
                notes.append(Note(kind="text", details=_plain(part.provider_details)))
            case ThinkingPart(content=text):
                content.append(Reasoning(text=mend(text)))
                details = _plain(part.provider_details)
                notes.append(Note(kind="reasoning", id=part.id, signature=part.signature, details=details))
            case ToolCallPart():
                content.append(_use(part, names, taken))
                notes.append(Note(kind="call", details=_plain(part.provider_details)))
            case _:
                pass
    blocks = with_notes(origin, content, notes)
    calls = [
        ToolCall(id=block.tool_call_id, name=block.name, input=block.input, index=place)
        for place, block in enumerate(blocks)
        if isinstance(block, ToolUse)
    ]
    return Message(role="assistant", content=blocks, message_id=message_id), calls


def tokens_of(response: ModelResponse) -> Tokens:
    """Return what a response used, each token once."""
    usage = response.usage
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    reasoning = _count(usage.details, ("reasoning_tokens", "thoughts_tokens"))
    return Tokens(
        input=max(0, usage.input_tokens - read - written),
        output=max(0, usage.output_tokens - reasoning),
        cache_read=read,
        cache_write=written,
        reasoning=reasoning,
    )


def _use(part: ToolCallPart, names: Mapping[str, str], taken: set[str]) -> ToolUse:
    wanted = mend(part.tool_call_id)
    call_id, number = wanted, 1
    while call_id in taken:  # two calls of one id could not be answered apart
        number += 1
        call_id = f"{wanted}-{number}"
    taken.add(call_id)
    return ToolUse(
        tool_call_id=call_id,
        name=mend(names.get(part.tool_name, part.tool_name)),
        input=mend(_input(mend(part.args))),
    )


def _input(args: Any) -> Any:
    """Return the arguments of a call as a value; as text if they are not JSON."""
    if isinstance(args, str):
        try:
            return msgspec.json.decode(args) if args.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            return args
    return {} if args is None else args


def _plain(details: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a provider's details as far as JSON can say them."""
    if not details:
        return None
    try:
        return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(details)))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _count(details: Mapping[str, int] | None, names: Sequence[str]) -> int:
    return next((details[name] for name in names if details and details.get(name)), 0)
