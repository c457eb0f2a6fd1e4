"""Healthy logs, written by the real engine on memory stores.

A `Rig` is an engine with the scripted runtime and tools that wait for a gate. Each function of `HEALTHY`
plays a story and leaves its log behind.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.engine.acting import (
    change_settings,
    close_session,
    create_session,
    follow,
    fork_session,
    live_session,
    resume,
    start,
)

from codesdk.contract.codec import decode
from codesdk.contract.events import TERMINAL_TYPES, Event
from codesdk.contract.messages import user
from codesdk.contract.ports import ToolRun
from codesdk.contract.settings import Limits, SessionConfig, SessionSettings, SettingsChange
from codesdk.contract.tools import Actor
from codesdk.engine.calls.undo import undo
from codesdk.engine.engine import Engine
from codesdk.engine.log.clock import SystemStamper
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.scope import Ports
from codesdk.engine.sessions.session import LiveSession
from codesdk.policy.modes import ModePolicy
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.blobs import MemoryBlobs
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import FAKE_CAPABILITIES, FakeRuntime, call, done, message
from codesdk.tools.builtin import builtin_registry
from codesdk.tools.registry import ToolContext

PERSON = Actor(kind="user", id="ann")
READ = {"call": {"tool": "workspace.read", "input": {"path": "a.txt"}}}
EDIT = {"call": {"tool": "workspace.edit", "input": {"path": "a.txt", "old": "x", "new": "y"}}}


def wait_for(gate: str, tool: str = "gate.write") -> dict[str, Any]:
    """A call that runs until its gate opens."""
    return {"call": {"tool": tool, "input": {"gate": gate}}}


class GateInput(msgspec.Struct):
    gate: str


class Rig:
    """An engine on memory stores. `crash` abandons it; a second rig on the same stores recovers."""

    def __init__(
        self, turns: list[Any], workspace: Path, *, before: "Rig | None" = None, runtime: Any = None
    ) -> None:
        script = {"turns": [turn if isinstance(turn, dict) else {"steps": turn} for turn in turns]}
        self.runtime = runtime or ScriptedRuntime(parse_object(script, "test"))
        self.log = before.log if before else MemoryLog()
        self.blobs = before.blobs if before else MemoryBlobs()
        self.workspace = workspace
        self._others = asyncio.all_tasks()
        self.gates: dict[str, asyncio.Event] = {}
        self.tools = builtin_registry()
        for name in ("gate.write", "gate.read", "gate.stubborn"):
            self._add_gate(name)
        self.engine = Engine(
            Ports(
                identify=lambda workspace: workspace,
                log=self.log,
                blobs=self.blobs,
                tools=self.tools,
                policy=ModePolicy(),
                stamper=SystemStamper(),
                limits=Limits(),
            ),
            lambda _: self.runtime,
            owner="test",
            permits=Permits(allow_yolo=True),
        )

    def _add_gate(self, name: str) -> None:
        @self.tools.tool(name=name, tool_class="read_only" if name == "gate.read" else "write")
        async def gate(args: GateInput, context: ToolContext) -> ToolRun:
            """Wait for a gate."""
            context.output("stdout", "waiting\n")
            stubborn = name == "gate.stubborn"
            await self._pass(args.gate, stubborn=stubborn)
            if not stubborn:
                context.output("stderr", "open\n")
            return ToolRun(result={"opened": args.gate}, exit_code=0)

    async def _pass(self, name: str, *, stubborn: bool) -> None:
        gate = self.gate(name)
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def open(self, mode: Any = "auto", **settings: Any) -> LiveSession:
        """Open the engine and a session in it."""
        (self.workspace / "a.txt").write_text("x\n")
        await self.engine.open()
        fields: dict[str, Any] = {"stop_grace_s": 2.0} | settings
        return await create_session(
            self.engine,
            SessionConfig(
                runtime="scripted",
                workspace=str(self.workspace),
                permission_mode=mode,
                settings=SessionSettings(**fields),
            ),
        )

    async def crash(self) -> None:
        """Leave as a killed process does: nothing more is written."""
        self.log.fault = lambda _: RuntimeError("this process is gone")
        mine = asyncio.all_tasks() - self._others
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        gc.collect()
        self.log.fault = None

    async def events(self, session_id: str) -> list[Event]:
        return [decode(frame.data) for frame in await self.log.read(session_id, 0, 1_000_000)]


async def until(session: LiveSession, *types: str, count: int = 1, after: int = 0) -> list[Event]:
    """Read on until `count` events of these types have come; return those."""
    found: list[Event] = []
    async for batch in follow(session, after):
        for item in batch:
            if item.event.type in types:
                found.append(item.event)
                if len(found) == count:
                    return found
    raise AssertionError(f"the feed ended before {count} of {types}")


async def ended(session: LiveSession, count: int = 1) -> list[Event]:
    return await until(session, *TERMINAL_TYPES, count=count)


async def answer(session: LiveSession, asked: Any, decision: Any = "approve", **more: Any) -> None:
    await session.answer(asked.payload.tool_call_id, decision, by=PERSON, **more)


# --- stories -------------------------------------------------------------------------------------------


class Story(msgspec.Struct):
    """A log and what it lies in."""

    session_id: str
    events: list[Any]
    log: MemoryLog
    blobs: MemoryBlobs


async def _told(rig: Rig, session: LiveSession) -> Story:
    story = Story(session.session_id, await rig.events(session.session_id), rig.log, rig.blobs)
    await rig.engine.close()
    return story


async def busy(workspace: Path) -> Story:
    """Calls side by side, an approval, a denial, a retraction, usage, and two tasks that waited."""
    rig = Rig(
        [
            {
                "steps": [{"reasoning": "hm"}, {"text": ["Hel", "lo"]}, READ, EDIT, EDIT, READ],
                "usage": {"input": 3, "output": 4, "cost_usd": 0.1},
            },
            {
                "steps": [
                    {"text": "wrong"},
                    {"retract": "a broken stream"},
                    {"text": "do"},
                    {"text": "ne"},
                ],
                "usage": {"input": 5, "output": 1, "reasoning": 2, "cost_usd": 0.2},
            },
            [{"text": "second"}],
            [{"text": "third"}],
        ],
        workspace,
    )
    session = await rig.open(input_inline_bytes=24, result_inline_bytes=4, raw_inline_bytes=20)
    await start(rig.engine, session, [user("one")])
    await start(rig.engine, session, [user("two")])
    await start(rig.engine, session, [user("three")])
    first, second = await until(session, "approval.requested", count=2)
    await until(session, "tool.call.completed", count=2)
    await answer(session, first)
    await answer(session, second, "deny", reason="once is enough")
    await ended(session, 3)
    return await _told(rig, session)


async def stopped(workspace: Path) -> Story:
    """A stop that meets a running call, one that waits to run, one that waits for an answer, and text."""
    calls = [wait_for("a"), wait_for("b"), wait_for("c"), wait_for("d", "gate.read")]
    rig = Rig([[{"text": "so far"}, *calls, {"text": "more"}, {"stall": "stopped"}]], workspace)
    session = await rig.open()
    await start(rig.engine, session, [user("go")])
    one, two, _ = await until(session, "approval.requested", count=3)
    await answer(session, one)
    await until(session, "tool.output.delta", count=2)
    await answer(session, two)
    await session.stop(None, PERSON, "enough")
    await ended(session)
    return await _told(rig, session)


async def crashed(workspace: Path) -> tuple[Rig, LiveSession]:
    """A crash that meets an open question, an approved call, two running ones and a stream; recovered."""
    calls = [wait_for("a"), wait_for("b"), wait_for("c"), wait_for("d", "gate.read")]
    first = Rig([[{"text": "so far"}, *calls, {"text": "more"}, {"stall": "stopped"}]], workspace)
    session = await first.open()
    await start(first.engine, session, [user("go")])
    await start(first.engine, session, [user("and then")])
    one, two, _ = await until(session, "approval.requested", count=3)
    await answer(session, one)
    await until(session, "tool.output.delta", count=2)
    await answer(session, two)
    await until(session, "model.output.delta", count=2)
    await first.crash()
    rig = Rig([[{"text": "again"}], [{"text": "two"}], [{"text": "three"}]], workspace, before=first)
    await rig.engine.open()
    return rig, await live_session(rig.engine, session.session_id)


async def interrupted(workspace: Path) -> Story:
    """Recovered and left at that: a question is carried, a task waits."""
    rig, session = await crashed(workspace)
    return await _told(rig, session)


async def resumed(workspace: Path) -> Story:
    """The carried call is approved and run by a resume; the task that waited comes after it."""
    rig, session = await crashed(workspace)
    (carried,) = session.state.carried
    await session.answer(carried.tool_call_id, "approve", by=PERSON, reason="go on")
    rig.gate("c").set()
    await resume(rig.engine, session)
    await ended(session, 3)
    return await _told(rig, session)


async def refused(workspace: Path) -> Story:
    """The carried call is denied; the session goes on and is closed."""
    rig, session = await crashed(workspace)
    (carried,) = session.state.carried
    await session.answer(carried.tool_call_id, "deny", by=PERSON)
    await resume(rig.engine, session, [user("without it")])
    await ended(session, 3)
    await close_session(rig.engine, session.session_id, "done")
    return await _told(rig, session)


async def forked(workspace: Path) -> Story:
    """Forked in the middle of a task, then played on."""
    rig = Rig([[{"text": "one"}, READ], [{"text": "two"}], [{"text": "three"}]], workspace)
    session = await rig.open("yolo")
    await start(rig.engine, session, [user("go")])
    await ended(session)
    started = (await until(session, "tool.call.started"))[0]
    fork = await fork_session(rig.engine, session.session_id, started.seq)
    await start(rig.engine, fork, [user("again")])
    await ended(fork)
    return await _told(rig, fork)


async def steered(workspace: Path) -> Story:
    """More input on the way, and a runtime that repeats itself and sends nonsense."""
    rig = Rig(
        [
            [
                {"text": "wait"},
                {"await_steer": True},
                {"malformed": "item"},
                {"malformed": "payload"},
                READ,
                {"duplicate_ids": "call"},
                {"duplicate_ids": "message"},
            ],
            [{"text": "done"}],
        ],
        workspace,
    )
    session = await rig.open("yolo")
    await start(rig.engine, session, [user("go")])
    await until(session, "model.output.delta")
    await session.steer([user("left")])
    await ended(session)
    return await _told(rig, session)


async def failed(workspace: Path) -> Story:
    """A runtime that breaks off in mid-sentence, one that reports an error, and a script that is over."""
    rig = Rig(
        [
            [{"text": "half a"}, {"crash": "raise"}],
            [{"text": "no"}, {"fail": {"code": "MODEL_ERROR", "message": "overloaded"}}],
        ],
        workspace,
    )
    session = await rig.open("yolo")
    for number in range(3):
        await start(rig.engine, session, [user("go")])
        await ended(session, number + 1)
    return await _told(rig, session)


NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def gives(n: object) -> dict[str, Any]:
    """A call that gives a result."""
    return {"call": {"tool": "task.answer", "input": {"n": n}}}


async def answered(workspace: Path) -> Story:
    """Results: refused, asked for again, replaced; one that waited; a task without one; one that never comes."""
    rig = Rig(
        [
            [{"text": "Seven."}],
            [gives("seven")],
            [gives(6), gives(7)],
            [{"text": "There."}],
            [gives(8)],
            [{"text": "There, too."}],
            [{"text": "Hello."}],
            *[[{"text": "No."}]] * 3,
        ],
        workspace,
    )
    session = await rig.open()
    await start(rig.engine, session, [user("how many?")], output_schema=NUMBER)
    await start(rig.engine, session, [user("and now?")], output_schema=NUMBER)
    await ended(session, 2)
    await start(rig.engine, session, [user("say hello")])
    await start(rig.engine, session, [user("how many now?")], output_schema=NUMBER)
    await ended(session, 4)
    return await _told(rig, session)


async def natively(workspace: Path) -> Story:
    """A result that is the model's answer, after one that is none."""
    capabilities = msgspec.structs.replace(FAKE_CAPABILITIES, output_schema="native")
    plays = iter([[message("Seven."), done()], [message('{"n": 7}', "m2"), done()]])

    async def play(task: Any) -> AsyncIterator[Any]:
        for item in next(plays):
            yield item

    rig = Rig([], workspace, runtime=FakeRuntime(play, name="scripted", capabilities=capabilities))
    session = await rig.open()
    await start(rig.engine, session, [user("how many?")], output_schema=NUMBER)
    await ended(session)
    return await _told(rig, session)


