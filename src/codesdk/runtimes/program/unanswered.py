"""Messages that nobody answered → which of them a program was told, by what its own copy of the conversation has.

A message is looked for as it was sent: code in its fences, an attached file with its name. `own_lines` reads such a
copy where it is a file.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Message, Role
from codesdk.runtimes.program.retelling import Reader

MAX_COPY_BYTES = 64 * 1024 * 1024
"""A larger copy is not read. The conversation is given from the transcript instead, which is kept in bounds."""
Render = Callable[[Sequence[Message], Reader], Awaitable[list[dict[str, Any]]]]
"""Returns messages as the parts that a program is sent."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a program is sent it: its texts, and how many parts of another kind, such as images."""

    role: Role = "user"
    texts: tuple[str, ...] = ()
    others: int = 0


async def sent_of(messages: Sequence[Message], render: Render, read: Reader) -> list[Sent]:
    """Return messages as a program is sent them, up to the first that it cannot be. Only users' are looked at."""
    sent: list[Sent] = []
    for message in messages:
        if message.role != "user" or not message.content:
            sent.append(Sent(role=message.role))
            continue
        try:
            parts = await render([message], _text_reader(message, read))
        except InvalidRequest:
            break
        texts = tuple(part["text"] for part in parts if part["type"] == "text")
        sent.append(Sent(texts=tuple(filter(None, texts)), others=len(parts) - len(texts)))
    return sent


def count_told(since: Sequence[Sent], texts: list[str], others: int) -> int:
    """Return how many of these messages were told, the first ones, by what a copy has. Each part counts once.

    Its texts tell for a message that has any: programs keep images in ways of their own.
    """
    left = list(texts)
    for count, sent in enumerate(since):
        for text in sent.texts:
            if text not in left:
                return count
            left.remove(text)
        if not sent.texts and others < sent.others:
            return count
        others = max(0, others - sent.others)
    return len(since)


def own_lines(path: Path) -> Iterator[bytes] | None:
    """Return the lines of a program's own file, or None if it is none, or too large. Blocking.

    Whatever the program has put in its place: only a regular file is read, and not more of it than the limit.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_COPY_BYTES:
        os.close(handle)
        return None
    return _lines(handle)


def _lines(handle: int) -> Iterator[bytes]:
    left = MAX_COPY_BYTES
    with os.fdopen(handle, "rb") as file:
        while line := file.readline(left):
            left -= len(line)
            yield line


def _text_reader(message: Message, read: Reader) -> Reader:
    """Return what reads the images of a message as empty: they are only counted."""
    blocks = [block for block in message.content if isinstance(block, ArtifactBlock)]
    images = {block.artifact_id for block in blocks if (block.content_type or "").startswith("image/")}

    async def read_text(artifact_id: str) -> bytes:
        return b"" if artifact_id in images else await read(artifact_id)

    return read_text
