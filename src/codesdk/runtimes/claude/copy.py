"""The file in which claude keeps a conversation, to what it has of ours. Only read; claude writes it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.messages import Message, Text, ToolUse


def in_copy(config: Path, conversation: str, tail: Sequence[Message]) -> int | None:
    """Return how many of the last messages claude's own file has, or None if it may miss more than users' words. Blocking.

    Claude writes the file some time after it spoke, so the end may be missing if it was killed; with the last answer
    it has everything before. An answer with a tool call may lack the result: claude was cut off there.
    """
    answer, *since = tail
    cut_off = any(isinstance(block, ToolUse) for block in answer.content)
    if cut_off or answer.message_id is None or any(message.role != "user" for message in since):
        return None
    folders = config / "projects"
    files = [folder / f"{conversation}.jsonl" for folder in folders.iterdir()] if folders.is_dir() else []
    lines = next((path.read_bytes().split(b"\n") for path in files if path.is_file()), list[bytes]())
    end = _end_of(lines, answer)
    if end is None:
        return None
    return 1 + _count_told(since, [text for line in lines[end:] for text in _words(line)])


def _count_told(messages: Sequence[Message], told: list[str]) -> int:
    """Return how many of these messages were told, the first ones. Each text counts once; one without any was not."""
    for count, message in enumerate(messages):
        texts = _texts(message)
        if not texts or any(text not in told for text in texts):
            return count
        for text in texts:
            told.remove(text)
    return len(messages)


def _end_of(lines: Sequence[bytes], answer: Message) -> int | None:
    """Return the place after an answer, if it is there with all of its texts. Each of its blocks is a line of its own."""
    places = [n for n, line in enumerate(lines) if (answer.message_id or "").encode() in line]
    blocks = [block for n in places for block in _blocks(lines[n], answer.message_id)]
    written = [block.get("text") for block in blocks]
    whole = bool(blocks) and all(text in written for text in _texts(answer))
    return places[-1] + 1 if whole else None


def _texts(message: Message) -> list[str]:
    return [block.text for block in message.content if isinstance(block, Text) and block.text]


def _words(line: bytes) -> Iterator[str]:
    """Yield the texts of a line of the file that a user said."""
    try:
        record = msgspec.json.decode(line, type=_Line)
    except (ValueError, RecursionError):
        return
    if record.type == "user" and record.message is not None:
        content = record.message.content
        yield from [content] if isinstance(content, str) else (str(block.get("text")) for block in content)


def _blocks(line: bytes, message_id: str | None) -> Iterator[dict[str, Any]]:
    try:
        record = msgspec.json.decode(line, type=_Line)
    except (ValueError, RecursionError):
        return
    if record.message is not None and record.message.id == message_id:
        content = record.message.content
        yield from () if isinstance(content, str) else content


class _Said(msgspec.Struct):
    content: list[dict[str, Any]] | str
    id: str | None = None


class _Line(msgspec.Struct):
    type: str = ""
    message: _Said | None = None
