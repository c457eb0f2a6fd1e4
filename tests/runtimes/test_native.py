"""Tools of the programs' own, enabled by name: decided by us, run by them, and on record as theirs."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.claude import rig as claude_rig
from tests.runtimes.claude.rig import native_call, script
from tests.runtimes.claude.test_program import program
from tests.runtimes.codex import rig as codex_rig

from codesdk.contract.codec import decode
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.events import Event
from codesdk.policy.rules import Rule, RulePolicy
from codesdk.testing.processes import command_line
from codesdk.tools import builtin_registry, wire_name

SLEEP = f"600.{os.getpid():07d}"
"""How long a command sleeps; nobody else sleeps just as long."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def claude(tmp_path: Path, **options: Any) -> AbstractAsyncContextManager[claude_rig.World]:
    return claude_rig.opened(tmp_path, allow_yolo=True, **options)


def codex(tmp_path: Path, *turns: Any, **options: Any) -> AbstractAsyncContextManager[codex_rig.Rig]:
    return codex_rig.opened(tmp_path, *turns, [{"text": "Done."}], **options)


def bash(command: str, call_id: str = "b1") -> list[Any]:
    return [native_call("Bash", {"command": command}, call_id)]


def execute(command: str, **more: Any) -> list[Any]:
    return [{"call": {"tool": "exec_command", "input": {"cmd": command, **more}, "id": "x1"}}]


def told(events: list[Event]) -> list[Any]:
    """Return what happened to tool calls, in short."""
    lines: list[Any] = []
    for event in events:
        payload: Any = event.payload
        match event.type.removeprefix("tool.call."):
            case "requested":
                lines.append(("requested", payload.name, payload.tool_class))
            case "policy_evaluated":
                lines.append((payload.result, payload.rule))
            case "approved" | "denied" as decision:
                lines.append((decision, payload.by.kind))
            case "started":
                lines.append(("started", payload.execution_env, payload.sandbox.network))
            case "completed":
                lines.append(("completed", payload.executed_by, payload.is_error, payload.result_preview))
            case _:
                pass
    return lines


def ran(name: str, kind: str, result: Any) -> list[Any]:
    """Return the short story of a call that the mode yolo let run."""
    return [
        ("requested", name, kind),
        ("allow", "mode:native_tools"),
        ("allow", "mode:yolo"),
        ("approved", "policy"),
        ("started", "runtime_internal", True),
        ("completed", "runtime", False, result),
    ]


async def test_an_enabled_tool_of_claude_runs_and_is_on_record_as_claudes_and_no_other_is_offered(
    tmp_path: Path,
):
    async with claude(tmp_path) as world:
        session = await world.session(
            script(bash("cat notes.txt"), "Milk."), permission_mode="yolo", native_tools=["Bash"]
        )
        assert (await (await session.start("Look.")).result()).text == "Milk."
        assert told(await world.events(session)) == ran("Bash", "dangerous", "remember the milk")
        offered = [tool["name"] for tool in (await world.requests(session))[0]["tools"]]
        await world.check(session)
    own = {wire_name(spec.name) for spec in builtin_registry().specs()}
    assert [name for name in offered if name not in own] == ["Bash"]


async def test_enabled_tools_of_codex_run_and_are_on_record_as_codexs(tmp_path: Path):
    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    change = {"call": {"tool": "apply_patch", "input": patch, "id": "p1"}}
    natives = ["apply_patch", "exec_command"]
    async with codex(tmp_path, execute("cat notes.txt"), [change], mode="yolo", native_tools=natives) as rig:
        assert await rig.ask() == "Done."
        new = rig.workspace / "new.txt"
        assert new.read_text() == "hello\n"
        diff = {"path": str(new), "kind": {"type": "add"}, "diff": "hello\n"}
        assert told(await rig.events()) == [
            *ran("exec_command", "dangerous", "remember the milk\n"),
            *ran("apply_patch", "write", {"status": "completed", "changes": [diff]}),
        ]


