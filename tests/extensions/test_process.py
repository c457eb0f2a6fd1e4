"""Extensions in processes of their own: however one ends, its handlers have an error, and nobody else notices."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.rig import WRITES, Emitted, Extensions, extended, session_in, settle

from codesdk import CodeSDK
from codesdk.contract import events as ev
from codesdk.engine import verify_session
from codesdk.extensions import HandlerError, HandlerResult
from codesdk.extensions.frames import MAX_BYTES
from codesdk.extensions.process import MAX_ASKED
from codesdk.processes import child
from codesdk.testing.fakes import FakeRuntime, done

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TALK = [[{"text": "Hello."}]]
TRIES = """
import os, signal, subprocess, sys, threading
count = 0
{helpers}
def bad(event, tools):
    {does}
    return "went on"
def next(event, tools):
    global count
    count += 1
    return count
def register(registry):
    registry.on("task.started", bad, 1, {limit})
    registry.on("turn.completed", next)
"""
GOOD = """
count = 0
def handle(event, tools):
    global count
    count += 1
    return count
def register(registry):
    registry.on("task.started", handle, 200)
    registry.on("turn.completed", handle, 200)
"""
REPORTS = """
def reports():
    "The descriptor that reports are written to, as a handler that wants to do harm finds it."
    for name in os.listdir("/proc/self/fd"):
        target = os.readlink(f"/proc/self/fd/{name}") if os.path.exists(f"/proc/self/fd/{name}") else ""
        if int(name) > 2 and target.startswith("pipe:"):
            try:
                os.write(int(name), b"")
                if os.get_blocking(int(name)):
                    yield int(name)
            except OSError:
                pass
def say(data):
    for each in reports():
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(each, rest):]
"""
CRASHES = {
    "exits": ("os._exit(7)", "The process of the extension bad ended with code 7."),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "by SIGKILL."),
    "fails in C": ("os.abort()", "by SIGABRT"),
    "says why": (
        "sys.stderr.write('out of luck\\n'); sys.stderr.flush(); os._exit(3)",
        "ended with code 3 (it wrote: out of luck).",
    ),
    "garbage": ("say(b'no message at all' * 10)", "was ended, because it wrote what is no message to its pipe: a message of"),
    "no JSON": ("say((7).to_bytes(4, 'big') + b'{]no}{[')", "no message to its pipe"),
    "no report": ("say((16).to_bytes(4, 'big') + b'{\"type\":\"other\"}')", "no message to its pipe"),
    "nested": ("say((90_000).to_bytes(4, 'big') + b'[' * 90_000)", "no message to its pipe"),
    "too long": (f"say(({MAX_BYTES} + 1).to_bytes(4, 'big'))", f"a message of {MAX_BYTES + 1:,} bytes"),
}  # fmt: skip


async def run(sdk: CodeSDK, tmp_path: Path) -> str:
    session = await session_in(sdk, tmp_path)
    await (await session.start("Go.")).result()
    await settle(sdk)
    return session.id


def own(tmp_path: Path) -> Extensions:
    return Extensions(tmp_path / "extensions", "subprocess")


def values(emitted: Emitted, name: str) -> list[Any]:
    return [one.value if isinstance(one, HandlerResult) else one for one in emitted.of(name)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CRASHES)
async def test_a_process_that_ends_is_an_error_of_its_handler_and_starts_again_at_the_next_event(
    tmp_path: Path, kind: str
):
    does, words = CRASHES[kind]
    ext = own(tmp_path)
    ext.write("bad", TRIES.format(does=does, helpers=REPORTS, limit=20_000))
    ext.write("good", GOOD)
    async with extended(ext, tmp_path, TALK * 2) as sdk:
        emitted = Emitted(sdk)
        for _ in range(2):
            await run(sdk, tmp_path)
    for bad in emitted.of("task.started")[::2]:
        assert isinstance(bad, HandlerError)
        assert words in bad.message
        assert bad.error == "error"
    assert values(emitted, "task.started")[1::2] == [1, 3]  # the other process was never started again
    assert values(emitted, "turn.completed") == [1, 2, 1, 4]  # and this one was, each time


@pytest.mark.slow
async def test_a_process_that_closes_its_pipe_and_lives_on_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where it has no namespace: around one, a wrapper holds the pipe, and only the time limit helps."""

    async def none() -> bool:
        return False

    monkeypatch.setattr(child, "has_namespaces", none)
    ext = own(tmp_path)
    does = "os.closerange(3, 100); threading.Event().wait()"
    ext.write("bad", TRIES.format(does=does, helpers="", limit=20_000))
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    (bad,) = emitted.of("task.started")
    assert isinstance(bad, HandlerError)
    assert bad.message == "The process of the extension bad was ended, because it closed its pipe."
    assert values(emitted, "turn.completed") == [1]


