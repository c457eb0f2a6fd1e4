"""The real claude program, in a network that has only loopback: tasks, tools, stops, steering."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.claude.rig import (
    EDIT,
    MORE,
    READ,
    World,
    below,
    native_call,
    opened,
    script,
    texts_of,
)

from codesdk import Session, Task, TaskFailure
from codesdk.runtimes.program.retelling import RETOLD
from codesdk.tools import ToolContext, ToolRegistry
from codesdk.tools.builtin import builtin_registry
from codesdk.tools.names import wire_name
from codesdk.tools.registry import make_tool

SLOW: dict[str, Any] = {"delay_s": 60}
WHOLE = "Two, "
"""A piece that is not held back: no token of the session, which is a secret, can begin with its end."""


@pytest.fixture(autouse=True)
def _offline() -> Iterator[None]:
    with alone():
        yield


async def until(task: Task, kind: str, where: Any = None) -> Any:
    """Return the first event of a type."""
    async for event in task.events():
        if event.type == kind and (where is None or where(event.payload)):
            return event
    raise AssertionError(f"the task ended without {kind}")


def test_an_attempt_to_leave_is_counted() -> None:
    before = tried_outside()
    with suppress(OSError), socket.create_connection(("192.0.2.1", 443), timeout=1):
        pass
    assert tried_outside() > before


# --- a task ---------------------------------------------------------------------------------------------------


async def test_two_tasks_stream_and_call_a_tool_in_one_process_that_is_locked_down_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_THE_PARENT", "1")
    async with opened(tmp_path) as world:
        _add_instructions(world.workspace)
        plays = script(
            [{"reasoning": ["Hm, ", "notes."]}, {"text": ["Let me ", "look."]}, READ], "Milk.", "Yes."
        )
        settings = {"system_prompt": "You are under test."}
        session = await world.session(plays, settings=_settings(runtime_config=settings))
        before = tried_outside()
        result = await (await session.start("What do @notes.txt say? /help")).result()
        assert (result.text, result.stop_reason) == ("Milk.", "end_turn")
        assert (result.usage.input, result.usage.output, result.usage.cache_read) == (200, 40, 10)
        assert (result.usage.cost_usd or 0) > 0
        pid = world.pid(session)
        assert (await (await session.start("Really?")).result()).text == "Yes."
        assert world.pid(session) == pid

        deltas = [
            (p.kind, p.delta)
            for p in await world.payloads(session, "model.output.delta")
            if p.kind != "json_delta"
        ]
        assert deltas == [
            ("reasoning_delta", "Hm, "),
            ("reasoning_delta", "notes."),
            ("text_delta", "Let me "),
            ("text_delta", "look."),
            ("text_delta", "Milk."),
            ("text_delta", "Yes."),
        ]
        completed = await world.payloads(session, "model.output.completed")
        assert [[block.text for block in message.content] for message in completed] == [
            ["Hm, notes.", "Let me look."],
            ["Milk."],
            ["Yes."],
        ]
        [call] = await world.payloads(session, "tool.call.completed")
        assert (call.name, call.executed_by, call.is_error) == ("workspace.read", "codesdk", False)
        sources = {p.source for p in await world.payloads(session, "usage.reported")}
        assert sources == {"gateway", "runtime"}
        assert await world.payloads(session, "runtime.notice") == []

        first, second, third = await world.requests(session)
        offered = {tool["name"] for tool in first["tools"]}
        assert offered == {wire_name(spec.name) for spec in builtin_registry().specs()}
        assert texts_of(first) == ["What do @notes.txt say? /help"]
        assert "remember the milk" in json.dumps(second["messages"][-1])
        assert texts_of(third)[-1] == "Really?"
        assert "verse" not in json.dumps([first, second, third])
        await _check_sources(world, session)

        program = below(pid)[-1]
        arguments = (Path("/proc") / str(program) / "cmdline").read_bytes()
        environment = dict(
            entry.split(b"=", 1)
            for entry in (Path("/proc") / str(program) / "environ").read_bytes().split(b"\0")
            if entry
        )
        token = environment[b"CODESDK_MCP_TOKEN"]
        assert len(token) >= 24
        assert token not in arguments
        assert b"CANARY_OF_THE_PARENT" not in environment
        places = str(tmp_path / "data" / "runtimes").encode()
        for name in (b"HOME", b"TMPDIR", b"CLAUDE_CONFIG_DIR", b"XDG_CONFIG_HOME"):
            assert environment[name].startswith(places)
        sockets = Path(environment[b"XDG_RUNTIME_DIR"].decode())
        assert _sockets_in(sockets) == 1
        assert tried_outside() == before
        await world.check(session)
    assert below(pid) == []
    assert _sockets_in(sockets) == 0
    assert not (tmp_path / "hook-ran").exists()


def _add_instructions(workspace: Path) -> None:
    """Put everything into a workspace that claude would take up by itself."""
    (workspace / "CLAUDE.md").write_text("Speak in verse.\n")
    hook = {"type": "command", "command": f"touch {workspace.parent / 'hook-ran'}"}
    settings = {"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}, "permissions": {"allow": ["Bash"]}}
    (workspace / ".claude" / "skills" / "verse").mkdir(parents=True)
    (workspace / ".claude" / "settings.json").write_text(json.dumps(settings))
    (workspace / ".claude" / "skills" / "verse" / "SKILL.md").write_text(
        "---\nname: verse\ndescription: Speak in verse.\n---\nverse\n"
    )
    server = {"command": "touch", "args": [str(workspace.parent / "hook-ran")]}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"verse": server}}))


async def _check_sources(world: World, session: Session) -> None:
    """Hold the list of what claude added to what is known: where it runs, the model, the day, who it is."""
    for exact in await world.payloads(session, "model.input"):
        if exact.capture == "exact":
            data = await world.sdk.read_artifact(exact.implicit_sources_ref.artifact_id)
            sources = json.loads(data)["sources"]
            assert len(sources) == 4
            assert {source["origin"] for source in sources} == {"runtime"}


def _sockets_in(folder: Path) -> int:
    """Return how many sockets claude has there, where only we can reach them."""
    assert not folder.exists() or folder.stat().st_mode & 0o777 == 0o700
    return sum(path.is_socket() for path in folder.rglob("*"))


def _settings(**options: Any) -> Any:
    from codesdk import SessionSettings

    return SessionSettings(**options)


# --- decisions ------------------------------------------------------------------------------------------------


async def test_calls_of_one_message_are_approved_and_denied_with_a_reason_that_the_model_reads(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script([READ, EDIT], "Done."), permission_mode="ask")
        task = await session.start("Change it")
        async for event in task.events():
            if event.type == "approval.requested":
                call_id = event.payload.tool_call_id or ""
                [call] = [
                    p
                    for p in await world.payloads(session, "tool.call.requested")
                    if p.tool_call_id == call_id
                ]
                if call.name == "workspace.read":
                    await task.approve(call_id)
                else:
                    await task.deny(call_id, "Leave the milk alone.")
        assert (await task.result()).text == "Done."
        calls = await world.payloads(session, "tool.call.requested")
        assert [(c.name, c.message_id, c.index) for c in calls] == [
            ("workspace.read", "msg_scripted000001", 0),
            ("workspace.edit", "msg_scripted000001", 1),
        ]
        last = (await world.requests(session))[-1]["messages"][-1]["content"]
        answers = {
            block["tool_use_id"]: json.dumps(block["content"]) for block in last if "tool_use_id" in block
        }
        assert "remember the milk" in answers["call_scripted000001_r1"]
        assert "Leave the milk alone." in answers["call_scripted000001_e1"]
        assert (world.workspace / "notes.txt").read_text() == "remember the milk\n"
        await world.check(session)


async def test_without_anyone_to_ask_a_question_is_a_denial_and_a_tool_that_is_not_ours_does_not_run(
    tmp_path: Path,
) -> None:
    touch = f"touch {tmp_path / 'ran'}"
    async with opened(tmp_path) as world:
        plays = script(
            [EDIT], "No edit.", [native_call("Bash", {"command": touch})], "No shell.", [READ, MORE], "Both."
        )
        session = await world.session(plays, permission_mode="ask", interaction_mode="non_interactive")
        assert (await (await session.start("Edit")).result()).text == "No edit."
        assert (await (await session.start("Run something")).result()).text == "No shell."
        denied = await world.payloads(session, "tool.call.denied")
        assert [(d.name, d.by.kind) for d in denied] == [("workspace.edit", "policy"), ("Bash", "policy")]
        assert "There is no tool Bash here" in denied[1].reason
        assert not (tmp_path / "ran").exists()
        assert (await (await session.start("Read both")).result()).text == "Both."
        await world.check(session)


async def test_calls_that_only_read_run_side_by_side(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script([READ, MORE], "Both."), permission_mode="ask")
        task = await session.start("Read both")
        waiting: list[str] = []
        async for event in task.events():
            if event.type == "approval.requested":
                waiting.append(event.payload.tool_call_id or "")
                if len(waiting) == 2:  # else the second question waits for the first answer, and this hangs
                    for call_id in waiting:
                        await task.approve(call_id)
        assert (await task.result()).text == "Both."
        await world.check(session)


# --- stop and steer -------------------------------------------------------------------------------------------


async def test_a_stop_in_every_state_leaves_a_session_that_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        plays = script([{"text": "Begin "}, SLOW], [READ], "After.")
        session = await world.session(plays, permission_mode="ask")
        task = await session.start("Stream")
        await until(task, "model.output.delta")
        await task.stop()
        assert (await task.result()).state == "stopped"
        pid = world.pid(session)
        [cut] = await world.payloads(session, "model.output.completed")
        assert ([block.text for block in cut.content], cut.partial) == (["Begin "], True)
        [request] = await world.payloads(session, "runtime.request.completed")
        assert request.status == "abandoned"

        task = await session.start("Ask")
        await until(task, "approval.requested")
        await task.stop()
        assert (await task.result()).state == "stopped"
        assert [d.name for d in await world.payloads(session, "tool.call.denied")] == ["workspace.read"]
        assert world.pid(session) == pid

        assert (await (await session.start("Go on")).result()).text == "After."
        texts = texts_of((await world.requests(session))[-1])
        assert [text for text in texts if text in ("Stream", "Ask", "Go on")] == ["Stream", "Ask", "Go on"]
        await world.check(session)


async def test_input_in_a_running_task_reaches_the_model_with_the_next_result_or_after_the_answer(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        plays = script([READ], "One.", [{"text": WHOLE}, {"delay_s": 1}, {"text": "."}], "Three.", "Four.")
        session = await world.session(plays, permission_mode="ask")
        task = await session.start("Read")
        asked = await until(task, "approval.requested")
        await task.steer("And the weather?")
        await task.approve(asked.payload.tool_call_id)
        assert (await task.result()).text == "One."
        assert "And the weather?" in json.dumps((await world.requests(session))[1]["messages"][-1])

        task = await session.start("Talk")
        await until(task, "model.output.delta", lambda payload: payload.delta == WHOLE)
        await task.steer("More, please.")
        assert (await task.result()).text == "Three."
        assert texts_of((await world.requests(session))[3])[-1] == "More, please."

        assert (await (await session.start("Last")).result()).text == "Four."
        await world.check(session)


async def test_a_stop_takes_input_along_that_claude_has_not_taken_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script([{"text": "Begin "}, SLOW], "Well."))
        task = await session.start("Stream")
        await until(task, "model.output.delta")
        await task.steer("And the weather?")
        await task.stop()
        assert (await task.result()).state == "stopped"
        assert len(await world.requests(session)) == 1
        assert (await (await session.start("Go on")).result()).text == "Well."
        told = texts_of((await world.requests(session))[-1])
        assert [text for text in told if "And the weather?" in text] == ["[user]\nAnd the weather?"]
        await world.check(session)


# --- death ----------------------------------------------------------------------------------------------------


async def test_a_killed_claude_fails_the_task_and_the_next_one_is_told_all_that_was_said(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script("One.", [{"text": WHOLE}, SLOW], "Three."))
        await (await session.start("First")).result()
        task = await session.start("Second")
        await until(task, "model.output.delta", lambda payload: payload.delta == WHOLE)
        os.kill(below(world.pid(session))[-1], signal.SIGKILL)
        with pytest.raises(TaskFailure) as caught:
            await task.result()
        assert (caught.value.code, caught.value.retryable) == ("RUNTIME_CRASHED", True)
        assert (await (await session.start("Third")).result()).text == "Three."
        assert texts_of((await world.requests(session))[-1]) == [
            RETOLD,
            "[user]\nFirst",
            "[assistant]\nOne.",
            "[user]\nSecond",
            f"[assistant]\n{WHOLE}",
            "[user]",
            "Third",
        ]
        await world.check(session)


ORPHAN = """
import asyncio, sys
from pathlib import Path
from tests.runtimes.claude.rig import below, opened, script

