"""A whole conversation → one message for a program that does not know it: what was said before as text, then the new."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from codesdk.contract.messages import (
    ArtifactBlock,
    Code,
    ContentBlock,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from codesdk.contract.ownership import GO_ON

RETOLD = "This conversation was held before, with the tool calls that were made. Go on from its end."

Content = list[dict[str, Any]]
Reader = Callable[[str], Awaitable[bytes]]
"""Returns the bytes of an artifact."""
Attach = Callable[[ArtifactBlock, Reader], Awaitable[dict[str, Any]]]
"""Returns an attachment as a block of the program's. Raises `InvalidRequest` for one that it cannot read."""


async def content_of(messages: Iterable[Message], read: Reader, attach: Attach) -> Content:
    """Return what a user says, as blocks."""
    content: Content = []
    for message in messages:
        for block in message.content:
            if isinstance(block, ArtifactBlock):
                content.append(await attach(block, read))
            else:
                content.append(text_block(_said(block)))
    return content or [text_block(GO_ON)]


async def retold(messages: Sequence[Message], read: Reader, attach: Attach) -> Content:
    """Return a whole conversation. Reasoning is left out: it is never told to another program."""
    count = next((n for n, message in enumerate(reversed(messages)) if message.role != "user"), len(messages))
    before, fresh = messages[: len(messages) - count], messages[len(messages) - count :]
    if not before:
        return await content_of(fresh, read, attach)
    content: Content = [text_block(RETOLD)]
    for message in before:
        for block in message.content:
            if isinstance(block, ArtifactBlock):
                content.append(await attach(block, read))
            elif not isinstance(block, Reasoning):
                content.append(text_block(f"[{message.role}]\n{_told(block)}"))
    return [*content, text_block("[user]"), *await content_of(fresh, read, attach)]


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def _said(block: ContentBlock) -> str:
    """Return what is said now. A result without its call, as of one that was approved meanwhile, says whose it is."""
    if isinstance(block, ToolResult):
        return f"The result of the tool call {block.tool_call_id}: {_told(block)}"
    return _told(block)


def _told(block: ContentBlock) -> str:
    match block:
        case Text():
            return block.text
        case Code():
            return f"```{block.language or ''}\n{block.code}\n```"
        case ToolUse():
            return f"called {block.name} with {msgspec.json.encode(block.input).decode()}"
        case ToolResult():
            result = (
                block.result if isinstance(block.result, str) else msgspec.json.encode(block.result).decode()
            )
            return f"failed: {result}" if block.is_error else result
        case _:
            return ""