async def unattended(workspace: Path) -> Story:
    """Nobody to ask, an unknown tool, a wrong input, and an approval that nobody gives in time."""
    odd = [{"call": {"tool": "no.such"}}, {"call": {"tool": "workspace.read", "input": {"path": 5}}}]
    rig = Rig([[EDIT, *odd], [{"text": "done"}]], workspace)
    session = await rig.open(approval_timeout_s=0.01)
    await start(rig.engine, session, [user("go")])
    await ended(session)
    return await _told(rig, session)


async def dropped(workspace: Path) -> Story:
    """Tasks that wait are stopped, one while another runs, one by the close of the session."""
    rig = Rig(
        [[{"text": "one"}, wait_for("a", "gate.read")], [{"text": "two"}], [{"text": "three"}]], workspace
    )
    session = await rig.open()
    await start(rig.engine, session, [user("one")])
    second, _, fourth = [await start(rig.engine, session, [user(text)]) for text in ("two", "three", "four")]
    await until(session, "tool.output.delta")
    await session.stop(second, PERSON, "not needed")
    await session.stop(fourth, PERSON, "not needed either")
    rig.gate("a").set()
    await ended(session, 3)
    await close_session(rig.engine, session.session_id, "done")
    return await _told(rig, session)


async def stubborn(workspace: Path) -> Story:
    """A tool that does not end when it is cancelled, in a task that is stopped."""
    rig = Rig([[wait_for("a", "gate.stubborn")]], workspace)
    session = await rig.open("yolo", stop_grace_s=0.05)
    await start(rig.engine, session, [user("go")])
    await until(session, "tool.output.delta")
    await session.stop(None, PERSON, "enough")
    await ended(session)
    rig.gate("a").set()
    return await _told(rig, session)


