"""Finds what is wrong with a stored session: `Checker` checks the log, this module its rows and artifacts.

Behind `codesdk verify`. Every artifact that an event names must be stored (invariant 1: what is shown is
stored) with the hashes that the event states; the rows must equal a fresh fold of the log (9). Reads page by
page and holds no more than a page.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import content_hash
from codesdk.contract.errors import CodeSDKError, NotFound
from codesdk.contract.events import Event
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, Message
from codesdk.contract.ports import Blobs, EventLog
from codesdk.contract.records import ApprovalRow, Changes, MessageRow, SessionRow, Snapshot, TaskRow
from codesdk.contract.tools import ManifestEntry
from codesdk.engine.checks.rules_log import Checker
from codesdk.engine.checks.rules_state import Finding, hash_or_none, is_interrupted
from codesdk.engine.log.feed import PAGE_EVENTS
from codesdk.engine.log.fold import fold
from codesdk.engine.log.state import SessionState, decode_state
from codesdk.engine.log.transcript import row_for

__all__ = ["Checker", "Finding", "is_interrupted", "verify_session"]

_DELTAS = {"model.output.delta", "tool.output.delta"}
"""What most of a long log is made of. Their payloads name no artifact."""


async def verify_session(
    log: EventLog, blobs: Blobs, session_id: str, *, running: bool = False
) -> list[Finding]:
    """Check a stored session as a whole. `running`: its last task may still be running.

    Raise `NotFound` if there is no such session.
    """
    row = await log.session(session_id)
    if row is None:
        raise NotFound(f"There is no session {session_id}. `codesdk sessions` lists those there are.")
    checker = Checker(session_id)
    artifacts = _Artifacts(log, blobs, row)
    rows = _Rows(log, row, await log.snapshot(session_id))
    findings: list[Finding] = []
    after = 0
    while True:
        while frames := await log.read(session_id, after, PAGE_EVENTS):
            for frame in frames:
                after = max(frame.seq, after + 1)
                findings += checker.take(frame)
                if checker.event is not None:
                    findings += await artifacts.check(checker.event)
                    rows.take(checker.event)
            findings += await rows.compare_page(whole=checker.whole)
        differences = await rows.compare_end(whole=checker.whole)
        if await log.head(session_id) <= after:  # else a writer went on meanwhile
            return findings + differences + checker.finish(running=running)


class _Range(msgspec.Struct):
    last: int
    chain_through: str


class _Manifest(msgspec.Struct):
    """A compiled input, as far as it can be checked."""

    messages: _Range
    tools: list[ManifestEntry]
    runtime_config: dict[str, Any]
    context_window: ev.ContextWindow


class _Exact(msgspec.Struct):
    """A request as it was sent, as far as it can be checked."""

    parts: dict[str, str | list[str]]


def _part_hashes(exact: _Exact) -> Iterator[str]:
    for part in exact.parts.values():
        yield from [part] if isinstance(part, str) else part


class _Artifacts:
    """The artifacts that events name, each looked up once."""

    def __init__(self, log: EventLog, blobs: Blobs, session: SessionRow) -> None:
        self._log = log
        self._blobs = blobs
        self._session_id = session.session_id
        self._principal = session.principal
        self._seen: set[tuple[str, str | None]] = set()
        self._parts: set[str] = set()

    async def check(self, event: Event) -> list[Finding]:
        """Return what is wrong with the artifacts that an event names."""
        if event.type in _DELTAS and event.runtime.raw_ref is None:
            return []
        faults: list[tuple[int, str]] = []
        for ref in _refs(event.payload, event.runtime):
            if (ref.artifact_id, ref.content_hash) not in self._seen:
                self._seen.add((ref.artifact_id, ref.content_hash))
                problem = await self._problem(ref)
                if problem is not None:
                    faults.append((1, f"{event.type} names artifact {ref.artifact_id}, {problem}"))
        if not faults:
            try:
                faults = await self._contents(event)
            except ValueError as error:
                faults = [(9, f"an artifact of {event.type} does not hold what it should ({error})")]
        return [Finding(event.seq, law, what) for law, what in faults]

    async def _problem(self, ref: ArtifactRef | ArtifactBlock) -> str | None:
        row = await self._log.artifact(ref.artifact_id)
        # A runtime can name what is somebody else's; whether there is such a thing is not told.
        if row is None or row.principal != self._principal:
            return "which is not stored"
        if isinstance(ref, ArtifactRef) and ref != row.ref:
            return "which is stored as something else"
        try:
            data = await self._blobs.get(row.ref.content_hash)
        except CodeSDKError as error:
            return f"whose bytes cannot be read ({error.message})"
        if content_hash(data) != row.ref.content_hash or ref.content_hash not in (None, row.ref.content_hash):
            return "whose bytes have another hash"
        return None if len(data) == row.ref.size_bytes else "whose bytes have another size"

    async def _contents(self, event: Event) -> list[tuple[int, str]]:
        """Recompute the hashes that an event states for an artifact's content."""
        payload: Any = event.payload
        if isinstance(payload, ev.ToolCallRequested | ev.ApprovalCarried) and payload.input_ref is not None:
            if hash_or_none(await self._read(payload.input_ref)) != payload.input_hash:
                law = 5 if isinstance(payload, ev.ToolCallRequested) else 8
                what = f"{payload.tool_call_id}#{payload.attempt}"
                return [(law, f"the stored input of {what} does not have its input_hash")]
        elif isinstance(payload, ev.ModelInput):
            compiled = payload.capture == "compiled"
            return await (
                self._compiled(payload) if compiled else self._exact(payload, event.runtime.raw_ref)
            )
        elif isinstance(payload, ev.SessionCreated) and payload.parent is not None:
            return await self._forked(payload.parent)
        return []

    async def _compiled(self, payload: ev.ModelInput) -> list[tuple[int, str]]:
        plain = await self._read(payload.input_ref)
        if hash_or_none(plain) != payload.input_hash:
            return [(9, "model.input: the stored input does not have the input_hash of the event")]
        manifest = msgspec.convert(plain, type=_Manifest)
        stated = (payload.tool_manifest, payload.runtime_config, payload.context_window)
        if (manifest.tools, manifest.runtime_config, manifest.context_window) != stated:
            return [
                (9, "model.input: its tools, settings or context window are not those of the stored input")
            ]
        last = manifest.messages.last
        rows = await self._log.messages(self._session_id, before=last + 1, limit=1) if last >= 0 else []
        if last >= 0 and [row.chain for row in rows] != [manifest.messages.chain_through]:
            return [(9, f"model.input was compiled from another transcript up to message {last}")]
        return []

    async def _exact(self, payload: ev.ModelInput, own: ArtifactRef | None) -> list[tuple[int, str]]:
        """Check what was sent, and what the runtime had asked if that is another request."""
        plain = await self._read(payload.input_ref)
        if hash_or_none(plain) != payload.input_hash:
            return [(9, "model.input: the stored request does not have the input_hash of the event")]
        documents = [plain] if own is None else [plain, await self._read(own)]
        for name in [name for one in documents for name in _part_hashes(msgspec.convert(one, type=_Exact))]:
            if name in self._parts:
                continue
            try:
                sound = content_hash(await self._blobs.get(name)) == name
            except CodeSDKError:
                sound = False
            if not sound:
                return [(1, f"model.input: the part {name} of the stored request cannot be read")]
            self._parts.add(name)
        return []

    async def _forked(self, parent: ev.Parent) -> list[tuple[int, str]]:
        messages = msgspec.convert(await self._read(parent.transcript_ref), type=list[Message])
        state = SessionState(session_id=self._session_id, principal="")
        first = 0
        while first < len(messages):
            page = messages[first : first + PAGE_EVENTS]
            rows = [row_for(state, 1, message) for message in page]
            if await _stored(self._log, self._session_id, rows) != rows:
                return [(9, "the first messages are not the transcript that the session was forked with")]
            first += len(page)
        if (state.messages, state.chain) != (parent.messages, parent.chain):
            return [(9, "session.created: its parent's transcript has another length or chain than it says")]
        return []

    async def _read(self, ref: ArtifactRef) -> Any:
        """Return the JSON document of an artifact; text that is not JSON is returned as text."""
        try:
            data = await self._blobs.get(ref.content_hash)
        except CodeSDKError:
            return None
        try:
            return msgspec.json.decode(data)
        except ValueError:
            return data.decode(errors="replace")


