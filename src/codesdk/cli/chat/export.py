"""A transcript → a Markdown file for people."""

from pathlib import Path

import msgspec

from codesdk.cli.view.gist import who
from codesdk.cli.view.safe import printable
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
from codesdk.contract.records import SessionRow, Supplement


def export_text(row: SessionRow, messages: list[Message], beside: list[Supplement]) -> str:
    """Return a conversation as Markdown."""
    head = f"# {row.title or 'A conversation'}\n\n{row.runtime}, session {row.session_id}, {row.created_at}\n"
    parts = [f"## {message.role}\n\n" + "\n\n".join(map(_block, message.content)) for message in messages]
    parts += [f"## beside it: {one.supplement_id}, by {who(one.by)}\n\n{_beside(one)}" for one in beside]
    return printable("\n\n".join([head, *parts]) + "\n")


def write_new(name: str, text: str) -> Path:
    """Write a file that is not there yet, for its owner alone. Return its path."""
    path = Path(name).expanduser()
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise InvalidRequest(f"{path} is there already. Name another file: /export FILE.") from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}.") from None
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def _block(block: ContentBlock) -> str:
    match block:
        case Text():
            return block.text
        case Code():
            return _fenced(block.code, block.language or "")
        case Reasoning():
            return "\n".join(f"> {line}" for line in block.text.split("\n"))
        case ArtifactBlock():
            return f"[{block.name or block.artifact_id}]"
        case ToolUse():
            return f"`{block.name}`\n\n{_fenced(_json(block.input), 'json')}"
        case ToolResult():
            result = block.result if isinstance(block.result, str) else _json(block.result)
            return ("failed:\n\n" if block.is_error else "") + _fenced(result, "")


def _beside(one: Supplement) -> str:
    text = [] if one.text is None else [one.text]
    return "\n\n".join([*text, *([] if one.data is None else [_fenced(_json(one.data), "json")])])


def _fenced(text: str, language: str) -> str:
    fence = "```"
    while fence in text:  # whatever the text contains, it stays inside
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode("utf-8", "replace")
