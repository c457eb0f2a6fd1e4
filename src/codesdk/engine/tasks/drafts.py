"""Turns the drafts that a runtime yields into events: checked against the contract, redacted, with the raw message.

Stands between a runtime's stream and the journal. A secret may arrive in pieces, so the end of a streaming
block is held back; so may a mark, which never becomes a part of the model's words. A malformed item becomes a
notice, never an exception.
"""

import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from codesdk.contract.errors import CodeSDKError, ErrorInfo
from codesdk.contract.events import (
    MAX_REPORTED_COST_USD,
    MAX_REPORTED_TOKENS,
    TYPE_OF,
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RequestCompleted,
    RequestStarted,
    UsageReported,
)
from codesdk.contract.ids import is_id
from codesdk.contract.messages import ArtifactRef, Reasoning
from codesdk.contract.runtime import Draft, DraftPayload, Identified
from codesdk.contract.text import is_text, mend
from codesdk.engine.log.transcript import has_part
from codesdk.engine.models.limits import Spending
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.marks import Marks, Unmarked
from codesdk.engine.tasks.validation import MAX_DEPTH, MAX_ID_CHARS, is_deep
from codesdk.redaction import StreamRedactor

_DRAFTS: frozenset[type] = frozenset(get_args(DraftPayload))
# An integer beyond 64 bits is read back as a float, and NaN as nothing: they become so before they are stored.
_LONGEST_NUMBER = 19
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % _LONGEST_NUMBER)
_BYTES_A_CHAR = 4  # as a shift: 16 bytes of what is not streamed text count as one character of it
_EVENT_BYTES = 512  # what an event takes in the log beside what the runtime put into it
MAX_OPEN_BLOCKS = 20_000
"""How many blocks of unfinished messages a runtime may stream at once. Each is held in memory."""
_PROBLEM_CHARS = 500
_INLINE_BYTES = 4 * 1024 * 1024  # the most that `raw_inline_bytes` can be
_OF_REQUESTS = (RequestStarted, RequestCompleted, UsageReported)
_DELTA_KINDS = frozenset({"text_delta", "json_delta", "code_delta", "reasoning_delta", "unknown_delta"})


class _Stream:
    """A streaming block: its redactor, and the last delta, whose ids are used for the held-back rest."""

    __slots__ = ("last", "redactor", "unmarked")

    def __init__(self, redactor: StreamRedactor, last: OutputDelta) -> None:
        self.redactor = redactor
        self.last = last
        self.unmarked: Unmarked | None = None

    def feed(self, text: str, marks: Marks) -> str:
        """Take a piece; return what can be shown now."""
        if marks.issued:  # a mark is issued before any of it can arrive
            self.unmarked = self.unmarked or Unmarked(marks)
            text = self.unmarked.feed(text)
        return self.redactor.feed(text)

    def flush(self) -> str:
        """End the block; return what was held back of it."""
        rest = "" if self.unmarked is None else self.unmarked.flush()
        return (self.redactor.feed(rest) if rest else "") + self.redactor.flush()


