"""The real codex, offline: what a session makes of it."""

import base64
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from codex_cli_bin import bundled_codex_path
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.codex.rig import NOTE, Rig, calls, notices, opened, payloads, read, script

from codesdk import CodeSDKError, InvalidRequest, TaskFailure
from codesdk.contract.capabilities import Isolation
from codesdk.contract.messages import ArtifactBlock, Code, Message, Reasoning, Text, ToolResult, ToolUse
from codesdk.contract.models import ModelAccess
from codesdk.contract.runtime import RuntimeEnv
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes.codex.adapter import CodexRuntime
from codesdk.testing.fakes import FakeTools
from codesdk.tools.names import wire_name


@pytest.fixture(autouse=True)
def loopback_only(tmp_path: Path) -> Iterator[None]:
    """Start codex only where nothing but loopback can be reached; see that it did not try, and left nothing behind."""
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


USAGE = {"input": 100, "output": 20, "cache_read": 5}
CALL = "call_scripted000001_r1"
WRITE: dict[str, Any] = {"call": {"tool": "workspace.write", "input": {"path": "new.txt", "content": "x"}}}


async def bodies(rig: Rig) -> list[dict[str, Any]]:
    """Return the requests that codex sent to the model."""
    found: list[dict[str, Any]] = []
    for payload in payloads(await rig.events(), "model.input"):
        if payload.capture == "exact":
            document = json.loads(await rig.sdk.read_artifact(payload.input_ref.artifact_id))
            parts = {name: await rig.sdk.archive.blobs.get(name) for name in hashes_of(document)}
            found.append(join(document, parts))
    return found