@pytest.mark.slow
@pytest.mark.parametrize("does", ["os.kill(os.getpid(), signal.SIGSTOP)", "threading.Event().wait()"])
async def test_a_process_that_is_stopped_or_blocked_is_killed_and_not_passed_over(tmp_path: Path, does: str):
    ext = own(tmp_path)
    ext.write("bad", TRIES.format(does=does, helpers="", limit=50))
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    (bad,) = emitted.of("task.started")
    assert isinstance(bad, HandlerError)
    assert (bad.error, bad.message) == ("timeout", "It took longer than 50 ms.")
    assert values(emitted, "turn.completed") == [1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
async def test_a_hundred_megabytes_of_output_reach_nobody(tmp_path: Path, number: int):
    does = f"[os.write({number}, b'x' * 2**20) for _ in range(100)]"
    ext = own(tmp_path)
    ext.write("loud", TRIES.format(does=does, helpers="", limit=60_000))
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    assert values(emitted, "task.started") == ["went on"]
    assert values(emitted, "turn.completed") == [1]


async def test_a_copy_that_a_handler_forks_says_nothing_and_takes_nothing(tmp_path: Path):
    ext = own(tmp_path)
    ext.write("forks", TRIES.format(does="os.fork(); count += 1", helpers="", limit=60_000).replace(
        "def bad(event, tools):", "def bad(event, tools):\n    global count"
    ))  # fmt: skip
    async with extended(ext, tmp_path, TALK * 5) as sdk:
        emitted = Emitted(sdk)
        for _ in range(5):
            await run(sdk, tmp_path)
    assert values(emitted, "task.started") == ["went on"] * 5
    assert values(emitted, "turn.completed") == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("when", ["timeout", "crash", "reload", "shutdown"])
async def test_all_that_it_started_ends_with_it(tmp_path: Path, when: str):
    """The pipe has an end once nobody holds it open any more: neither the process nor what that started."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    starts = f"subprocess.Popen(['sleep', '1000'], stdout=open({str(pipe)!r}, 'w'), start_new_session=True)"
    then = {"timeout": "; threading.Event().wait()", "crash": "; os._exit(1)"}.get(when, "")
    ext = own(tmp_path)
    ext.write(
        "starts", TRIES.format(does=starts + then, helpers="", limit=500 if when == "timeout" else 60_000)
    )
    held = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
    async with asyncio.timeout(60):
        async with extended(ext, tmp_path, TALK) as sdk:
            await run(sdk, tmp_path)
            if when == "reload":
                ext.write("starts")
                await sdk.extensions.reload()
            if when != "shutdown":
                assert await held == b""
        assert await held == b""


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/src"]
from tests.extensions.rig import Extensions
async def main():
    await Extensions(Path(sys.argv[1]) / "extensions", "subprocess").load()
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_it_ends_when_whoever_started_it_is_killed(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    own(tmp_path).write("holds", f"held = open({str(pipe)!r}, 'w')\ndef register(registry): pass\n")
    held = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
    root = str(Path(__file__).parents[2])
    argv = [sys.executable, "-c", KILLED, str(tmp_path), root]
    async with asyncio.timeout(60):
        killed = await asyncio.to_thread(subprocess.run, argv, check=False, capture_output=True, text=True)
        assert killed.returncode == -9, killed.stderr
        assert await held == b""


def found_at() -> list[str]:
    return [str(Path(place).absolute()) for place in sys.path]


async def test_it_has_nothing_of_our_environment_and_the_same_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_API_KEY", "sk-secret-of-the-operator")
    source = """
import os, sys
def handle(event, tools): return {"names": sorted(os.environ), "path": sys.path, "flags": sys.flags.isolated}
def register(registry): registry.on("turn.completed", handle)
"""
    ext = own(tmp_path)
    ext.write("looks", source)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    (seen,) = values(emitted, "turn.completed")
    assert set(seen["names"]) <= {"PATH", "LANG", "PWD", "LC_CTYPE"}
    assert (seen["path"], seen["flags"]) == (found_at(), 1)


async def test_what_runs_after_a_crash_is_still_what_was_hashed(tmp_path: Path):
    source = TRIES.format(does="os._exit(1)", helpers="from . import helper", limit=5_000)
    ext = own(tmp_path)
    root = ext.write("one", source.replace("return count", "return helper.WORD"))
    (root / "helper.py").write_text('WORD = "hashed"\n')
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        (root / "helper.py").write_text('WORD = "changed"\n')
        (root / "events.py").write_text("1/0\n")
        await run(sdk, tmp_path)
    assert values(emitted, "turn.completed") == ["hashed"]


async def test_one_that_registers_otherwise_the_next_time_is_an_error_until_it_is_reloaded(tmp_path: Path):
    source = TRIES.format(does="os._exit(1)", helpers=f"FLAG = {str(tmp_path / 'flag')!r}", limit=5_000)
    ext = own(tmp_path)
    ext.write("one", source + "    if os.path.exists(FLAG): registry.on('task.started', next)\n")
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        (tmp_path / "flag").touch()
        await run(sdk, tmp_path)
    (error,) = emitted.of("turn.completed")
    assert isinstance(error, HandlerError)
    assert error.message == (
        "The extension one registered other handlers when it was started again. Reload the extensions."
    )


async def test_tools_are_dead_once_the_handler_has_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    source = """
import asyncio
late = []
async def later(event, tools, gate):
    await gate.wait()
    tools.logger.warning("too late")
    try:
        await tools.get_session_settings(event.payload["session"]["id"])
    except Exception as error:
        return type(error).__name__
async def ends(event, tools):
    gate = asyncio.Event()
    late.append((gate, asyncio.create_task(later(event, tools, gate))))
async def check(event, tools):
    gate, task = late.pop()
    gate.set()
    return await task
def register(registry):
    registry.on("task.started", ends)
    registry.on("turn.completed", check)
"""
    ext = own(tmp_path)
    ext.write("one", source)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    assert values(emitted, "turn.completed") == ["HandlerEnded"]
    assert "too late" not in caplog.text


ASKS = """
import json
def ask(number, call):
    data = json.dumps({"type": "asked", "id": number, "call": call, "tool": "get_session_settings", "argument": "x"})
    return len(data).to_bytes(4, "big") + data.encode()
"""


async def test_questions_past_the_tools_are_refused_and_too_many_are_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A handler that writes to the pipe itself reaches no more than its tools do."""
    flood = f"say(b''.join(ask(n, 1) for n in range({MAX_ASKED + 1})))"
    ext = own(tmp_path)
    ext.write("one", TRIES.format(does=flood, helpers=REPORTS + ASKS, limit=20_000))
    never = asyncio.Event()

    async def settings_of(*_: Any) -> dict[str, Any]:
        await never.wait()
        return {}

    async with extended(ext, tmp_path, TALK) as sdk:
        monkeypatch.setattr("codesdk.extensions.actions.EngineActions.settings_of", settings_of)
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
    (error,) = emitted.of("task.started")
    assert isinstance(error, HandlerError)
    assert f"more than {MAX_ASKED} questions of its tools at once" in error.message
    assert values(emitted, "turn.completed") == [1]


async def test_handlers_side_by_side_share_their_process_and_nobody_elses(tmp_path: Path):
    source = """
import asyncio, os
began = []
async def handle(event, tools):
    began.append(event)
    if len(began) == 2: os._exit(5)
    await asyncio.Event().wait()
def register(registry):
    registry.on("task.started", handle, timeout_ms=60_000)
"""
    ext = own(tmp_path)
    ext.write("bad", source)
    ext.write("good", GOOD)
    async with extended(ext, tmp_path, TALK, stored=True):
        pass
    runtime = FakeRuntime([done()], name="scripted")
    async with CodeSDK.open(tmp_path / "data", runtimes={"scripted": runtime}) as sdk:
        for session in [await session_in(sdk, tmp_path) for _ in range(2)]:
            await (await session.start("Go.")).result()
    # Both sessions are on the first page that is read, so they are dispatched side by side.
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        emitted = Emitted(sdk)
        await settle(sdk)
    bad, good = emitted.of("task.started")[::2], emitted.of("task.started")[1::2]
    assert [one.message for one in bad if isinstance(one, HandlerError)] == [
        "The process of the extension bad ended with code 5."
    ] * 2
    assert all(isinstance(one, HandlerResult) for one in good)


@pytest.mark.slow
async def test_a_handler_beside_one_that_hangs_is_called_again(tmp_path: Path):
    source = f"""
import asyncio, os
FLAG = {str(tmp_path / "flag")!r}
async def first(event, tools):
    if event.payload["session"]["title"] == "hangs":
        while not os.path.exists(FLAG): await asyncio.sleep(0.001)
        await asyncio.Event().wait()
async def second(event, tools):
    if event.payload["session"]["title"] != "hangs" and not os.path.exists(FLAG):
        open(FLAG, "w").close()
        await asyncio.Event().wait()
    return "went on"
def register(registry):
    registry.on("task.started", first, timeout_ms=1_000)
    registry.on("task.started", second, timeout_ms=60_000)
"""
    ext = own(tmp_path)
    ext.write("one", source)
    async with extended(ext, tmp_path, TALK, stored=True):
        pass
    runtime = FakeRuntime([done()], name="scripted")
    async with CodeSDK.open(tmp_path / "data", runtimes={"scripted": runtime}) as sdk:
        for title in ("goes on", "hangs"):
            session = await session_in(sdk, tmp_path, title=title)
            await (await session.start("Go.")).result()
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        emitted = Emitted(sdk)
        await settle(sdk)
    results = values(emitted, "task.started")
    assert sorted(str(one) for one in results if not isinstance(one, HandlerError)) == [
        "None",
        "went on",
        "went on",
    ]
    assert [one.error for one in results if isinstance(one, HandlerError)] == ["timeout"]


async def test_an_action_of_a_process_is_carried_out_and_stands_in_the_log(tmp_path: Path):
    source = """
def handle(event, tools):
    return {"kind": "action_request", "action_type": "approval.decide", "payload": {"decision": "approve"}}
def register(registry): registry.on("approval.requested", handle)
"""
    ext = own(tmp_path)
    ext.write("helper", source)
    async with extended(ext, tmp_path, WRITES) as sdk:
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        answered = [e.payload async for e in task.events() if isinstance(e.payload, ev.ApprovalAnswered)]
        assert [(one.decision, one.by.kind, one.by.id) for one in answered] == [
            ("approve", "extension", "helper")
        ]
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
    assert (tmp_path / "ws" / "a.txt").read_text() == "hello"