async def test_claude_asks_before_each_call_even_one_that_only_reads(tmp_path: Path):
    touch = tmp_path / "touched"
    async with claude(tmp_path) as world:
        session = await world.session(
            script(
                [native_call("Read", {"file_path": "notes.txt"})],
                "Read.",
                bash(f"ls; touch {touch}"),
                "Not run.",
                bash("ls", "b2"),
                "Run.",
            ),
            native_tools=["Bash", "Read"],
        )
        await (await session.start("Read it.")).result()
        for answer in ("deny", "approve"):
            task = await session.start("Run it.")
            async for event in task.events():
                if event.type == "approval.requested":
                    call = event.payload.tool_call_id or ""
                    await (task.approve(call) if answer == "approve" else task.deny(call, "Not this one."))
        events = await world.events(session)
        requests = await world.requests(session)
        await world.check(session)
    asked = [("allow", "mode:native_tools"), ("ask", "mode:auto:dangerous")]
    assert told(events) == [
        ("requested", "Read", "read_only"),
        ("allow", "mode:native_tools"),
        ("allow", "mode:auto:read_only"),
        ("approved", "policy"),
        ("started", "runtime_internal", True),
        ("completed", "runtime", False, "1\tremember the milk\n2\t"),
        ("requested", "Bash", "dangerous"),
        *asked,
        ("deny", None),
        ("denied", "user"),
        ("requested", "Bash", "dangerous"),
        *asked,
        ("allow", None),
        ("approved", "user"),
        ("started", "runtime_internal", True),
        ("completed", "runtime", False, "more.txt\nnotes.txt"),
    ]
    assert not touch.exists()
    assert "Not this one." in str(requests[3]["messages"])


async def test_codex_asks_before_each_command_and_runs_none_that_nobody_can_be_asked_about(tmp_path: Path):
    async with codex(
        tmp_path,
        execute("cat notes.txt; touch made.txt"),
        native_tools=["exec_command"],
        interaction_mode="non_interactive",
    ) as rig:
        assert await rig.ask() == "Done."
        assert told(await rig.events()) == [
            ("requested", "exec_command", "dangerous"),
            ("allow", "mode:native_tools"),
            ("ask", "mode:auto:dangerous"),
            ("deny", "non_interactive"),
            ("denied", "policy"),
        ]
        assert not (rig.workspace / "made.txt").exists()


async def test_a_rule_about_a_path_holds_for_a_tool_of_claudes(tmp_path: Path):
    rule = Rule(id="no-notes", result="deny", path="notes.txt")
    async with claude(tmp_path, policy=RulePolicy([rule])) as world:
        session = await world.session(
            script([native_call("Read", {"file_path": str(world.workspace / "notes.txt")})], "No."),
            permission_mode="yolo",
            native_tools=["Read"],
        )
        assert (await (await session.start("Read it.")).result()).text == "No."
        assert told(await world.events(session)) == [
            ("requested", "Read", "read_only"),
            ("allow", "mode:native_tools"),
            ("allow", "mode:yolo"),
            ("deny", "no-notes"),
            ("denied", "policy"),
        ]
        await world.check(session)


async def test_a_patch_that_codex_makes_of_a_command_is_denied_if_only_commands_are_enabled(tmp_path: Path):
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\nEOF"
    async with codex(tmp_path, execute(patch), mode="yolo", native_tools=["exec_command"]) as rig:
        assert await rig.ask() == "Done."
        assert told(await rig.events()) == [
            ("requested", "apply_patch", "write"),
            ("deny", "native:off"),
            ("denied", "policy"),
        ]
        assert not (rig.workspace / "new.txt").exists()


async def test_a_stop_ends_a_command_that_claude_runs(tmp_path: Path):
    async with claude(tmp_path) as world:
        session = await world.session(
            script(bash(f"echo > begun; exec sleep {SLEEP}")), permission_mode="yolo", native_tools=["Bash"]
        )
        os.mkfifo(world.workspace / "begun")
        task = await session.start("Run.")
        await _is_written(world.workspace / "begun")
        assert _sleeping()
        await task.stop()
        await session.close()
        [completed] = await world.payloads(session, "tool.call.completed")
        assert (completed.executed_by, completed.is_error) == ("runtime", True)
        assert [event.type for event in await world.events(session)].count("task.stopped") == 1
        await world.check(session)
    assert not _sleeping()


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "left-behind"])
async def test_a_command_of_codex_does_not_outlive_its_task(tmp_path: Path, stopped: bool):
    command = execute(f"echo > begun; exec sleep {SLEEP}", yield_time_ms=30_000 if stopped else 300)
    async with codex(tmp_path, command, mode="yolo", native_tools=["exec_command"]) as rig:
        os.mkfifo(rig.workspace / "begun")
        task = await rig.session.start("Run.")
        await _is_written(rig.workspace / "begun")
        assert _sleeping()
        if stopped:
            await task.stop()
        async for _ in task.events():
            pass
        await rig.session.close()
        [completed] = codex_rig.payloads(await rig.events(), "tool.call.completed")
    assert (completed.executed_by, completed.is_error, completed.outcome) == ("runtime", True, "unknown")
    assert not _sleeping()


