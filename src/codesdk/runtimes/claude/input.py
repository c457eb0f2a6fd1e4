"""Messages of a task → what claude is told: the new ones if it goes on with its own copy, else the whole conversation."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Message
from codesdk.runtimes.claude import NAME
from codesdk.runtimes.program import retelling
from codesdk.runtimes.program.retelling import Content, Reader

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def content_of(messages: Iterable[Message], read: Reader) -> Content:
    """Return what a user says, as blocks. Raise `InvalidRequest` for an attachment that claude cannot read."""
    return await retelling.content_of(messages, read, _attachment)


async def retold(messages: Sequence[Message], read: Reader) -> Content:
    """Return a whole conversation for a claude that does not know it: what was said before as text, then the new."""
    return await retelling.retold(messages, read, _attachment)


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
