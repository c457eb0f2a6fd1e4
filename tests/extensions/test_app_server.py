"""Messages of codex's app server as extensions get them: recorded ones, and those of the real program."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.extensions import probe
from tests.extensions.requirements import shows
from tests.extensions.rig import Emitted, Extensions
from tests.runtimes.codex.goldens import CASES, GOLDENS
from tests.runtimes.external.memory import piped

from codesdk import CodeSDK, Session, Task
from codesdk.contract.ports import AppServerSignal
from codesdk.contract.runtime import AppServerMessage, RuntimeItem
from codesdk.extensions import ActionResult, app_server, normalize_method
from codesdk.extensions.signals import project_id_of
from codesdk.runtimes.codex.server import told
from codesdk.testing.fakes import FakeRuntime, FakeTask, done, message

pytestmark = pytest.mark.anyio

NOTES = """
def handle(event, tools): note(event)
def register(registry):
    for name in {names!r}: registry.on(name, handle)
"""


def recorded(case: str) -> list[dict[str, Any]]:
    """Return what codex said in a recorded case."""
    lines = (GOLDENS / case / "raw.jsonl").read_text().splitlines()
    return [json.loads(line)["frame"] for line in lines]


def frames() -> Iterator[dict[str, Any]]:
    for case in CASES:
        yield from recorded(case)


def name_of(frame: dict[str, Any]) -> str:
    return f"app_server.{'request.' if 'id' in frame else ''}{normalize_method(frame['method'])}"


NAMES = sorted({name_of(frame) for frame in frames()})


def subscribe(ext: Extensions, names: list[str], source: str = NOTES, **fields: Any) -> None:
    ext.write("helper", source.format(names=names), events=names, **fields)


class Play:
    """A session of a runtime that says what a test wants, as an adapter of a program with an app server does."""

    def __init__(self, sdk: CodeSDK, session: Session, task: Task, running: FakeTask) -> None:
        self.sdk, self.session, self.task, self.running = sdk, session, task, running

    def say(self, frame: dict[str, Any]) -> bool:
        """Say something. Return whether somebody wanted it."""
        take = self.running.host.app_server(frame["method"], is_request="id" in frame)
        if take is not None:
            take(told(frame, len(json.dumps(frame))))
        return take is not None

    async def settle(self) -> None:
        await self.sdk.extensions.app_server.settle()


@asynccontextmanager
async def played(ext: Extensions, tmp_path: Path, **fields: Any) -> AsyncGenerator[Play]:
    """Open an SDK with these extensions and one task that runs."""
    runtime = FakeRuntime(name="fake")
    async with CodeSDK.open(runtimes={"fake": runtime}, extensions=ext.options()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, **fields)
        task = await session.start("Go.")
        running = await runtime.started()
        yield Play(sdk, session, task, running)
        running.emit(done())
        await task.result()


@shows("event-notification", "event-request", "signal-envelope", "signal-request-id")
async def test_each_recorded_message_comes_in_full_in_order_and_in_the_shared_envelope(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    subscribe(ext, NAMES)
    said = list(frames())
    async with played(ext, tmp_path, title="Milk", project_id="notes") as play:
        assert [frame for frame in said if not play.say(frame)] == []
        await play.settle()
        session_id, task_id = play.session.id, play.task.id
        head = await play.sdk.archive.head(session_id)
        stored = [await play.session.event(seq) for seq in range(1, head + 1)]
        assert not [event for event in stored if event.type.startswith("app_server")]
    assert [event.type for event in seen] == [name_of(frame) for frame in said]
    assert [event.payload["params"] for event in seen] == [frame["params"] for frame in said]
    assert len({event.correlation_id for event in seen}) == len(said)
    requests = ["request" if "id" in frame else "notification" for frame in said]
    assert set(requests) == {"request", "notification"}
    assert [event.payload["signal_type"] for event in seen] == requests
    ids = [event.payload.get("request_id", "none") for event in seen]
    assert ids == [frame.get("id", "none") for frame in said]
    asked = next(
        event for event in seen if event.payload["method"].endswith("commandExecution/requestApproval")
    )
    frame = next(one for one in said if one["method"] == "item/commandExecution/requestApproval")
    assert asked.type == "app_server.request.item.command_execution.request_approval"
    assert asked.payload == {
        "source": "app_server",
        "signal_type": "request",
        "event_type": asked.type,
        "method": frame["method"],
        "received_at": asked.emitted_at,
        "context": {"thread_id": frame["params"]["threadId"], "turn_id": frame["params"]["turnId"]},
        "params": frame["params"],
        "session": {"id": session_id, "title": "Milk", "project_id": "notes"},
        "task_id": task_id,
        "runtime": "fake",
        "request_id": frame["id"],
    }
    started = next(event for event in seen if event.payload["method"] == "turn/started")
    assert (started.payload["signal_type"], "request_id" in started.payload) == ("notification", False)
    assert None not in started.payload["context"].values()


@shows("signal-session")
async def test_a_message_names_its_session_and_one_whose_session_is_gone_is_told_to_nobody(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    subscribe(ext, ["app_server.count"])

    async def read() -> Any:
        return {}

    async with played(ext, tmp_path) as play:
        signals = play.sdk.extensions.app_server
        assert play.say({"method": "count", "params": {}})
        for session_id in ("ses_deleted", play.session.id):
            signals.tell(
                AppServerSignal(
                    session_id=session_id,
                    principal="local",
                    runtime="fake",
                    method="count",
                    read=read,
                    received_at="2026-01-01T00:00:00Z",
                    seq=1,
                    size_bytes=1,
                )
            )
        await play.settle()
        project_id = project_id_of(await play.sdk.archive.session(play.session.id))
        named = {"id": play.session.id, "title": None, "project_id": project_id}
    assert [event.payload["session"] for event in seen] == [named, named]


async def test_only_what_somebody_subscribes_to_is_gathered(ext: Extensions, tmp_path: Path, seen: list[Any]):
    ext.write("other", "def register(registry): registry.on('turn.completed', print)\n")
    async with played(ext, tmp_path) as play:
        assert [frame for frame in frames() if play.say(frame)] == []
        assert play.running.host.app_server() is None
        subscribe(ext, ["app_server.turn.started"], runtime={"core_api_version": 1})
        await play.sdk.extensions.reload()
        assert play.running.host.app_server() is not None
        assert {frame["method"] for frame in frames() if play.say(frame)} == {"turn/started"}
        assert not play.say({"method": "x" * 300})
        await play.settle()
    assert {event.type for event in seen} == {"app_server.turn.started"}
    async with CodeSDK.open(runtimes={"fake": (runtime := FakeRuntime(name="fake"))}) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        await session.start("Go.")
        running = await runtime.started()
        assert running.host.app_server("turn/started") is None
        running.emit(done())


async def test_an_extension_of_another_runtime_is_not_told(ext: Extensions, tmp_path: Path):
    bound = {"core_api_version": 1, "profiles": [{"name": "codex-sdk"}]}
    subscribe(ext, NAMES, runtime=bound)
    async with played(ext, tmp_path) as play:
        assert [frame for frame in frames() if play.say(frame)] == []


async def test_secrets_are_redacted_also_where_a_stream_cuts_them_in_two(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    secret = "sw0rdfish-is-the-password"
    subscribe(ext, ["app_server.item.agent_message.delta", "app_server.item.completed"])
    async with played(ext, tmp_path, secrets=[secret]) as play:
        for delta in ("The word is sw0rdfish-", "is-the-password", ", and no other."):
            params = {"threadId": "t", "itemId": "i", "delta": delta}
            assert play.say({"method": "item/agentMessage/delta", "params": params})
        whole = {"item": {"text": f"It is {secret}.", "more": [{secret: "x" * 300_000}]}}
        play.say({"method": "item/completed", "params": whole})
        await play.settle()
    assert "sw0rdfish" not in repr(seen)
    streamed = "".join(event.payload["params"].get("delta", "") for event in seen)
    assert (streamed.startswith("The word is "), streamed.endswith(", and no other.")) == (True, True)
    assert len(repr(seen[-1].payload["params"])) > 300_000


async def test_what_finds_no_room_is_lost_and_the_program_is_not_held_up(
    ext: Extensions, tmp_path: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app_server, "MAX_WAITING", 3)
    source = """
