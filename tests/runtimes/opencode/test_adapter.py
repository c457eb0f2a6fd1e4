"""The real opencode, offline: what a session makes of it. Starting it takes seconds, so each test asks much of one start."""

import base64
import inspect
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.opencode.rig import NOTE, Rig, calls, notices, opened, payloads, read, script

from codesdk import CodeSDKError, TaskFailure
from codesdk.contract.entry import MARK
from codesdk.contract.messages import ArtifactBlock, Code, Message, Reasoning, Text, ToolResult, ToolUse
from codesdk.runtimes.opencode import ENTRY, wire_v1
from codesdk.testing.fakes import FakeTools
from codesdk.testing.feature_checks import PIXEL
from codesdk.tools.names import wire_name


@pytest.fixture(autouse=True)
def loopback_only(tmp_path: Path) -> Iterator[None]:
    """Start opencode only where nothing but loopback can be reached; see that it did not try, and left nothing behind."""
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


USAGE = {"input": 100, "output": 20, "cache_read": 5}


def texts(body: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the messages of a request, but for the first instruction: who says what."""
    assert body["messages"][0]["role"] == "system"
    return [(message["role"], message["content"]) for message in body["messages"][1:]]


def places(folder: Path) -> Path:
    """Return the folder of the one session's program."""
    [root] = (folder / "data" / "runtimes").glob("*/opencode-server/*")
    return root


def marks(folder: Path) -> list[Path]:
    """Return what a tool of opencode's own has left, wherever it ran."""
    return list(folder.rglob(MARK))


async def failure(rig: Rig, text: str) -> CodeSDKError:
    with pytest.raises(CodeSDKError) as raised:
        await rig.ask(text)
    return raised.value


# --- a task ---------------------------------------------------------------------------------------------


async def test_tasks_stream_reason_read_and_answer_in_one_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # On a busy machine opencode tells of a call long after it makes it: here always.
    monkeypatch.setattr("codesdk.engine.calls.matching.JOIN_S", 0.0)
    first = {
        "steps": [{"reasoning": ["Hm, ", "so."]}, {"text": ["Let me ", "look."]}, read()],
        "usage": USAGE,
    }
    last = [{"text": ["They say: ", "milk."]}]
    # A data directory is often inside a repository, which is not the agent's business.
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)  # noqa: ASYNC221 - it is short
    async with opened(tmp_path, first, last, [{"text": "A dot."}], [{"text": "Yes."}]) as rig:
        (rig.workspace / "AGENTS.md").write_text("Talk like a pirate.")
        assert left_behind(tmp_path) == []
        assert await rig.ask() == "They say: milk."
        events, transcript, pid = await rig.events(), await rig.session.transcript(), rig.pid
        specs = rig.sdk.engine.tool_calls.specs(rig.session.id)
        image = await rig.sdk.put_artifact(PIXEL, "image/png", "dot.png")
        block = ArtifactBlock(artifact_id=image.artifact_id, content_type="image/png", name="dot.png")
        task = await rig.session.start([Message(role="user", content=[Text(text="What is this?"), block])])
        assert (await task.result()).text == "A dot."
        assert await rig.ask("Sure?") == "Yes."
        assert rig.pid == pid
        bodies = await rig.bodies()
        await rig.session.close()
        assert left_behind(tmp_path) == []
        root = places(tmp_path)
        work = root / "work"
        assert list(work.iterdir()) == []
        assert not (root / "tmp").exists()
        assert not (root / "data" / "opencode" / "log").exists()
        await rig.sdk.delete_session(rig.session.id)
        assert list((tmp_path / "data" / "runtimes").glob("*/opencode-server/*")) == []

    assert [(p.kind, p.delta) for p in payloads(events, "model.output.delta")] == [
        ("reasoning_delta", "Hm, "),
        ("reasoning_delta", "so."),
        ("text_delta", "Let me "),
        ("text_delta", "look."),
        ("text_delta", "They say: "),
        ("text_delta", "milk."),
    ]
    assert calls(events) == ["requested", "approved", "started", "completed"]
    assert notices(events) == []
    assert [p.capture for p in payloads(events, "model.input")] == ["compiled", "exact", "exact"]
    reported = [(p.source, p.input, p.output, p.cache_read) for p in payloads(events, "usage.reported")]
    assert sorted(reported)[:2] == [("gateway", 0, 0, 0), ("gateway", 100, 20, 5)]
    assert ("runtime", 100, 20, 5) in reported
    _, said, result, _ = transcript
    assert said.content[:2] == [Reasoning(text="Hm, so."), Text(text="Let me look.")]
    use = said.content[2]
    assert isinstance(use, ToolUse)
    assert (use.name, use.input) == ("workspace.read", {"path": "notes.txt"})
    assert isinstance(result.content[0], ToolResult)
    assert NOTE in result.content[0].result

    system = bodies[0]["messages"][0]["content"]
    assert system.startswith("You are a coding agent.")
    assert f"Working directory: {work}" in system
    assert "Is directory a git repo: no" in system
    assert "Workspace root folder: /\n" in system
    assert str(rig.workspace) not in json.dumps(bodies)
    assert "pirate" not in json.dumps(bodies)
    offered = sorted(tool["function"]["name"] for tool in bodies[0]["tools"])
    assert {name.removeprefix("codesdk_") for name in offered} == {wire_name(spec.name) for spec in specs}
    assert texts(bodies[0]) == [("user", "What do my notes say?")]
    assert base64.b64encode(PIXEL).decode() in json.dumps(texts(bodies[2])[-1])
    assert [role for role, _ in texts(bodies[3])] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "user",
    ]  # fmt: skip