def texts(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the messages of a request: who says what."""
    return [
        (item["role"], "".join(part.get("text", part["type"]) for part in item["content"]))
        for item in body["input"]
        if item["type"] == "message" and item["role"] != "developer"
    ]


def wrapper(folder: Path, first: str) -> str:
    """Return a program that is codex, but does something else first when it is started as a server."""
    path = folder / "codex"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = app-server ]; then {first}; fi\nexec {bundled_codex_path()} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def rollouts(folder: Path) -> list[Path]:
    """Return what codex wrote down of threads."""
    return list((folder / "data").rglob("rollout-*.jsonl"))


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def dot() -> bytes:
    """Return a picture of one red dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")


# --- a task ---------------------------------------------------------------------------------------------


async def test_a_task_streams_reasons_reads_and_answers(tmp_path: Path):
    first = {
        "steps": [{"reasoning": ["Hm, ", "so."]}, {"text": ["Let me ", "look."]}, read()],
        "usage": USAGE,
    }
    async with opened(tmp_path, first, [{"text": ["They say: ", "milk."]}]) as rig:
        assert await rig.ask() == "They say: milk."
        events, transcript = await rig.events(), await rig.session.transcript()
    assert [(p.kind, p.delta) for p in payloads(events, "model.output.delta")] == [
        ("reasoning_delta", "Hm, "),
        ("reasoning_delta", "so."),
        ("text_delta", "Let me "),
        ("text_delta", "look."),
        ("text_delta", "They say: "),
        ("text_delta", "milk."),
    ]
    assert calls(events) == [(step, CALL) for step in ("requested", "approved", "started", "completed")]
    assert notices(events) == []
    kept = {e.payload.details["method"]: e.runtime.raw for e in events if e.type == "runtime.notice"}
    assert {"thread/started", "turn/started", "thread/status/changed"} <= kept.keys()
    assert all(raw["method"] == method for method, raw in kept.items())
    assert [p.capture for p in payloads(events, "model.input")] == ["compiled", "exact", "exact"]
    reported = [(p.source, p.input, p.output, p.cache_read) for p in payloads(events, "usage.reported")]
    assert sorted(reported)[:2] == [("gateway", 0, 0, 0), ("gateway", 100, 20, 5)]
    assert ("runtime", 100, 20, 5) in reported
    _, said, result, last = transcript
    assert [m.role for m in transcript] == ["user", "assistant", "tool", "assistant"]
    assert said.content[:2] == [Reasoning(text="Hm, so."), Text(text="Let me look.")]
    use = said.content[2]
    assert isinstance(use, ToolUse)
    assert (use.name, use.input) == ("workspace.read", {"path": "notes.txt"})
    assert isinstance(result.content[0], ToolResult)
    assert NOTE in result.content[0].result
    assert last.content == [Text(text="They say: milk.")]


async def test_the_model_is_sent_our_words_and_our_tools_and_no_others(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Hello."}]) as rig:
        (rig.workspace / "AGENTS.md").write_text("Talk like a pirate.")
        await rig.ask("Good day.")
        [body] = await bodies(rig)
        specs = rig.sdk.engine.tool_calls.specs(rig.session.id)
    assert texts(body) == [("user", "Good day.")]
    offered = sorted((tool["type"], tool["name"]) for tool in body["tools"])
    assert offered == sorted(("function", wire_name(spec.name)) for spec in specs)


async def test_a_session_keeps_one_program_and_one_thread_for_all_its_tasks(tmp_path: Path):
    async with opened(tmp_path, [{"text": "One."}], [{"text": "Two."}]) as rig:
        assert left_behind(tmp_path) == []
        assert await rig.ask("First.") == "One."
        assert "codex" in left_behind(tmp_path)
        pid = rig.pid
        assert await rig.ask("Second.") == "Two."
        assert rig.pid == pid
        last = (await bodies(rig))[-1]
        assert texts(last) == [("user", "First."), ("assistant", "One."), ("user", "Second.")]
        await rig.session.close()
        assert not is_there(pid)
        assert rollouts(tmp_path) != []
        await rig.sdk.delete_session(rig.session.id)
        assert rollouts(tmp_path) == []


async def test_images_reach_the_model(tmp_path: Path):
    async with opened(tmp_path, [{"text": "A dot."}]) as rig:
        image = dot()
        ref = await rig.sdk.put_artifact(image, "image/png", "dot.png")
        block = ArtifactBlock(artifact_id=ref.artifact_id, content_type="image/png")
        message = Message(role="user", content=[Text(text="What is this?"), block])
        assert (await (await rig.session.start([message])).result()).text == "A dot."
        [body] = await bodies(rig)
        parts = body["input"][-1]["content"]
        sent = [part["image_url"] for part in parts if part["type"] == "input_image"]
        assert [base64.b64decode(url.partition(",")[2]) for url in sent] == [image], parts
        note = await rig.sdk.put_artifact(b"text", "text/plain", "a.txt")
        other = Message(role="user", content=[ArtifactBlock(artifact_id=note.artifact_id)])
        with pytest.raises(InvalidRequest, match="cannot take files"):
            await rig.session.start([other])


# --- tools ----------------------------------------------------------------------------------------------


async def test_a_question_is_asked_by_us_and_a_denial_reaches_the_model(tmp_path: Path):
    async with opened(tmp_path, [WRITE], [{"text": "Then not."}], mode="ask") as rig:
        task = await rig.session.start("Write it.")
        asked = await rig.seen("approval.requested")
        await rig.session.deny(asked.tool_call_id, "Not on a Friday.")
        assert (await task.result()).text == "Then not."
        output = (await bodies(rig))[-1]["input"][-1]
        events = await rig.events()
        assert not (rig.workspace / "new.txt").exists()
    assert output["type"] == "function_call_output"
    assert "Not on a Friday." in json.dumps(output["output"])
    assert [step for step, _ in calls(events)] == ["requested", "denied"]


async def test_an_approved_call_runs_after_the_answer(tmp_path: Path):
    async with opened(tmp_path, [WRITE], [{"text": "Written."}], mode="ask") as rig:
        task = await rig.session.start("Write it.")
        asked = await rig.seen("approval.requested")
        await rig.session.approve(asked.tool_call_id)
        assert (await task.result()).text == "Written."
        assert (rig.workspace / "new.txt").read_text() == "x"


async def test_calls_of_one_answer_run_at_the_same_time(tmp_path: Path):
    tools = FakeTools()
    tools.give("fake.read", "text")
    tools.hold("fake.read")
    both = [{"call": {"tool": "fake.read", "input": {"n": n}, "id": f"r{n}"}} for n in (1, 2)]
    async with opened(tmp_path, both, [{"text": "Both."}], tools=tools) as rig:
        task = await rig.session.start("Read both.")
        ids = ["call_scripted000001_r1", "call_scripted000001_r2"]
        for call in ids:
            await rig.seen("tool.call.started", lambda p, call=call: p.runtime_tool_call_id == call)
        tools.release("fake.read")
        assert (await task.result()).text == "Both."
        message = (await rig.session.transcript())[1]
        assert [block.input for block in message.content if isinstance(block, ToolUse)] == [
            {"n": 1},
            {"n": 2},
        ]


# --- stop and steer -------------------------------------------------------------------------------------


async def test_a_stop_in_the_middle_of_an_answer_leaves_what_was_said_and_the_next_task_works(tmp_path: Path):
    slow = [{"text": ["One, ", "two, "]}, {"silence": True}]
    async with opened(tmp_path, slow, [{"text": "Again."}]) as rig:
        task = await rig.session.start("Count.")
        await rig.seen("model.output.delta", lambda p: p.delta == "two, ")
        pid = rig.pid
        await task.stop()
        assert (await task.result()).state == "stopped"
        said = payloads(await rig.events(), "model.output.completed")
        assert [(p.partial, p.content) for p in said] == [(True, [Text(text="One, two, ")])]
        assert await rig.ask("Once more.") == "Again."
        assert rig.pid == pid


async def test_a_stop_in_a_tool_cancels_the_tool(tmp_path: Path):
    tools = FakeTools()
    tools.hold("fake.read")
    step = {"call": {"tool": "fake.read", "input": {}, "id": "r1"}}
    async with opened(tmp_path, [step], [{"text": "Again."}], tools=tools) as rig:
        task = await rig.session.start("Read.")
        await rig.seen("tool.call.started")
        await task.stop()
        assert (await task.result()).state == "stopped"
        done = payloads(await rig.events(), "tool.call.completed")
        assert [(p.is_error, p.outcome) for p in done] == [(True, "known")]
        assert await rig.ask("Once more.") == "Again."


async def test_a_stop_while_a_question_waits_denies_it(tmp_path: Path):
    async with opened(tmp_path, [WRITE], mode="ask") as rig:
        task = await rig.session.start("Write.")
        await rig.seen("approval.requested")
        await task.stop()
        assert (await task.result()).state == "stopped"
        assert [step for step, _ in calls(await rig.events())] == ["requested", "denied"]


async def test_a_program_that_does_not_answer_a_stop_is_ended_and_the_next_task_goes_on(tmp_path: Path):
    async with opened(tmp_path, [{"text": "One. "}, {"silence": True}], [{"text": "Again."}]) as rig:
        task = await rig.session.start("Count.")
        await rig.seen("model.output.delta")
        pid = rig.pid
        os.killpg(pid, signal.SIGSTOP)
        await task.stop()
        assert (await task.result()).state == "stopped"
        assert await rig.ask("Once more.") == "Again."
        assert not is_there(pid)


async def test_input_for_a_running_task_waits_for_its_place(tmp_path: Path):
    tools = FakeTools()
    tools.give("fake.read", "text")
    tools.hold("fake.read")
    step = {"call": {"tool": "fake.read", "input": {}, "id": "r1"}}
    async with opened(tmp_path, [{"text": "Reading."}, step], [{"text": "In German."}], tools=tools) as rig:
        task = await rig.session.start("Read.")
        await rig.seen("tool.call.started")
        await rig.session.steer("Answer in German.")
        tools.release("fake.read")
        assert (await task.result()).text == "In German."
        assert texts((await bodies(rig))[-1])[-1] == ("user", "Answer in German.")
        said = [p.content for p in payloads(await rig.events(), "model.output.completed")]
        assert said == [[Text(text="Reading.")], [Text(text="In German.")]]


# --- resume ---------------------------------------------------------------------------------------------


async def test_after_a_restart_codex_picks_its_thread_up_with_its_tools(tmp_path: Path):
    async with opened(tmp_path, [{"text": "One."}]) as rig:
        await rig.ask("First.")
        session_id = rig.session.id
        thread = rig.runtime._servers[session_id].thread_id
    async with opened(tmp_path, []) as rig:
        rig.session = await rig.sdk.session(session_id, plays=script([read()], [{"text": "Two."}]))
        assert await rig.ask("Second.") == "Two."
        assert rig.runtime._servers[session_id].thread_id == thread
        events = await rig.events()
        assert texts((await bodies(rig))[1]) == [
            ("user", "First."),
            ("assistant", "One."),
            ("user", "Second."),
        ]
        assert [step for step, _ in calls(events)] == ["requested", "approved", "started", "completed"]
        assert notices(events) == []


async def test_after_a_restart_code_and_an_image_that_were_not_answered_are_not_said_twice(tmp_path: Path):
    refused = [{"http": {"status": 429}}]
    async with opened(tmp_path, [{"text": "One."}], refused, refused) as rig:
        await rig.ask("First.")
        ref = await rig.sdk.put_artifact(dot(), "image/png", "dot.png")
        image = ArtifactBlock(artifact_id=ref.artifact_id, content_type="image/png")
        for block in (Code(code="x = 1", language="python"), image):
            task = await rig.session.start([Message(role="user", content=[block])])
            with pytest.raises(CodeSDKError):
                await task.result()
        session_id = rig.session.id
    async with opened(tmp_path, []) as rig:
        rig.session = await rig.sdk.session(session_id, plays=script([{"text": "Two."}]))
        assert await rig.ask("Second.") == "Two."
        said = [item for item in (await bodies(rig))[-1]["input"] if item.get("role") == "user"]
        assert "reconstructed" not in [notice.kind for notice in notices(await rig.events())]
    parts = [part for item in said for part in item["content"]]
    assert [part["text"] for part in parts if part.get("text", "")[:1] not in ("", "<")] == [
        "First.",
        "```python\nx = 1\n```",
        "Second.",
    ]
    assert [part["type"] for part in parts].count("input_image") == 1


async def test_a_thread_that_codex_lost_is_created_again_from_the_transcript(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Look."}, read()], [{"text": "One."}]) as rig:
        await rig.ask("First.")
        session_id = rig.session.id
        for rollout in rollouts(tmp_path):
            rollout.unlink()
    async with opened(tmp_path, []) as rig:
        rig.session = await rig.sdk.session(session_id, plays=script([{"text": "Two."}]))
        assert await rig.ask("Second.") == "Two."
        body = (await bodies(rig))[-1]
        found = notices(await rig.events())
    assert [n.kind for n in found] == ["reconstructed"]
    assert texts(body) == [
        ("user", "First."),
        ("assistant", "Look."),
        ("assistant", "One."),
        ("user", "Second."),
    ]
    made = [item for item in body["input"] if item["type"].startswith("function_call")]
    assert [item["type"] for item in made] == ["function_call", "function_call_output"]
    assert (made[0]["name"], made[0].get("namespace")) == ("workspace_read", None)
    assert NOTE in json.dumps(made[1]["output"])


# --- faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "code", "retryable"),
    [
        ([{"http": {"status": 401}}], "AUTH_FAILED", False),
        ([{"http": {"status": 429}}], "RATE_LIMITED", True),
        ([{"http": {"status": 500}}], "MODEL_ERROR", True),
        ([{"text": "Half. "}, {"reset": True}], "MODEL_ERROR", True),
        ([{"context_too_large": True}], "CONTEXT_TOO_LARGE", False),
    ],
    ids=["401", "429", "500", "reset", "context"],
)
async def test_what_goes_wrong_with_the_model_has_our_code(
    tmp_path: Path, steps: Any, code: str, retryable: bool
):
    async with opened(tmp_path, *[steps] * 20) as rig:
        task = await rig.session.start("Hello.")
        with pytest.raises(CodeSDKError) as raised:
            await task.result()
    error = raised.value
    assert (error.code, error.retryable, error.runtime) == (code, retryable, "codex-sdk")


async def test_what_the_model_did_not_answer_is_not_said_twice(tmp_path: Path):
    refused = [{"http": {"status": 429}}]
    async with opened(tmp_path, refused, [{"text": "Yes."}], [{"text": "Still."}]) as rig:
        with pytest.raises(CodeSDKError):
            await rig.ask("Hello.")
        assert await rig.ask("Hello.") == "Yes."
        assert await rig.ask("Hello.") == "Still."
        items = [item for item in (await bodies(rig))[-1]["input"] if item.get("role") == "user"]
    said = [part["text"] for item in items for part in item["content"]]
    assert said == ["Hello.", "Hello.", "Hello."]


async def test_a_broken_answer_that_comes_again_takes_back_what_was_said(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Half. "}, {"reset": True}], [{"text": "Whole."}]) as rig:
        assert await rig.ask() == "Whole."
        events = await rig.events()
    assert [n.kind for n in notices(events)] == ["retry"]
    [retracted] = payloads(events, "model.output.retracted")
    deltas = payloads(events, "model.output.delta")
    assert [d.delta for d in deltas if d.block_id not in retracted.block_ids] == ["Whole."]


async def test_a_program_that_is_killed_is_a_crash_and_the_next_task_goes_on(tmp_path: Path):
    async with opened(tmp_path, [{"text": "Half. "}, {"silence": True}], [{"text": "Again."}]) as rig:
        task = await rig.session.start("Hello.")
        await rig.seen("model.output.delta")
        os.kill(rig.pid, 9)
        with pytest.raises(TaskFailure, match="codex ended in the middle of its work") as raised:
            await task.result()
        assert (raised.value.code, raised.value.retryable) == ("RUNTIME_CRASHED", True)
        assert await rig.ask("Once more.") == "Again."


async def test_a_line_that_is_no_message_is_a_notice_and_the_task_goes_on(tmp_path: Path):
    program = wrapper(tmp_path, 'echo "Welcome to codex!"')
    async with opened(tmp_path, [{"text": "Good day."}], program=program) as rig:
        assert await rig.ask() == "Good day."
        events = await rig.events()
    noticed = [e for e in events if e.type == "runtime.notice" and e.payload.kind != "signal"]
    assert [(e.payload.kind, e.runtime.raw) for e in noticed] == [("unknown_frame", "Welcome to codex!")]


async def test_a_program_that_ends_at_once_is_a_crash_with_its_last_words(tmp_path: Path):
    program = wrapper(tmp_path, 'echo "no more disk" >&2; exit 3')
    async with opened(tmp_path, [{"text": "No."}], program=program) as rig:
        task = await rig.session.start("Hello.")
        with pytest.raises(TaskFailure, match="no more disk") as raised:
            await task.result()
        assert raised.value.code == "RUNTIME_CRASHED"
        assert raised.value.details == {"exit_code": 3, "stderr": "no more disk"}


async def test_a_reader_of_resources_that_cannot_be_switched_off_is_never_asked(tmp_path: Path):
    step = {"call": {"tool": "list_mcp_resources", "input": {}, "id": "r1", "offered": False}}
    async with opened(tmp_path, [step], [{"text": "None."}]) as rig:
        assert await rig.ask("What is there?") == "None."
        events = await rig.events()
        output = (await bodies(rig))[-1]["input"][-1]
    assert notices(events) == []
    assert calls(events) == [("requested", None), ("denied", None)]
    assert "There is no tool list_mcp_resources here" in output["output"]


async def test_a_tool_of_its_own_that_codex_starts_ends_the_task(tmp_path: Path):
    item = {"type": "commandExecution", "id": "i1", "command": "rm -rf /"}
    frame = json.dumps({"method": "item/started", "params": {"item": item}})
    program = wrapper(tmp_path, f"echo '{frame}'")
    async with opened(tmp_path, [{"silence": True}], program=program) as rig:
        task = await rig.session.start("Hello.")
        with pytest.raises(TaskFailure, match=r"commandExecution rm -rf /") as raised:
            await task.result()
        assert raised.value.code == "FORBIDDEN"
        events = await rig.events()
        [notice] = notices(events)
        assert (notice.kind, notice.details["executed_by"]) == ("violation", "runtime")
        [completed] = payloads(events, "tool.call.completed")
        assert (completed.name, completed.executed_by) == ("exec_command", "runtime")
        assert not is_there(rig.pid)


async def test_a_program_that_is_not_there_is_named_with_what_installs_it(tmp_path: Path):
    async with opened(tmp_path, [{"text": "No."}], program="/no/such/codex") as rig:
        task = await rig.session.start("Hello.")
        with pytest.raises(TaskFailure, match=r"pip install 'codesdk\[codex\]'") as raised:
            await task.result()
        assert raised.value.code == "RUNTIME_UNAVAILABLE"


async def test_the_status_is_asked_without_a_model_and_without_a_session(tmp_path: Path):
    async with opened(tmp_path, []) as rig:
        env = RuntimeEnv(
            cwd="/",
            env={},
            credential_namespace="x",
            isolation=Isolation(level="namespaced", mode="subprocess"),
        )
        found = await rig.runtime.check_available(env)
        assert (found.ok, found.version, found.problem) == (True, "0.163.0", None)
        missing = await CodexRuntime("/no/such").check_available(env)
        assert (missing.ok, missing.to_do) == (False, "Run: codesdk runtimes install codex.")
        nobody = await rig.runtime.auth_status(env)
        assert (nobody.ok, nobody.logged_in, nobody.auth_model) == (False, False, "both")
        key = ModelAccess(kind="key", label="a key")
        paid = await rig.runtime.auth_status(msgspec.structs.replace(env, models={"responses": key}))
        assert (paid.ok, paid.logged_in, paid.account_label) == (True, False, "a key")


def test_the_command_line_has_codex_play_a_script(tmp_path: Path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "notes.txt").write_text(NOTE)
    turns = [{"steps": [{"text": "I look."}, read()]}, {"steps": [{"text": "Milk."}]}]
    (tmp_path / "script.json").write_text(json.dumps({"turns": turns}))
    argv = ["--data-dir", "data", "run", "What?", "--runtime", "codex", "--script", "script.json", "--json"]
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "codesdk.cli.main",
            *argv,
            "--workspace",
            "workspace",
            "--permission-mode",
            "auto",
        ],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=True,
    )
    events = [json.loads(line) for line in ran.stdout.split(b"\n") if line]
    assert events[-1]["type"] == "task.completed"
    assert events[-1]["payload"]["text"] == "Milk."
    assert events[-1]["runtime"]["name"] == "codex-sdk"