class Intake:
    """Takes the drafts of one task."""

    def __init__(self, scope: SessionScope, spending: Spending, is_over_budget: Callable[[], bool]) -> None:
        self._scope = scope
        self._spending = spending
        self._is_over_budget = is_over_budget
        self._journal = scope.journal
        self._marks = scope.marks
        self._max_bytes = scope.ports.limits.max_event_bytes
        self._max_chars = scope.ports.limits.max_output_chars
        self._max_calls = scope.ports.limits.max_calls
        # All that the runtime has said in this task, in characters: one number, so that a delta costs one addition.
        self._said = 0
        self._streams: dict[str, _Stream] = {}
        # The blocks of each message, so that ending one of thousands does not look at all.
        self._blocks: dict[str, dict[str, None]] = {}
        self.call_ids: dict[str | None, str] = {}
        """Ids of calls whose arguments stream, by the runtime's own: a call is opened only when they are whole."""

    def quick(self, draft: Draft) -> bool:
        """Write a plain delta without an await, the common case. Return false if it is not one."""
        payload: Any = draft.payload
        if self._said > self._max_chars:
            return self._give_up()
        if type(payload) is not OutputDelta or not self._is_plain(payload):
            return False
        stream = self._streams.get(payload.block_id)
        if stream is None or stream.last.message_id != payload.message_id:
            return False  # new ids are checked first
        payload = self._with_call(payload)
        raw: Any = None
        if draft.raw is not None and self._scope.settings.raw_capture:
            raw, data = _as_json(draft.raw)
            size = len(data)
            if size > self._scope.settings.raw_inline_bytes:
                return False
            self._said += size >> _BYTES_A_CHAR
        delta = self._feed(stream, payload)
        if delta.delta or raw is not None:
            lifecycle.draft(self._journal, delta, raw)
        return True

    def _is_plain(self, payload: OutputDelta) -> bool:
        """Return whether nothing is wrong with a delta, in as few steps as its many repetitions allow."""
        return (
            type(payload.block_id) is str  # as a key it is the known one then, whose text was checked
            and type(payload.message_id) is str
            and type(payload.delta) is str
            and payload.delta.isascii()
            and payload.tool_call_id is None
            and payload.language is None
            and type(payload.kind) is str
            and payload.kind in _DELTA_KINDS
            and len(payload.delta) <= self._max_bytes
        ) or _delta_problem(payload, self._max_bytes) is None

    async def draft(self, draft: Draft) -> None:
        """Write a draft, in order of arrival."""
        if self._said > self._max_chars:
            self._give_up()
            return
        try:
            payload = self._legible(draft.payload)
        except _Malformed as problem:
            await self.malformed(str(problem), draft)
            return
        raw, raw_ref = await self.raw(draft.raw)
        if isinstance(payload, UsageReported):
            self._used(payload, raw, raw_ref)
            return
        if isinstance(payload, OutputDelta | OutputCompleted):
            self.watch_budget(payload.message_id)
        elif isinstance(payload, RequestStarted):
            self._is_over_budget()
        if type(payload) is OutputDelta:
            payload = self._delta(payload)
            if not payload.delta and raw is None and raw_ref is None:
                return  # all of it is held back, so there is nothing to show yet
        elif isinstance(payload, OutputCompleted):
            self.release(payload.message_id)  # what was held back comes before the end of its message
            payload = self._signed(payload)
            if self._marks.issued:
                payload = msgspec.structs.replace(payload, content=self._marks.strip_content(payload.content))
        elif isinstance(payload, OutputRetracted):
            for block_id in payload.block_ids:
                self._streams.pop(block_id, None)
        before = self._scope.state.spent
        lifecycle.draft(self._journal, payload, raw, raw_ref)
        self._spending.follow(self._scope.state, before)

    async def identify(self, item: Identified) -> None:
        """Stamp later events with what the runtime says of itself."""
        names = [name for name in (item.model, item.runtime_session_id) if name is not None]
        problem = None if all(map(is_text, names)) else "an identity needs text, or nothing."
        problem = problem or _length_problem(*names)
        if problem is not None:
            await self.malformed(problem, item)
            return
        if self.admit(sum(map(len, names))):
            self._journal.identify(item.model, item.runtime_session_id)

    def _signed(self, payload: OutputCompleted) -> OutputCompleted:
        """Return a message in which what its provider wants back names the runtime that wrote it, and no other."""
        if not any(isinstance(block, Reasoning) and block.details for block in payload.content):
            return payload
        name = self._scope.state.runtime_name
        content = [
            msgspec.structs.replace(block, details=msgspec.structs.replace(block.details, runtime=name))
            if isinstance(block, Reasoning) and block.details is not None
            else block
            for block in payload.content
        ]
        return msgspec.structs.replace(payload, content=content)

    def watch_budget(self, message_id: str | None) -> None:
        """End the task if this begins an answer to a request for which a budget had no room."""
        task = self._scope.state.task
        if task is None or message_id is None or message_id in task.completed_messages:
            return
        if message_id not in self._blocks and not has_part(self._scope.state, message_id):
            self._is_over_budget()

    def _used(self, payload: UsageReported, raw: Any, raw_ref: ArtifactRef | None) -> None:
        """Write what the runtime says it used, as its own word, whatever source it names."""
        scope, before = self._scope, self._scope.state.spent
        if payload.is_plausible:
            own = msgspec.structs.replace(payload, source="runtime")
            lifecycle.draft(self._journal, own, raw, raw_ref)
            self._spending.follow(scope.state, before)
            return
        message = (
            f"The runtime reported usage that cannot be: a figure is negative, above {MAX_REPORTED_TOKENS:,} tokens"
            f" or above {MAX_REPORTED_COST_USD:,.0f} dollars. It does not count."
        )
        lifecycle.notice(self._journal, "violation", message, {"type": "usage.reported"}, raw, raw_ref)

    def _with_call(self, payload: OutputDelta) -> OutputDelta:
        """Return a delta with CodeSDK's id of the call that it belongs to, in place of the runtime's own."""
        runtime_id = payload.tool_call_id
        if runtime_id is None:
            return payload
        task = self._scope.state.task
        opened = task.seen_calls.get(runtime_id) if task is not None else None
        if opened is not None:
            return msgspec.structs.replace(payload, tool_call_id=opened.tool_call_id)
        if runtime_id not in self.call_ids:
            if len(self.call_ids) > self._max_calls:
                self._give_up("calls that it never made")
                return payload
            self.call_ids[runtime_id] = self._scope.ports.stamper.mint("call")
        return msgspec.structs.replace(payload, tool_call_id=self.call_ids[runtime_id])

    def release(self, message_id: str | None = None) -> None:
        """Write what was held back of one message's blocks, or of all."""
        for block_id in list(self._streams) if message_id is None else self._blocks.pop(message_id, ()):
            stream = self._streams.get(block_id)
            if stream is None or message_id not in (None, stream.last.message_id):
                continue  # it was retracted
            del self._streams[block_id]
            rest = stream.flush()
            if rest:
                lifecycle.draft(self._journal, msgspec.structs.replace(stream.last, delta=rest))

    def _charge(self, size: int) -> None:
        """Count so many bytes of an event, and the event itself, as something that the runtime said."""
        self._said += (size + _EVENT_BYTES) >> _BYTES_A_CHAR

    def admit(self, size: int) -> bool:
        """Count so many bytes as something that the runtime said. Return whether they may be kept; else it is ended."""
        self._charge(size)
        if self._said > self._max_chars:
            self._give_up()
            return False
        return True

    async def raw(self, raw: Any, size: int | None = None) -> tuple[Any, ArtifactRef | None]:
        """Return the runtime's own message as an event carries it: inline, by reference, or not at all.

        It counts as something that the runtime said, and so does the event, where its other bytes are given. A runtime
        that says too much is ended, and nothing more is kept.
        """
        if size is not None:
            self._charge(size)
        if self._said > self._max_chars:
            self._give_up()
            return None, None
        return await self._stored(raw)

    async def _stored(self, raw: Any) -> tuple[Any, ArtifactRef | None]:
        settings = self._scope.settings
        if raw is None or not settings.raw_capture:
            return None, None
        raw, data = _as_json(raw)
        if len(data) > self._scope.ports.limits.max_artifact_bytes:
            return f"A message of {len(data):,} bytes, more than an artifact may have.", None
        self._said += len(data) >> _BYTES_A_CHAR
        if len(data) <= settings.raw_inline_bytes:
            return raw, None
        return None, await self._scope.put_artifact(data, "application/json", "raw")

    async def last_raw(self, raw: Any) -> tuple[Any, ArtifactRef | None]:
        """Return the runtime's last message as `raw` does. One that cannot be stored must not keep a task open."""
        try:
            return await self._stored(raw)
        except CodeSDKError as error:
            return f"A message that could not be stored ({error.code}).", None

    async def malformed(self, problem: str, item: Any) -> None:
        """Record an item that does not fit the contract as a notice."""
        raw, raw_ref = await self.raw(_shown(item), 0)
        lifecycle.notice(
            self._journal,
            "unknown_frame",
            f"The runtime sent something that CodeSDK does not understand: {mend(problem[:_PROBLEM_CHARS])}",
            {"item": type(item).__name__},
            raw,
            raw_ref,
        )

    def _delta(self, payload: OutputDelta) -> OutputDelta:
        """Return a delta with the text that is safe to show; the rest is held back. Its raw is not."""
        stream = self._streams.get(payload.block_id)
        if stream is None:
            if len(self._streams) >= MAX_OPEN_BLOCKS:
                self._give_up(f"{len(self._streams):,} unfinished blocks")
                return msgspec.structs.replace(payload, delta="")
            stream = _Stream(self._scope.redactor.stream(), payload)
            self._streams[payload.block_id] = stream
        self._blocks.setdefault(payload.message_id, {})[payload.block_id] = None
        return self._feed(stream, payload)

    def _feed(self, stream: _Stream, payload: OutputDelta) -> OutputDelta:
        stream.last = payload
        self._said += len(payload.delta)
        text = stream.feed(payload.delta, self._marks)
        return payload if text == payload.delta else msgspec.structs.replace(payload, delta=text)

    def _give_up(self, what: str = "") -> bool:
        """End the task of a runtime that talks without end. What it still says until it has ended is not kept."""
        said = what or f"more than {self._max_chars} characters (limits.max_output_chars)"
        counted = "" if what else " 16 bytes of its own messages and notices count as one."
        message = (
            f"The runtime said {said} in one task and came to no end.{counted} The task was stopped; divide it into"
            " smaller ones, or have the limit raised by whoever runs CodeSDK."
        )
        self._said = max(self._said, self._max_chars + 1)
        self._scope.halt(ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False), None)
        return True

    def _legible(self, payload: Any) -> Any:
        """Return a draft's payload as readers of the log will see it. Raise `_Malformed` if it is invalid."""
        source: object = payload
        kind = type(source)
        if kind is OutputDelta:
            payload = msgspec.structs.replace(payload, delta=mend(payload.delta))
            ids = (payload.block_id, payload.message_id)
            problem = _delta_problem(payload, self._max_bytes) or self._id_problem(*ids)
            if problem is not None:
                raise _Malformed(problem)
            self._charge(len(payload.block_id) + len(payload.message_id) + len(payload.tool_call_id or ""))
            return self._with_call(payload)
        if kind not in _DRAFTS:
            raise _Malformed(f"a runtime may not draft {TYPE_OF.get(kind, kind.__name__)}.")
        try:
            data = _encode_mended(payload)
            stored = msgspec.json.decode(data, type=kind)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise _Malformed(mend(f"{TYPE_OF[kind]}: {error}.")) from None
        problem = _size_problem(
            len(data), self._max_bytes
        )  # first: the depth of a large one takes long to find
        if problem is None and is_deep(data):
            problem = f"{TYPE_OF[kind]}: nested deeper than {MAX_DEPTH} levels."
        if problem is None and isinstance(stored, OutputCompleted):
            problem = _length_problem(stored.message_id) or self._id_problem(stored.message_id)
        if problem is None and isinstance(stored, _OF_REQUESTS):
            problem = _request_problem(stored.request_id)
        if problem is not None:
            raise _Malformed(problem)
        self._charge(len(data))
        return stored

    def _id_problem(self, *ids: str) -> str | None:
        """Return what is wrong with a message's ids. They link its parts, so they cannot be redacted."""
        redact = self._scope.redactor.text
        return "an id of a message holds a secret." if any(redact(one) is not one for one in ids) else None


