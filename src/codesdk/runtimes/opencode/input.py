"""Messages of a task → what opencode is told: the new ones if it goes on with its own copy, else the whole conversation."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Message
from codesdk.runtimes.opencode import NAME
from codesdk.runtimes.program import retelling
from codesdk.runtimes.program.retelling import Content, Reader, text_block

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def parts_of(messages: Iterable[Message], read: Reader) -> Content:
    """Return what a user says, as parts. Raise `InvalidRequest` for an attachment that opencode cannot pass on."""
    return await retelling.content_of(messages, read, _attachment)


async def retold(messages: Sequence[Message], read: Reader) -> Content:
    """Return a whole conversation for an opencode that does not know it: what was said before as text, then the new.

    Opencode takes nothing but what a user says, so a history cannot be given in any other way.
    """
    return await retelling.retold(messages, read, _attachment)


async def _attachment(block: ArtifactBlock, read: Reader) -> dict[str, Any]:
    kind = (block.content_type or "").partition(";")[0]
    if kind in IMAGES:
        data = base64.b64encode(await read(block.artifact_id)).decode()
        return {
            "type": "file",
            "mime": kind,
            "filename": block.name or "image",
            "url": f"data:{kind};base64,{data}",
        }
    if kind.startswith("text/") or kind == "application/json":
        text = (await read(block.artifact_id)).decode("utf-8", "replace")
        return text_block(f"{block.name or 'attached'}:\n{text}")
    raise InvalidRequest(
        f"{NAME} takes images and text, not {kind or 'an attachment without a content type'}.", runtime=NAME
    )