async def granted(workspace: Path) -> Story:
    """A tool approved for the session, used again, and asked about once more when that is taken back."""
    rig = Rig([[EDIT], [EDIT], [{"text": "both"}], [EDIT], [{"text": "not this time"}]], workspace)
    session = await rig.open()
    await start(rig.engine, session, [user("twice")])
    (asked,) = await until(session, "approval.requested")
    await answer(session, asked, scope="session")
    await ended(session)
    await session.revoke("workspace.edit", PERSON)
    await start(rig.engine, session, [user("again")])
    _, asked = await until(session, "approval.requested", count=2)
    await answer(session, asked, "deny", reason="enough")
    await ended(session, 2)
    return await _told(rig, session)


async def changed(workspace: Path) -> Story:
    """What a tool did is undone, and done again in another mode, by another model."""
    rig = Rig([[EDIT], [{"text": "once"}], [EDIT], [{"text": "and again"}]], workspace)
    session = await rig.open()
    await start(rig.engine, session, [user("go")])
    (asked,) = await until(session, "approval.requested")
    await answer(session, asked)
    await ended(session)
    await undo(session, PERSON)
    change = SettingsChange(permission_mode="yolo", model="other", values={"ticket": 12})
    await change_settings(rig.engine, session, change, PERSON)
    await start(rig.engine, session, [user("again")])
    await ended(session, 2)
    return await _told(rig, session)