class _Rows:
    """The rows, folded from the log again and compared. With a hole in the log, nothing is compared."""

    def __init__(self, log: EventLog, session: SessionRow, snapshot: Snapshot | None) -> None:
        self._log = log
        self._snapshot = snapshot
        self._session_id = session.session_id
        self._state = SessionState(session_id=session.session_id, principal=session.principal)
        self._session: SessionRow | None = None
        self._changes = Changes()
        self._open_tasks: dict[str, TaskRow] = {}
        self._approvals: dict[str, ApprovalRow] = {}
        self._tasks = 0
        self._chained = True  # false after a fault: each message carries a hash over all before it
        self._faults: list[Finding] = []

    def take(self, event: Event) -> None:
        """Fold an event in."""
        try:
            fold(self._state, event, self._changes)
        except (ValueError, AssertionError) as error:
            self._differ(event.seq, f"{event.type} cannot be folded ({error})")
        snapshot = self._snapshot
        if snapshot is not None and snapshot.seq == event.seq:
            self._compare_snapshot(snapshot)

    async def compare_page(self, *, whole: bool) -> list[Finding]:
        """Compare what the last page of events made final: messages, and tasks that ended."""
        changes, self._changes = self._changes, Changes()
        self._session = changes.session or self._session
        for approval in changes.approvals:
            self._approvals.pop(approval.approval_id, None)
            if approval.state != "closed":
                self._approvals[approval.approval_id] = approval
        final: list[TaskRow] = []
        for task in changes.tasks:
            if task.ended_seq is None:
                self._open_tasks[task.task_id] = task
            else:
                self._open_tasks.pop(task.task_id, None)
                self._tasks += 1
                final.append(task)
        if whole:
            await self._compare_messages(changes.messages)
            await self._compare_tasks(final)
        return self._take_faults(whole)

    async def compare_end(self, *, whole: bool) -> list[Finding]:
        """Compare what is final only at the end of the log."""
        if not whole:
            return []
        await self._compare_tasks(list(self._open_tasks.values()))
        known = self._tasks + len(self._open_tasks)
        if len(await self._log.tasks(self._session_id, limit=known + 1)) > known:
            self._differ(None, "there are tasks in the store that the log does not know")
        if await self._log.session(self._session_id) != self._session:
            self._differ(None, f"the stored row of session {self._session_id} differs from its log")
        last = await self._log.messages(self._session_id, before=None, limit=1)
        if last and last[0].index >= self._state.messages:
            self._differ(None, f"message {last[0].index} is stored, but the log does not have it")
        await self._compare_approvals()
        if self._snapshot is not None and self._snapshot.seq > self._state.seq:
            self._differ(None, f"the snapshot covers seq {self._snapshot.seq}, which the log does not have")
        return self._take_faults(whole)

    def _take_faults(self, whole: bool) -> list[Finding]:
        faults, self._faults = self._faults, []
        return faults if whole else []

    def _compare_snapshot(self, snapshot: Snapshot) -> None:
        try:
            same = decode_state(snapshot.state) == self._state
        except ValueError:
            same = False
        if not same:
            self._differ(snapshot.seq, "the snapshot stored for this seq differs from a fold of the log")

    async def _compare_messages(self, rows: list[MessageRow]) -> None:
        if not rows or not self._chained:
            return
        stored = {row.index: row for row in await _stored(self._log, self._session_id, rows)}
        for row in rows:
            if stored.get(row.index) != row:
                what = "differs from the log" if row.index in stored else "is not stored"
                self._differ(row.seq, f"message {row.index} {what}; those after it are not compared")
                self._chained = False
                return

    async def _compare_tasks(self, rows: list[TaskRow]) -> None:
        for row in rows:
            if await self._log.task(row.task_id, self._state.principal) != row:
                self._differ(
                    row.ended_seq or row.started_seq, f"the stored row of {row.task_id} differs from the log"
                )

    async def _compare_approvals(self) -> None:
        stored = await self._log.approvals(principal=None, session_id=self._session_id)
        found = {row.approval_id: row for row in stored}
        for approval_id in dict.fromkeys([*self._approvals, *found]):
            if found.get(approval_id) != self._approvals.get(approval_id):
                self._differ(None, f"the stored row of {approval_id} differs from the log")

    def _differ(self, seq: int | None, what: str) -> None:
        self._faults.append(Finding(seq, 9, what))


async def _stored(log: EventLog, session_id: str, rows: list[MessageRow]) -> list[MessageRow]:
    return await log.messages(session_id, before=rows[-1].index + 1, limit=len(rows))


def _refs(*values: object) -> Iterator[ArtifactRef | ArtifactBlock]:
    """Yield every artifact named anywhere in these values."""
    for value in values:
        if isinstance(value, ArtifactRef | ArtifactBlock):
            yield value
        elif isinstance(value, msgspec.Struct):
            yield from _refs(*(getattr(value, name) for name in value.__struct_fields__))
        elif isinstance(value, list):
            yield from _refs(*cast("list[object]", value))
