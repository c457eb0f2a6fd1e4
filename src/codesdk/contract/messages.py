"""Messages: the transcript that every runtime's input is compiled from.

A transcript is a list of `Message`; its content blocks are a tagged union on `type`.
"""

from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


class ArtifactRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stored bytes: found by `artifact_id`, identified in hashes by `content_hash` alone."""

    artifact_id: str
    content_hash: str
    content_type: str
    size_bytes: int
    name: str | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The parent of all content blocks."""


class Text(Block, frozen=True, kw_only=True, tag="text"):
    """Plain text."""

    text: str


class Code(Block, frozen=True, kw_only=True, tag="code"):
    """Source code, with its language where known."""

    code: str
    language: str | None = None


class Opaque(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider wants back with its own answer when the conversation goes on: signatures, encrypted thoughts.

    Only the runtime that wrote it can read it, and no other is given it. The engine says which one that is.
    """

    runtime: str
    data: Any


class Reasoning(Block, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought. Kept, never sent to another runtime. Without text, only its `details` count."""

    text: str
    details: Opaque | None = None


class ArtifactBlock(Block, frozen=True, kw_only=True, tag="artifact_ref"):
    """A file or image, by reference."""

    artifact_id: str
    content_hash: str | None = None
    content_type: str | None = None
    name: str | None = None


class ToolUse(Block, frozen=True, kw_only=True, tag="tool_use"):
    """A call that the assistant asked for. `attempt` is over 1 when CodeSDK issued it again."""

    tool_call_id: str
    name: str
    input: Any
    attempt: int = 1


class ToolResult(Block, frozen=True, kw_only=True, tag="tool_result"):
    """What came back from a call, or why it was denied."""

    tool_call_id: str
    result: Any
    is_error: bool = False
    attempt: int = 1
    result_ref: ArtifactRef | None = None


AssistantBlock = Text | Code | Reasoning | ArtifactBlock
ContentBlock = Text | Code | Reasoning | ArtifactBlock | ToolUse | ToolResult


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A run of messages of a transcript, by their indexes, both included."""

    first: int
    last: int


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a transcript. `summary_of`: it sums up older ones, and the engine wrote it."""

    role: Role
    content: list[ContentBlock]
    message_id: str | None = None
    summary_of: Span | None = None


def user(text: str) -> Message:
    """Return a user message of one text block."""
    return Message(role="user", content=[Text(text=text)])


def text_of(content: list[ContentBlock] | list[AssistantBlock]) -> str:
    """Return the text and code of a message's blocks, joined; reasoning is left out."""
    parts: list[str] = []
    for block in content:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, Code):
            parts.append(block.code)
    return "".join(parts)
