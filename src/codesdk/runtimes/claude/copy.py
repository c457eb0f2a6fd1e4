"""Claude's own file of a conversation → whether claude can resume from it: it must hold all that was said.

Claude writes the file some time after it spoke, so the end may be missing if it was killed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.messages import Message, Text


def has_copy(config: Path, conversation: str, messages: Sequence[Message]) -> bool:
    """Return whether claude's file has the last answer, and with it everything before. Blocking."""
    answer = next((message for message in reversed(messages) if message.role == "assistant"), None)
    folders = config / "projects"
    if answer is None or answer.message_id is None or not folders.is_dir():
        return False
    files = [folder / f"{conversation}.jsonl" for folder in folders.iterdir()]
    return any(path.is_file() and _holds(path.read_bytes(), answer) for path in files)


def _holds(data: bytes, answer: Message) -> bool:
    """Return whether a message is there with all of its texts. Each of its blocks is a line of its own."""
    lines = [line for line in data.split(b"\n") if (answer.message_id or "").encode() in line]
    blocks = [block for line in lines for block in _blocks(line, answer.message_id)]
    written = [block.get("text") for block in blocks]
    return bool(blocks) and all(
        block.text in written for block in answer.content if isinstance(block, Text) and block.text
    )


def _blocks(line: bytes, message_id: str | None) -> Iterator[dict[str, Any]]:
    try:
        record = msgspec.json.decode(line, type=_Line)
    except (ValueError, RecursionError):
        return
    if record.message is not None and record.message.id == message_id:
        yield from record.message.content


class _Said(msgspec.Struct):
    content: list[dict[str, Any]]
    id: str | None = None


class _Line(msgspec.Struct):
    message: _Said | None = None
