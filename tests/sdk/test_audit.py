"""What an application does ends up in the audit: each of the four kinds, without a secret, and beside the writer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.acting import create_session, start
from tests.sdk.audit_story import SANDBOX, SECRET, TOLD, story_of, story_runtime

from codesdk import CodeSDK, TaskFailure
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import user
from codesdk.contract.runtime import Draft
from codesdk.contract.settings import Limits, SessionConfig
from codesdk.engine.engine import Engine
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.scope import Ports
from codesdk.local.directory import DataDir
from codesdk.policy.modes import ModePolicy
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.audit.chain import AuditRecord, Who
from codesdk.store.audit.reading import read_audit
from codesdk.store.audit.trail import Audit
from codesdk.store.audit.verify import verify_audit
from codesdk.testing.fakes import FakeRuntime, FakeTools, FrozenStamper, done


async def tell(sdk: CodeSDK, workspace: Path) -> str:
    """Live through the story and return the session."""
    session = await sdk.create_session(runtime="scripted", workspace=workspace)
    task = await session.start(f"Write it down: {SECRET}")
    async for event in task.events():
        if event.type == "approval.requested":
            call = event.payload.tool_call_id or ""
            if (workspace / "a.txt").exists():
                await task.deny(call, f"Once is enough, {SECRET}.")
            else:
                await task.approve(call, reason="It is mine.")
    with pytest.raises(TaskFailure) as failed:
        await task.result()
    assert failed.value.code == "RATE_LIMITED"
    return session.id


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


async def test_requests_decisions_tools_and_errors_are_recorded_with_who_what_and_why(
    tmp_path: Path, workspace: Path
):
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"scripted": story_runtime()}, secrets=[SECRET], principal="ann"
    ) as sdk:
        session_id = await tell(sdk, workspace)
        assert sdk.audit is not None
        records = await sdk.audit.read(principal="ann", session_id=session_id)
        assert await sdk.audit.read(principal="bob") == []
    assert story_of(records) == TOLD
    created, _, _, allowed, started, ended, answered, denied, failed = records
    assert created.who == Who(principal="ann")
    assert (created.what["runtime"], created.what["permission_mode"]) == ("scripted", "ask")
    assert allowed.who == Who(principal="ann", id="ann")
    assert (allowed.why["decision"], allowed.why["reason"]) == ("allow", "It is mine.")
    assert [source.get("rule") for source in allowed.why["sources"]] == ["mode:ask", None]
    assert started.what["sandbox"] == ended.what["sandbox"] == SANDBOX
    assert ended.what["changed"] == ["a.txt"]
    assert {record.what["tool_call_id"] for record in (allowed, started, ended)} == {
        allowed.what["tool_call_id"]
    }
    assert answered.why["reason"] == denied.why["reason"] == "Once is enough, [redacted]."
    assert (failed.what["code"], failed.why["reason"]) == ("RATE_LIMITED", "Slow down, [redacted].")
    assert SECRET not in "".join(path.read_text() for path in (tmp_path / "data" / "audit").iterdir())
    assert verify_audit(tmp_path / "data" / "audit").ok


async def test_a_reader_beside_the_writer_sees_what_was_recorded_and_finds_the_chain_whole(
    tmp_path: Path, workspace: Path
):
    root = tmp_path / "data" / "audit"
    async with CodeSDK.open(tmp_path / "data", runtimes={"scripted": story_runtime()}) as sdk:
        session_id = await tell(sdk, workspace)
        assert sdk.audit is not None
        seen = await sdk.audit.read()
        assert list(read_audit(root, session_id=session_id)) == seen
        assert verify_audit(root).ok
        await sdk.delete_session(session_id)
    last = list(read_audit(root))[-1]
    assert (last.action, last.outcome, last.what) == ("session.delete", "ok", {"session_id": session_id})
    assert last.who == Who(principal="local")


async def test_the_record_of_a_deletion_says_who_asked_for_it_with_which_request(tmp_path: Path):
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"scripted": story_runtime()}, principal="ann"
    ) as sdk:
        session = await sdk.create_session(runtime="scripted")
        await session.traced(request_id="req_7", client_id="editor").delete()
    last = list(read_audit(tmp_path / "data" / "audit"))[-1]
    assert (last.action, last.who) == (
        "session.delete",
        Who(principal="ann", id="ann", client_id="editor", request_id="req_7"),
    )


async def test_stops_steering_undo_and_the_end_of_a_session_are_requests_too(tmp_path: Path, workspace: Path):
    write = {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}}
    script = parse_object(
        {
            "turns": [
                {"steps": [{"call": write}]},
                {"steps": [{"await_steer": True}, {"stall": "stopped"}]},
            ]
        },
        "long",
    )
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"scripted": ScriptedRuntime(script)}, permits=Permits(allow_yolo=True)
    ) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
        task = await session.start("Write, then wait.")
        queued = await session.start("Later.")
        async for event in task.events():
            if event.type == "tool.call.completed":
                await task.steer("Go on.")
            elif event.type == "task.steered":
                await queued.stop("not needed")
                await task.stop("enough")
        await session.undo()
        await session.close("done")
        assert sdk.audit is not None
        records = await sdk.audit.read(category="request")
    told = [(record.action, record.outcome, record.why.get("reason")) for record in records]
    assert told == [
        ("session.create", "ok", None),
        ("task.start", "ok", None),
        ("task.queue", "ok", None),
        ("tool.decision", "allowed", None),
        ("task.steer", "ok", None),
        ("task.start", "dropped", None),
        ("task.stop", "ok", "not needed"),
        ("task.stop", "asked", "enough"),
        ("task.stop", "ok", "enough"),
        ("session.undo", "ok", None),
        ("session.close", "ok", "done"),
    ]
    assert records[-2].what["restored"] == ["a.txt"]


async def test_a_log_that_cannot_be_written_is_a_storage_record(tmp_path: Path):
    script = parse_object({"turns": [{"steps": [{"text": "x" * 400_000}]}]}, "flood")
    directory = await DataDir.open_writer(tmp_path / "data", max_pages=60)
    audit = await Audit.open(tmp_path / "data" / "audit")
    broken = asyncio.Event()

    class Listener:
        def committed(self, principal: str, events: object) -> None:
            pass

        def failed(self, principal: str, session_id: str, error: object) -> None:
            broken.set()

    ports = Ports(
        identify=lambda workspace: workspace,
        log=directory.log,
        blobs=directory.blobs,
        tools=FakeTools(),
        policy=ModePolicy(),
        stamper=FrozenStamper(),
        limits=Limits(),
        observers=[audit, Listener()],
    )
    engine = Engine(ports, lambda _: ScriptedRuntime(script), owner="test")
    await engine.open()
    session = await create_session(engine, SessionConfig(runtime="scripted", workspace=str(tmp_path)))
    await start(engine, session, [user("Flood the disk.")])
    await broken.wait()
    [record] = await audit.read(category="storage")
    await engine.close()
    await directory.close()
    await audit.close()
    assert (record.action, record.outcome) == ("log.write", "failed")
    assert record.what == {"session_id": session.session_id, "code": "STORAGE_FAILED"}
    assert "is full" in record.why["reason"]


async def test_an_sdk_in_memory_has_no_audit_unless_it_is_given_one(tmp_path: Path, workspace: Path):
    audit = await Audit.open(tmp_path / "audit")
    async with CodeSDK.open(runtimes={"scripted": story_runtime()}, subscribers=[audit]) as sdk:
        assert sdk.audit is None
        await tell(sdk, workspace)
    told: list[AuditRecord] = await audit.read()
    await audit.close()
    assert story_of(told) == TOLD


async def test_a_runtime_that_signs_its_notices_as_somebody_is_not_in_the_audit(tmp_path: Path):
    eve: dict[str, Any] = {
        "by": {"kind": "user", "id": "eve"},
        "tool": "fake.write",
        "restored": [],
        "refused": [],
    }
    forged = [
        Draft(RuntimeNotice(kind=kind, message="Eve did it.", details=eve))
        for kind in ("undone", "retry", "violation", "files.undone", "task.stop_requested", "grant.revoked")
    ]
    runtime = FakeRuntime([*forged, done()])
    async with CodeSDK.open(tmp_path / "data", runtimes={"fake": runtime}, principal="ann") as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        await (await session.start("Go")).result()
        assert sdk.audit is not None
        records = await sdk.audit.read(principal="ann", session_id=session.id)
    assert {record.who.id for record in records} <= {None, "ann"}
    assert records
    assert "eve" not in "".join(path.read_text() for path in (tmp_path / "data" / "audit").iterdir()).lower()