class _Malformed(Exception):
    """An item that does not fit the contract. The message says why."""


def _encode_mended(payload: Any) -> bytes:
    try:
        return msgspec.json.encode(payload)
    except UnicodeEncodeError:
        return msgspec.json.encode(mend(msgspec.to_builtins(payload)))


def _as_json(raw: Any) -> tuple[Any, bytes]:
    """Return a runtime's message as an event can carry it, and its JSON; text if it is too deep or none.

    One that is too large for an event goes to an artifact, and its depth is not looked at.
    """
    try:
        data = msgspec.json.encode(raw)
        if data == b"null" or _has_long_number(data):
            raw = msgspec.json.decode(data)
            data = msgspec.json.encode(raw)
        if not is_deep(data, _INLINE_BYTES):
            return raw, data
        raw = data.decode()
    except (TypeError, ValueError, RecursionError, OverflowError):
        raw = _describe(raw)
    return raw, msgspec.json.encode(raw)


def _has_long_number(data: bytes) -> bool:
    # Taking the digits out costs a fraction of looking for them, and most messages have few.
    return len(data) - len(data.translate(None, b"0123456789")) >= _LONGEST_NUMBER and (
        _LONG_NUMBER.search(data) is not None
    )


def _shown(item: Any) -> Any:
    """Return what a runtime sent: its raw message if there is one, else the item itself."""
    raw: object = getattr(item, "raw", None)
    if raw is not None:
        return raw
    try:
        return msgspec.to_builtins(item)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return _describe(item)