async def early(workspace: Path) -> Story:
    """Calls over MCP that a runtime tells of only afterwards: when one is over, when one waits, and never."""
    runtime = FakeRuntime(
        capabilities=msgspec.structs.replace(FAKE_CAPABILITIES, tool_execution_model="external_mcp")
    )
    rig = Rig([], workspace, runtime=runtime)
    session = await rig.open()
    await start(rig.engine, session, [user("go")])
    await runtime.started()
    tools, read, edit = rig.engine.tool_calls, READ["call"]["input"], EDIT["call"]["input"]
    await tools.call(session.session_id, "workspace.read", read)
    waiting = tools.call(session.session_id, "workspace.edit", edit)
    (asked,) = await until(session, "approval.requested")
    told = [call("workspace.read", read, "c1"), call("workspace.edit", edit, "c2")]
    runtime.tasks[-1].emit(message("Both."), *told)
    await until(session, "tool.call.announced", count=2)
    await answer(session, asked)
    await waiting
    await tools.call(session.session_id, "workspace.read", read)
    runtime.tasks[-1].emit(message("Done.", "m2"), done())
    await ended(session)
    return await _told(rig, session)


HEALTHY: list[Callable[[Path], Awaitable[Story]]] = [
    busy,
    stopped,
    interrupted,
    resumed,
    refused,
    forked,
    steered,
    failed,
    unattended,
    dropped,
    stubborn,
    granted,
    changed,
    early,
    answered,
    natively,
]
