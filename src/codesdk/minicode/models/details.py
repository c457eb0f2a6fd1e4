"""What a provider wants back with its own answers ↔ the details of a message's reasoning. Pure.

A message has one `Opaque`, on its first block of reasoning: a note for each part of the answer, in order. If the message
is no longer what the provider wrote, because something in it was redacted or left out, its details do not count.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from codesdk.contract.messages import ContentBlock, Opaque, Reasoning, ToolUse

RUNTIME = "minicode"
MAX_BYTES = 4 * 1024 * 1024
"""More is not kept: the message must still fit into an event."""
Kind = Literal["reasoning", "text", "call"]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What belongs to one part of an answer beside what everybody can read."""

    kind: Kind
    id: str | None = None
    signature: str | None = None
    details: dict[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is lost without it."""
        return self.id is None and self.signature is None and not self.details


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    origin: str
    notes: list[Note]
    digest: str
    carried: bool = False
    """Whether the block it lies on was made for it alone."""


def with_notes(origin: str, content: Sequence[ContentBlock], notes: Sequence[Note]) -> list[ContentBlock]:
    """Return the content of an answer with what its provider wants back; as it is if that is nothing."""
    blocks = list(content)
    if all(note.is_empty for note in notes):
        return blocks
    at = next((place for place, block in enumerate(blocks) if isinstance(block, Reasoning)), None)
    kept = _Kept(origin=origin, notes=list(notes), digest=_digest(origin, blocks, notes), carried=at is None)
    data = msgspec.to_builtins(kept)
    if len(msgspec.json.encode(data)) > MAX_BYTES:
        return blocks
    details = Opaque(runtime=RUNTIME, data=data)
    if at is None:
        return [Reasoning(text="", details=details), *blocks]
    first = blocks[at]
    assert isinstance(first, Reasoning)
    blocks[at] = msgspec.structs.replace(first, details=details)
    return blocks


def notes_of(origin: str, content: Sequence[ContentBlock]) -> tuple[list[ContentBlock], list[Note] | None]:
    """Return the blocks of an answer and the note of each, or None if its provider is not the one of `origin`.

    Without notes, the blocks have no reasoning: nobody but its own provider is told what a model thought.
    """
    for place, block in enumerate(content):
        if not isinstance(block, Reasoning) or block.details is None:
            continue
        kept = _read(block.details)
        if kept is None or kept.origin != origin:
            break
        blocks = [one for at, one in enumerate(content) if at != place or not kept.carried]
        if _kinds(blocks) == [note.kind for note in kept.notes] and kept.digest == _digest(
            origin, blocks, kept.notes
        ):
            return blocks, kept.notes
        break
    return [block for block in content if not isinstance(block, Reasoning)], None


def _read(details: Opaque) -> _Kept | None:
    if details.runtime != RUNTIME:
        return None
    try:
        return msgspec.convert(details.data, _Kept)
    except msgspec.ValidationError:
        return None


def _kinds(blocks: Sequence[ContentBlock]) -> list[Kind]:
    return [_kind(block) for block in blocks]


def _kind(block: ContentBlock) -> Kind:
    if isinstance(block, Reasoning):
        return "reasoning"
    return "call" if isinstance(block, ToolUse) else "text"


def _digest(origin: str, blocks: Sequence[ContentBlock], notes: Sequence[Note]) -> str:
    """Return what changes if a note does, or a thought that is signed. What was said may be redacted."""
    thoughts = [block.text for block in blocks if isinstance(block, Reasoning)]
    return hashlib.sha256(msgspec.json.encode([origin, thoughts, list(notes)])).hexdigest()