@pytest.mark.parametrize(
    ("mode", "violates"), [("ask", True), ("yolo", False)], ids=["to-be-asked", "not-to-be-asked"]
)
async def test_a_call_that_was_not_asked_about_is_on_record_and_a_violation_if_it_had_to_be(
    tmp_path: Path, mode: str, violates: bool
):
    code = """
    ready()
    number = hear()["uuid"]
    say(type="assistant", message={"id": "m1", "model": "m", "content": [
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "id"}}]})
    say(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "root"}]})
    say(type="result", subtype="success", stop_reason="end_turn")
    say(type="command_lifecycle", command_uuid=number, state="completed")
    say(type="system", subtype="session_state_changed", state="idle")
    hear()
    """
    async with claude(tmp_path, program=program(tmp_path, code)) as world:
        session = await world.session(script("Never."), permission_mode=mode, native_tools=["Bash"])
        task = await session.start("Hello")
        if violates:
            with pytest.raises(TaskFailure, match="without asking"):
                await task.result()
        else:
            await task.result()
        events = await world.events(session)
        notices = await world.notices(session, "violation")
        await world.check(session)
    assert told(events) == (
        [
            ("requested", "Bash", "dangerous"),
            ("allow", None),
            ("approved", "runtime"),
            ("started", "runtime_internal", True),
            ("completed", "runtime", False, "root"),
        ]
        if violates
        else ran("Bash", "dangerous", "root")
    )
    assert [notice.details for notice in notices] == (
        [{"tool": "Bash", "executed_by": "runtime"}] if violates else []
    )


@pytest.mark.parametrize(
    ("runtime", "named", "words"),
    [
        ("claude", ["Bash", "Task"], "has no tool Task that can be enabled. It has: Bash, Edit, Glob,"),
        ("codex", ["Bash"], "has no tool Bash that can be enabled. It has: apply_patch, exec_command."),
        ("scripted", ["Bash"], "has no tools of its own"),
        ("claude", "Bash", "native_tools: invalid enum value 'Bash', expected off or a list"),
    ],
)
async def test_a_name_that_the_runtime_does_not_have_is_refused_with_those_it_has(
    tmp_path: Path, runtime: str, named: Any, words: str
):
    async with claude(tmp_path) as world:
        with pytest.raises(InvalidRequest, match=words):
            await world.sdk.create_session(runtime=runtime, workspace=tmp_path, native_tools=named)
        assert await world.sdk.sessions() == []


async def test_a_session_with_native_tools_does_not_move_to_a_runtime_that_lacks_them(tmp_path: Path):
    async with claude(tmp_path) as world:
        session = await world.session(script("Hello."), native_tools=["Bash"])
        with pytest.raises(InvalidRequest, match="It has: apply_patch, exec_command"):
            await session.move("codex")
        [created] = [decode(frame.data) async for frame in world.sdk.archive.frames(session.id)]
        assert created.type == "session.created"
        assert created.payload.native_tools == ["Bash"]


async def _is_written(fifo: Path) -> None:
    """Return when somebody has written into a pipe."""
    loop = asyncio.get_running_loop()
    written: asyncio.Future[None] = loop.create_future()
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(fd, lambda: written.done() or written.set_result(None))
    try:
        async with asyncio.timeout(60):
            await written
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _sleeping() -> list[str]:
    """Return the processes that are the command or a part of it."""
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [entry.name for entry in processes if SLEEP.encode() in command_line(entry.name)]
