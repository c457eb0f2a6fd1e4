"""What an editor sends with a prompt → a user message. Images and files are stored first and attached."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, ContentBlock, Message, Text
from codesdk.contract.service import SessionService

PromptBlock = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
_TITLE_CHARS = 60


def text_in(blocks: Sequence[PromptBlock]) -> str:
    """Return the text that a person typed."""
    return "".join(block.text for block in blocks if isinstance(block, TextContentBlock))


def title_in(blocks: Sequence[PromptBlock]) -> str | None:
    """Return a title for a session that begins with this prompt: the beginning of what it says."""
    words = " ".join(text_in(blocks).split())
    if len(words) > _TITLE_CHARS:
        words = words[:_TITLE_CHARS].rsplit(" ", 1)[0] + "…"
    return words or None


async def message_of(blocks: Sequence[PromptBlock], service: SessionService) -> Message:
    """Return the message of a prompt. Raise `InvalidRequest` for what no runtime can be given."""
    content = [await _block(block, service) for block in blocks]
    if not content:
        raise InvalidRequest("The prompt is empty: say what to do.")
    return Message(role="user", content=content)


async def _block(block: PromptBlock, service: SessionService) -> ContentBlock:
    match block:
        case TextContentBlock():
            return Text(text=block.text)
        case ImageContentBlock():
            return await _file(block.data, block.mime_type, block.uri, service)
        case AudioContentBlock():
            raise InvalidRequest("Sound cannot be given to a runtime. Send text and images.")
        case ResourceContentBlock():
            return Text(text=f"[{block.title or block.name}]({block.uri})")
        case EmbeddedResourceContentBlock(resource=TextResourceContents() as file):
            # As text, which every runtime can read: a file of its own is more than some of them take.
            return Text(text=f'\n<file uri="{file.uri}">\n{file.text}\n</file>\n')
        case EmbeddedResourceContentBlock(resource=BlobResourceContents() as file):
            kind = file.mime_type or "application/octet-stream"
            return await _file(file.blob, kind, file.uri, service)
        case _:
            raise InvalidRequest("The prompt has an unknown kind of content. Send text, images or files.")


async def _file(data: str, kind: str, uri: str | None, service: SessionService) -> ArtifactBlock:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("An image or file in the prompt is not base64.") from None
    ref = await service.put_artifact(content, kind, _name(uri))
    return ArtifactBlock(
        artifact_id=ref.artifact_id,
        content_hash=ref.content_hash,
        content_type=ref.content_type,
        name=ref.name,
    )


def _name(uri: str | None) -> str | None:
    try:
        found = PurePosixPath(unquote(urlsplit(uri or "").path)).name
    except ValueError:
        return None
    return found if found and found.isprintable() else None
