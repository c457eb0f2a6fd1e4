"""Messages of a task → the blocks of a prompt: the new ones if the agent has its own copy, else the whole conversation."""

import base64
from collections.abc import Sequence
from typing import Any

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Message
from codesdk.runtimes.acp.row import AgentRow
from codesdk.runtimes.program.retelling import Attach, Content, Reader, content_of, retold, text_block

GUARD = "[user]"
"""Before a prompt that the agent would take for a command of its own."""


async def prompt_of(row: AgentRow, messages: Sequence[Message], read: Reader, *, whole: bool) -> Content:
    """Return a prompt. Raise `InvalidRequest` for an attachment that the agent cannot read."""
    telling = retold if whole else content_of
    content = await telling(messages, read, _attach(row))
    first = next((block["text"] for block in content if block["type"] == "text"), "")
    return [text_block(GUARD), *content] if first.lstrip().startswith(row.commands or ("\0",)) else content


async def said_of(row: AgentRow, messages: Sequence[Message], read: Reader) -> Content:
    """Return messages as a prompt has them when an agent goes on with its own copy."""
    return await content_of(messages, read, _attach(row))


def _attach(row: AgentRow) -> Attach:
    async def attach(block: ArtifactBlock, read: Reader) -> dict[str, Any]:
        kind = (block.content_type or "").partition(";")[0]
        if kind.startswith("image/") and row.images:
            data = base64.b64encode(await read(block.artifact_id)).decode()
            return {"type": "image", "mimeType": kind, "data": data}
        if kind.startswith("text/") or kind == "application/json":
            text = (await read(block.artifact_id)).decode("utf-8", "replace")
            return text_block(f"{block.name or 'attached'}:\n{text}")
        takes = "images and text" if row.images else "text"
        raise InvalidRequest(
            f"The agent {row.name} takes {takes}, not {kind or 'an attachment without a content type'}."
        )

    return attach
