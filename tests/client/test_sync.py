"""The client without asyncio."""

import collections
import signal
import threading
from pathlib import Path

import pytest
from tests.client.test_client import FOREVER, HELLO, WRITE, played
from tests.daemon.rig import Daemon

from codesdk.client import SyncClient, Unreachable
from codesdk.contract.errors import Conflict, InvalidRequest, NotFound
from codesdk.contract.events import ApprovalRequested
from codesdk.contract.settings import SessionSettings


def test_a_script_works_with_sessions_tasks_and_events_in_plain_calls(running: Daemon, tmp_path: Path):
    with SyncClient.connect(running.url) as client:
        session = client.create_session(runtime="scripted", workspace=tmp_path, settings=played(WRITE))
        task = session.start("Write.")
        types: list[str] = []
        for event in task.events():
            types.append(event.type)
            if isinstance(event.payload, ApprovalRequested):
                assert [row.session_id for row in client.approvals() if row.session_id == session.id]
                task.approve(event.payload.tool_call_id or "", scope="session")
        assert (types[0], types[-1]) == ("task.started", "task.completed")
        assert task.result().text == "Written."
        assert (tmp_path / "new.txt").read_text() == "new\n"
        assert session.task_info(task.id) == task.info()
        assert session.event(task.info().started_seq or 0).type == "task.started"
        assert [grant.tool for grant in session.grants()] == ["workspace.write"]
        session.revoke("workspace.write")
        assert session.undo().refused == []
        assert client.session(session.id).task(task.id).result() == task.result()
        session.close()
        assert client.sessions(limit=1) == [session.info()]
        client.delete_session(session.id)
        with pytest.raises(NotFound):
            session.transcript()


def test_a_result_that_fits_a_schema_comes_through_the_daemon_also_a_large_one(
    running: Daemon, tmp_path: Path
):
    schema = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
    for note in ("Good.", "x" * 100_000):
        answer = [{"call": {"tool": "task.answer", "input": {"note": note}}}]
        script = {"turns": [{"steps": answer}, {"steps": [{"text": "Done."}]}]}
        with SyncClient.connect(running.url) as client:
            session = client.create_session(runtime="scripted", workspace=tmp_path, settings=played(script))
            task = session.start("Rate it.", output_schema=schema)
            assert task.result().data == {"note": note}
            before = session.info()
            with pytest.raises(InvalidRequest, match='must have "type": "object"'):
                session.start("Rate it.", output_schema={"type": "array"})
            assert session.info() == before


def test_a_stream_is_left_in_the_middle_and_the_client_goes_on(running: Daemon, tmp_path: Path):
    with SyncClient.connect(running.url) as client:
        session = client.create_session(runtime="scripted", workspace=tmp_path, settings=played(HELLO))
        session.start("Go.").result()
        for event in session.events():
            if event.type == "task.started":
                break
        fork = session.fork(title="Branch")
        assert fork.transcript() == session.transcript()
        ref = client.put_artifact(b"bytes", "text/plain", "a.txt")
        assert client.read_artifact(ref.artifact_id, 1, 3) == b"yt"


def test_a_long_session_is_compacted_through_the_daemon(running: Daemon, tmp_path: Path):
    long = {"turns": [{"steps": [{"text": "So it is. " * 30}]}], "loop": True}
    with SyncClient.connect(running.url) as client:
        settings = SessionSettings(runtime_config={"script": long})
        session = client.create_session(runtime="scripted", workspace=tmp_path, settings=settings)
        with pytest.raises(Conflict, match="nothing to compact"):
            session.compact()
        for number in range(4):
            session.start(f"Question {number}").result()
        before = session.transcript()
        row = session.compact(keep_tokens=250, idempotency_key="once")
        assert row == session.compact(keep_tokens=250, idempotency_key="once") == session.info()
        session.compact("summary", keep_tokens=100)
        assert session.transcript()[:-1] == before
        mark = session.transcript()[-1].summary_of
        assert mark is not None
        assert mark.first == 0
        with pytest.raises(InvalidRequest):
            session.compact("shorter")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            session.compact(keep_tokens=-1)
        session.close()
        with pytest.raises(Conflict, match="closed"):
            session.compact()


def test_ctrl_c_ends_the_waiting_and_the_client_goes_on(running: Daemon, tmp_path: Path):
    with SyncClient.connect(running.url) as client:
        session = client.create_session(runtime="scripted", workspace=tmp_path, settings=played(FOREVER))
        task = session.start("Go.")
        interrupt = threading.Timer(0.5, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            collections.deque(session.events())
        interrupt.join()
        task.stop("enough")
        assert task.result().stop_reason == "enough"


def test_nobody_there_leaves_no_thread_behind():
    with pytest.raises(Unreachable), SyncClient.connect("http://127.0.0.1:1"):
        pass
    assert [thread.name for thread in threading.enumerate() if thread.name == "codesdk-client"] == []