import asyncio
async def handle(event, tools):
    if not event.payload["params"]["n"]:
        gate = asyncio.Event()
        note((asyncio.get_running_loop(), gate))
        await gate.wait()
    note(event.payload["params"]["n"])
def register(registry):
    for name in {names!r}: registry.on(name, handle, timeout_ms=60_000)
"""
    subscribe(ext, ["app_server.count"], source)
    async with played(ext, tmp_path) as play:
        assert play.say({"method": "count", "params": {"n": 0}})
        loop, gate = await probe.first()
        for n in range(1, 8):
            assert play.say({"method": "count", "params": {"n": n}})
        loop.call_soon_threadsafe(gate.set)
        await play.settle()
        assert play.sdk.extensions.app_server.lost == 4
    assert seen[1:] == [0, 1, 2, 3]


async def test_a_handler_of_a_message_acts_on_its_session_once_for_each(ext: Extensions, tmp_path: Path):
    source = """
def handle(event, tools):
    payload = {{"id": event.payload["params"]["tool_call_id"], "text": "seen"}}
    return {{"kind": "action_request", "action_type": "transcript.upsert", "payload": payload}}
def register(registry):
    for name in {names!r}: registry.on(name, handle)
"""
    subscribe(ext, ["app_server.count"], source, actions=["transcript.upsert"])
    async with played(ext, tmp_path) as play:
        emitted = Emitted(play.sdk)
        for name in ("a", "b"):
            play.say({"method": "count", "params": {"tool_call_id": name, "supplement_id": "x"}})
        await play.settle()
        results = emitted.of("app_server.count")
        assert [one.status for one in results if isinstance(one, ActionResult)] == ["performed", "performed"]
        assert [one.supplement_id for one in await play.session.supplements()] == ["a", "b"]


async def test_what_a_runtime_says_decides_nothing_by_the_names_in_it(ext: Extensions, tmp_path: Path):
    """A message with the id of a call in it is not about that call: only events of the log are."""
    source = """