async def test_its_port_answers_nobody_without_the_password_and_no_key_is_asked_for(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Hello."}]) as rig:
        await rig.ask()
        wire = rig.server.wire
        base = str(wire._client.base_url)
        routes = (
            "global/health",
            "doc",
            "event",
            "config",
            "config/providers",
            "provider",
            "session",
            "agent",
        )
        async with httpx2.AsyncClient(base_url=base, trust_env=False) as anyone:
            for login in (None, ("opencode", "guess"), ("opencode", "")):
                found = [(await anyone.get(route, auth=login)).status_code for route in routes]
                assert found == [401] * len(routes)
            answer = await anyone.post(f"session/{rig.server.session_id}/shell", json={"command": "id"})
            assert answer.status_code == 401
    source = inspect.getsource(wire_v1.WireV1)
    assert not [route for route in ('"/config', '"/provider', '"/auth') if route in source]


# --- tools ----------------------------------------------------------------------------------------------


async def test_questions_are_ours_and_calls_of_one_answer_run_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("codesdk.engine.calls.matching.JOIN_S", 0.0)  # as if every announcement were late
    tools = FakeTools()
    tools.give("fake.read", "text")
    tools.hold("fake.read")
    both = [{"call": {"tool": "fake.read", "input": {"n": n}, "id": f"r{n}"}} for n in (1, 2)]
    ask = [{"call": {"tool": "fake.write", "input": {"n": 3}, "id": "w1"}}]
    turns = [both, [{"text": "Both."}], ask, [{"text": "Then not."}]]
    async with opened(tmp_path, *turns, tools=tools, mode="auto") as rig:
        task = await rig.session.start("Read both.")
        started: set[str] = set()
        await rig.seen("tool.call.started", lambda p: bool(started.add(p.tool_call_id)) or len(started) == 2)
        tools.release("fake.read")
        assert (await task.result()).text == "Both."
        message = (await rig.session.transcript())[1]
        used = [block.input for block in message.content if isinstance(block, ToolUse)]
        assert used == [{"n": 1}, {"n": 2}]
        task = await rig.session.start("Write.")
        asked = await rig.seen("approval.requested")
        await rig.session.deny(asked.tool_call_id, "Not on a Friday.")
        assert (await task.result()).text == "Then not."
        assert "Not on a Friday." in json.dumps(texts((await rig.bodies())[-1])[-1])


async def test_no_tool_of_its_own_runs_whatever_the_model_calls(tmp_path: Path):
    names = {**ENTRY.own_tools, **{name: {"x": 1} for name in ENTRY.other_tools}}
    native = [{"call": {"tool": name, "input": given, "offered": False}} for name, given in names.items()]
    turns = [[{"text": "My way."}, *native], *[[{"text": "Then not."}]] * 4]
    async with opened(tmp_path, *turns, mode="yolo") as rig:
        task = await rig.session.start("Leave a mark.")
        await task.result()
        events = await rig.events()
    assert marks(tmp_path) == []
    requested = [p.tool_call_id for p in payloads(events, "tool.call.requested")]
    assert requested
    assert [p.tool_call_id for p in payloads(events, "tool.call.denied")] == requested
    assert payloads(events, "tool.call.started") == []


# --- stop and steer -------------------------------------------------------------------------------------


async def test_stops_leave_what_was_said_and_the_program_for_the_next_task(tmp_path: Path):
    slow = [{"text": ["One, ", "two, "]}, {"silence": True}]
    tools = FakeTools()
    tools.hold("fake.read")
    held = [{"call": {"tool": "fake.read", "input": {}, "id": "r1"}}]
    turns = [slow, held, [{"call": {"tool": "fake.write", "input": {}, "id": "w1"}}], [{"text": "Again."}]]
    async with opened(tmp_path, *turns, tools=tools) as rig:
        task = await rig.session.start("Count.")
        await rig.seen("model.output.delta", lambda p: p.delta == "two, ")
        pid = rig.pid
        await task.stop()
        assert (await task.result()).state == "stopped"
        said = payloads(await rig.events(), "model.output.completed")
        assert [(p.partial, p.content) for p in said] == [(True, [Text(text="One, two, ")])]

        task = await rig.session.start("Read.")
        await rig.seen("tool.call.started")
        await task.stop()
        assert (await task.result()).state == "stopped"
        done = payloads(await rig.events(), "tool.call.completed")
        assert [(p.is_error, p.outcome) for p in done] == [(True, "known")]

        task = await rig.session.start("Write.")
        await rig.seen("approval.requested")
        await task.stop()
        assert (await task.result()).state == "stopped"
        assert calls(await rig.events()) == [
            "requested",
            "approved",
            "started",
            "completed",
            "requested",
            "denied",
        ]

        assert await rig.ask("Once more.") == "Again."
        assert rig.pid == pid
        assert await rig.server.wire.waiting(rig.server.session_id, 10.0) == []


async def test_a_program_that_does_not_answer_a_stop_is_ended_and_one_that_is_killed_is_a_crash(
    tmp_path: Path,
):
    slow = [{"text": "One. "}, {"silence": True}]
    async with opened(tmp_path, slow, slow, [{"text": "Again."}]) as rig:
        task = await rig.session.start("Count.")
        await rig.seen("model.output.delta")
        pid = rig.pid
        os.killpg(pid, signal.SIGSTOP)
        await task.stop()
        assert (await task.result()).state == "stopped"
        task = await rig.session.start("Count again.")
        async for event in task.events():
            if event.type == "model.output.delta":
                os.kill(rig.pid, signal.SIGKILL)
        with pytest.raises(TaskFailure, match="opencode ended in the middle of its work") as raised:
            await task.result()
        assert (raised.value.code, raised.value.retryable) == ("RUNTIME_CRASHED", True)
        assert await rig.ask("Once more.") == "Again."
        assert pid != rig.pid


async def test_input_for_a_running_task_is_told_with_the_next_request_of_the_model(tmp_path: Path):
    tools = FakeTools()
    tools.give("fake.read", "text")
    tools.hold("fake.read")
    step = {"call": {"tool": "fake.read", "input": {}, "id": "r1"}}
    turns = [[{"text": "Reading."}, step], [{"text": "In German."}]]
    async with opened(tmp_path, *turns, tools=tools) as rig:
        task = await rig.session.start("Read.")
        await rig.seen("tool.call.started")
        await rig.session.steer("Answer in German.")
        tools.release("fake.read")
        assert (await task.result()).text == "In German."
        first, second = await rig.bodies()
        assert texts(first) == [("user", "Read.")]
        role, told = texts(second)[-1]
        assert role == "user"
        assert "Answer in German." in json.dumps(told)
        said = [p.content for p in payloads(await rig.events(), "model.output.completed")]
        assert said == [[Text(text="Reading.")], [Text(text="In German.")]]


# --- resume ---------------------------------------------------------------------------------------------


async def test_after_a_restart_it_goes_on_with_its_own_copy_or_with_ours(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Look."}, read()], [{"text": "One."}]) as rig:
        await rig.ask("First.")
        session_id, own = rig.session.id, rig.server.session_id
    async with opened(tmp_path, []) as rig:
        rig.session = await rig.sdk.session(session_id, plays=script([read()], [{"text": "Two."}]))
        assert await rig.ask("Second.") == "Two."
        assert rig.server.session_id == own
        events, body = await rig.events(), (await rig.bodies())[2]
        assert [role for role, _ in texts(body)] == ["user", "assistant", "tool", "assistant", "user"]
        assert texts(body)[-2:] == [("assistant", "One."), ("user", "Second.")]
        assert calls(events).count("started") == 2
        assert notices(events) == []
    for copy in places(tmp_path).rglob("opencode.db*"):
        copy.unlink()
    async with opened(tmp_path, []) as rig:
        rig.session = await rig.sdk.session(session_id, plays=script([{"text": "Three."}]))
        assert await rig.ask("Third.") == "Three."
        told = json.dumps((await rig.bodies())[-1])
        assert [n.kind for n in notices(await rig.events())] == ["reconstructed"]
        assert all(words in told for words in ("First.", NOTE, "One.", "Second.", "Two.", "Third."))
        assert calls(await rig.events()).count("started") == 2


async def test_after_a_restart_code_and_an_image_that_were_not_answered_are_not_said_twice(tmp_path: Path):
    refused = [{"http": {"status": 401}}]
    async with opened(tmp_path, [{"text": "One."}], refused, refused) as rig:
        await rig.ask("First.")
        ref = await rig.sdk.put_artifact(PIXEL, "image/png", "pixel.png")
        image = ArtifactBlock(artifact_id=ref.artifact_id, content_type="image/png")
        for block in (Code(code="x = 1", language="python"), image):
            with pytest.raises(CodeSDKError):
                await (await rig.session.start([Message(role="user", content=[block])])).result()
        session_id = rig.session.id
    async with opened(tmp_path, []) as rig:
        rig.session = await rig.sdk.session(session_id, plays=script([{"text": "Two."}]))
        assert await rig.ask("Second.") == "Two."
        told = json.dumps((await rig.bodies())[-1])
        assert "reconstructed" not in [notice.kind for notice in notices(await rig.events())]
    pixel = base64.b64encode(PIXEL).decode()
    assert [told.count(part) for part in ("First.", "x = 1", pixel, "Second.")] == [1, 1, 1, 1]


# --- faults ---------------------------------------------------------------------------------------------


async def test_what_goes_wrong_with_the_model_has_our_code_and_the_program_stays(tmp_path: Path):
    faults: list[tuple[Any, str, bool]] = [
        ([{"http": {"status": 401}}], "AUTH_FAILED", False),
        ([{"http": {"status": 404, "message": "no such model"}}], "MODEL_ERROR", False),
        ([{"http": {"status": 429, "retry_after_s": 3600}}], "RATE_LIMITED", True),
        ([{"context_too_large": True}], "CONTEXT_TOO_LARGE", False),
        ([{"text": "Half. "}, {"truncate": True}], "MODEL_ERROR", True),
    ]
    # An answer that broke off may have been asked for again before opencode was told to stop.
    turns = [steps for steps, _, _ in faults]
    async with opened(tmp_path, *turns, auto_compact="off") as rig:
        pid = None
        for _, code, retryable in faults:
            error = await failure(rig, "Hello.")
            assert (error.code, error.retryable, error.runtime) == (code, retryable, "opencode-server")
            pid = pid or rig.pid
        assert rig.pid == pid
        events = await rig.events()
        asked = payloads(events, "runtime.request.started")
        assert len(asked) <= len(faults) + 2
        assert [n.kind for n in notices(events) if n.kind != "retry"] == []


async def test_a_broken_answer_that_comes_again_takes_back_what_was_said(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Half. "}, {"reset": True}], [{"text": "Whole."}]) as rig:
        assert await rig.ask() == "Whole."
        events = await rig.events()
    assert {n.kind for n in notices(events)} == {"retry"}
    # A stream that is reset at once may be gone before opencode has read the first words.
    retracted = [block for p in payloads(events, "model.output.retracted") for block in p.block_ids]
    deltas = payloads(events, "model.output.delta")
    assert [d.delta for d in deltas if d.block_id not in retracted] == ["Whole."]


# --- provider and model ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "field"),
    [
        ("openai", "gpt-5", "input"),
        ("anthropic", "claude-sonnet-4-5", "max_tokens"),
        ("google", "gemini-2.5-pro", "contents"),
    ],
)
async def test_provider_and_model_are_chosen_apart(tmp_path: Path, provider: str, model: str, field: str):
    turns = [[{"text": "Let me look."}, read()], [{"text": "Milk."}]]
    config = {"provider": provider, "max_output_tokens": 4_321, "system_prompt": "You are under test."}
    async with opened(tmp_path, *turns, model=model, runtime_config=config) as rig:
        assert await rig.ask() == "Milk."
        events = await rig.events()
        bodies = await rig.bodies()
    assert [(p.purpose, p.model) for p in payloads(events, "runtime.request.started")] == [
        ("main", model)
    ] * 2
    assert all(field in body for body in bodies)
    told = json.dumps(bodies[0])
    assert "4321" in told
    assert "You are under test." in told
    assert "You are a coding agent." not in told
    assert calls(events) == ["requested", "approved", "started", "completed"]
