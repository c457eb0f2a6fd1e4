"""`write_bundle`: a stored session → a tar.gz that explains it, even while the session runs.

Every text is searched for secrets once more. What does not fit or cannot be read is listed with the reason.
Undo data is never included.
"""

import asyncio
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from codesdk.bundle import machine
from codesdk.bundle.box import FORMAT, Box, Manifest
from codesdk.bundle.story import Attempt, Story
from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import CONTRACT_VERSION
from codesdk.contract.process import ProcessFacts
from codesdk.contract.records import ArtifactRow, SessionRow, StoredFrame
from codesdk.engine import Archive, is_interrupted, iso, millis, verify_session
from codesdk.local import AUDIT
from codesdk.redaction import Redactor
from codesdk.store import read_audit

MAX_BYTES = 64 * 1024 * 1024
"""The default limit for the files of a bundle together."""
_PAGE_EVENTS = 500
_PAGE_BYTES = 2 * 1024 * 1024
# Shares of the limit, so that none of these can push the rest out of the bundle.
_EVENTS_SHARE = 0.5
_TOOLS_SHARE = 0.25
_AUDIT_SHARE = 0.1


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a bundle comes from: what is stored, and what is known about the process that serves it."""

    archive: Archive
    redactor: Redactor = msgspec.field(default_factory=Redactor)
    """Knows the secrets that must not be in it; whatever looks like a key is redacted in any case."""
    data_dir: Path | None = None
    running: bool = False
    """Whether a live writer may be at work on the session."""
    process: ProcessFacts | None = None
    """What the process that runs the sessions says of itself, if there is one and it was asked."""


async def write_bundle(
    target: BinaryIO, origin: Origin, session_id: str, *, max_bytes: int = MAX_BYTES
) -> Manifest:
    """Write a session's bundle to an open file. Return what is in it and what is not.

    `max_bytes` limits its files before they are packed. Raise `NotFound` if there is no such session.
    """
    row = await origin.archive.session(session_id)
    with tempfile.TemporaryDirectory(prefix="codesdk-bundle-") as folder:
        box = Box(Path(folder), origin.redactor, max_bytes)
        bundling = _Bundling(origin, row, box)
        await bundling.collect()
        manifest = Manifest(
            format=FORMAT,
            created_at=iso(int(datetime.now(UTC).timestamp() * 1000)),
            session_id=session_id,
            codesdk_version=version("codesdk"),
            contract_version=CONTRACT_VERSION,
            last_seq=bundling.last_seq,
            max_bytes=max_bytes,
            files=box.files,
            left_out=box.left_out,
        )
        await asyncio.to_thread(box.pack, target, manifest, millis(row.updated_at) // 1000)
    return manifest


class _Bundling:
    """One bundle while it is made."""

    def __init__(self, origin: Origin, row: SessionRow, box: Box) -> None:
        self._origin = origin
        self._archive = origin.archive
        self._row = row
        self._box = box
        self._story = Story()
        self._pages: list[str] = []
        self._dropped: list[int] = []
        self._page: list[StoredFrame] = []
        self._calls = 0
        self._calls_bytes = 0
        self.last_seq = 0

    async def collect(self) -> None:
        """Put everything into the box, what matters most first."""
        for what, part in (
            ("the events", self._events),
            ("health", self._health),
            ("the installation", self._installation),
            ("the session's configuration", self._config),
            ("the check of the log", self._verify),
            ("the transcript", self._transcript),
            ("the audit", self._audit),
            ("the artifacts", self._artifacts),
        ):
            await self._attempt(what, part)

    async def _attempt(self, what: str, part: Callable[[], Awaitable[None]]) -> None:
        """Do a part. If it fails, list it and go on: a bundle is needed most when something is broken."""
        try:
            await part()
        except (CodeSDKError, OSError, ValueError, RecursionError) as error:
            self._box.leave_out(what, f"it could not be read: {error}")

    # --- events, and what follows from them -------------------------------------------------------------

    async def _events(self) -> None:
        size = 0
        try:
            async for frame in self._archive.frames(self._row.session_id):
                self._page.append(frame)
                size += len(frame.data)
                self.last_seq = frame.seq
                if len(self._page) >= _PAGE_EVENTS or size >= _PAGE_BYTES:
                    await asyncio.to_thread(self._end_page)
                    size = 0
        finally:
            await asyncio.to_thread(self._finish_events)

    def _finish_events(self) -> None:
        self._end_page()
        for attempt in self._story.unfinished():
            self._add_call(attempt)
        if self._dropped:
            what = f"{len(self._dropped)} files of events, from seq {self._dropped[0]} on"
            self._box.leave_out(
                what, "the events take up half of the bundle already; raise its limit (--max-size)"
            )
        self._add_story()

    def _end_page(self) -> None:
        """Put a page of events into the box and read it. Make room by dropping old pages, never the first."""
        page, self._page = self._page, []
        if not page:
            return
        lines = [self._line(frame) for frame in page]
        path = f"events/{page[0].seq:08d}.jsonl"
        if self._box.add(
            path, b"\n".join(lines) + b"\n", f"events {page[0].seq} to {page[-1].seq}, one a line"
        ):
            self._pages.append(path)
        while len(self._pages) > 2 and sum(map(self._box.size_of, self._pages)) > self._limit(_EVENTS_SHARE):
            gone = self._pages.pop(1)  # never the first: it says how the session was created
            self._box.remove(gone)
            self._dropped.append(int(Path(gone).stem))

    def _line(self, frame: StoredFrame) -> bytes:
        if frame.damage is not None:
            return msgspec.json.encode({"seq": frame.seq, "damage": frame.damage})
        try:
            ended = self._story.take(decode(frame.data))
            line = self._box.clean_line(frame.data)
        except (ValueError, TypeError, AttributeError) as error:
            return msgspec.json.encode({"seq": frame.seq, "damage": f"it cannot be read: {error}"})
        if ended is not None:
            self._add_call(ended)
        return line

    def _add_call(self, attempt: Attempt) -> None:
        """Put a tool call's transcript into the box, unless such transcripts already fill their share."""
        self._calls += 1
        what = f"the call {attempt.tool_call_id} of {attempt.name}, attempt {attempt.attempt}: input, decision, output, result"
        before = self._box.size  # what is added is measured after redaction, which changes sizes
        if self._calls_bytes > self._limit(_TOOLS_SHARE):
            self._box.leave_out(
                what, "the transcripts of tools take up a quarter of the bundle already; its events are there"
            )
            return
        self._box.add_json(f"tools/{self._calls:06d}-{attempt.tool_call_id}.json", attempt.document(), what)
        self._calls_bytes += self._box.size - before

    def _add_story(self) -> None:
        story = self._story
        summary = {
            "session": self._row,
            "first_event_at": story.first_time,
            "last_event_at": story.last_time,
            "events": self.last_seq,
            "events_by_type": dict(sorted(story.types.items())),
            "tasks": list(story.tasks),
            "tool_calls": self._calls,
            "errors": list(story.errors),
        }
        self._box.add_json("summary.json", summary, "what happened: tasks, errors, counts")
        runtime = {
            "runtimes": list(story.runtimes),
            "models": list(story.models),
            "runtime_session_ids": list(story.runtime_sessions),
            "requests": list(story.requests),
        }
        self._box.add_json(
            "runtime.json", runtime, "the runtime's models, sessions and model requests with their ids"
        )

    # --- the rest --------------------------------------------------------------------------------------------

    async def _health(self) -> None:
        origin = self._origin
        found = await machine.health(origin.data_dir, running=origin.running, facts=origin.process)
        self._box.add_json(
            "health.json", found, "the health of the machine and the data directory when this was made"
        )

    async def _installation(self) -> None:
        created = self._story.created
        servers: Sequence[str] = (created.settings.get("mcp_servers") or ()) if created else ()
        add = self._box.add_json
        add("capabilities.json", machine.capabilities(), "what each runtime can do")
        add("versions.json", machine.versions(), "versions of CodeSDK, packages, adapters and programs")
        transports = machine.mcp_transports(self._story.transports, servers)
        add("mcp.json", transports, "MCP transports: supported by each runtime, and recorded in the session")

    async def _config(self) -> None:
        story = self._story
        sources = [await self._source(ref.artifact_id) for ref in list(story.sources.values())[-3:]]
        rules = [
            {"source": source, "rule": rule, "result": result, "times": times}
            for (source, rule, result), times in sorted(story.rules.items())
        ]
        grants = await self._archive.grants(self._row.session_id)
        process = self._origin.process
        config = {
            "session": story.created,
            "policy": {
                "permission_mode": self._row.permission_mode,
                **(process.policy if process else {"kind": None, "rules": None, "rules_hash": None}),
                "opinions": rules,
                "grants": grants,
            },
            "launch": process.launch if process else None,
            "implicit_sources": sources,
            "runtime_files": await asyncio.to_thread(
                machine.runtime_files, self._origin.data_dir, self._row.session_id, self._origin.redactor
            ),
        }
        what = "the session's settings and policy, implicit sources, the runtime's own files by path and hash"
        self._box.add_json("config.json", config, what)

    async def _source(self, artifact_id: str) -> Any:
        _, data = await self._archive.read_artifact(artifact_id)
        return msgspec.json.decode(data)

    async def _verify(self) -> None:
        log, blobs = self._archive.log, self._archive.blobs
        found = await verify_session(log, blobs, self._row.session_id, running=self._origin.running)
        interrupted = is_interrupted(found)
        findings = [] if interrupted else found
        report = {"ok": not findings, "interrupted": interrupted, "findings": findings}
        self._box.add_json("verify.json", report, "whether the log keeps the contract's invariants")

    async def _transcript(self) -> None:
        messages = await self._archive.transcript(self._row.session_id)
        self._box.add_json("transcript.json", messages, "the messages of the session")
        beside = await self._archive.supplements(self._row.session_id)
        if beside:
            self._box.add_json("supplements.json", beside, "what stands beside the messages")

    async def _audit(self) -> None:
        """Add the session's audit records; only the last ones if there are too many."""
        if self._origin.data_dir is not None:
            await asyncio.to_thread(self._add_audit, self._origin.data_dir / AUDIT)

    def _add_audit(self, root: Path) -> None:
        lines: deque[bytes] = deque()
        size = dropped = 0
        for record in read_audit(root, principal=self._row.principal, session_id=self._row.session_id):
            lines.append(self._box.clean_line(msgspec.json.encode(record)) + b"\n")
            size += len(lines[-1])
            while size > self._limit(_AUDIT_SHARE):
                size -= len(lines.popleft())
                dropped += 1
        if dropped:
            self._box.leave_out(f"{dropped:,} records of the audit", "only the last ones have room")
        if lines:
            self._box.add(
                "audit.jsonl", b"".join(lines), "what the audit has of the session, one record a line"
            )

    async def _artifacts(self) -> None:
        """Add artifacts, small ones first, so that as many as possible fit; list them all."""
        rows = await self._artifact_rows()  # all of them: sizes are compared before anything is read
        listed: list[dict[str, Any]] = []
        for row in sorted(rows, key=lambda row: (row.ref.size_bytes, row.ref.artifact_id)):
            path = f"artifacts/{row.ref.artifact_id}"
            listed.append(
                {
                    **msgspec.to_builtins(row.ref),
                    "file": path if await self._add_artifact(row, path) else None,
                }
            )
        listed.sort(key=lambda entry: entry["artifact_id"])
        self._box.add_json(
            "artifacts.json", listed, "what the session stored; with a file where it is in here"
        )

    async def _artifact_rows(self) -> list[ArtifactRow]:
        rows: list[ArtifactRow] = []
        after: str | None = None
        session_id = self._row.session_id
        while page := await self._archive.artifacts(session_id, after=after, limit=1000):
            rows += page
            after = page[-1].ref.artifact_id
        return rows

    async def _add_artifact(self, row: ArtifactRow, path: str) -> bool:
        ref = row.ref
        what = f"{ref.name or 'an artifact'} ({ref.content_type})"
        if self._box.size + ref.size_bytes > self._limit(1.0):
            self._box.leave_out(
                f"{path}: {what}", "it is larger than what is left of the bundle's limit", ref.size_bytes
            )
            return False
        try:
            _, data = await self._archive.read_artifact(ref.artifact_id)
        except CodeSDKError as error:
            self._box.leave_out(f"{path}: {what}", f"it could not be read: {error.message}", ref.size_bytes)
            return False
        return await asyncio.to_thread(self._box.add, path, data, what)

    def _limit(self, share: float) -> float:
        return self._box.max_bytes * share
