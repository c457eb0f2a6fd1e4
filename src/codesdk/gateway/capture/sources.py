"""A model request → what in it CodeSDK did not write: the document behind `implicit_sources_ref`.

Every block of the request is either CodeSDK's own or listed here with its origin. Pure: the caller reads
the files. docs/implicit-sources.md says what counts as a source. `sources_blocks` finds the blocks,
`sources_cut` cuts texts.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from codesdk.contract.canonical import content_hash
from codesdk.contract.models import OwnTexts
from codesdk.gateway.capture.sources_blocks import Block, Kind, Role, blocks_of
from codesdk.gateway.capture.sources_cut import Cut, Files, Piece, Pool, Steps
from codesdk.gateway.wires.exchange import Ask
from codesdk.tools import offered_as


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A block, or a part of one, and its origin: `own`, `runtime`, `blank` or `file:<label>`.

    `text` is empty for what the session itself produced, which is not examined. `precedence` counts from 1
    in the order in which the request reaches the model.
    """

    place: str
    offset_bytes: int
    role: Role | None
    kind: Kind
    origin: str
    text: str
    precedence: int
    extent: str | None = None
    same_text: Sequence[str] = ()


class ImplicitSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that reached the model and that CodeSDK did not write.

    `place` is the JSON pointer of a string, in which the source begins at `offset_bytes` of its UTF-8 form and has
    `size_bytes`; or of a tool or another object, taken as canonical JSON. `content_hash` is over those bytes.
    `extent` says whether all of a file is there; `same_text` names other files with the same text.
    """

    place: str
    role: Role | None
    kind: Kind
    origin: str
    size_bytes: int
    content_hash: str
    precedence: int
    offset_bytes: int = 0
    extent: str | None = None
    same_text: Sequence[str] = ()


def implicit_sources(ask: Ask, own: OwnTexts, files: Mapping[str, bytes] | Files) -> list[ImplicitSource]:
    """Return every source of a request that is not CodeSDK's, in the order in which they reach the model.

    Hashes are over what is given, so pass a redacted request, and texts redacted the same way.
    """
    return [_source(each) for each in account(ask, own, files) if each.origin not in ("own", "blank")]


def account(ask: Ask, own: OwnTexts, files: Mapping[str, bytes] | Files) -> list[Stretch]:
    """Return the whole request as stretches: each block once, in order, and each text without gaps."""
    blocks = list(blocks_of(ask))
    origins = _Judge(own, files).judge(blocks)
    stretches: list[Stretch] = []
    for block, pieces in zip(blocks, origins, strict=True):
        stretches.extend(_stretches(block, pieces, len(stretches)))
    return stretches


def sources_document(sources: Sequence[ImplicitSource]) -> dict[str, Any]:
    """Return the JSON document of a request's sources."""
    return {"sources": msgspec.to_builtins(sources)}


class _Judge:
    """Finds the origin of each block. For one request: a text that CodeSDK sent once is recognized once."""

    def __init__(self, own: OwnTexts, files: Mapping[str, bytes] | Files) -> None:
        self._texts = Pool([*own.system, *own.messages])
        self._results = None if own.results is None else Pool(own.results)
        self._tools = dict(own.tools)
        self._unmet = dict(own.tools)
        self._data = [base64.b64encode(data).decode() for data in own.attachments if data]
        self._files = files if isinstance(files, Files) else Files(files)
        self._steps = Steps()

    def judge(self, blocks: Sequence[Block]) -> list[list[Piece]]:
        """Return the pieces of each block."""
        # Whole blocks first, in the whole request: a longer text must not use up one that is a block itself.
        is_own = [self._is_own(block) for block in blocks]
        return [
            [_all_of(block, "own")] if known else self._cut(block)
            for block, known in zip(blocks, is_own, strict=True)
        ]

    def _is_own(self, block: Block) -> bool:
        pool = self._pool(block)
        if block.part == "session" or pool is None:
            return True
        if block.part == "tool":
            return self._is_own_tool(block)
        if block.kind == "text":
            return pool.claim(block.text)
        return any(data in block.text for data in self._data)

    def _is_own_tool(self, block: Block) -> bool:
        for name, description in self._unmet.items():
            if offered_as(name, [block.tool]) and block.description.strip() == description.strip():
                del self._unmet[name]  # a second tool of the same name and description is not ours
                return True
        return False

    def _pool(self, block: Block) -> Pool | None:
        """Return the texts a block may consist of, or None for a result that is not examined."""
        if block.part != "result":
            return self._texts
        is_runtimes = block.tool and all(offered_as(name, [block.tool]) is None for name in self._tools)
        return None if is_runtimes else self._results

    def _cut(self, block: Block) -> list[Piece]:
        if block.kind != "text":
            return [_all_of(block, "runtime")]
        if not block.text.strip():
            return [_all_of(block, "blank")]
        cut = Cut(block.text, self._steps)
        pool = self._pool(block)
        if pool is not None:
            pool.claim_within(cut)
        self._files.claim_within(cut)
        return cut.pieces()


def _all_of(block: Block, origin: Literal["own", "runtime", "blank"]) -> Piece:
    return Piece(start=0, end=len(block.text), origin=origin)


def _stretches(block: Block, pieces: Sequence[Piece], count: int) -> Iterator[Stretch]:
    offset = 0
    for number, piece in enumerate(pieces):
        text = block.text[piece.start : piece.end]
        yield Stretch(
            place=block.place,
            offset_bytes=offset,
            role=block.role,
            kind=block.kind,
            origin=f"file:{piece.labels[0]}" if piece.labels else piece.origin,
            text=text,
            precedence=count + number + 1,
            extent=piece.extent,
            same_text=tuple(piece.labels[1:]),
        )
        offset += len(_bytes(text))  # offsets count bytes, because hashes are over bytes


def _source(stretch: Stretch) -> ImplicitSource:
    fields = msgspec.structs.asdict(stretch)
    data = _bytes(fields.pop("text"))
    return ImplicitSource(**fields, size_bytes=len(data), content_hash=content_hash(data))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
