"""A runtime that has nothing to do is ended after a time, and the next task finds it gone, never half gone."""

import asyncio
from typing import Any

import pytest
from tests.engine.rig import Rig, rig

from codesdk import Limits, Session
from codesdk.contract import events as ev
from codesdk.contract.entry import McpClient
from codesdk.contract.ports import ToolCalls
from codesdk.contract.runtime import Host, TaskInput
from codesdk.testing.fakes import FakeRuntime, FakeTask, done

IDLE = ev.RuntimeNotice(
    kind="idle",
    message="No task ran for 60 s, so the runtime was ended. The next task starts it again.",
    details={"idle_s": 60.0},
)


class Addresses:
    """Gives each admission an address of its own, and notes which are taken back."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.open: set[str] = set()

    async def admit(self, session_id: str, calls: ToolCalls, client: McpClient) -> str:
        url = f"http://127.0.0.1/{'t' * 30}{len(self.given)}"
        self.given.append(url)
        self.open.add(url)
        return url

    async def dismiss(self, url: str) -> None:
        self.open.remove(url)


class Program(FakeRuntime):
    """A runtime with a process of its own: it uses an address, and takes its time to end."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.addresses: list[str] = []

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        self.addresses.append(await host.tool_endpoint())
        return await super().start_task(host, task)

    async def close_session(self, session_id: str) -> None:
        await self.gate.wait()
        await super().close_session(session_id)


def worked(r: Rig, session: Session | None = None) -> Session:
    """Have a session do one task."""
    session = session or r.open()
    r.start(session)
    r.emit(done())
    return session


def idle_rig(idle_s: float | None = 60.0) -> Any:
    return rig(runtime=Program(), mcp=Addresses(), limits=Limits(runtime_idle_s=idle_s))


def test_an_idle_runtime_is_ended_once_and_the_log_says_so():
    with idle_rig() as r:
        session = worked(r)
        r.pass_time(59)
        assert r.runtime.closed_sessions == []
        r.pass_time(1)
        assert r.runtime.closed_sessions == [session.id]
        assert r._listeners["mcp"].open == set()
        assert r.all(session, ev.RuntimeNotice) == [IDLE]
        r.pass_time(10_000)
        worked(r, session)
        assert r.runtime.addresses[0] != r.runtime.addresses[1]
        r.pass_time(61)
        assert r.runtime.closed_sessions == [session.id] * 2


def test_a_task_begins_the_count_again_and_a_running_one_is_never_idle():
    with idle_rig() as r:
        session = worked(r)
        r.pass_time(59)
        r.start(session)
        r.pass_time(600)
        assert r.runtime.closed_sessions == []
        r.emit(done())
        r.pass_time(59)
        assert r.runtime.closed_sessions == []
        r.pass_time(2)
        assert r.runtime.closed_sessions == [session.id]


def test_a_task_that_begins_while_the_runtime_ends_waits_for_it_and_keeps_its_address():
    with idle_rig() as r:
        session = worked(r)
        r.runtime.gate.clear()
        r.pass_time(60)
        task = r.start(session)
        assert len(r.runtime.tasks) == 1
        r.runtime.gate.set()
        r.settle()
        assert len(r.runtime.tasks) == 2
        assert r._listeners["mcp"].open == {r.runtime.addresses[1]}
        assert r.all(session, ev.RuntimeNotice) == [IDLE]
        r.emit(done())
        assert r.get(task.info()).state == "completed"


def test_a_task_at_the_very_moment_is_not_hurt():
    with idle_rig(0.0) as r:
        session = r.open()
        for _ in range(5):
            r.start(session)
            r.play.emit(done())
            r.settle(3)  # the end is on its way, and so is the next task
            r.start(session)
            r.emit(done())
            r.pass_time(0)
        assert {task.state for task in r.get(session.tasks())} == {"completed"}


@pytest.mark.parametrize("how", ["stop", "close", "delete", "shutdown"])
def test_stopping_closing_and_deleting_at_that_moment_wait_for_the_runtime(how: str):
    with idle_rig() as r:
        session = worked(r)
        r.runtime.gate.clear()
        r.pass_time(60)
        if how == "shutdown":
            r.loop.call_later(1, r.runtime.gate.set)
            r.reopen()
            assert r.all(session, ev.RuntimeNotice) == [IDLE]
            return
        if how == "stop":
            r.start(session)
            work = session.stop("enough")
        else:
            work = session.close() if how == "close" else session.delete()
        doing = r.do(work)
        r.runtime.gate.set()
        r.settle()
        r.pass_time(20)
        assert doing.done()
        assert doing.exception() is None
        if how == "stop":
            assert r.one(session, ev.TaskStopped).by.kind == "user"


def test_null_means_never_and_a_runtime_without_a_process_is_left_alone():
    with idle_rig(None) as r:
        session = worked(r)
        r.pass_time(1_000_000)
        assert r.runtime.closed_sessions == r.all(session, ev.RuntimeNotice) == []
    with rig(limits=Limits(runtime_idle_s=1.0)) as r:
        session = worked(r)
        r.pass_time(100)
        assert r.runtime.closed_sessions == r.all(session, ev.RuntimeNotice) == []


def test_a_crash_afterwards_finds_a_log_in_order():
    with idle_rig() as r:
        session = worked(r)
        r.pass_time(60)
        r.start(session)
        r.crash()
        assert r.one(r.handle(session), ev.TaskFailed).error.code == "INTERRUPTED"
