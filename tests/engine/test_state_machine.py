"""Anything that callers, runtimes, tools, disks and crashes do, in any order, leaves a log that holds its word.

The machine plays all of them against a real engine on a loop whose time it moves itself. Some rules let the
engine come to rest, others give it only a few turns of the loop, so that calls meet each other half-way.
After every step all readers have seen only what is stored; at the end every session verifies and replays.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.counts import COUNTS
from tests.engine.acting import (
    close_session,
    create_session,
    delete,
    fork_session,
    live_session,
    resume,
    start,
)
from tests.engine.world import World

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import CodeSDKError, ErrorInfo
from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RequestCompleted,
    RequestStarted,
    RuntimeNotice,
    TaskSteered,
    TaskStopRequested,
    UsageReported,
)
from codesdk.contract.messages import Message, Reasoning, Text, user
from codesdk.contract.models import ModelAnswered, ModelAsked, Refused
from codesdk.contract.ownership import WireCall
from codesdk.contract.ports import FileChange, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Host,
    Identified,
    RuntimeItem,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.settings import Limits, SessionConfig, SessionSettings, SettingsChange
from codesdk.contract.tools import ANSWER_TOOL, Actor, ToolIdentity
from codesdk.testing.fakes import READ, WRITE, FakeRuntime, FakeTask, FakeTools, delta, tool_spec

EXAMPLES, STEPS = COUNTS.machine_examples, COUNTS.machine_steps
SQLITE_EXAMPLES = max(1, EXAMPLES // 6)

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

SECRET = "hunter2-canary"
PERSON = Actor(kind="user", id="tester")
STUBBORN = tool_spec("fake.stubborn", "write")
BIG = "x" * 300
CHANGES = [
    SettingsChange(permission_mode="yolo", title=SECRET),
    SettingsChange(permission_mode="ask", model="another"),
    SettingsChange(permission_mode="auto", values={SECRET: BIG, "n": None}, budgets=None),
    SettingsChange(approval_timeout_s=1.0, idle_timeout_s=50.0, stop_grace_s=0.5),
]


class Puppet(FakeTask):
    """A task of a runtime that behaves as badly as it was told to."""

    def __init__(self, host: Host, given: TaskInput, manners: str) -> None:
        super().__init__(host, given, None)
        self.manners = manners
        self.over = False

    async def events(self) -> Any:
        try:
            while True:
                try:
                    async for item in super().events():
                        yield item
                    return
                except asyncio.CancelledError:
                    if self.manners != "undead" or self.over:
                        raise
                    self.over = True  # it dies the second time
                    yield Draft(
                        OutputDelta(kind="text_delta", block_id="b9", message_id="m9", delta="undead")
                    )
        finally:
            self.over = True

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        await self._misbehave("reply")
        await super().send_tool_result(call, reply)

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        await self._misbehave("reply")
        await super().send_tool_denied(call, reason)

    async def steer(self, messages: Sequence[Message]) -> None:
        await self._misbehave("steer")
        await super().steer(messages)

    async def stop(self, reason: str) -> None:
        await self._misbehave("stop")
        await super().stop(reason)
        if self.manners == "polite":
            self.emit(Finished(stop_reason="stopped"))

    async def close(self) -> None:
        await self._misbehave("close")
        await super().close()

    async def _misbehave(self, what: str) -> None:
        if self.manners == f"{what} raises":
            raise RuntimeError(f"no {what} today")
        if self.manners == f"{what} hangs":
            await asyncio.get_running_loop().create_future()


class PuppetRuntime(FakeRuntime):
    """Starts puppets with the manners of the moment."""

    def __init__(self) -> None:
        super().__init__()
        self.manners = "polite"
        self.way: Any = "tool"
        self.tasks: list[Any] = []

    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities(), output_schema=self.way)

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        if self.manners == "start fails":
            raise CodeSDKError("The runtime is not installed.", code="RUNTIME_UNAVAILABLE")
        if self.manners == "start raises":
            raise RuntimeError("boom")
        if self.manners == "start hangs":
            await asyncio.get_running_loop().create_future()
        self.tasks.append(Puppet(host, task, self.manners))
        return self.tasks[-1]


class PuppetTools(FakeTools):
    """Tools that are all held back; one of them cannot be cancelled."""

    def __init__(self) -> None:
        super().__init__(READ, WRITE, STUBBORN)
        self.hold()

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        running = asyncio.ensure_future(super().run(call, output))
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                if call.name != STUBBORN.name or running.cancelled():
                    running.cancel()
                    raise


MANNERS = st.sampled_from(
    [
        "polite",
        "polite",
        "polite",
        "deaf",
        "undead",
        "start fails",
        "start raises",
        "start hangs",
        *(f"{what} {how}" for what in ("reply", "steer", "stop", "close") for how in ("raises", "hangs")),
    ]
)
MODES = st.sampled_from(["ask", "auto", "yolo"])
INTERACTIONS = st.sampled_from(["interactive", "interactive", "interactive", "non_interactive"])
BUDGETS = st.sampled_from([100_000, 150, 30])
ON_BUSY = st.sampled_from(["queue", "queue", "reject", "steer"])
OWN_IDS = st.sampled_from([None, None, None, "task_a", "task_b"])
KEYS = st.sampled_from([None, None, None, "k1", "k2"])
SCOPES = st.sampled_from(["once", "once", "session"])
ATTEMPTS = st.sampled_from([None, None, None, 1, 2])
ACTIONS = st.sampled_from(["stop", "stop", "steer", "resume", "resume", "revoke", "set"])
TURNS = st.one_of(st.none(), st.none(), st.integers(0, 8))
PICK = st.integers(0, 7)
MESSAGE_IDS = st.sampled_from(["m1", "m2", "m3"])
BLOCK_IDS = st.sampled_from(["b1", "b2", "b3"])
TEXTS = st.sampled_from(["", "a", "hello ", "hunter2", "-canary", SECRET, "é🎉", "\ud83d", "\0", BIG, "{}"])
RAWS = st.sampled_from(
    [None, None, {"a": 1}, {"s": SECRET}, {"big": BIG}, object(), {"n": float("nan")}, [(1,)]]
)
SCHEMAS = st.sampled_from(
    [
        None,
        None,
        {"type": "object"},
        {"type": "object", "properties": {"n": {"type": "integer"}}, "description": SECRET},
        {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        {"type": "object", "required": ["never"]},
        {"type": "nothing"},
    ]
)
WAYS = st.sampled_from(["tool", "native"])
INPUTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        {},
        {"a": 1},
        {"a": 1.0},
        {"s": SECRET},
        {"invalid": "no"},
        {"big": BIG},
        "text",
        None,
        {"n": float("nan")},
        (1,),
    ]
)
NAMES = st.sampled_from(
    [READ.name, READ.name, WRITE.name, WRITE.name, STUBBORN.name, ANSWER_TOOL, "nobody.knows", "", SECRET]
)
GARBAGE: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        5,
        object(),
        {"type": "text"},
        Draft(None),  # type: ignore[arg-type]
        Draft(TaskSteered(messages=[user("x")])),  # type: ignore[arg-type]
        Draft(OutputDelta(kind="text_delta", block_id="b1", message_id="m1", delta=5)),  # type: ignore[arg-type]
        Draft(OutputDelta(kind=["k"], block_id="b1", message_id="m1", delta="x")),  # type: ignore[arg-type]
        Draft(OutputDelta(kind="text_delta", block_id="\ud800", message_id="m1", delta="x")),
        Draft(OutputCompleted(message_id=5, content=[])),  # type: ignore[arg-type]
        Draft(OutputCompleted(message_id="\udfff", content=[])),
        Draft(RuntimeNotice(kind="stop_requested", message="x", details={"by": {"kind": "user"}})),
        Draft(RuntimeNotice(kind="recovered", message="x", details={})),
        Draft(TaskStopRequested(reason="x", by=Actor(kind="user"))),  # type: ignore[arg-type]
        Draft(RuntimeNotice(kind="odd", message="x", details={"k": object()})),
        Draft(RuntimeNotice(kind="odd", message="x", details={1: (2,)})),  # type: ignore[dict-item]
        ToolAnnouncement(name=None, input={}),  # type: ignore[arg-type]
        ToolAnnouncement(name="\ud800", input={}),
        ToolAnnouncement(name=READ.name, input={"k": {1, 2}}),
        ToolAnnouncement(name=READ.name, input={}, runtime_tool_call_id=5),  # type: ignore[arg-type]
        ToolAnnouncement(name=READ.name, input={}, message_id="m1", index=-3),
        Identified(model=5),  # type: ignore[arg-type]
        Identified(runtime_session_id="\ud800"),
        Identified(model="other", runtime_session_id="native-1"),
    ]
)
COSTS = st.sampled_from([None, 0.0, 0.25, float("nan")])
DRAFTS = st.one_of(
    st.builds(
        OutputDelta,
        kind=st.sampled_from(["text_delta", "text_delta", "reasoning_delta", "json_delta", "code_delta"]),
        block_id=BLOCK_IDS,
        message_id=MESSAGE_IDS,
        delta=TEXTS,
    ),
    st.builds(
        OutputCompleted,
        message_id=MESSAGE_IDS,
        content=st.lists(st.builds(Text, text=TEXTS) | st.builds(Reasoning, text=TEXTS), max_size=2),
        partial=st.booleans(),
    ),
    st.builds(OutputRetracted, block_ids=st.lists(BLOCK_IDS, max_size=2), reason=TEXTS),
    st.builds(
        UsageReported,
        model=st.none() | st.just("model-1"),
        input=st.integers(0, 9),
        output=st.integers(0, 9),
        cache_read=st.just(0),
        cache_write=st.just(0),
        reasoning=st.just(0),
        cost_usd=COSTS,
        source=st.just("runtime"),
    ),
    st.builds(RuntimeNotice, kind=st.just("compaction"), message=TEXTS, details=st.just({})),
    st.builds(RequestStarted, request_id=st.sampled_from(["r1", "r2"]), purpose=st.just("main")),
    st.builds(
        RequestCompleted,
        request_id=st.sampled_from(["r1", "r2"]),
        status=st.just("ok"),
        duration_ms=st.integers(0, 9),
    ),
)
CALLS = st.builds(
    ToolAnnouncement,
    name=NAMES,
    input=INPUTS,
    runtime_tool_call_id=st.sampled_from(["c1", "c2", "c3", "c4", None]),
    message_id=st.none() | MESSAGE_IDS,
    index=st.sampled_from([None, 0, 1, 5]),
    raw=RAWS,
)
ENDS: st.SearchStrategy[Any] = st.sampled_from(
    [
        Finished(stop_reason="end_turn"),
        Finished(stop_reason="end_turn"),
        Finished(stop_reason=SECRET),
        Finished(stop_reason=None),  # type: ignore[arg-type]
        Finished(stop_reason="\ud800"),
        Failed(error=ErrorInfo(code="MODEL_ERROR", message=f"no more {SECRET}", retryable=True)),
        Failed(error=ErrorInfo(code="MODEL_ERROR", message="odd", retryable=True, raw=object())),
        Failed(error="not an error"),  # type: ignore[arg-type]
        None,
        RuntimeError(f"the stream broke: {SECRET}"),
        RuntimeError("\ud800"),
    ]
)
DRAFTED = st.builds(Draft, DRAFTS, RAWS)
RESULTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        "ok",
        {"lines": 3},
        BIG,
        SECRET,
        "\ud800",
        object(),
        ToolRun(result="done", exit_code=2, is_error=True),
        ToolRun(result=float("nan")),
        ToolRun(result="changed", changes=[FileChange(path="a.txt", diff=f"+{SECRET}")]),
        RuntimeError("the tool broke"),
        RuntimeError(f"\ud800 {SECRET}"),
    ]
)


class EngineMachine(RuleBasedStateMachine):
    """Sessions by their place in `self.sessions`; what a rule picks is taken modulo what there is.

    A rule that needs a running task, a question or a running tool brings it about if there is none.
    """

    sqlite = False

    def __init__(self) -> None:
        super().__init__()
        self.runtime = PuppetRuntime()
        self.tools = PuppetTools()
        self.world = World(
            runtime=self.runtime,
            tools=self.tools,
            limits=Limits(
                max_sessions=6, max_tasks=3, max_queue=2, max_backlog_frames=4, max_event_bytes=100_000
            ),
            secrets=(SECRET,),
            sqlite=self.sqlite,
        )
        self.sessions: list[str] = []
        self.numbers = itertools.count()

    # --- callers ---------------------------------------------------------------------------------

    @initialize(mode=MODES, interaction=INTERACTIONS, budget=BUDGETS)
    def begin(self, mode: Any, interaction: Any, budget: int) -> None:
        self.create(mode, interaction, budget)

    def create(
        self, mode: Any = "ask", interaction: Any = "interactive", budget: int = 100_000, key: Any = None
    ) -> None:
        config = SessionConfig(
            runtime="fake",
            workspace="/workspace",
            title=f"about {SECRET}",
            permission_mode=mode,
            interaction_mode=interaction,
            settings=SessionSettings(
                context_budget_tokens=budget,
                input_inline_bytes=64,
                result_inline_bytes=64,
                raw_inline_bytes=128,
            ),
        )
        self.keep(self.world.do(create_session(self.world.engine, config, key=key)))

    @rule(
        at=PICK,
        text=TEXTS,
        on_busy=ON_BUSY,
        own_id=OWN_IDS,
        key=KEYS,
        manners=MANNERS,
        schema=SCHEMAS,
        way=WAYS,
        turns=TURNS,
    )
    def start(
        self,
        at: int,
        text: str,
        on_busy: Any,
        own_id: Any,
        key: Any,
        manners: str,
        schema: Any,
        way: Any,
        turns: Any,
    ) -> None:
        async def call() -> None:
            live = await live_session(self.world.engine, self.session(at))
            await start(
                self.world.engine,
                live,
                [user(text)],
                on_busy=on_busy,
                task_id=own_id,
                output_schema=schema,
                key=key,
            )

        self.runtime.manners = manners
        self.runtime.way = way
        self.world.do(call(), turns)

    @rule(which=PICK, approve=st.booleans(), scope=SCOPES, attempt=ATTEMPTS, exact=st.booleans(), turns=TURNS)
    def answer(self, which: int, approve: bool, scope: Any, attempt: Any, exact: bool, turns: Any) -> None:
        async def waiting() -> Any:
            return await self.world.lifeline.approvals(principal=None, session_id=None)

        async def call(row: Any) -> None:
            live = await live_session(self.world.engine, row.session_id)
            await live.answer(
                row.tool_call_id,
                "approve" if approve else "deny",
                by=PERSON,
                scope=scope,
                reason=f"because {SECRET}",
                attempt=attempt,
                input_hash=row.input_hash if exact else None,
            )

        rows = self.world.get(waiting())
        if not rows:
            self.task(which).emit(call_of(WRITE.name, which))
            self.world.settle()
            rows = self.world.get(waiting())
        if rows:
            self.world.do(call(rows[which % len(rows)]), turns)

    @rule(which=PICK, approve=st.booleans(), restart=st.booleans(), turns=TURNS)
    def carry(self, which: int, approve: bool, restart: bool, turns: Any) -> None:
        """A question outlives its process; it is answered, and the session goes on."""
        self.task(which).emit(call_of(WRITE.name, which))
        self.world.settle()
        self.world.crash()
        self.answer(which, approve, "once", None, True, None)
        if restart:
            self.world.crash()
        for session_id in self.sessions:
            self.ask(self.sessions.index(session_id), which, "resume", "and now", turns)

    @rule(at=PICK, which=PICK, action=ACTIONS, text=TEXTS, turns=TURNS)
    def ask(self, at: int, which: int, action: str, text: str, turns: Any) -> None:
        async def call() -> None:
            engine = self.world.engine
            live = await live_session(engine, self.session(at))
            if action == "stop":
                queued = [entry.task_id for entry in live.state.queue]
                await live.stop([None, *queued][which % (len(queued) + 1)], PERSON, f"enough {SECRET}")
            elif action == "steer":
                await live.steer([user(text)])
            elif action == "resume":
                await resume(engine, live, [user(text)] if which % 2 else None)
            elif action == "revoke":
                await live.revoke(WRITE.name, PERSON)
            elif action == "set":
                await live.change_settings(CHANGES[which % len(CHANGES)], PERSON)

        self.world.do(call(), turns)

    @rule(at=PICK, seq=st.integers(1, 60), fork=st.booleans(), mode=MODES, interaction=INTERACTIONS, key=KEYS)
    def branch(self, at: int, seq: int, fork: bool, mode: Any, interaction: Any, key: Any) -> None:
        if fork:
            head = max(1, len(self.world.frames(self.session(at))))
            self.keep(self.world.do(fork_session(self.world.engine, self.session(at), 1 + seq % head)))
        else:
            self.create(mode, interaction, key=key)

    # --- the runtime -----------------------------------------------------------------------------

    @rule(at=PICK, items=st.lists(DRAFTED | GARBAGE, min_size=1, max_size=6), turns=TURNS)
    def emit(self, at: int, items: list[RuntimeItem], turns: Any) -> None:
        self.task(at).emit(*items)
        self.world.settle(turns)

    @rule(at=PICK, items=st.lists(CALLS | DRAFTED, min_size=1, max_size=4), turns=TURNS)
    def announce(self, at: int, items: list[RuntimeItem], turns: Any) -> None:
        self.task(at).emit(*items)
        self.world.settle(turns)

    @rule(at=PICK, item=ENDS, turns=TURNS)
    def end(self, at: int, item: Any, turns: Any) -> None:
        task = self.task(at)
        task.closed = item is None
        task.emit(*([] if item is None else [item]))
        self.world.settle(turns)

    # --- the gateway -----------------------------------------------------------------------------

    @rule(at=PICK, name=NAMES, given=INPUTS, is_asked=st.booleans(), says=st.booleans(), turns=TURNS)
    def keep_from_runtime(
        self, at: int, name: str, given: Any, is_asked: bool, says: bool, turns: Any
    ) -> None:
        """The gateway tells of a call that it kept from the runtime, in a task or outside; the runtime repeats its mark."""

        async def call() -> None:
            with contextlib.suppress(CodeSDKError):
                tap = (await live_session(self.world.engine, self.session(at))).resources.tap
                asked = ModelAsked(purpose="main", model="m", content=next(self.numbers))
                opened = await tap.opened(asked) if is_asked else "req_of_nobody"
                if isinstance(opened, Refused):
                    return
                mark, item = tap.mark(), {"name": name, "input": given}
                try:
                    await tap.denied(
                        WireCall(
                            request_id=opened,
                            name=name,
                            input=given,
                            model_call_id="c1",
                            reason=f"No {SECRET}",
                            mark=mark,
                            item=item,
                            step=0,
                        )
                    )
                    for task in self.runtime.tasks[-1:] if says else []:
                        task.emit(delta(mark[:9], "m1"), delta(mark[9:], "m1"))
                finally:
                    if is_asked:
                        tap.closed(opened, ModelAnswered(status="completed", duration_ms=1))

        self.world.do(call(), turns)

    # --- tools -----------------------------------------------------------------------------------

    @rule(at=PICK, texts=st.lists(TEXTS, max_size=2), result=RESULTS, turns=TURNS)
    def run_tool(self, at: int, texts: list[str], result: Any, turns: Any) -> None:
        running = [run for run in self.tools.runs if not run.over]
        if not running:
            self.task(at).emit(call_of(READ.name, at))
            self.world.settle()
            running = self.tools.runs[-1:]
        for run in running[at % len(running) :][:1] if running else []:
            for text in texts:
                run.say(text)
            if isinstance(result, Exception):
                run.fail(result)
            elif result is not None:
                run.finish(result)
        self.world.settle(turns)

    # --- the world -------------------------------------------------------------------------------

    @rule(at=PICK, after=st.integers(0, 10), slow=st.booleans(), new=st.booleans())
    def read(self, at: int, after: int, slow: bool, new: bool) -> None:
        if new or not self.world.readers:
            head = len(self.world.frames(self.session(at)))
            self.world.watch(self.session(at), min(after, head), slow=slow)
        self.world.readers[at % len(self.world.readers)].pull()
        self.world.settle()

    @rule(
        at=PICK,
        what=st.sampled_from(
            ["time", "time", "crash", "crash", "reopen", "delete", "close", "appends", "appends", "blobs"]
        ),
        seconds=st.sampled_from([0.5, 6.0, 70.0, 400.0, 1000.0]),
        turns=TURNS,
    )
    def disturb(self, at: int, what: str, seconds: float, turns: Any) -> None:
        world = self.world
        if what == "time":
            world.pass_time(seconds)
        elif what == "crash":
            world.crash()
        elif what == "reopen":
            world.flaky.appends = world.flaky.blobs = None
            world.reopen()
        elif what == "close":
            world.do(close_session(world.engine, self.session(at), f"done {SECRET}"), turns)
        elif what == "appends":
            world.flaky.appends = at % 4
        elif what == "blobs":
            world.flaky.blobs = at % 3
        elif len(self.sessions) > 1:
            self.delete(self.session(at))

    def delete(self, session_id: str) -> None:
        deleting = self.world.do(delete(self.world.engine, session_id))
        if deleting.done() and deleting.exception() is None:
            self.sessions.remove(session_id)
            self.world.readers = [r for r in self.world.readers if r.session_id != session_id]

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def readers_see_only_what_is_stored(self) -> None:
        for reader in self.world.readers:
            reader.check()
        assert self.world.errors == [], self.world.errors

    @invariant()
    def seqs_have_no_gap(self) -> None:
        for session_id in self.sessions:
            frames = self.world.frames(session_id)
            assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))

    def teardown(self) -> None:
        try:
            self.come_to_an_end()
        finally:
            self.world.discard()

    def come_to_an_end(self) -> None:
        world = self.world
        world.flaky.appends = world.flaky.blobs = None
        world.pass_time(2_000)
        for session_id in self.sessions:
            live = world.session(session_id)
            for _ in range(4):
                if live.state.task is not None:
                    world.do(live.stop(None, PERSON, "the end"))
                    world.pass_time(2_000)
            assert live.state.task is None, "a stopped task must end"
        for reader in world.readers:
            reader.pull()
        world.close()
        assert world.calls == [], "every call must be answered"
        for session_id in self.sessions:
            world.check(session_id)
            assert not any(SECRET.encode() in frame.data for frame in world.frames(session_id))
        assert not any(SECRET.encode() in data for data, _ in world.blobs._blobs.values())
        for reader in world.readers:
            for _ in range(1000):
                if reader.cursor == len(world.frames(reader.session_id)):
                    break
                reader.pull()
                world.settle()
            stored = [frame.data for frame in world.frames(reader.session_id)]
            assert reader.seen == stored[len(stored) - len(reader.seen) :]
        self.readers_see_only_what_is_stored()
        assert self.world.unheard() == [], "an error in the background was lost"

    # --- picking ---------------------------------------------------------------------------------

    def keep(self, made: "asyncio.Task[Any]") -> None:
        if made.done() and made.exception() is None and made.result().session_id not in self.sessions:
            self.sessions.append(made.result().session_id)

    def session(self, at: int) -> str:
        return self.sessions[at % len(self.sessions)]

    def task(self, at: int) -> Puppet:
        """A task whose stream is open, if need be a new one; if none can be started, one that is over."""
        if not any(not task.over for task in self.runtime.tasks):
            self.start(at, "go on", "queue", None, None, "polite", None, "tool", None)
        if not self.runtime.tasks:
            self.create()
            self.start(len(self.sessions) - 1, "go on", "queue", None, None, "polite", None, "tool", None)
        found = [task for task in self.runtime.tasks if not task.over] or self.runtime.tasks
        return found[at % len(found)] if found else Puppet(None, None, "polite")  # type: ignore[arg-type]


def call_of(name: str, number: int) -> ToolAnnouncement:
    return ToolAnnouncement(name=name, input={"n": number}, message_id="m1")


class SqliteMachine(EngineMachine):
    """The same on a log in a file, whose commits happen in another thread."""

    sqlite = True


@pytest.mark.slow
class TestEngineInMemory(EngineMachine.TestCase):
    settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, suppress_health_check=SLOW_IS_FINE)


@pytest.mark.slow
class TestEngineOnSqlite(SqliteMachine.TestCase):
    settings = settings(
        max_examples=SQLITE_EXAMPLES, stateful_step_count=STEPS, suppress_health_check=SLOW_IS_FINE
    )
