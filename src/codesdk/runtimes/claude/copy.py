"""The file in which claude keeps a conversation, to what it has of ours. Only read; claude writes it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.messages import Message, Text, ToolUse
from codesdk.runtimes.program.unanswered import Sent, count_told, own_lines

_ATTACHED = ("image", "document")


def in_copy(config: Path, conversation: str, answer: Message, since: Sequence[Sent]) -> int | None:
    """Return how many of the last messages claude's own file has, or None if it may miss more than users' words.

    They are the model's last answer and what was said since then. Claude writes the file some time after it spoke, so
    the end may be missing if it was killed; with the last answer it has everything before. An answer with a tool call
    may lack the result: claude was cut off there. One that is too large is not read. Blocking.
    """
    cut_off = any(isinstance(block, ToolUse) for block in answer.content)
    if cut_off or answer.message_id is None or any(sent.role != "user" for sent in since):
        return None
    folders = config / "projects"
    paths = [folder / f"{conversation}.jsonl" for folder in folders.iterdir()] if folders.is_dir() else []
    path = next((path for path in paths if path.is_file()), None)
    lines = None if path is None else own_lines(path)
    told = None if lines is None else _told_after(lines, answer)
    if told is None:
        return None
    texts = [str(block.get("text")) for block in told if block.get("type") == "text"]
    return 1 + count_told(since, texts, sum(block.get("type") in _ATTACHED for block in told))


def _told_after(lines: Iterable[bytes], answer: Message) -> list[dict[str, Any]] | None:
    """Return what users said after an answer, if it is there with all of its texts. Each of its blocks is a line."""
    name = (answer.message_id or "").encode()
    written: list[Any] = []
    told: list[dict[str, Any]] = []
    for line in lines:
        blocks = list(_blocks(line, answer.message_id)) if name in line else []
        if blocks:
            written += [block.get("text") for block in blocks]
            told = []
        elif written:
            told += _said(line)
    texts = [block.text for block in answer.content if isinstance(block, Text) and block.text]
    return told if written and all(text in written for text in texts) else None


def _said(line: bytes) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a line of the file that a user said."""
    try:
        record = msgspec.json.decode(line, type=_Line)
    except (ValueError, RecursionError):
        return
    if record.type == "user" and record.message is not None:
        content = record.message.content
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _blocks(line: bytes, message_id: str | None) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a line that belong to an answer."""
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
