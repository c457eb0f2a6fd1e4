"""Events of a real engine and what handlers make of them: order, failures, tools, reloads; and nobody waits for them."""

import ast
import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.requirements import shows
from tests.extensions.rig import WRITES, Emitted, Extensions, both, extended, session_in, settle

from codesdk import CodeSDK, extensions
from codesdk.contract.errors import Conflict, InvalidRequest, NotFound
from codesdk.extensions import HandlerError, HandlerResult
from codesdk.runtimes import runtime_names
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, done

pytestmark = pytest.mark.anyio

TALK = [[{"text": "Hello."}]]
NOTES = """
def handler(word):
    async def handle(event, tools):
        note(word)
        return word
    return handle
def register(registry):
    registry.on("task.started", handler("{name} b 100"))
    registry.on("task.started", handler("{name} c 100"))
    registry.on("task.started", handler("{name} a 50"), priority=50)
"""


async def run(sdk: CodeSDK, tmp_path: Path, **fields: Any) -> str:
    """Run a task, and wait until all of it was dispatched."""
    session = await session_in(sdk, tmp_path, **fields)
    task = await session.start("Go.")
    await task.result()
    await settle(sdk)
    return session.id


@both
@shows("order-priority", "order-module", "order-index")
async def test_handlers_are_called_by_priority_then_module_then_index(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    for name in ("zeta", "alpha"):
        ext.write(name, NOTES.format(name=name))
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    order = ["alpha a 50", "zeta a 50", "alpha b 100", "alpha c 100", "zeta b 100", "zeta c 100"]
    assert seen == order
    assert [one.value for one in emitted.of("task.started") if isinstance(one, HandlerResult)] == order


@both
@shows("neutral")
async def test_one_handler_serves_sessions_of_every_runtime_with_events_of_one_shape(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    source = """
import msgspec
def handle(event, tools):
    note(msgspec.to_builtins(event))
def register(registry):
    for name in ("task.started", "turn.completed"): registry.on(name, handle)
"""
    ext.write("one", source)
    script = parse_object({"turns": [{"steps": [{"text": "Hello."}]}]}, "test")
    runtimes = {"other": FakeRuntime([done()], name="other"), "scripted": ScriptedRuntime(script)}
    async with CodeSDK.open(runtimes=runtimes, extensions=ext.options()) as sdk:
        for name in runtimes:
            session = await sdk.create_session(runtime=name, workspace=tmp_path)
            await (await session.start("Go.")).result()
            await settle(sdk)
    assert [(event["type"], event["payload"]["runtime"]) for event in seen] == [
        (kind, name) for name in runtimes for kind in ("task.started", "turn.completed")
    ]
    shapes = [(sorted(event), sorted(event["payload"]), sorted(event["payload"]["data"])) for event in seen]
    assert shapes[:2] == shapes[2:]


@shows("adapters")
def test_no_code_of_the_sdk_knows_a_runtime():
    """Names of runtimes and their programs are data: the SDK gets profiles, and neither imports nor compares them."""
    names = {*runtime_names(), "codex", "claude", "gemini", "opencode", "acp"} - {"external"}
    for path in Path(extensions.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(("codesdk.runtimes", "codesdk.minicode")), path.name
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in names, f"{path.name}:{node.lineno}"


@shows("event-turn")
async def test_an_event_says_where_it_is_from_whatever_the_runtime(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    source = """
import msgspec
async def handle(event, tools):
    note(msgspec.to_builtins(event))
def register(registry):
    registry.on("turn.completed", handle)
    registry.on("task.completed", handle, priority=1)
"""
    ext.write("one", source, events=["turn.completed", "task.completed"])
    async with CodeSDK.open(
        runtimes={"other": FakeRuntime([done()], name="other")}, extensions=ext.options()
    ) as sdk:
        (tmp_path / "ws").mkdir()
        session = await sdk.create_session(runtime="other", workspace=tmp_path / "ws", title="Mine")
        task = await session.start("Go.")
        await task.result()
        await settle(sdk)
    own, turn = seen
    assert (own["type"], turn["type"]) == ("task.completed", "turn.completed")
    payload = turn["payload"]
    about = payload["session"]
    assert (about["id"], about["title"]) == (session.id, "Mine")
    assert about["project_id"].startswith("prj_")
    assert (payload["task_id"], payload["runtime"]) == (task.id, "other")
    assert payload["data"]["status"] == "completed"
    assert turn["correlation_id"] == own["correlation_id"] == f"{session.id}:{payload['seq']}"
    assert turn["emitted_at"] is not None


@pytest.mark.parametrize("ending", ["failed", "stopped"])
async def test_a_turn_that_failed_or_was_stopped_is_completed_with_that_status(
    ext: Extensions, tmp_path: Path, seen: list[Any], ending: str
):
    source = """
def handle(event, tools):
    note((event.payload["data"]["status"], event.payload["data"].get("error", {}).get("message"), event.payload["seq"]))
def register(registry): registry.on("turn.completed", handle)
"""
    ext.write("one", source)
    steps = [{"fail": {"code": "RUNTIME_CRASHED", "message": "It broke."}}, {"await_steer": True}]
    async with extended(ext, tmp_path, [steps[ending == "stopped" :][:1]]) as sdk:
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "model.input" and ending == "stopped":
                await task.stop("enough")
            last = event
        await settle(sdk)
    assert last.type == f"task.{ending}"
    assert seen == [(ending, "It broke." if ending == "failed" else None, last.seq)]


async def test_each_dispatch_is_one_line_that_names_the_winner_the_losers_and_the_errors(
    ext: Extensions, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    source = """
def upsert(event, tools):
    payload = {{"id": {name!r}, "text": "seen"}}
    return {{"kind": "action_request", "action_type": {action!r}, "payload": payload}}
def register(registry): registry.on("task.started", upsert)
"""
    for name, action in (("a", "no.such"), ("b", "transcript.upsert"), ("c", "transcript.upsert")):
        ext.write(name, source.format(name=name, action=action), actions=["no.such", "transcript.upsert"])
    ext.write("d", "def fail(event, tools): raise OSError('no')\ndef register(r): r.on('task.started', fail)")
    with caplog.at_level("DEBUG", "codesdk.extensions"):
        async with extended(ext, tmp_path, TALK) as sdk:
            session_id = await run(sdk, tmp_path)
    (line,) = [one for one in caplog.records if one.getMessage() == "dispatched task.started to 4 handlers"]
    told = {
        name: vars(line)[name]
        for name in ("session_id", "event_type", "seq", "handlers", "outcomes", "winner", "losers", "errors")
    }
    assert told == {
        "session_id": session_id,
        "event_type": "task.started",
        "seq": 2,
        "handlers": 4,
        "outcomes": ["action_result", "action_result", "action_result", "handler_error"],
        "winner": "b",
        "losers": ["c: not_eligible", "a: invalid"],
        "errors": ["d: OSError: no"],
    }
    assert (line.levelname, vars(line)["took_ms"] >= 0, vars(line)["task_id"] is None) == (
        "WARNING",
        True,
        False,
    )


@both
async def test_an_extension_that_is_bound_to_a_runtime_is_told_of_its_sessions_only(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    for name, runtime in (("bound", "minicode"), ("free", None)):
        profiles = [{"name": runtime}] if runtime else []
        ext.write(name, NOTES.format(name=name), runtime={"core_api_version": 1, "profiles": profiles})
    async with extended(ext, tmp_path, TALK) as sdk:
        await run(sdk, tmp_path)
    assert {word.split()[0] for word in seen} == {"free"}


BAD = {
    "raises": "def handle(event, tools): raise KeyError('x')",
    "exits": "def handle(event, tools): raise SystemExit(3)",
    "interrupts": "async def handle(event, tools): raise KeyboardInterrupt",
    "hangs": "import asyncio\nasync def handle(event, tools): await asyncio.Event().wait()",
    "blocks": "import threading\ndef handle(event, tools): threading.Event().wait()",
    "no json": "def handle(event, tools): return object()",
    "large": "def handle(event, tools): return 'x' * 2_000_000",
    "fakes": "def handle(event, tools): return {'kind': 'action_result', 'action_type': 'a', 'status': 'performed'}",
    "wrong": "def handle(event, tools): return {'kind': 'enqueue_result'}",
    "cancels": "import asyncio\nasync def handle(event, tools): raise asyncio.CancelledError",
    "spoils": "def handle(event, tools): event.payload.clear(); raise ValueError('spoiled')",
    "speechless": """
class Speechless(Exception):
    def __str__(self): raise RuntimeError
def handle(event, tools): raise Speechless
""",
}


@pytest.mark.slow
@both
@pytest.mark.parametrize("kind", BAD)
@shows("envelopes")
async def test_a_handler_that_fails_is_an_error_and_the_others_are_called(
    kind: str, ext: Extensions, tmp_path: Path, seen: list[Any]
):
    limit = 20 if kind in ("hangs", "blocks") else 5_000
    ext.write(
        "bad", f"{BAD[kind]}\ndef register(registry): registry.on('task.started', handle, 1, {limit})\n"
    )
    good = "def handle(event, tools): note(event.payload['session']['id'])\n"
    ext.write("good", good + "def register(registry): registry.on('task.started', handle)\n")
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        session_id = await run(sdk, tmp_path)
    assert seen == [session_id]
    first, second = emitted.of("task.started")
    assert isinstance(first, HandlerError)
    assert first.error == ("timeout" if kind in ("hangs", "blocks") else "error")
    assert isinstance(second, HandlerResult)


@pytest.mark.slow
async def test_an_extension_whose_thread_is_blocked_is_passed_over_until_it_goes_on(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    source = """
import threading
gate = threading.Event()
def first(event, tools):
    note(gate)
    gate.wait()
def second(event, tools):
    note("second")
def register(registry):
    registry.on("task.started", first, 1, 20)
    registry.on("turn.completed", second, 1, 60_000)
"""
    ext.write("one", source)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
        (late,) = emitted.of("turn.completed")
        assert isinstance(late, HandlerError)
        assert late.message == "The extension one is still busy with an earlier call."
        seen[0].set()


@both
async def test_the_stream_and_the_task_do_not_wait_for_a_handler(ext: Extensions, tmp_path: Path):
    """The task ends, and its end is read, while the handler of its start still waits."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    source = f"""
def handle(event, tools):
    with open({str(gate)!r}) as file:
        file.read()
    return "went on"
def register(registry): registry.on("task.started", handle, timeout_ms=60_000)
"""
    ext.write("slow", source)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        types = [event.type async for event in task.events()]
        assert types[-1] == "task.completed"
        assert emitted.all == []
        await session.close()
        await session.delete()  # which waits for subscribers, but not for this one
        await asyncio.to_thread(gate.write_text, "")
        await settle(sdk)
        (result,) = emitted.of("task.started")
        assert isinstance(result, HandlerResult)


@both
async def test_a_handler_that_waits_holds_up_its_own_session_and_no_other(ext: Extensions, tmp_path: Path):
    """Sessions that begin after the handler hangs are told of all their events, and then those of its own follow."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    source = f"""
import asyncio
def wait():
    with open({str(gate)!r}) as file:
        file.read()
async def handle(event, tools):
    if event.payload["session"]["title"] == "slow":
        await asyncio.to_thread(wait)
    return event.payload["session"]["id"]
def register(registry):
    registry.on("task.started", handle, timeout_ms=60_000)
    registry.on("turn.completed", handle, timeout_ms=60_000)
"""
    ext.write("one", source)
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        sdk.extensions.on_emitted = lambda signal, _: told.put_nowait(
            (signal.origin.session_id, signal.event.type)
        )
        slow = await session_in(sdk, tmp_path, title="slow")
        await (await slow.start("Go.")).result()
        for _ in range(3):  # more than one page of the log at a time
            other = await session_in(sdk, tmp_path)
            await (await other.start("Go.")).result()
            assert await told.get() == (other.id, "task.started")
            assert await told.get() == (other.id, "turn.completed")
        await asyncio.to_thread(gate.write_text, "")
        assert await told.get() == (slow.id, "task.started")
        await asyncio.to_thread(gate.write_text, "")
        assert await told.get() == (slow.id, "turn.completed")
        await settle(sdk)


# --- tools ---------------------------------------------------------------------------------------


@both
@shows("tools-settings", "tools-setting", "tools-logger")
async def test_tools_read_the_values_of_the_principals_sessions_and_log(
    ext: Extensions, tmp_path: Path, seen: list[Any], caplog: pytest.LogCaptureFixture
):
    source = """
async def handle(event, tools):
    mine = event.payload["session"]["id"]
    note(await tools.get_session_settings(mine))
    note(await tools.get_session_setting(mine, "colour"))
    note(await tools.get_session_setting(mine, "none"))
    for other in ("ses_nothere", 5):
        try:
            await tools.get_session_settings(other)
        except Exception as error:
            note(type(error).__name__)
    tools.logger.warning("seen %s", mine)
def register(registry): registry.on("turn.completed", handle)
"""
    ext.write("one", source)
    async with extended(ext, tmp_path, TALK) as sdk:
        session = await session_in(sdk, tmp_path)
        await session.set(values={"colour": "green", "size": 3})
        task = await session.start("Go.")
        await task.result()
        await settle(sdk)
    assert seen == [{"colour": "green", "size": 3}, "green", None, "NotFound", "NotFound"]
    assert ("codesdk.extensions.one", f"seen {session.id}") in [
        (record.name, record.getMessage()) for record in caplog.records
    ]


async def test_tools_are_dead_once_the_handler_has_ended_or_timed_out(
    ext: Extensions, tmp_path: Path, seen: list[Any], caplog: pytest.LogCaptureFixture
):
    source = """
import asyncio
late = []
async def later(event, tools, gate):
    await gate.wait()
    tools.logger.warning("too late")
    try:
        await tools.get_session_settings(event.payload["session"]["id"])
    except Exception as error:
        note(type(error).__name__)
async def ends(event, tools):
    gate = asyncio.Event()
    late.append((gate, asyncio.create_task(later(event, tools, gate))))
async def hangs(event, tools):
    gate = asyncio.Event()
    late.append((gate, asyncio.create_task(later(event, tools, gate))))
    await asyncio.Event().wait()
async def check(event, tools):
    for gate, task in late:
        gate.set()
        await task
def register(registry):
    registry.on("task.started", ends)
    registry.on("task.started", hangs, timeout_ms=20)
    registry.on("turn.completed", check)
"""
    ext.write("one", source)
    async with extended(ext, tmp_path, TALK) as sdk:
        await run(sdk, tmp_path)
    assert seen == ["HandlerEnded", "HandlerEnded"]
    assert "too late" not in caplog.text


# --- the log and reloads -------------------------------------------------------------------------


@both
async def test_somebody_new_is_told_of_what_happens_from_now_on(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    async with extended(ext, tmp_path, TALK * 2, stored=True) as sdk:
        await run(sdk, tmp_path)
    ext.write("one", NOTES.format(name="one"))
    async with extended(ext, tmp_path, TALK * 2, stored=True) as sdk:
        await settle(sdk)
        assert seen == []
        await run(sdk, tmp_path)
    assert len(seen) == 3


@both
async def test_what_was_committed_while_no_extension_ran_is_delivered_afterwards(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    ext.write("one", NOTES.format(name="one"))
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        await run(sdk, tmp_path)
    assert len(seen) == 3
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"scripted": FakeRuntime([done()], name="scripted")}
    ) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path / "ws")
        await (await session.start("Go.")).result()
    assert len(seen) == 3
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        await settle(sdk)
    assert len(seen) == 6


@both
async def test_a_reload_runs_the_new_code_or_leaves_the_old(ext: Extensions, tmp_path: Path, seen: list[Any]):
    source = "def register(registry): registry.on('turn.completed', lambda event, tools: note({word!r}))\n"
    root = ext.write("one", source.format(word="old"))
    async with extended(ext, tmp_path, TALK * 4) as sdk:
        await run(sdk, tmp_path)
        ext.write("one", "1/0\n")
        with pytest.raises(InvalidRequest, match=r"stay as they were.*ZeroDivisionError"):
            await sdk.extensions.reload()
        await run(sdk, tmp_path)
        assert (seen, sdk.extensions.inventory().generation) == (["old", "old"], 1)
        ext.write("one", source.format(word="new"))
        ext.write("bad", "1/0\n")
        page = await sdk.extensions.reload()
        assert page.generation == 2
        assert [info.status for info in page.extensions] == ["rejected", "loaded"]
        await run(sdk, tmp_path)
        for file in root.iterdir():
            file.unlink()
        root.rmdir()
        await sdk.extensions.reload()
        await run(sdk, tmp_path)
    assert seen == ["old", "old", "new"]


@both
async def test_of_two_reloads_at_once_the_second_is_told_so(ext: Extensions, tmp_path: Path):
    ext.write("one")
    async with extended(ext, tmp_path) as sdk:
        first = asyncio.create_task(sdk.extensions.reload())
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="already being reloaded"):
            await sdk.extensions.reload()
        assert (await first).generation == 2


async def test_without_extensions_there_are_none():
    async with CodeSDK.open() as sdk:
        with pytest.raises(NotFound, match="No extensions are switched on"):
            sdk.extensions.inventory()
    with pytest.raises(InvalidRequest, match="extensions: expected ExtensionOptions"):
        async with CodeSDK.open(extensions=5):  # pyright: ignore[reportArgumentType]
            pass


@both
@shows("event-file-change")
async def test_a_question_about_a_change_of_a_file_has_a_name_of_its_own(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    source = """
def handle(event, tools):
    note([event.type, event.payload["data"].get("tool"), event.payload["data"].get("input")])
def register(registry):
    registry.on("file_change.approval_requested", handle)
    registry.on("approval.requested", handle)
"""
    ext.write("one", source, events=["file_change.approval_requested", "approval.requested"])
    read = {"call": {"tool": "workspace.read", "input": {"path": "a.txt"}}}
    async with extended(ext, tmp_path, [*WRITES[:1], [read], WRITES[1]]) as sdk:
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.approve(event.payload.tool_call_id or "")
        await settle(sdk)
    written = {"path": "a.txt", "content": "hello"}
    assert seen == [
        ["approval.requested", None, None],
        ["file_change.approval_requested", "workspace.write", written],
        ["approval.requested", None, None],
    ]