def _describe(value: Any) -> str:
    """Return the start of a value's repr, or a stand-in if repr raises."""
    try:
        return repr(value)[:1000]
    except Exception as error:  # noqa: BLE001 - whatever an adapter hands over must not stop the task
        return f"<{type(value).__name__}: {type(error).__name__} on repr>"


def _delta_problem(payload: Any, limit: int) -> str | None:
    """Return what is wrong with a delta. Checked by hand, because this is the hot path."""
    if type(payload.kind) is not str or payload.kind not in _DELTA_KINDS:
        return f"model.output.delta has no kind {_describe(payload.kind)}."
    if not (is_text(payload.block_id) and is_text(payload.message_id) and is_text(payload.delta)):
        return "model.output.delta needs text in block_id, message_id and delta."
    if any(name is not None and not is_text(name) for name in (payload.tool_call_id, payload.language)):
        return "model.output.delta needs text in tool_call_id and language, or nothing."
    return _size_problem(len(payload.delta), limit) or _length_problem(
        payload.block_id, payload.message_id, payload.tool_call_id, payload.language
    )


def _length_problem(*names: str | None) -> str | None:
    if all(name is None or len(name) <= MAX_ID_CHARS for name in names):
        return None
    return f"an id may have {MAX_ID_CHARS:,} characters."


def _request_problem(request_id: str | None) -> str | None:
    """Return what is wrong with the id of a request: those of the gateway's are counted as seen by it."""
    if request_id is not None and is_id("req", request_id):
        return "an id of a request that only CodeSDK gives. Use another form."
    return _length_problem(request_id)


def _size_problem(size: int, limit: int) -> str | None:
    return f"an event may have {limit:,} bytes; this one has {size:,}." if size > limit else None