def handle(event, tools):
    return {{"kind": "action_request", "action_type": "approval.decide", "payload": {{"decision": "approve"}}}}
def register(registry):
    for name in {names!r}: registry.on(name, handle)
"""
    subscribe(ext, ["app_server.count"], source, actions=["approval.decide"])
    async with played(ext, tmp_path) as play:
        emitted = Emitted(play.sdk)
        play.say({"method": "count", "params": {"tool_call_id": "call_1"}})
        await play.settle()
        (result,) = emitted.of("app_server.count")
        assert isinstance(result, ActionResult)
        assert (result.status, "about no call" in (result.message or "")) == ("invalid", True)


async def test_what_is_left_when_codesdk_is_closed_is_lost(ext: Extensions, tmp_path: Path, seen: list[Any]):
    source = """
import asyncio
async def handle(event, tools):
    note(event.type)
    await asyncio.Event().wait()
def register(registry):
    for name in {names!r}: registry.on(name, handle, timeout_ms=60_000)
"""
    subscribe(ext, ["app_server.count"], source)
    async with played(ext, tmp_path) as play:
        for _ in range(3):
            play.say({"method": "count", "params": {}})
        await probe.first()
        await play.sdk.extensions.app_server.close(0)
        await asyncio.sleep(0)
    assert seen == ["app_server.count"]


def test_a_message_names_its_thread_and_turn_wherever_codex_puts_them():
    assert told(
        {"method": "a", "params": {"thread": {"id": "t"}, "turn": {"id": "u"}}}, 5
    ) == AppServerMessage(
        method="a",
        params={"thread": {"id": "t"}, "turn": {"id": "u"}},
        thread_id="t",
        turn_id="u",
        size_bytes=5,
    )
    odd = told({"method": 5, "params": [1], "id": [2]}, 1)
    assert (odd.method, odd.params, odd.request_id, odd.thread_id) == ("5", [1], None, None)


@pytest.mark.parametrize("wanted", [True, False])
async def test_an_adapter_in_another_process_sends_its_messages_if_they_are_wanted(
    ext: Extensions, tmp_path: Path, seen: list[Any], wanted: bool
):
    subscribe(ext, ["app_server.turn.started"] if wanted else ["turn.completed"])
    asked: list[bool] = []

    async def play(task: FakeTask) -> AsyncGenerator[RuntimeItem]:
        for frame in frames():
            take = task.host.app_server(frame["method"], is_request="id" in frame)
            asked.append(take is not None)
            if take is not None:
                take(told(frame, 0))
        yield message("Done.")
        yield done()

    async with (
        piped(FakeRuntime(play)) as runtime,
        CodeSDK.open(runtimes={runtime.name: runtime}, extensions=ext.options()) as sdk,
    ):
        session = await sdk.create_session(runtime=runtime.name, workspace=tmp_path)
        await (await session.start("Go.")).result()
        await sdk.extensions.app_server.settle()
    assert set(asked) == {wanted}
    started = [frame["params"] for frame in frames() if frame["method"] == "turn/started"]
    signals = [event.payload["params"] for event in seen if event.type == "app_server.turn.started"]
    assert signals == (started if wanted else [])
