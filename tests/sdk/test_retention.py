"""What is old or too much goes, the oldest first, with all that belongs to it; what is in use stays."""

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from tests.store.audit.samples import entry

from codesdk import ArtifactBlock, CodeSDK, InvalidRequest, Message, NotFound
from codesdk.contract.canonical import content_hash
from codesdk.engine.checks.verify import verify_session
from codesdk.engine.log.journal import LOCAL
from codesdk.local.retention import GcReport, Retention
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.audit.chain import segments
from codesdk.store.audit.reading import read_audit
from codesdk.store.audit.trail import Audit
from codesdk.store.audit.verify import verify_audit
from codesdk.store.undo import FileUndo
from codesdk.testing.fakes import FakeRuntime, FakeTask, done, message

LONG_AGO = "2020-01-02T03:04:05.678Z"
WRITE = {"call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}}}


def runtime(*last: dict[str, Any]) -> dict[str, ScriptedRuntime]:
    turns = [{"steps": [WRITE]}, {"steps": [{"text": "word " * 20_000}, *last]}]
    return {"scripted": ScriptedRuntime(parse_object({"turns": turns, "loop": True}, "talk"))}


async def sessions(data: Path, workspace: Path, count: int) -> list[str]:
    """Make sessions that have each run a task, the first of which is the oldest."""
    made: list[str] = []
    async with CodeSDK.open(data, runtimes=runtime(), allow_yolo=True) as sdk:
        for _ in range(count):
            session = await sdk.create_session(
                runtime="scripted", workspace=workspace, permission_mode="yolo"
            )
            await (await session.start("Talk")).result()
            made.append(session.id)
    return made


def age(data: Path, session_id: str, **times: str) -> None:
    """Make a session look as if it was last used long ago, or at other times."""
    db = sqlite3.connect(data / "codesdk.db")
    with db:
        (row,) = db.execute("SELECT row FROM sessions WHERE id = ?", (session_id,)).fetchone()
        changed = json.dumps(json.loads(row) | (times or {"updated_at": LONG_AGO})).encode()
        db.execute("UPDATE sessions SET row = ? WHERE id = ?", (changed, session_id))
        db.execute("UPDATE blobs SET put_at = 0")
    db.close()


def gone(report: GcReport) -> list[tuple[str, str]]:
    return [(removed.session_id, removed.why) for removed in report.sessions]


def files(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


async def test_a_session_that_was_not_used_for_long_goes_with_all_that_belongs_to_it(
    data: Path, workspace: Path
):
    old, new = await sessions(data, workspace, 2)
    state = data / "runtimes" / "ns-default" / "scripted" / old
    state.mkdir(parents=True)
    (state / "notes").write_bytes(b"n" * 1_000)
    age(data, old)
    assert [name for name in files(data / "undo") if name.startswith(old)]
    seen: list[tuple[int, int]] = []
    async with CodeSDK.open(data) as sdk:
        tried = await sdk.collect(Retention(max_age_days=30), dry_run=True)
        assert (gone(tried), tried.bytes_after) == ([(old, "age")], tried.bytes_before)
        assert (await sdk.session(old)).id == old  # a dry run removes nothing
        report = await sdk.collect(Retention(max_age_days=30), progress=lambda *at: seen.append(at))
        with pytest.raises(NotFound):
            await sdk.session(old)
        assert [row.session_id for row in await sdk.sessions()] == [new]
        assert sdk.audit is not None
        [record] = [r for r in await sdk.audit.read(category="storage") if r.what.get("session_id") == old]
    assert (gone(report), report.kept, seen) == ([(old, "age")], [], [(1, 1)])
    assert report.sessions == tried.sessions
    assert report.sessions[0].bytes > 100_000
    assert report.blobs > 0
    assert report.bytes_after < report.bytes_before
    assert not state.exists()
    assert [name for name in files(data / "undo") if name.startswith(old)] == []
    assert (record.action, record.outcome, record.why) == (
        "retention.session_removed",
        "removed",
        {"reason": "age"},
    )


async def test_a_session_that_a_wrong_clock_stamped_in_the_future_does_not_stay_for_ever(
    data: Path, workspace: Path
):
    old, new = await sessions(data, workspace, 2)
    age(data, old, created_at=LONG_AGO, updated_at="2200-01-01T00:00:00.000Z")
    age(data, new, updated_at="2200-01-01T00:00:00.000Z")
    async with CodeSDK.open(data, runtimes=runtime()) as sdk:
        assert gone(await sdk.collect(Retention(max_age_days=30))) == [(old, "age")]


async def test_a_clock_that_jumps_forward_removes_nothing(
    data: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    await sessions(data, workspace, 1)
    now = time.time()
    async with CodeSDK.open(data, runtimes=runtime()) as sdk:
        monkeypatch.setattr(time, "time", lambda: now + 100 * 365 * 86_400)
        report = await sdk.collect(Retention(max_age_days=30, undo_max_age_days=30, audit_max_age_days=30))
    assert (gone(report), report.blobs, report.undo_files, report.audit_segments) == ([], 0, 0, [])


def age_uploads(data: Path, *names: str) -> None:
    db = sqlite3.connect(data / "codesdk.db")
    with db:
        for name in names:
            (row,) = db.execute("SELECT row FROM artifacts WHERE id = ?", (name,)).fetchone()
            changed = json.dumps(json.loads(row) | {"created_at": LONG_AGO}).encode()
            db.execute("UPDATE artifacts SET row = ? WHERE id = ?", (changed, name))
        db.execute("UPDATE blobs SET put_at = 0")
    db.close()


def first_attached(messages: list[Message]) -> ArtifactBlock:
    return next(
        block for message in messages for block in message.content if isinstance(block, ArtifactBlock)
    )


async def test_an_old_upload_goes_and_a_session_keeps_what_it_was_given(data: Path, workspace: Path):
    async def play(task: FakeTask):
        yield message("Thank you.")
        yield done()

    async with CodeSDK.open(data, runtimes={"fake": FakeRuntime(play)}) as sdk:
        given = await sdk.put_artifact(b"given", "text/plain", "given.txt")
        stray, young = [await sdk.put_artifact(word, "text/plain") for word in (b"stray", b"young")]
        session = await sdk.create_session(runtime="fake", workspace=workspace)
        block = ArtifactBlock(artifact_id=given.artifact_id)
        await (await session.start([Message(role="user", content=[block])])).result()
    age_uploads(data, given.artifact_id, stray.artifact_id)
    async with CodeSDK.open(data) as sdk:
        tried = await sdk.collect(Retention(max_age_days=30), dry_run=True)
        assert await sdk.read_artifact(stray.artifact_id) == b"stray"  # a dry run removes nothing
        report = await sdk.collect(Retention(max_age_days=30))
        assert (tried.uploads, tried.upload_bytes) == (report.uploads, report.upload_bytes) == (2, 10)
        for ref in (given, stray):
            with pytest.raises(NotFound):
                await sdk.read_artifact(ref.artifact_id)
        assert not await sdk.archive.blobs.has(stray.content_hash)
        assert await sdk.read_artifact(young.artifact_id) == b"young"
        kept = first_attached(await (await sdk.session(session.id)).transcript())
        assert (await sdk.read_artifact(kept.artifact_id), kept.name) == (b"given", "given.txt")
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
        assert (await sdk.collect(Retention(max_age_days=30))).uploads == 0
        assert sdk.audit is not None
        [record] = [r for r in await sdk.audit.read(category="storage") if "uploads" in r.action]
    assert (record.action, record.what) == ("retention.uploads_removed", {"files": 2, "bytes": 10})


async def test_an_upload_under_a_key_can_be_asked_for_again_when_it_is_gone(data: Path):
    async with CodeSDK.open(data) as sdk:
        first = await sdk.engine.put_artifact(b"file", "text/plain", key="k")
    age_uploads(data, first.artifact_id)
    async with CodeSDK.open(data) as sdk:
        await sdk.collect(Retention(max_age_days=30))
        assert await sdk.archive.log.key(LOCAL, "put_artifact", content_hash(b"k")) is None
        await sdk.engine.put_artifact(b"file", "text/plain", key="k")
        assert await sdk.read_artifact(first.artifact_id) == b"file"


async def test_the_oldest_sessions_go_until_the_rest_is_small_enough(data: Path, workspace: Path):
    made = await sessions(data, workspace, 4)
    async with CodeSDK.open(data) as sdk:
        nothing = await sdk.collect(Retention(max_total_bytes=10**12))
        assert gone(nothing) == []
        size = nothing.bytes_after
        one = (await sdk.collect(Retention(max_age_days=0), dry_run=True)).sessions[0].bytes
        report = await sdk.collect(Retention(max_total_bytes=size - one - 1))
        assert gone(report) == [(made[0], "size"), (made[1], "size")]
        assert [row.session_id for row in await sdk.sessions()] == [made[3], made[2]]


async def test_a_session_that_runs_or_is_followed_stays(data: Path, workspace: Path):
    async with CodeSDK.open(data, runtimes=runtime({"stall": "stopped"}), allow_yolo=True) as sdk:
        running = await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
        task = await running.start("Talk")
        async for event in task.events():
            if event.type == "model.output.delta":
                break
        followed = await sdk.create_session(runtime="scripted", workspace=workspace)
        idle = await sdk.create_session(runtime="scripted", workspace=workspace)
        following = followed.events()
        await anext(following)
        # The clock of ages may be behind the one that stamps events by some milliseconds.
        while not gone(await sdk.collect(Retention(max_age_days=0), dry_run=True)):
            pass
        report = await sdk.collect(Retention(max_age_days=0))
        assert gone(report) == [(idle.id, "age")]
        await following.aclose()
        await task.stop()
        assert (await task.result()).state == "stopped"


async def test_nothing_in_memory_can_be_collected():
    async with CodeSDK.open() as sdk:
        with pytest.raises(InvalidRequest, match="in memory"):
            await sdk.collect(Retention())


async def test_old_audit_segments_go_and_what_is_kept_can_still_be_checked(tmp_path: Path):
    audit = await Audit.open(tmp_path, segment_bytes=900)
    for number in range(12):
        audit.note(entry(number))
        await audit.flush()
    names = [segment.path.name for segment in segments(tmp_path)]
    assert len(names) == 4
    for name in names[:2]:
        os.utime(tmp_path / name, (0, 0))
    assert await audit.trim(max_age_s=60, max_bytes=None, reason="age", dry_run=True) == names[:2]
    assert await audit.trim(max_age_s=60, max_bytes=None, reason="age") == names[:2]
    assert await audit.trim(max_age_s=60, max_bytes=None, reason="age") == []
    assert await audit.trim(max_age_s=None, max_bytes=1, reason="size") == names[2:]
    await audit.close()
    kept = list(read_audit(tmp_path))
    assert [(record.n, record.action) for record in kept] == [
        (13, "retention.audit_removed"),
        (14, "retention.audit_removed"),
    ]
    report = verify_audit(tmp_path)
    assert (report.findings, report.first, report.records) == ([], 13, 2)
    again = await Audit.open(tmp_path, segment_bytes=900)
    again.note(entry(99))
    await again.close()
    assert verify_audit(tmp_path).ok
    first = segments(tmp_path)[0].path
    first.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[1:]))
    assert [(found.kind, found.n) for found in verify_audit(tmp_path).findings] == [("missing", 13)]


async def test_what_undoing_needs_goes_by_age_and_by_size(tmp_path: Path):
    for number in range(4):
        path = tmp_path / "ses_1" / f"file{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (number, number))
    undo = FileUndo(tmp_path)
    assert await undo.trim(before=None, max_bytes=None) == (0, 0)
    assert await undo.trim(before=1.5, max_bytes=None, dry_run=True) == (2, 200)
    assert await undo.trim(before=0.5, max_bytes=250) == (2, 200)
    assert files(tmp_path) == ["ses_1/file2", "ses_1/file3"]
