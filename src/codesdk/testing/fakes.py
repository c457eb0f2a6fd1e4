"""Stand-ins that a test drives: a runtime, tools, a clock, and an SDK in memory made of them.

`FakeRuntime` plays a list of items, an async function, or what the test emits while it runs;
`FakeTools` runs nothing and lets a test hold calls back; `FrozenStamper` gives the same times and ids every time.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from codesdk.contract.capabilities import AuthStatus, Capabilities
from codesdk.contract.events import OutputCompleted, OutputDelta
from codesdk.contract.ids import Prefix, ulid
from codesdk.contract.messages import Message, Text
from codesdk.contract.ports import (
    Blobs,
    EventLog,
    Policy,
    Stamper,
    ToolInvocation,
    ToolRun,
    ToolRunner,
    ToolSink,
)
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Host,
    Runtime,
    RuntimeEnv,
    RuntimeItem,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.settings import Limits
from codesdk.contract.tools import (
    ExecutionEnv,
    OutputStream,
    SandboxSummary,
    Subjects,
    ToolClass,
    ToolIdentity,
    ToolSpec,
)
from codesdk.engine.engine import Engine
from codesdk.engine.journal import LOCAL
from codesdk.engine.scope import Ports
from codesdk.engine.stamps import iso, millis
from codesdk.gateway.door import GatewayDoor
from codesdk.policy.modes import ModePolicy
from codesdk.runtimes.scripted import ScriptedRuntime
from codesdk.script import Script, parse_object
from codesdk.sdk import CodeSDK
from codesdk.store.blobs import MemoryBlobs
from codesdk.store.memory import MemoryLog
from codesdk.tools.mcp.host import McpHost

# --- what a runtime says -------------------------------------------------------------------------


def delta(text: str, message_id: str = "m1", block_id: str | None = None) -> Draft:
    """Return a piece of a message's text. Without `block_id` the message has one block."""
    block = block_id or f"{message_id}.0"
    return Draft(OutputDelta(kind="text_delta", block_id=block, message_id=message_id, delta=text))


def message(text: str, message_id: str = "m1") -> Draft:
    """Return a whole message of one text block."""
    return Draft(OutputCompleted(message_id=message_id, content=[Text(text=text)]))


def call(name: str, arguments: Any = None, call_id: str = "c1", message_id: str = "m1") -> ToolAnnouncement:
    """Return the announcement of a tool call."""
    given: Any = {} if arguments is None else arguments
    return ToolAnnouncement(name=name, input=given, runtime_tool_call_id=call_id, message_id=message_id)


def done(stop_reason: str = "end_turn") -> Finished:
    """Return the end of a good stream."""
    return Finished(stop_reason=stop_reason)


# --- a runtime -----------------------------------------------------------------------------------

Play = Callable[["FakeTask"], AsyncIterator[RuntimeItem]]
"""An async generator function: yields what a task's stream says, and may wait for its replies."""

FAKE_CAPABILITIES = Capabilities(
    supports_streaming=True,
    supports_tool_calls=True,
    supports_parallel_tool_calls=True,
    supports_stop=True,
    supports_artifacts=True,
    supports_session_create=True,
    supports_session_resume=True,
    supports_usage_reporting=True,
    supports_non_interactive=True,
    supports_steer=True,
    supports_fork=True,
    supports_reasoning=True,
    supports_images=True,
    input_capture="compiled",
    auth_model="none",
    tool_execution_model="stream",
    permission_model="codesdk",
    state_model="in_process",
    resume_model="reconstruct",
    tool_replay_safety="requires_reapproval",
    mcp_support="none",
    mcp_transports=[],
    cancellation_model="guaranteed",
    supported_isolation_modes=["in_process"],
    recommended_isolation_mode="in_process",
)


class FakeRuntime:
    """A `Runtime` that plays what it is told: a list of items, a `Play`, or, given neither, what tests `emit`.

    `tasks` holds the handles of all tasks it started, the last one last.
    """

    def __init__(
        self,
        play: Play | Sequence[RuntimeItem] | None = None,
        *,
        name: str = "fake",
        capabilities: Capabilities = FAKE_CAPABILITIES,
    ) -> None:
        self.name = name
        self.tasks: list[FakeTask] = []
        self.closed_sessions: list[str] = []
        self._play = play
        self._capabilities = capabilities
        self._change = asyncio.Event()

    async def started(self, number: int = 1) -> "FakeTask":
        """Wait until so many tasks have been started, and return the last of these."""
        while len(self.tasks) < number:
            self._change.clear()
            await self._change.wait()
        return self.tasks[number - 1]

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=True, auth_model="none")

    async def start_task(self, host: Host, task: TaskInput) -> "FakeTask":
        self.tasks.append(FakeTask(host, task, self._play))
        self._change.set()
        return self.tasks[-1]

    async def close_session(self, session_id: str) -> None:
        self.closed_sessions.append(session_id)


