"""What must hold in a data directory after its writer was killed."""

import hashlib
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from tests.crash.audited import check_audit

from codesdk import CodeSDK
from codesdk.contract.canonical import content_hash, hash_json
from codesdk.contract.codec import decode
from codesdk.contract.events import TERMINAL_TYPES, ApprovalCarried, Event
from codesdk.engine.log.archive import Archive
from codesdk.engine.log.loading import read_transcript
from codesdk.engine.log.state import EMPTY_CHAIN
from codesdk.engine.log.transcript import message_hash
from codesdk.local.directory import DATABASE, DataDir

ALL = 1_000_000


class Promises:
    """What the worker reported over all its lives."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int], str] = {}
        self.sessions: set[str] = set()
        self.tasks: set[tuple[str, str]] = set()
        self.answers: set[tuple[str, str]] = set()
        self.kinds: Counter[str] = Counter()

    def take(self, line: str) -> None:
        kind, *words = line.split(" ")
        self.kinds[kind] += 1
        assert kind != "error", " ".join(words).replace("|", "\n")
        if kind == "event":
            session_id, seq, sha = words
            known = self.events.setdefault((session_id, int(seq)), sha)
            assert known == sha, f"event {seq} of {session_id} was shown with two contents"
        elif kind == "session":
            self.sessions.add(words[0])
        elif kind == "task":
            self.tasks.add((words[0], words[1]))
        elif kind == "answer":
            self.answers.add((words[0], words[1]))


async def check_before_recovery(path: Path, promises: Promises) -> dict[str, list[bytes]]:
    """Check what the killed writer left behind, and return its frames by session."""
    with sqlite3.connect(path / DATABASE) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    db.close()
    directory = await DataDir.open_reader(path)
    try:
        frames = await _all_frames(Archive(directory.log, directory.blobs))
        frames = {session_id: found for session_id, found in frames.items() if found}
        for session_id, task_id in promises.tasks:
            row = await directory.log.task(task_id, "local")
            assert row is not None
            assert row.session_id == session_id
    finally:
        await directory.close()
    assert promises.sessions <= frames.keys()
    for (session_id, seq), sha in promises.events.items():
        assert hashlib.sha256(frames[session_id][seq - 1]).hexdigest() == sha, (session_id, seq)
    return frames


async def check_after_recovery(path: Path, promises: Promises, before: dict[str, list[bytes]]) -> None:
    """Open the directory as the next process would, and check that everything is closed and nothing lost."""
    async with CodeSDK.open(path) as sdk:
        after = await _all_frames(sdk.archive)
        assert all(after.values()), "a session without its first event was never promised to anyone"
        for session_id, frames in before.items():
            assert after[session_id][: len(frames)] == frames
        for session_id, frames in after.items():
            await _check_session(sdk, session_id, [decode(frame) for frame in frames])
        _check_answers(promises, after)
        await check_audit(sdk, path)
    async with CodeSDK.open(path) as sdk:
        assert await _all_frames(sdk.archive) == after, "a second recovery has nothing to do"


async def _all_frames(archive: Archive) -> dict[str, list[bytes]]:
    frames: dict[str, list[bytes]] = {}
    for row in await archive.sessions(limit=ALL):
        stored = [frame async for frame in archive.frames(row.session_id)]
        assert [frame.seq for frame in stored] == list(range(1, len(stored) + 1))
        assert not any(frame.damage for frame in stored)
        frames[row.session_id] = [frame.data for frame in stored]
    return frames


async def _check_session(sdk: CodeSDK, session_id: str, events: list[Event]) -> None:
    log = sdk.archive.log
    row = await log.session(session_id)
    assert row is not None
    assert row.active_task_id is None
    await _check_tasks(sdk, session_id, events)
    assert all(a.state != "waiting" for a in await sdk.archive.approvals(session_id=session_id))
    await _check_artifacts(sdk, events)
    await _check_transcript(sdk, session_id)


async def _check_tasks(sdk: CodeSDK, session_id: str, events: list[Event]) -> None:
    by_task: dict[str, list[Event]] = {}
    for event in events:
        if event.trace.task_id is not None:
            by_task.setdefault(event.trace.task_id, []).append(event)
    rows = await sdk.archive.log.tasks(session_id, limit=ALL)
    started = {row.task_id: row for row in rows if row.state != "queued"}
    assert started.keys() == by_task.keys()
    for task_id, its_events in by_task.items():
        types = [event.type for event in its_events]
        assert types[0] == "task.started"
        assert types.count("task.started") == 1
        assert [kind for kind in types if kind in TERMINAL_TYPES] == [types[-1]], (
            f"task {task_id} of {session_id} must end once, at its end: {types}"
        )
        row = started[task_id]
        assert f"task.{row.state}" == types[-1]
        first = its_events[0]
        started_seq = first.seq if first.type == "task.started" and first.payload.executed else None
        assert (row.started_seq, row.ended_seq) == (started_seq, its_events[-1].seq)


async def _check_artifacts(sdk: CodeSDK, events: list[Event]) -> None:
    for event in events:
        for ref in _refs(msgspec.to_builtins(event)):
            data = await sdk.read_artifact(ref["artifact_id"])
            assert (content_hash(data), len(data)) == (ref["content_hash"], ref["size_bytes"])
        if isinstance(event.payload, ApprovalCarried):
            data = await sdk.read_artifact(event.payload.input_ref.artifact_id)
            assert hash_json(msgspec.json.decode(data)) == event.payload.input_hash


def _refs(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        inner = [ref for child in value.values() for ref in _refs(child)]
        return [value, *inner] if {"artifact_id", "content_hash", "size_bytes"} <= value.keys() else inner
    if isinstance(value, list):
        return [ref for child in value for ref in _refs(child)]
    return []


async def _check_transcript(sdk: CodeSDK, session_id: str) -> None:
    chain = EMPTY_CHAIN
    for place, row in enumerate(await read_transcript(sdk.archive.log, session_id)):
        chain = content_hash(f"{chain}\n{message_hash(row.message)}".encode())
        assert (row.index, row.chain) == (place, chain)


def _check_answers(promises: Promises, frames: dict[str, list[bytes]]) -> None:
    """An answer that was accepted is in the log."""
    for session_id, call_id in promises.answers:
        decided = (b'"tool.call.approved"', b'"tool.call.denied"', b'"approval.answered"')
        assert any(
            call_id.encode() in frame or b'"approval.answered"' in frame
            for frame in frames[session_id]
            if any(kind in frame for kind in decided)
        )
