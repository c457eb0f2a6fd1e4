"""An engine whose every step a test decides: its own loop with a clock that only moves when told to.

`World` runs calls until nothing more can happen, or only for a few turns of the loop; it kills the engine at
any moment and opens another one on what was stored; its readers compare all they see with the store.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from tests.engine.acting import create_session, live_session, start

from codesdk.contract.codec import decode, encode
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import Event
from codesdk.contract.messages import user
from codesdk.contract.ports import EventLog, Policy, Stamper, ToolRunner
from codesdk.contract.records import ApprovalRow, StoredFrame
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Limits, SessionConfig, SessionSettings
from codesdk.contract.tools import Actor
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.engine.engine import Engine
from codesdk.engine.log.feed import PAGE_EVENTS
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.scope import Ports
from codesdk.engine.sessions.session import LiveSession
from codesdk.policy.modes import ModePolicy
from codesdk.store.blobs import MemoryBlobs
from codesdk.store.equipment import MemoryEquipment
from codesdk.store.memory import MemoryLog
from codesdk.store.sqlite.log import SqliteLog
from codesdk.testing.fakes import FakeRuntime, FakeTools, FrozenStamper

MANY_TURNS = 20_000
PERSON = Actor(kind="user", id="tester")


class StillLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still until `moved`."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.in_threads: set[asyncio.Future[Any]] = set()
        """What threads do for the engine."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":
        future = super().run_in_executor(executor, func, *args)
        self.in_threads.add(future)
        future.add_done_callback(self.in_threads.discard)
        return future

    def time(self) -> float:
        return self.now_s

    @property
    def idle(self) -> bool:
        """Whether nothing is ready to run."""
        return not self._ready  # type: ignore[attr-defined]

    @property
    def timers(self) -> list[float]:
        """When the next things are due."""
        return [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]

    def turn(self) -> None:
        """Run what is ready now, once."""
        self.call_soon(self.stop)
        self.run_forever()


class Flaky:
    """What goes wrong with the next writes: a countdown for appends and one for blobs; 0 fails, None never does."""

    def __init__(self) -> None:
        self.appends: int | None = None
        self.blobs: int | None = None

    def on_append(self, session_id: str) -> Exception | None:
        return self._count("appends")

    def on_blob(self) -> Exception | None:
        return self._count("blobs")

    def _count(self, name: str) -> Exception | None:
        left = getattr(self, name)
        if left is None:
            return None
        setattr(self, name, left - 1 if left else None)
        return None if left else StorageFailure("The disk is full.")


class FlakyBlobs(MemoryBlobs):
    """Blobs in memory, some of which cannot be stored."""

    def __init__(self, flaky: Flaky) -> None:
        super().__init__()
        self._flaky = flaky

    async def put(self, data: bytes) -> str:
        error = self._flaky.on_blob()
        if error is not None:
            raise error
        return await super().put(data)


