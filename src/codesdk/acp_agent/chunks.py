"""What is said in a session → pieces of messages as ACP has them, and neighbours joined. Pure."""

import base64
from collections.abc import Callable
from typing import NamedTuple

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    ImageContentBlock,
    ResourceContentBlock,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from codesdk.contract.messages import ArtifactBlock, Code, ContentBlock, Message, Reasoning, Text

Update = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)

MAX_READ_BYTES = 4 * 1024 * 1024


class Wanted(NamedTuple):
    """An update that needs the bytes of artifacts. Those that cannot be read are None."""

    artifact_ids: list[str]
    make: Callable[[list[bytes | None]], list[Update]]


def merged(updates: list[Update]) -> list[Update]:
    """Return updates with neighbours joined: pieces of one message, and the growing output of one call."""
    found: list[Update] = []
    for update in updates:
        joined = _joined(found[-1], update) if found else None
        if joined is None:
            found.append(update)
        else:
            found[-1] = joined
    return found


def _joined(first: Update, second: Update) -> Update | None:
    match first, second:
        case (
            AgentMessageChunk(content=TextContentBlock() as one),
            AgentMessageChunk(content=TextContentBlock() as two),
        ) | (
            AgentThoughtChunk(content=TextContentBlock() as one),
            AgentThoughtChunk(content=TextContentBlock() as two),
        ) if first.message_id and first.message_id == second.message_id:
            make = thought_chunk if isinstance(first, AgentThoughtChunk) else message_chunk
            return make(one.text + two.text, first.message_id)
        case ToolCallProgress(status=None), ToolCallProgress(status=None):
            grows = first.tool_call_id == second.tool_call_id and second.content is not None
            return second if grows and first.field_meta is None else None
        case _:
            return None


def message_chunk(text: str, message_id: str | None = None) -> AgentMessageChunk:
    content = TextContentBlock(type="text", text=text)
    return AgentMessageChunk(session_update="agent_message_chunk", content=content, message_id=message_id)


def thought_chunk(text: str, message_id: str | None = None) -> AgentThoughtChunk:
    content = TextContentBlock(type="text", text=text)
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=content, message_id=message_id)


def block_chunk(block: ContentBlock, message_id: str) -> Update | Wanted:
    match block:
        case Text(text=text):
            return message_chunk(text, message_id)
        case Code(code=code, language=language):
            return message_chunk(f"\n```{language or ''}\n{code}\n```\n", message_id)
        case Reasoning(text=text):
            return thought_chunk(text, message_id)
        case ArtifactBlock():
            link = _link(block)
            return AgentMessageChunk(
                session_update="agent_message_chunk", content=link, message_id=message_id
            )
        case _:
            return message_chunk("", message_id)


def user_chunks(messages: list[Message]) -> list[Update | Wanted]:
    """Return what somebody else said, or what was said before this editor came."""
    updates: list[Update | Wanted] = []
    for block in (block for message in messages for block in message.content):
        if isinstance(block, Text):
            updates.append(_user_chunk(TextContentBlock(type="text", text=block.text)))
        elif isinstance(block, ArtifactBlock):
            updates.append(_attached(block))
    return updates


def _attached(block: ArtifactBlock) -> Update | Wanted:
    kind = block.content_type or ""
    if not kind.startswith("image/"):
        return _user_chunk(_link(block))

    def make(images: list[bytes | None]) -> list[Update]:
        if images[0] is None or len(images[0]) > MAX_READ_BYTES:
            return [_user_chunk(_link(block))]
        data = base64.b64encode(images[0]).decode()
        return [_user_chunk(ImageContentBlock(type="image", data=data, mime_type=kind))]

    return Wanted([block.artifact_id], make)


def _user_chunk(content: TextContentBlock | ImageContentBlock | ResourceContentBlock) -> UserMessageChunk:
    return UserMessageChunk(session_update="user_message_chunk", content=content)


def _link(block: ArtifactBlock) -> ResourceContentBlock:
    name = block.name or block.artifact_id
    uri = f"codesdk://artifacts/{block.artifact_id}"
    return ResourceContentBlock(type="resource_link", name=name, uri=uri, mime_type=block.content_type)
