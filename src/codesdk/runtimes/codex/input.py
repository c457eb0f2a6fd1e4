"""Messages of a transcript → what codex takes: the input of a turn, or the history of a thread that it does not know."""

import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Code, ContentBlock, Message, Text, ToolResult, ToolUse
from codesdk.tools import NAMESPACE, wire_name

GO_ON = "Go on."
"""What a turn begins with if nobody said anything, as in a resumed task."""
ReadArtifact = Callable[[str], Awaitable[bytes]]
Input = list[dict[str, Any]]


def split(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the history and what the user said since: a thread that codex does not know begins with them."""
    places = range(len(messages), 0, -1)
    place = next((place for place in places if messages[place - 1].role != "user"), 0)
    return messages[:place], messages[place:]


async def turn_input(messages: Sequence[Message], read: ReadArtifact) -> Input:
    """Return the input of a turn. Results of calls whose end codex did not see are given as text."""
    parts: Input = []
    for message in messages:
        for block in message.content:
            part = await _part(block, read)
            if part is not None:
                parts.append(part)
    return parts or [_text(GO_ON)]


def history(messages: Sequence[Message]) -> Input:
    """Return messages as items of the Responses API. Reasoning is left out: it is never sent to another runtime."""
    items: Input = []
    for message in messages:
        spoken = [text for block in message.content if (text := _words(block))]
        if spoken:
            items.append(_message(message.role, "\n".join(spoken)))
        for block in message.content:
            if isinstance(block, ToolUse):
                items.append(_function_call(block))
            elif isinstance(block, ToolResult):
                output = {"type": "function_call_output", "call_id": _call_id(block)}
                items.append({**output, "output": _readable(block.result)})
    return items


async def _part(block: ContentBlock, read: ReadArtifact) -> dict[str, Any] | None:
    if isinstance(block, ArtifactBlock):
        return await _image(block, read)
    if isinstance(block, ToolResult):
        return _text(f"The result of the tool call {block.tool_call_id}: {_readable(block.result)}")
    words = _words(block)
    return _text(words) if words else None


async def _image(block: ArtifactBlock, read: ReadArtifact) -> dict[str, Any]:
    kind = block.content_type or ""
    if not kind.startswith("image/"):
        raise InvalidRequest(f"codex takes images, not {kind or 'files of an unknown type'}.")
    data = base64.b64encode(await read(block.artifact_id)).decode()
    return {"type": "image", "url": f"data:{kind};base64,{data}"}


def _words(block: ContentBlock) -> str | None:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Code):
        return f"```{block.language or ''}\n{block.code}\n```"
    if isinstance(block, ArtifactBlock):
        return f"[attachment: {block.name or block.content_type or block.artifact_id}]"
    return None


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    name = {"assistant": "assistant", "system": "developer"}.get(role, "user")
    return {"type": "message", "role": name, "content": [{"type": kind, "text": text}]}


def _function_call(block: ToolUse) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": _call_id(block),
        "namespace": NAMESPACE,
        "name": wire_name(block.name),
        "arguments": json.dumps(block.input, ensure_ascii=False, separators=(",", ":")),
    }


def _call_id(block: ToolUse | ToolResult) -> str:
    """Return the id of an attempt: each is a call of its own."""
    return block.tool_call_id if block.attempt == 1 else f"{block.tool_call_id}_{block.attempt}"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _readable(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