class FakeTask:
    """A running task: what it was given, what came in, and the stream that goes out."""

    def __init__(self, host: Host, given: TaskInput, play: Play | Sequence[RuntimeItem] | None) -> None:
        self.host = host
        self.input = given
        self.replies: dict[str, ToolReply | str] = {}
        self.steered: list[Message] = []
        self.stopped: str | None = None
        self.closed = False
        self._play = play
        self._emitted: list[RuntimeItem | BaseException] = []
        self._change = asyncio.Event()

    def emit(self, *items: RuntimeItem | BaseException) -> None:
        """Let the stream say something. An exception is raised out of it. For a runtime without a play."""
        self._emitted.extend(items)
        self._change.set()

    async def reply(self, call_id: str) -> ToolReply | str:
        """Wait for the result of an announced call, or for the reason of its denial."""
        await self.until(lambda: call_id in self.replies)
        return self.replies[call_id]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this task holds."""
        while not condition():
            self._change.clear()
            await self._change.wait()

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        if self._play is None:
            async for item in self._told():
                yield item
        elif callable(self._play):
            async for item in self._play(self):
                yield item
        else:
            for item in self._play:
                yield item

    async def _told(self) -> AsyncIterator[RuntimeItem]:
        while True:
            await self.until(lambda: bool(self._emitted) or self.closed)
            if not self._emitted:
                return
            item = self._emitted.pop(0)
            if isinstance(item, BaseException):
                raise item
            yield item
            if isinstance(item, Finished | Failed):
                return

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        self._answer(call, reply)

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        self._answer(call, reason)

    async def steer(self, messages: Sequence[Message]) -> None:
        self.steered.extend(messages)
        self._change.set()

    async def stop(self, reason: str) -> None:
        self.stopped = reason
        self._change.set()

    async def close(self) -> None:
        self.closed = True
        self._change.set()

    def _answer(self, call: ToolIdentity, reply: ToolReply | str) -> None:
        self.replies[call.runtime_tool_call_id or call.tool_call_id] = reply
        self._change.set()


# --- tools ---------------------------------------------------------------------------------------


def tool_spec(name: str, tool_class: ToolClass = "read_only") -> ToolSpec:
    """Return the spec of a tool that takes any object."""
    return ToolSpec(
        name=name,
        description=f"Stands for {name}.",
        input_schema={"type": "object"},
        tool_class=tool_class,
        safe_replay=tool_class == "read_only",
    )


READ = tool_spec("fake.read")
WRITE = tool_spec("fake.write", "write")


class FakeRun:
    """A call that is held back: the test says what it prints and how it ends."""

    def __init__(self, invocation: ToolInvocation, output: ToolSink) -> None:
        self.invocation = invocation
        self.cancelled = False
        self._output = output
        self._end: asyncio.Future[ToolRun] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Whether the call has ended, by the test or by cancellation."""
        return self.cancelled or self._end.done()

    def say(self, text: str, stream: OutputStream = "stdout") -> None:
        """Print something."""
        self._output(stream, text)

    def finish(self, result: Any = "ok", *, is_error: bool = False) -> None:
        """End the call with a result, or with a whole `ToolRun`."""
        if not self._end.done():
            run = result if isinstance(result, ToolRun) else ToolRun(result=result, is_error=is_error)
            self._end.set_result(run)

    def fail(self, error: Exception) -> None:
        """End the call with an exception."""
        if not self._end.done():
            self._end.set_exception(error)

    async def wait(self) -> ToolRun:
        """Wait for the end that the test gives."""
        try:
            return await asyncio.shield(self._end)
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class FakeTools:
    """A `ToolRunner` whose tools do nothing but answer. `runs` holds every call, in the order they started.

    A call of a held tool waits for its `FakeRun` to be ended; any other ends at once with what `give` said.
    An input with the key `invalid` is refused with its value.
    """

    def __init__(self, *specs: ToolSpec) -> None:
        self.runs: list[FakeRun] = []
        self._specs = {spec.name: spec for spec in specs or (READ, WRITE)}
        self._held: set[str] = set()
        self._answers: dict[str, Any] = {}
        self._change = asyncio.Event()

    @property
    def invocations(self) -> list[ToolInvocation]:
        """What was asked to run."""
        return [run.invocation for run in self.runs]

    async def started(self, number: int = 1) -> FakeRun:
        """Wait until so many calls have started, and return the last of these."""
        while len(self.runs) < number:
            self._change.clear()
            await self._change.wait()
        return self.runs[number - 1]

    def hold(self, *names: str) -> None:
        """Keep the calls of these tools back, or of all tools."""
        self._held.update(names or self._specs)

    def release(self, *names: str) -> None:
        """Hold these tools, or all, back no longer, and end what waits."""
        freed = set(names or self._specs)
        self._held -= freed
        for run in self.runs:
            if run.invocation.name in freed and not run.over:
                self._settle(run)

    def give(self, name: str, answer: Any) -> None:
        """Let a tool answer with this from now on: a result, a `ToolRun`, or an exception to raise."""
        self._answers[name] = answer

    def specs(self) -> Sequence[ToolSpec]:
        return list(self._specs.values())

    def environment(self, name: str) -> tuple[ExecutionEnv, SandboxSummary]:
        return "codesdk_host", SandboxSummary(network=False)

    def check(self, name: str, arguments: Any) -> str | None:
        if not isinstance(arguments, Mapping):
            return f"{name} takes an object."
        problem = cast("Mapping[str, Any]", arguments).get("invalid")
        return None if problem is None else str(problem)

    def subjects(self, name: str, arguments: Any) -> Subjects:
        return Subjects()

    async def close_session(self, session_id: str) -> None:
        """Release nothing."""

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        run = FakeRun(call, output)
        self.runs.append(run)
        self._change.set()
        if call.name not in self._held:
            self._settle(run)
        return await run.wait()

    def _settle(self, run: FakeRun) -> None:
        answer = self._answers.get(run.invocation.name, "ok")
        if isinstance(answer, Exception):
            run.fail(answer)
        else:
            run.finish(answer)