class Lifeline:
    """A log as one engine sees it. When cut, nothing the engine still does reaches the store.

    It also counts what is under way, so that a world knows when threads have nothing more to say.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._cut = False
        self.under_way: set[asyncio.Future[Any]] = set()

    def cut(self) -> None:
        self._cut = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._log, name)

        def call(*args: Any, **options: Any) -> Awaitable[Any]:
            if self._cut:
                return asyncio.get_running_loop().create_future()
            made = method(*args, **options)
            if isinstance(self._log, MemoryLog):
                return made
            future = asyncio.ensure_future(made)
            self.under_way.add(future)
            future.add_done_callback(self.under_way.discard)
            return future

        return call


class World:
    """One store, the engine on it, and what the engine is connected to."""

    def __init__(
        self,
        *,
        runtime: Runtime | None = None,
        tools: ToolRunner | None = None,
        policy: Policy | None = None,
        stamper: Stamper | None = None,
        limits: Limits | None = None,
        secrets: tuple[str, ...] = (),
        sqlite: bool = False,
        **listeners: Any,
    ) -> None:
        """Make a world. `listeners` are further ports: observers, subscribers, an equipper."""
        self._listeners = listeners
        self.loop = StillLoop()
        self.loop.set_exception_handler(self._note_error)
        self.loop.set_task_factory(self._make_task)
        self._tasks: list[asyncio.Task[Any]] = []
        self.errors: list[str] = []
        self.runtime: Any = runtime or FakeRuntime()
        self.tools: Any = tools or FakeTools()
        self.policy = policy or ModePolicy()
        self.stamper = stamper or FrozenStamper()
        self.limits = limits or Limits()
        self.secrets = secrets
        self.flaky = Flaky()
        self.blobs = FlakyBlobs(self.flaky)
        self.equipment = MemoryEquipment()
        self.directory = Path(tempfile.mkdtemp()) if sqlite else None
        self.readers: list[Reader] = []
        self.calls: list[asyncio.Task[Any]] = []
        self.log: EventLog = self._wait(self._open_log())
        self._open_engine()

    # --- running ---------------------------------------------------------------------------------

    def do(self, work: Coroutine[Any, Any, Any], turns: int | None = None) -> asyncio.Task[Any]:
        """Begin a call and go on until nothing more can happen, or for so many turns of the loop."""
        task = self.loop.create_task(work)
        self.calls.append(task)
        self.settle(turns)
        return task

    def get(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Make a call that must come to its end without time passing, and return what it gives."""
        task = self.loop.create_task(work)
        self.settle()
        assert task.done(), "the call still waits for something"
        return task.result()

    def settle(self, turns: int | None = None) -> None:
        """Go on until nothing is ready and nothing is under way in a thread."""
        for _ in range(MANY_TURNS if turns is None else turns):
            if self.loop.idle:
                begun = self.lifeline.under_way | self.loop.in_threads
                waiting = [future for future in begun if not future.done()]
                if not waiting or turns is not None:
                    break
                self._wait(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
            self.loop.turn()
        else:
            assert turns is not None, "the engine never comes to rest"
        self._reap()

    def pass_time(self, seconds: float) -> None:
        """Let time pass: everything that was to happen by then does, in order."""
        end = self.loop.now_s + seconds
        while True:
            self.settle()
            timers = self.loop.timers
            due = min((when for when in timers if when <= end), default=None)
            if due is None:
                break
            self.loop.now_s = max(self.loop.now_s, due)
            self.loop.turn()
        self.loop.now_s = end

    def _wait(self, work: Awaitable[Any]) -> Any:
        """Run something that may need threads to its end."""

        async def run() -> Any:
            return await work

        return self.loop.run_until_complete(run())

    def _reap(self) -> None:
        """Take the results of calls that ended. Only errors that callers are told about may come out."""
        for task in [task for task in self.calls if task.done()]:
            self.calls.remove(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, CodeSDKError):
                raise error

    def _make_task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _note_error(self, loop: Any, context: dict[str, Any]) -> None:
        if "task" not in context and "future" not in context:  # those are looked for by `unheard`
            self.errors.append(f"{context['message']}: {context.get('exception')!r}")

    def unheard(self) -> list[BaseException | None]:
        """Return the errors of background tasks that nobody took notice of, without waiting for the collector."""
        return [
            task.exception()
            for task in self._tasks
            if task.done() and not task.cancelled() and task._log_traceback
        ]

    # --- engines ---------------------------------------------------------------------------------

    async def _open_log(self) -> EventLog:
        if self.directory is None:
            return MemoryLog(fault=self.flaky.on_append)
        return await SqliteLog.open(self.directory / "codesdk.db", synchronous="normal")

    def _open_engine(self) -> None:
        self.lifeline = Lifeline(self.log)
        ports = Ports(
            log=self.lifeline,  # type: ignore[arg-type]
            blobs=self.blobs,
            tools=self.tools,
            policy=self.policy,
            stamper=self.stamper,
            limits=self.limits,
            equipment=self.equipment,
            identify=lambda workspace: workspace,
            **self._listeners,
        )
        self.loop.run_until_complete(self._make_engine(ports))

    async def _make_engine(self, ports: Ports) -> None:
        self.engine = Engine(
            ports,
            lambda name: self.runtime,
            owner="test",
            secrets=self.secrets,
            permits=Permits(allow_yolo=True),
        )
        await self.engine.open()

    def crash(self) -> None:
        """Let the engine die where it stands, and open another one on what was stored."""
        self.lifeline.cut()
        for _ in range(3):  # the cleanup of a task may start others
            tasks = {*asyncio.all_tasks(self.loop), *self.calls}
            for task in tasks:
                task.cancel()
            if tasks:
                self._wait(asyncio.wait(tasks, timeout=0))
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # nobody is left to be told
        self.calls.clear()
        for reader in self.readers:
            reader.lose()
        if self.directory is not None:
            self._wait(self.log.close())
            self.log = self._wait(self._open_log())
        self.flaky.appends = self.flaky.blobs = None
        self.unheard()
        self._tasks.clear()  # what a dying engine complains of does not count
        self._open_engine()
        self.settle()

    def close(self) -> None:
        """Close the engine as an application does. The log stays open, to be looked at."""
        closing = self.loop.create_task(self.engine.close())
        self.pass_time(10_000)
        assert closing.done(), "the engine does not close"
        closing.result()

    def reopen(self) -> None:
        """Close the engine and open another one on the same store."""
        self.close()
        self._open_engine()
        self.settle()

    def discard(self) -> None:
        """Free what the world holds."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.turn()
        self.loop.turn()
        self._wait(self.log.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- sessions --------------------------------------------------------------------------------

    def create(self, *, settings: SessionSettings | None = None, **config: Any) -> str:
        """Create a session and return its id."""
        given = SessionConfig(
            runtime="fake", workspace="/workspace", settings=settings or SessionSettings(), **config
        )
        return self.get(create_session(self.engine, given)).session_id

    def session(self, session_id: str) -> LiveSession:
        """Return a live session."""
        return self.get(live_session(self.engine, session_id))

    def frames(self, session_id: str) -> list[StoredFrame]:
        """Return what is stored of a session."""
        return self._wait(read_frames(self.log, session_id))

    def events(self, session_id: str) -> list[Event]:
        """Return a session's events."""
        return [decode(frame.data) for frame in self.frames(session_id)]

    def types(self, session_id: str, task_id: str | None = None) -> list[str]:
        """Return the types of a session's events, or of one of its tasks."""
        return [e.type for e in self.events(session_id) if task_id in (None, e.trace.task_id)]

    def start(self, session_id: str, text: str = "go", **options: Any) -> str:
        """Start a task and return its id."""
        return self.get(start(self.engine, self.session(session_id), [user(text)], **options))

    def emit(self, *items: Any, back: int = 0) -> None:
        """Let the runtime's last task say something, or an earlier one, and come to rest."""
        self.runtime.tasks[-1 - back].emit(*items)
        self.settle()

    def answer(self, session_id: str, decision: str, which: int = 0, **options: Any) -> None:
        """Answer one of the questions that wait in a session."""
        row = self.waiting(session_id)[which]
        options.setdefault("by", PERSON)
        self.get(self.session(session_id).answer(row.tool_call_id or "", decision, **options))  # type: ignore[arg-type]

    def waiting(self, session_id: str) -> list[ApprovalRow]:
        """Return the open approvals of a session."""
        return self._wait(self.log.approvals(principal=None, session_id=session_id))

    def stop(self, session_id: str, reason: str = "enough", task_id: str | None = None) -> None:
        """Stop a task; what must end, ends when time passes."""
        self.get(self.session(session_id).stop(task_id, PERSON, reason))

    def watch(self, session_id: str, after_seq: int = 0, *, slow: bool = False) -> "Reader":
        """Subscribe to a session. A slow reader takes a batch only when it is told to."""
        reader = Reader(self, session_id, after_seq, slow)
        self.readers.append(reader)
        return reader

    def check(self, session_id: str) -> None:
        """Verify a session at rest, and replay it."""
        findings = self._wait(verify_session(self.log, self.blobs, session_id))
        assert findings == [], findings
        count, differences = self._wait(replay_session(self.log, self.blobs, session_id))
        assert (count, differences) == (len(self.frames(session_id)), []), differences

    def check_all(self) -> None:
        """Close the engine, then verify and replay every session; no error may have gone unheard."""
        self.close()
        for row in self._wait(self.log.sessions(after=None, limit=100, principal=None, status=None)):
            self.check(row.session_id)
        assert (self.errors, self.unheard()) == ([], [])


class Reader:
    """A subscriber that checks, the moment it sees an event, that this very event is stored."""

    def __init__(self, world: World, session_id: str, after_seq: int, slow: bool) -> None:
        self.session_id = session_id
        self.seen: list[bytes] = []
        self.ended: BaseException | bool = False
        self._world = world
        self._first = after_seq
        self._slow = slow
        self._go = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def cursor(self) -> int:
        return self._first + len(self.seen)

    def pull(self) -> None:
        """Start again after an engine was lost, and take what is there (a slow reader: one batch)."""
        if self._task is None or self._task.done():
            self._task = self._world.loop.create_task(self._read())
        self._go.set()

    def lose(self) -> None:
        """Forget the engine that is gone. What was seen stays seen."""
        self._task = None

    async def _read(self) -> None:
        with contextlib.suppress(CodeSDKError):  # the session was lost or deleted: pull again
            async for batch in self._world.engine.follow(self.session_id, self.cursor):
                frames = await self._world.lifeline.read(self.session_id, self.cursor, len(batch))
                assert [frame.data for frame in frames] == [item.frame for item in batch]
                assert [frame.seq for frame in frames] == [item.event.seq for item in batch]
                for item in batch:
                    assert encode(item.event) == item.frame
                    self.seen.append(item.frame)
                if self._slow:
                    self._go.clear()
                    await self._go.wait()

    def check(self) -> None:
        """Raise what the reader found wrong."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None:
                raise error


async def read_frames(log: EventLog, session_id: str) -> list[StoredFrame]:
    frames: list[StoredFrame] = []
    while page := await log.read(session_id, len(frames), PAGE_EVENTS):
        frames += page
    return frames


@contextlib.contextmanager
def world(**options: Any) -> Iterator[World]:
    """Give a world and free it afterwards."""
    made = World(**options)
    try:
        yield made
    finally:
        made.discard()


def payloads(
    events: list[Event], kind: type[Any], where: Callable[[Any], bool] = lambda _: True
) -> list[Any]:
    """Return the payloads of one kind."""
    return [event.payload for event in events if isinstance(event.payload, kind) and where(event.payload)]