async def main():
    async with opened(Path(sys.argv[1])) as world:
        session = await world.session(script([{"text": "Begin "}, {"delay_s": 600}]))
        async for event in (await session.start("Stream")).events():
            if event.type == "model.output.delta":
                print(*below(world.pid(session)), flush=True)

asyncio.run(main())
"""


def test_nothing_of_claude_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # where a killed process leaves what it could not remove
    with subprocess.Popen(argv, cwd=Path(__file__).parents[3], env=env, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        handles = [os.pidfd_open(pid) for pid in pids]
        parent.kill()
    assert len(handles) >= 2
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], 60)
        os.close(handle)
        assert ended


# --- size and number ------------------------------------------------------------------------------------------


class Amount(msgspec.Struct, frozen=True):
    times: int


async def flood(args: Amount, context: ToolContext) -> str:
    """Return a lot."""
    return "a lot of text " * args.times


async def test_a_large_result_reaches_the_model_and_one_that_claude_keeps_for_itself_is_in_the_log(
    tmp_path: Path,
) -> None:
    tools = ToolRegistry([make_tool(flood, name="test.flood", tool_class="read_only")])
    calls = [{"call": {"tool": "test.flood", "input": {"times": times}}} for times in (30_000, 50_000)]
    async with opened(tmp_path, tools=tools) as world:
        session = await world.session(script([calls[0]], [calls[1]], "Much."))
        assert (await (await session.start("Flood")).result()).text == "Much."
        sizes = [call.result_ref.size_bytes for call in await world.payloads(session, "tool.call.completed")]
        assert sizes == [420_000, 700_000]
        _, large, larger = await world.requests(session)
        assert len(json.dumps(large["messages"][-1])) > 420_000
        told = json.dumps(larger["messages"][-1])
        assert "<persisted-output>" in told
        assert len(told) < 10_000
        await world.check(session)


async def test_sessions_of_one_namespace_run_side_by_side(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        sessions = [await world.session(script([READ], f"{number}.")) for number in range(3)]
        tasks = [await session.start("Read") for session in sessions]
        results = await asyncio.gather(*(task.result() for task in tasks))
        assert [result.text for result in results] == ["0.", "1.", "2."]
        assert len({world.pid(session) for session in sessions}) == 3
        for session in sessions:
            await world.check(session)
