"""The driver of claude against programs that do not behave: missing, of another version, silent, garbled, flooding, deaf."""

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.runtimes.claude.rig import below, opened, script

from codesdk import SessionSettings, TaskFailure
from codesdk.runtimes.claude import ENTRY, options as claude_options
from codesdk.runtimes.claude.adapter import ClaudeRuntime
from codesdk.runtimes.claude.process import MAX_UNREAD
from codesdk.runtimes.program.finding import find_program

QUICK = SessionSettings(stop_grace_s=20.0)
HEAD = """
import json, os, sys, time
if "--version" in sys.argv:
    print("2.1.325 (Claude Code)")
    sys.exit()
def say(**frame):
    print(json.dumps(frame), flush=True)
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)
def ready():
    asked = hear()
    say(type="control_response", response={"subtype": "success", "request_id": asked["request_id"], "response": {}})
def end(told, **result):
    say(type="result", **result)
    say(type="command_lifecycle", command_uuid=told["uuid"], state="completed")
    say(type="system", subtype="session_state_changed", state="idle")
"""


def program(tmp_path: Path, code: str) -> str:
    """Write a program that stands in for claude."""
    path = tmp_path / "claude"
    path.write_text(f"#!{sys.executable}\n{HEAD}{dedent(code)}")
    path.chmod(0o755)
    return str(path)


async def failure(tmp_path: Path, **options: Any) -> TaskFailure:
    """Return what a task fails with."""
    async with opened(tmp_path, **options) as world:
        session = await world.session(script("Never."), settings=QUICK)
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Hello")).result()
        await world.check(session)
    return caught.value


async def test_a_program_that_is_not_there_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_options, "bundled", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    error = await failure(tmp_path)
    assert error.code == "RUNTIME_UNAVAILABLE"
    assert "pip install 'codesdk[claude]'" in error.message


async def test_another_version_than_the_tested_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("#!/bin/sh\necho '1.0.7 (Claude Code)'\n")
    path.chmod(0o755)
    error = await failure(tmp_path, program=str(path))
    assert error.code == "RUNTIME_UNAVAILABLE"
    assert "1.0.7" in error.message
    assert "2.1.325" in error.message


async def test_the_bundled_program_is_found_without_running_it() -> None:
    found = await find_program(ENTRY)
    assert (Path(found.path).name, found.version) == ("claude", "2.1.325")
    assert ClaudeRuntime().name == "claude-agent-sdk"


async def test_a_program_that_ends_before_it_is_ready_is_quoted_without_secrets(tmp_path: Path) -> None:
    code = """
    print("no room left, token", os.environ["CODESDK_MCP_TOKEN"], "lost", file=sys.stderr)
    sys.exit(3)
    """
    error = await failure(tmp_path, program=program(tmp_path, code))
    assert (error.code, error.retryable) == ("RUNTIME_CRASHED", True)
    assert "(exit code 3). no room left, token" in error.message
    assert "lost" in error.message
    assert len(error.message) < 120


async def test_frames_that_nobody_knows_become_notices_and_the_task_goes_on(tmp_path: Path) -> None:
    code = """
    ready()
    told = hear()
    print("[debug] not json", flush=True)
    print("", flush=True)
    print("[1, 2]", flush=True)
    say(type="brand_new", answer=42)
    say(type="system", subtype="brand_new")
    say(type="assistant", message={"id": "m"})
    say(type="system", subtype="init", session_id="s1", model="m1")
    say(type="assistant", message={"id": "m1", "model": "m1", "content": [{"type": "text", "text": "Hi."}]})
    end(told, subtype="success", stop_reason="end_turn")
    hear()
    """
    async with opened(tmp_path, program=program(tmp_path, code)) as world:
        session = await world.session(script("Never."))
        assert (await (await session.start("Hello")).result()).text == "Hi."
        unknown = [
            event.runtime.raw
            for event in await world.events(session)
            if event.type == "runtime.notice" and event.payload.kind == "unknown_frame"
        ]
        assert unknown == [
            {"not_json": "[debug] not json"},
            [1, 2],
            {"type": "brand_new", "answer": 42},
            {"type": "system", "subtype": "brand_new"},
            {"type": "assistant", "message": {"id": "m"}},
        ]
        await world.check(session)


async def test_a_tool_that_claude_ran_itself_is_a_violation_that_ends_the_task(tmp_path: Path) -> None:
    code = """
    ready()
    told = hear()
    say(type="assistant", message={"id": "m1", "model": "m", "content": [
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "id"}}]})
    say(type="control_request", request_id="q1", request={
        "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "id"}, "tool_use_id": "t1"})
    answer = hear()["response"]["response"]
    say(type="user", message={"content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": json.dumps(answer)}]})
    hear()
    """
    async with opened(tmp_path, program=program(tmp_path, code)) as world:
        session = await world.session(script("Never."))
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Hello")).result()
        assert caught.value.code == "RUNTIME_PROTOCOL"
        [event] = [
            event
            for event in await world.events(session)
            if event.type == "runtime.notice" and event.payload.kind == "violation"
        ]
        assert event.payload.details == {"tool": "Bash"}
        [completed] = await world.payloads(session, "tool.call.completed")
        assert (completed.name, completed.executed_by) == ("Bash", "runtime")
        [result] = event.runtime.raw["message"]["content"]
        assert '"behavior": "deny"' in result["content"]
        await world.check(session)


@pytest.mark.slow
async def test_a_flood_does_not_hide_the_answer_to_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine takes its time to read all of it; what counts is that the answer is found behind it.
    monkeypatch.setattr("codesdk.runtimes.claude.adapter.INTERRUPT_S", 60.0)
    code = f"""
    ready()
    told = hear()
    say(type="stream_event", event={{"type": "message_start", "message": {{"id": "m1", "model": "m"}}}})
    def delta(text):
        say(type="stream_event", event={{"type": "content_block_delta", "index": 0,
            "delta": {{"type": "text_delta", "text": text}}}})
    delta("first")
    asked = hear()
    for _ in range({4 * MAX_UNREAD}):
        delta("more ")
    say(type="control_response", response={{"subtype": "success", "request_id": asked["request_id"]}})
    end(told, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    hear()
    """
    async with opened(tmp_path, program=program(tmp_path, code)) as world:
        session = await world.session(script("Never."), settings=QUICK)
        task = await session.start("Hello")
        async for event in task.events():
            if event.type == "model.output.delta":
                await task.stop()
                break
        assert (await task.result()).state == "stopped"
        assert below(world.pid(session))
        await world.check(session)


async def test_a_program_that_is_deaf_to_a_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codesdk.runtimes.claude.adapter.INTERRUPT_S", 0.2)
    code = """
    ready()
    hear()
    say(type="system", subtype="init", session_id="s1", model=str(os.getpid()))
    say(type="system", subtype="api_retry")
    time.sleep(1000)
    """
    async with opened(tmp_path, program=program(tmp_path, code)) as world:
        session = await world.session(script("Never."), settings=QUICK)
        task = await session.start("Hello")
        async for event in task.events():
            if event.type == "runtime.notice":
                pid = world.pid(session)
                await task.stop()
                break
        assert (await task.result()).state == "stopped"
        assert below(pid) == []
        await world.check(session)