# --- time and ids --------------------------------------------------------------------------------


class FrozenStamper:
    """A `Stamper` without a clock: each look at the time is `step_ms` later, and ids count up."""

    def __init__(self, start: str = "2026-01-01T00:00:00.000Z", *, step_ms: int = 1) -> None:
        self._time_ms = millis(start)
        self._step_ms = step_ms
        self._count = 0

    def now(self) -> str:
        """Return the time and move it on."""
        self._time_ms += self._step_ms
        return iso(self._time_ms)

    def mint(self, prefix: Prefix) -> str:
        """Return a new id."""
        self._count += 1
        return f"{prefix}_{ulid(self._time_ms, self._count)}"


# --- an SDK in memory ----------------------------------------------------------------------------


@asynccontextmanager
async def memory_sdk(
    script: Script | Sequence[Any] | None = None,
    *,
    runtimes: Iterable[Runtime] = (),
    tools: ToolRunner | None = None,
    policy: Policy | None = None,
    stamper: Stamper | None = None,
    limits: Limits | None = None,
    secrets: Iterable[str] = (),
    log: EventLog | None = None,
    blobs: Blobs | None = None,
    state_dir: str = "",
) -> AsyncGenerator[CodeSDK]:
    """Open an SDK that keeps everything in memory and gives the same times and ids on every run.

    `script` is what the runtime `scripted` plays: a `Script`, or turns as plain data, each a list of steps or a
    whole turn. `runtimes` are found by their names; those that are programs keep their state in `state_dir`. The tools are fakes unless `tools` says otherwise. The mode
    yolo is enabled.
    """
    found: dict[str, Runtime] = {runtime.name: runtime for runtime in runtimes}
    if script is not None:
        found.setdefault(
            "scripted", ScriptedRuntime(script if isinstance(script, Script) else _script(script))
        )
    door, host = GatewayDoor({}), McpHost()
    ports = Ports(
        log=log or MemoryLog(),
        blobs=blobs or MemoryBlobs(),
        tools=tools or FakeTools(),
        policy=policy or ModePolicy(),
        stamper=stamper or FrozenStamper(),
        limits=limits or Limits(),
        models=door,
        mcp=host,
        state_dir=state_dir,
    )
    engine = Engine(ports, found.__getitem__, owner="test", secrets=secrets, allow_yolo=True)
    await engine.open()
    try:
        yield CodeSDK(engine, LOCAL, door)
    finally:
        await engine.close()
        await host.close()
        await door.aclose()


def _script(turns: Sequence[Any]) -> Script:
    whole: list[Any] = [{"steps": turn} if isinstance(turn, list) else turn for turn in turns]
    return parse_object({"turns": whole}, "script")
