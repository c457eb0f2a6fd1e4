"""The file in which codex keeps a thread, to what it has of a conversation. Only read; codex writes it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.runtimes.program.unanswered import Sent, count_told, own_lines


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


def in_rollout(home: Path, thread_id: str, since: Sequence[Sent]) -> int | None:
    """Return how many messages a thread has in its file, the model's last answer and what was said since then.

    None if there is no file, or one too large to be read. Codex has the answer, or has dropped it because it was cut
    off. What it was told after that is in the file if the turn had begun; results of tools went to the turn that
    called them. Blocking.
    """
    path = find_rollout(home, thread_id)
    lines = None if path is None else own_lines(path)
    return None if lines is None else 1 + count_told(since, *_told_last(lines))


def _told_last(lines: Iterable[bytes]) -> tuple[list[str], int]:
    """Return what users said after the last answer in the file: the texts, and how many images."""
    told: list[dict[str, Any]] = []
    for line in lines:
        try:
            record = msgspec.json.decode(line, type=_Line)
            item = msgspec.json.decode(record.payload, type=_Item)
        except (ValueError, RecursionError):
            continue  # cut off by a crash, or of a kind that says nothing here
        if record.type == "response_item" and item.type == "message":
            if item.role == "assistant":
                told = []
            elif item.role == "user":
                told += item.content or []
    images = sum(part.get("type") == "input_image" for part in told)
    return [str(part.get("text", "")) for part in told], images
