"""Selects the part of a transcript that fits a budget: the newest turns, with large tool results as previews.

`Window` keeps what fits, so that each task adds only what is new; a loaded session reads back no more than the
budget holds. What it keeps depends on the messages, the budget and the last compaction alone, not on when they
came: replay finds the same.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import msgspec

from codesdk.contract.canonical import content_hash
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import Compacted
from codesdk.contract.ids import artifact_id
from codesdk.contract.messages import ArtifactRef, ContentBlock, Reasoning, ToolResult
from codesdk.contract.ports import EventLog
from codesdk.contract.records import MessageRow
from codesdk.engine.log.transcript import estimate_tokens

PAGE_MESSAGES = 64
PREVIEW_CHARS = 400
LARGE_BYTES = 1_600
"""A tool result of more bytes is given as a preview when the budget needs room."""
WHOLE = Compacted()
RESULT = "result"
"""The name of the artifact that has the whole of a result."""


class Kept(msgspec.Struct, frozen=True):
    """A whole result of which a preview is given: what its reference refers to."""

    data: bytes
    content_type: str


class Window:
    """The newest messages of a transcript that fit a budget, starting with a user's message.

    `runtime` is the one that is given them: of what a model thought, it gets what it wants back itself. `end` is the
    message before which it ends, if not at the end of the transcript.
    """

    def __init__(
        self,
        session_id: str,
        runtime: str,
        budget_tokens: int,
        compacted: Compacted = WHOLE,
        end: int | None = None,
    ) -> None:
        self.session_id = session_id
        self.runtime = runtime
        self.budget_tokens = budget_tokens
        self.compacted = compacted
        self.tokens = 0
        self.next_index = compacted.first
        self.previews_before = compacted.previews_before
        self.summary: MessageRow | None = None
        self.rows: list[MessageRow] = []
        self.unstored: list[Kept] = []
        """What previews refer to and is not stored yet."""
        self._end = end
        self._loaded = False

    def is_for(self, runtime: str, budget_tokens: int, compacted: Compacted) -> bool:
        """Return whether it still serves a session with this runtime and budget, compacted like this."""
        return (self.runtime, self.budget_tokens, self.compacted) == (runtime, budget_tokens, compacted)

    async def catch_up(self, log: EventLog, count: int) -> None:
        """Read what the stored transcript of `count` messages holds beyond this window."""
        count = count if self._end is None else self._end
        missing = count - self.next_index
        if self._loaded and missing <= PAGE_MESSAGES:
            self.extend(await log.messages(self.session_id, before=count, limit=missing) if missing else [])
        else:
            await self._load(log, count)
        self.next_index = count

    async def _load(self, log: EventLog, count: int) -> None:
        """Read the stored transcript backwards until the budget is full."""
        before, total = count, 0
        rows: list[MessageRow] = []
        while before > self.compacted.first and total <= self.budget_tokens:
            limit = min(PAGE_MESSAGES, before - self.compacted.first)
            page = await log.messages(self.session_id, before=before, limit=limit)
            if not page:
                break
            rows = page + rows
            total += sum(_smallest(self.session_id, row) for row in page)
            before = page[0].index
        at = self.compacted.summary
        if at is not None and (not rows or at < rows[0].index):
            rows = [*await log.messages(self.session_id, before=at + 1, limit=1), *rows]
        self.replace(rows)

    def replace(self, rows: Iterable[MessageRow]) -> None:
        """Replace all rows."""
        self.rows = []
        self.tokens = 0
        self.summary = None
        self.extend(rows)
        self._loaded = True

    def extend(self, rows: Iterable[MessageRow]) -> None:
        """Add rows at the end. A summary that another one has replaced is left out."""
        for given in rows:
            self.next_index = given.index + 1
            row = _for_runtime(given, self.runtime)
            if row.index == self.compacted.summary:
                self.summary = row
            elif row.message.summary_of is not None or row.index < self.compacted.first:
                continue
            else:
                self.rows.append(self._preview(row) if row.index < self.previews_before else row)
                row = self.rows[-1]
            self.tokens += row.tokens

    def since(self, seq: int) -> int:
        """Return how many messages were sealed at this seq or later: those of the running task."""
        return sum(1 for _ in takewhile(lambda row: row.seq >= seq, reversed(self.rows)))

    def fit(self, new_messages: int, limit_tokens: int | None = None) -> None:
        """Make it fit: large results become previews, oldest first; then the oldest turns are dropped.

        The last `new_messages` rows are the task itself and stay, up to the budget even if `limit_tokens` is
        less. Raise `InvalidRequest` if those alone do not fit.
        """
        limit = self.budget_tokens if limit_tokens is None else min(limit_tokens, self.budget_tokens)
        self._make_previews(limit)
        drop, tokens = 0, self.tokens
        while tokens > limit and drop < len(self.rows) - new_messages:
            tokens -= self.rows[drop].tokens
            drop += 1
        # Starting with a user's message, the window cannot begin with a tool result without its call.
        shortened = drop < len(self.rows) and self.rows[drop].index > 0
        while shortened and drop < len(self.rows) - new_messages and self.rows[drop].message.role != "user":
            tokens -= self.rows[drop].tokens
            drop += 1
        if tokens > self.budget_tokens:
            raise InvalidRequest(
                f"The new messages alone need about {tokens} tokens; the context budget is {self.budget_tokens}."
                " Shorten them, or raise context_budget_tokens; compacting the session would not help.",
                code="CONTEXT_TOO_LARGE",
            )
        del self.rows[:drop]
        self.tokens = tokens

    def _make_previews(self, limit: int) -> None:
        if self.tokens <= limit:
            return
        for place, row in enumerate(self.rows):
            if row.index < self.previews_before or row.message.role != "tool":
                continue
            small = self._preview(row)
            if small is not row:
                self.rows[place] = small
                self.tokens += small.tokens - row.tokens
                self.previews_before = row.index + 1
                if self.tokens <= limit:
                    return

    def _preview(self, row: MessageRow) -> MessageRow:
        small, kept = _previewed(self.session_id, row)
        self.unstored += kept
        return small


def _smallest(session_id: str, row: MessageRow) -> int:
    return _previewed(session_id, row)[0].tokens


def _previewed(session_id: str, row: MessageRow) -> tuple[MessageRow, list[Kept]]:
    """Return a row with its large results as previews, and what those refer to. Others come back as they are."""
    if row.message.role != "tool" or row.tokens * 4 <= LARGE_BYTES:
        return row, []
    content: list[ContentBlock] = []
    kept: list[Kept] = []
    for block in row.message.content:
        if isinstance(block, ToolResult):
            block, data = _preview(session_id, block)
            kept += data
        content.append(block)
    message = msgspec.structs.replace(row.message, content=content)
    if message == row.message:
        return row, []
    return msgspec.structs.replace(row, message=message, tokens=estimate_tokens(message)), kept


def _preview(session_id: str, block: ToolResult) -> tuple[ToolResult, list[Kept]]:
    result: Any = block.result
    is_text = isinstance(result, str)
    data: bytes = result.encode("utf-8", "replace") if is_text else msgspec.json.encode(result)
    if len(data) <= LARGE_BYTES:
        return block, []
    kept: list[Kept] = []
    ref = block.result_ref
    if ref is None:
        kind = "text/plain; charset=utf-8" if is_text else "application/json"
        kept.append(Kept(data, kind))
        digest = content_hash(data)
        ref = ArtifactRef(
            artifact_id=artifact_id(session_id, digest, kind, RESULT),
            content_hash=digest,
            content_type=kind,
            size_bytes=len(data),
            name=RESULT,
        )
    text = data[: PREVIEW_CHARS * 4].decode("utf-8", "replace")[:PREVIEW_CHARS]
    shown = f"{text}… ({ref.size_bytes:,} bytes in all, kept as {ref.content_hash})"
    return msgspec.structs.replace(block, result=shown, result_ref=ref), kept


def _for_runtime(row: MessageRow, runtime: str) -> MessageRow:
    """Return the row as a runtime may see it: without reasoning, but for what it wants back itself."""
    content = row.message.content
    kept = [block for block in content if not isinstance(block, Reasoning) or _is_of(block, runtime)]
    if len(kept) == len(content):
        return row
    message = msgspec.structs.replace(row.message, content=kept)
    tokens = estimate_tokens(message) if kept else 0
    return msgspec.structs.replace(row, message=message, tokens=tokens)


def _is_of(block: Reasoning, runtime: str) -> bool:
    return block.details is not None and block.details.runtime == runtime
