"""A `World` seen through the public handles: sessions and tasks of the SDK, a runtime and tools that the test drives.

Leaving a rig closes its engine, verifies and replays every log that is left, and lets no background error pass.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from tests.engine.acting import create_session
from tests.engine.world import World, payloads

from codesdk import CodeSDK, Session, SessionSettings, Task
from codesdk.contract import events as ev
from codesdk.contract.actions import Caller
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.messages import Message, Text, ToolResult, ToolUse
from codesdk.contract.runtime import Host, Runtime, RuntimeItem, TaskInput
from codesdk.contract.settings import SessionConfig
from codesdk.contract.tools import Actor, ToolIdentity
from codesdk.engine.engine import Engine, EngineService
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.scope import Ports
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import FakeRuntime, FakeTask

USER = Actor(kind="user")
POLICY = Actor(kind="policy")
ENGINE = Actor(kind="engine")
NO_COST = ev.UsageTotals()

# Event types, as short as a story needs them.
ASKED = ["tool.call.requested", "tool.call.policy_evaluated", "approval.requested"]
APPROVED = ["approval.answered", "tool.call.policy_evaluated", "tool.call.approved"]
DENIED = ["approval.answered", "tool.call.policy_evaluated", "tool.call.denied"]
RAN = ["tool.call.started", "tool.call.completed"]
BEGUN = ["task.started", "model.input"]


class Rig(World):
    """A world whose sessions are the SDK's handles."""

    def __init__(
        self,
        script: Sequence[Any] | None = None,
        *,
        runtimes: Sequence[Runtime] = (),
        log: MemoryLog | None = None,
        **options: Any,
    ) -> None:
        self._log = log
        self._runtimes: dict[str, Any] = {runtime.name: runtime for runtime in runtimes}
        if script is not None:
            turns = [turn if isinstance(turn, dict) else {"steps": turn} for turn in script]
            options["runtime"] = ScriptedRuntime(parse_object({"turns": turns}, "script"))
        super().__init__(**options)

    async def _open_log(self) -> Any:
        return self._log or await super()._open_log()

    async def _make_engine(self, ports: Ports) -> None:
        def find(name: str) -> Runtime:
            found: Runtime = self._runtimes.get(name, self.runtime)
            return found

        self.engine = Engine(
            ports, find, owner="test", secrets=self.secrets, permits=Permits(allow_yolo=True)
        )
        await self.engine.open()

    # --- what an application does ----------------------------------------------------------------

    @property
    def sdk(self) -> CodeSDK:
        return CodeSDK(EngineService(self.engine, Caller()), self.engine)

    def open(
        self, mode: Any = "ask", *, runtime: str = "fake", secrets: tuple[str, ...] = (), **options: Any
    ) -> Session:
        """Create a session. Options are those of `SessionConfig` and of its settings."""
        ours = {name: options.pop(name) for name in ("title", "interaction_mode", "model") if name in options}
        config = SessionConfig(
            runtime=runtime,
            workspace="/workspace",
            permission_mode=mode,
            settings=SessionSettings(**options),
            **ours,
        )
        live = self.get(create_session(self.engine, config, secrets=secrets))
        return self.handle(live.session_id)

    def handle(self, session: Session | str) -> Session:
        """Return a handle on a session that goes to the engine of now."""
        return Session(self.sdk.service, session if isinstance(session, str) else session.id)

    def start(self, session: Session, message: Any = "Go", **options: Any) -> Task:
        return self.get(session.start(message, **options))

    def refused(self, work: Any, kind: type[CodeSDKError]) -> str:
        """Make a call that must be refused; return the error's code."""
        try:
            self.get(work)
        except kind as error:
            return error.code
        raise AssertionError(f"no {kind.__name__} was raised")

    # --- what the runtime does -------------------------------------------------------------------

    @property
    def play(self) -> FakeTask:
        """The task that the fake runtime started last."""
        assert isinstance(self.runtime, FakeRuntime)
        return self.runtime.tasks[-1]

    def emit(self, *items: RuntimeItem | BaseException) -> None:
        """Let the running task's stream say something, and go on until nothing more can happen."""
        self.play.emit(*items)
        self.settle()

    # --- what is there to see --------------------------------------------------------------------

    def all(self, session: Session, kind: type[Any]) -> list[Any]:
        """Return the payloads of one kind."""
        return payloads(self.events(session.id), kind)

    def one(self, session: Session, kind: type[Any]) -> Any:
        """Return the only payload of a kind."""
        (found,) = self.all(session, kind)
        return found

    def story(self, session: Session, task: Task | None = None, *, after: int = 0) -> list[str]:
        """Return the types of a session's or a task's events after a seq, deltas in a row as one."""
        types: list[str] = []
        for event in self.events(session.id):
            if event.seq > after and (task is None or event.trace.task_id == task.id):
                if event.type.endswith("delta") and types[-1:] == [event.type]:
                    continue
                types.append(event.type)
        return types

    def call(self, session: Session, runtime_id: str = "c1") -> str:
        """Return the id that the engine gave to a call of the runtime."""
        found = [p for p in self.all(session, ev.ToolCallRequested) if p.runtime_tool_call_id == runtime_id]
        return found[-1].tool_call_id

    def last(self, session: Session) -> Event:
        return self.events(session.id)[-1]

    def ended(self, session: Session) -> list[Any]:
        """Return the terminal payloads of a session, without their durations."""
        kinds = (ev.TaskCompleted, ev.TaskFailed, ev.TaskStopped)
        found = [event.payload for event in self.events(session.id) if isinstance(event.payload, kinds)]
        return [msgspec.structs.replace(payload, duration_ms=0) for payload in found]

    def close_and_check(self) -> None:
        self.close()
        for row in self._wait(self.log.sessions(after=None, limit=1000, principal=None, status=None)):
            self.check(row.session_id)
        assert (self.errors, self.unheard()) == ([], [])


class SlowStart(FakeRuntime):
    """A runtime that starts a task only when its gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        await self.gate.wait()
        return await super().start_task(host, task)


@contextlib.contextmanager
def rig(script: Sequence[Any] | None = None, **options: Any) -> Iterator[Rig]:
    """Give a rig, whose logs must all be in order at the end."""
    made = Rig(script, **options)
    try:
        yield made
        made.close_and_check()
    finally:
        made.discard()


def identity(payload: ToolIdentity) -> dict[str, Any]:
    """Return the fields that all events of an attempt share."""
    return {name: getattr(payload, name) for name in ToolIdentity.__struct_fields__}


def texts(messages: Sequence[Message]) -> list[tuple[str, ...]]:
    """Return a transcript as roles with what their blocks say."""
    return [(message.role, *map(_said, message.content)) for message in messages]


def _said(block: Any) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, ToolUse):
        return f"{block.name}#{block.attempt}"
    if isinstance(block, ToolResult):
        return f"{'error' if block.is_error else 'result'}: {block.result}"
    return f"{type(block).__name__}: {getattr(block, 'text', '')}"
