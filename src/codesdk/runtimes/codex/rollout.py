"""The file in which codex keeps a thread, to what it has of a conversation. Only read; codex writes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.messages import Code, Message, Text


class _Item(msgspec.Struct):
    type: str = ""
    role: str | None = None
    content: list[dict[str, Any]] | None = None


class _Line(msgspec.Struct):
    type: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")


def find_rollout(home: Path, thread_id: str) -> Path | None:
    """Return codex's file of a thread. An id that a pattern could read in another way is not codex's."""
    if not thread_id.replace("-", "").isalnum():
        return None
    return next(home.glob(f"sessions/*/*/*/rollout-*-{thread_id}.jsonl"), None)


def in_rollout(home: Path, thread_id: str, tail: Sequence[Message]) -> int | None:
    """Return how many of the last messages a thread has in its file, or None if there is no file. Blocking.

    `tail` begins with the model's last answer, which codex has, or has dropped because it was cut off. What it was
    told after that is in the file if the turn had begun.
    """
    path = find_rollout(home, thread_id)
    if path is None:
        return None
    told = _told_last(path.read_bytes())
    count = 1
    for message in tail[1:]:
        texts = _texts(message)
        if message.role == "user":  # results of tools went to the turn that called them
            if not texts or any(text not in told for text in texts):
                break
            for text in texts:
                told.remove(text)
        count += 1
    return count


def _told_last(data: bytes) -> list[str]:
    """Return what users said after the last answer in the file."""
    told: list[str] = []
    for line in data.split(b"\n"):
        try:
            record = msgspec.json.decode(line, type=_Line)
            item = msgspec.json.decode(record.payload, type=_Item)
        except (ValueError, RecursionError):
            continue  # cut off by a crash, or of a kind that says nothing here
        if record.type == "response_item" and item.type == "message":
            if item.role == "assistant":
                told = []
            elif item.role == "user":
                told += [str(part.get("text", "")) for part in item.content or []]
    return told


def _texts(message: Message) -> list[str]:
    return [
        block.text if isinstance(block, Text) else block.code
        for block in message.content
        if isinstance(block, Text | Code)
    ]
