"""Messages of a task → what claude is told: the new ones if it goes on with its own copy, else the whole conversation."""

import base64
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
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
from codesdk.runtimes.claude import NAME

GO_ON = "Go on where you left off."
RETOLD = "This conversation was held before, with the tool calls that were made. Go on from its end."
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Content = list[dict[str, Any]]
Reader = Callable[[str], Awaitable[bytes]]
"""Returns the bytes of an artifact."""


async def content_of(messages: Iterable[Message], read: Reader) -> Content:
    """Return what a user says, as blocks. Raise `InvalidRequest` for an attachment that claude cannot read."""
    content: Content = []
    for message in messages:
        for block in message.content:
            content.append(await _block(block, read))
    return content or [{"type": "text", "text": GO_ON}]


async def retold(messages: Sequence[Message], read: Reader) -> Content:
    """Return a whole conversation for a claude that does not know it: what was said before as text, then the new."""
    count = next((n for n, message in enumerate(reversed(messages)) if message.role != "user"), len(messages))
    before, fresh = messages[: len(messages) - count], messages[len(messages) - count :]
    if not before:
        return await content_of(fresh, read)
    content: Content = [{"type": "text", "text": RETOLD}]
    for message in before:
        for block in message.content:
            if isinstance(block, ArtifactBlock):
                content.append(await _block(block, read))
            elif not isinstance(block, Reasoning):
                content.append({"type": "text", "text": f"[{message.role}]\n{_told(block)}"})
    return [*content, {"type": "text", "text": "[user]"}, *await content_of(fresh, read)]


def _told(block: ContentBlock) -> str:
    match block:
        case Text():
            return block.text
        case Code():
            return block.code
        case ToolUse():
            return f"called {block.name} with {msgspec.json.encode(block.input).decode()}"
        case ToolResult():
            result = (
                block.result if isinstance(block.result, str) else msgspec.json.encode(block.result).decode()
            )
            return f"failed: {result}" if block.is_error else result
        case _:
            return ""


async def _block(block: ContentBlock, read: Reader) -> dict[str, Any]:
    if isinstance(block, ArtifactBlock):
        return await _attachment(block, read)
    return {"type": "text", "text": _told(block)}


async def _attachment(block: ArtifactBlock, read: Reader) -> dict[str, Any]:
    kind = (block.content_type or "").partition(";")[0]
    if kind in IMAGES or kind == "application/pdf":
        data = base64.b64encode(await read(block.artifact_id)).decode()
        source = {"type": "base64", "media_type": kind, "data": data}
        return {"type": "document" if kind == "application/pdf" else "image", "source": source}
    if kind.startswith("text/") or kind == "application/json":
        text = (await read(block.artifact_id)).decode("utf-8", "replace")
        return {"type": "text", "text": f"{block.name or 'attached'}:\n{text}"}
    raise InvalidRequest(
        f"{NAME} takes images, PDF and text, not {kind or 'an attachment without a content type'}.",
        runtime=NAME,
    )
