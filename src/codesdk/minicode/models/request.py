"""A `ModelRequest` → the messages and tools of pydantic-ai. Our names become names that providers allow, and attachments bytes."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage as LibraryMessage,
    ModelRequest as LibraryRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition as LibraryTool

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
    text_of,
)
from codesdk.minicode.models.details import Note, notes_of
from codesdk.minicode.models.settings import ReadArtifact
from codesdk.minicode.types import ToolDefinition
from codesdk.tools import wire_name

_READABLE = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
_BARE = Note(kind="text")


class Writer:
    """Writes requests for one provider. `system` is what the library calls it, `origin` what we do.

    `tells_errors`: whether its format has a place for saying that a result is an error.
    """

    def __init__(self, origin: str, system: str, read_artifact: ReadArtifact, *, tells_errors: bool) -> None:
        self._origin = origin
        self._system = system
        self._read = read_artifact
        self._tells_errors = tells_errors

    async def messages(self, messages: Sequence[Message]) -> list[LibraryMessage]:
        """Return a conversation. What follows an answer is one request, whoever said it."""
        written: list[LibraryMessage] = []
        names: dict[str, str] = {}
        asked: list[ModelRequestPart] = []
        for message in messages:
            if message.role == "assistant":
                if asked:
                    written.append(LibraryRequest(parts=asked))
                    asked = []
                answer = self._answer(message, names)
                if answer.parts:
                    written.append(answer)
            else:
                asked += await self._asked(message, names)
        if asked or not written:
            written.append(LibraryRequest(parts=asked))
        return written

    def tools(self, tools: Sequence[ToolDefinition]) -> list[LibraryTool]:
        """Return tools as they are offered, with their schemas untouched."""
        return [
            LibraryTool(
                name=wire_name(tool.name),
                description=tool.description,
                parameters_json_schema=tool.input_schema,
                strict=False,
            )
            for tool in tools
        ]

    def _answer(self, message: Message, names: dict[str, str]) -> ModelResponse:
        blocks, notes = notes_of(self._origin, message.content)
        parts: list[ModelResponsePart] = []
        for place, block in enumerate(blocks):
            if isinstance(block, ToolUse):
                names[block.tool_call_id] = wire_name(block.name)
            part = self._part(block, notes[place] if notes is not None else _BARE)
            if part is not None:
                parts.append(part)
        return ModelResponse(parts=parts, provider_name=self._system if notes is not None else None)

    def _part(self, block: ContentBlock, note: Note) -> ModelResponsePart | None:
        whose = None if note.is_empty else self._system
        match block:
            case Text(text=text) | Code(code=text) if text:
                return TextPart(content=text, id=note.id, provider_name=whose, provider_details=note.details)
            case Reasoning():
                return ThinkingPart(
                    content=block.text,
                    id=note.id,
                    signature=note.signature,
                    provider_name=self._system,
                    provider_details=note.details,
                )
            case ToolUse():
                return ToolCallPart(
                    tool_name=wire_name(block.name),
                    args=_arguments(block.input),
                    tool_call_id=block.tool_call_id,
                    id=note.id,
                    provider_name=whose,
                    provider_details=note.details,
                )
            case _:
                return None

    async def _asked(self, message: Message, names: dict[str, str]) -> list[ModelRequestPart]:
        if message.role == "system":
            return [SystemPromptPart(content=text_of(message.content))]
        parts: list[ModelRequestPart] = []
        said: list[UserContent] = []
        for block in message.content:
            if isinstance(block, ToolResult):
                parts.append(self._result(block, names))
            elif isinstance(block, Text | Code):
                said.append(block.text if isinstance(block, Text) else block.code)
            elif isinstance(block, ArtifactBlock):
                said += await self._attachment(block)
        if said:
            only = said[0] if len(said) == 1 and isinstance(said[0], str) else said
            parts.append(UserPromptPart(content=only))
        return parts

    def _result(self, block: ToolResult, names: dict[str, str]) -> ToolReturnPart:
        return ToolReturnPart(
            tool_name=names.get(block.tool_call_id, "unknown"),
            content=readable(block.result),
            tool_call_id=block.tool_call_id,
            outcome="failed" if block.is_error and self._tells_errors else "success",
        )

    async def _attachment(self, block: ArtifactBlock) -> list[UserContent]:
        data = await self._read(block.artifact_id)
        kind = (block.content_type or "").partition(";")[0].strip().lower()
        name = block.name or block.artifact_id
        if kind.startswith("image/") or kind == "application/pdf":
            return [BinaryContent(data=data, media_type=kind)]
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is None or (kind and not kind.startswith(_READABLE)):
            raise InvalidRequest(
                f"The attachment {name!r} ({kind or 'of unknown type'}) cannot be given to a model. Attach text, images"
                " or PDF files."
            )
        return [f"The file {name}:\n\n{text}"]


def readable(result: Any) -> str:
    """Return a tool's result as the text that a model reads: itself, or its JSON."""
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


def _arguments(given: Any) -> str | dict[str, Any]:
    """Return the input of a call as the model wrote it: an object, or text that was none."""
    if isinstance(given, dict):
        return cast("dict[str, Any]", given)
    return readable(given)
