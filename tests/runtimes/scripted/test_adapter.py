"""The scripted runtime: what it yields for a script, and how it takes results, steering, stop and close."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.access import AuthStatus
from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import ErrorInfo, InvalidRequest
from codesdk.contract.events import OutputCompleted, OutputDelta, OutputRetracted, UsageReported
from codesdk.contract.messages import Message, Reasoning, Text, ToolResult, ToolUse, user
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    Runtime,
    RuntimeEnv,
    RuntimeTask,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity, ToolSpec
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object

HOST: Any = None
ENV = RuntimeEnv(
    cwd=".", env={}, credential_namespace="x", isolation=Isolation(level="shared", mode="in_process")
)
READ = ToolSpec(name="workspace.read", description="Read.", input_schema={}, tool_class="read_only")
IDENTIFIED = Identified(runtime_session_id="scripted-ses_1", model="demo-model")


def task_input(**changes: Any) -> TaskInput:
    fields: dict[str, Any] = {
        "session_id": "ses_1",
        "task_id": "task_1",
        "env": ENV,
        "messages": [user("please read")],
        "model_messages": 0,
        "tools": [READ],
        "permission_mode": "ask",
        "interaction_mode": "interactive",
        "runtime_config": {},
        "model": "demo-model",
    }
    return TaskInput(**(fields | changes))


def script(*turns: Any, **fields: Any):
    """A script of turns, each given as a list of steps or as a whole."""
    return parse_object(
        {"turns": [{"steps": turn} if isinstance(turn, list) else turn for turn in turns], **fields}, "test"
    )


async def start(*turns: Any, loop: bool = False, **changes: Any) -> RuntimeTask:
    return await ScriptedRuntime(script(*turns, loop=loop)).start_task(HOST, task_input(**changes))


def identity(runtime_id: str | None) -> ToolIdentity:
    return ToolIdentity(tool_call_id="call_1", attempt=1, input_hash="", runtime_tool_call_id=runtime_id)


async def reply(task: RuntimeTask, runtime_id: str | None, result: Any = "ok") -> None:
    await task.send_tool_result(identity(runtime_id), ToolReply(result=result, is_error=False))


async def collect(task: RuntimeTask, result: Any = "ok") -> list[Any]:
    """All items; every announced call is answered at once."""
    items: list[Any] = []
    async for item in task.events():
        items.append(item)
        if isinstance(item, ToolAnnouncement):
            await reply(task, item.runtime_tool_call_id, result)
    return items


async def settle() -> None:
    """Let everything that can run do so. No clock is involved."""
    for _ in range(10):
        await asyncio.sleep(0)


def delta(text: str, block: str, message: str = "task_1.0", kind: Any = "text_delta") -> OutputDelta:
    return OutputDelta(kind=kind, block_id=block, message_id=message, delta=text)


def payloads(items: list[Any]) -> list[Any]:
    """The items without their raw; drafts as their payloads."""
    return [item.payload if isinstance(item, Draft) else item for item in items]


def texts(items: list[Any]) -> list[str]:
    return [p.delta for p in payloads(items) if isinstance(p, OutputDelta)]


async def test_a_turn_becomes_deltas_announcements_a_message_and_usage():
    task = await start(
        {
            "steps": [
                {"reasoning": ["hm", "m"]},
                {"text": ["I ", "read"]},
                {"call": {"tool": "workspace.read", "input": {"path": "a"}, "id": "first"}},
                {"text": " both"},
                {"call": {"tool": "workspace.read", "input": {"path": "b"}}},
            ],
            "usage": {"input": 5, "output": 6, "cache_read": 1, "cost_usd": 0.25},
        },
        [{"text": "done"}],
    )
    assert await collect(task) == [
        IDENTIFIED,
        Draft(delta("hm", "task_1.0.0", kind="reasoning_delta"), {"turn": 0, "kind": "reasoning", "step": 0}),
        Draft(delta("m", "task_1.0.0", kind="reasoning_delta"), {"turn": 0, "kind": "reasoning", "step": 0}),
        Draft(delta("I ", "task_1.0.1"), {"turn": 0, "kind": "text", "step": 1}),
        Draft(delta("read", "task_1.0.1"), {"turn": 0, "kind": "text", "step": 1}),
        ToolAnnouncement(
            name="workspace.read",
            input={"path": "a"},
            runtime_tool_call_id="task_1.0.first",
            message_id="task_1.0",
            index=2,
            raw={"turn": 0, "kind": "call", "step": 2},
        ),
        Draft(delta(" both", "task_1.0.3"), {"turn": 0, "kind": "text", "step": 3}),
        ToolAnnouncement(
            name="workspace.read",
            input={"path": "b"},
            runtime_tool_call_id="task_1.0.4",
            message_id="task_1.0",
            index=4,
            raw={"turn": 0, "kind": "call", "step": 4},
        ),
        Draft(
            OutputCompleted(
                message_id="task_1.0",
                content=[Reasoning(text="hmm"), Text(text="I read"), Text(text=" both")],
                stop_reason="tool_use",
            ),
            {"turn": 0, "kind": "completed"},
        ),
        Draft(
            UsageReported(
                model="demo-model",
                input=5,
                output=6,
                cache_read=1,
                cache_write=0,
                reasoning=0,
                cost_usd=0.25,
                source="runtime",
            ),
            {"turn": 0, "kind": "usage"},
        ),
        Draft(delta("done", "task_1.1.0", "task_1.1"), {"turn": 1, "kind": "text", "step": 0}),
        Draft(
            OutputCompleted(message_id="task_1.1", content=[Text(text="done")], stop_reason="end_turn"),
            {"turn": 1, "kind": "completed"},
        ),
        Finished(stop_reason="end_turn", raw={"turn": 1}),
    ]


async def test_text_with_only_a_delay_or_a_burst_between_is_one_block():
    steps = [{"text": "a"}, {"delay_s": 0}, {"burst": {"count": 2, "size": 3}}, {"text": "b"}]
    items = payloads(await collect(await start([*steps, {"reasoning": "c"}, {"text": "d"}])))
    assert items[1:7] == [
        delta("a", "task_1.0.0"),
        delta("bur", "task_1.0.0"),
        delta("bur", "task_1.0.0"),
        delta("b", "task_1.0.0"),
        delta("c", "task_1.0.4", kind="reasoning_delta"),
        delta("d", "task_1.0.5"),
    ]
    assert items[7].content == [Text(text="aburburb"), Reasoning(text="c"), Text(text="d")]


async def test_a_turn_without_steps_is_an_empty_message():
    items = await collect(await start({"stop_reason": "nothing_to_say"}))
    assert payloads(items) == [
        IDENTIFIED,
        OutputCompleted(message_id="task_1.0", content=[], stop_reason="nothing_to_say"),
        Finished(stop_reason="nothing_to_say", raw={"turn": 0}),
    ]


async def test_playing_the_same_task_again_gives_the_same_items():
    turns = ([{"text": "a"}, {"call": {"tool": "workspace.read"}}], [{"burst": {"count": 5}}])
    assert await collect(await start(*turns)) == await collect(await start(*turns))


async def test_a_task_begins_after_the_messages_that_the_session_has():
    turns = ([{"text": "one"}], [{"text": "two"}], [{"text": "three"}])
    items = await collect(await start(*turns, model_messages=1, task_id="task_2"))
    assert payloads(items)[1] == delta("two", "task_2.1.0", "task_2.1")


async def test_a_script_that_loops_begins_again():
    turns = ([{"text": "one"}], [{"text": "two"}])
    assert texts(await collect(await start(*turns, loop=True, model_messages=5))) == ["two"]
    assert texts(await collect(await start(*turns, loop=True, model_messages=6))) == ["one"]


@pytest.mark.parametrize(("turns", "has"), [(1, "1 turn"), (2, "2 turns")])
async def test_asking_for_more_turns_than_there_are_fails(turns, has):
    items = await collect(await start(*[[{"text": "x"}]] * turns, model_messages=4))
    message = f"The script has {has}, but turn 5 was asked for. Add turns, or set loop: true."
    assert items == [
        IDENTIFIED,
        Failed(
            error=ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False, runtime="scripted"),
            raw={"turn": 4, "kind": "no_turn"},
        ),
    ]


async def test_the_next_turn_waits_for_every_call_of_this_one():
    calls = [{"call": {"tool": "workspace.read", "id": name}} for name in ("a", "b")]
    task = await start(calls, [{"text": "next"}])
    items: list[Any] = []

    async def consume():
        async for item in task.events():
            items.append(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(consume())
        await settle()
        assert len(items) == 4
        await reply(task, "task_1.0.b")
        await reply(task, "someone-else")
        await reply(task, None)
        await settle()
        assert len(items) == 4
        await task.send_tool_denied(identity("task_1.0.a"), "not today")
    assert texts(items) == ["next"]


async def test_a_result_that_comes_twice_or_late_is_tolerated():
    task = await start([{"call": {"tool": "workspace.read"}}], [{"text": "next"}])
    items: list[Any] = []
    async for item in task.events():
        items.append(item)
        await reply(task, "task_1.0.0")
    await reply(task, "task_1.0.0")
    assert items[-1] == Finished(stop_reason="end_turn", raw={"turn": 1})


async def test_expectations_see_the_user_the_results_and_the_tools():
    first = {"user_contains": "please", "offered": "workspace.read", "not_offered": "workspace.exec"}
    second = {"tool_result_contains": ['{"lines":3}']}
    task = await start(
        {"expect": first, "steps": [{"call": {"tool": "workspace.read"}}]},
        {"expect": second, "steps": [{"text": "ok"}]},
    )
    assert texts(await collect(task, result={"lines": 3})) == ["ok"]


async def test_a_denial_counts_as_a_result():
    task = await start(
        [{"call": {"tool": "workspace.read"}}],
        {"expect": {"tool_result_contains": "not today"}, "steps": [{"text": "ok"}]},
    )
    items: list[Any] = []
    async for item in task.events():
        items.append(item)
        await task.send_tool_denied(identity("task_1.0.0"), "not today")
    assert texts(items) == ["ok"]


async def test_results_before_the_task_count_until_the_last_model_message():
    def tool(result: Any) -> Message:
        return Message(role="tool", content=[ToolResult(tool_call_id="call_0", result=result)])

    call = Message(
        role="assistant", content=[ToolUse(tool_call_id="call_0", name="workspace.read", input={})]
    )
    messages = [user("a"), call, tool("old"), call, tool("new"), tool("er"), user("go on")]
    turn = {
        "expect": {"tool_result_contains": ["new", "er"], "user_contains": "go on"},
        "steps": [{"text": "ok"}],
    }
    assert texts(await collect(await start(turn, messages=messages))) == ["ok"]
    turn = {"expect": {"tool_result_contains": "old"}, "steps": [{"text": "ok"}]}
    failed = (await collect(await start(turn, messages=messages)))[-1]
    assert failed == Failed(
        error=ErrorInfo(
            code="INVALID_REQUEST",
            message='Turn 1 of the script: expected a tool result that contains "old",'
            ' but there is "new", "er".',
            retryable=False,
            runtime="scripted",
        ),
        raw={"turn": 0, "kind": "expect"},
    )


async def test_steering_ends_the_wait_for_it_and_is_what_the_user_said_last():
    task = await start(
        [{"text": "a"}, {"await_steer": True}, {"text": "b"}, {"call": {"tool": "workspace.read"}}],
        {"expect": {"user_contains": "second"}, "steps": [{"await_steer": True}, {"text": "c"}]},
    )
    items: list[Any] = []
    async for item in task.events():
        items.append(item)
        if texts(items) == ["a"]:
            await task.steer([user("first"), user("second")])
        if isinstance(item, ToolAnnouncement):
            await reply(task, item.runtime_tool_call_id)
    assert texts(items) == ["a", "b", "c"]


async def played_until_silent(task: RuntimeTask) -> tuple[list[Any], asyncio.Task[None]]:
    items: list[Any] = []

    async def consume():
        async for item in task.events():
            items.append(item)

    consumer = asyncio.create_task(consume())
    await settle()
    return items, consumer


STOPPED = Finished(stop_reason="stopped", raw={"kind": "stopped"})
WAITS = {
    "a delay": [{"delay_s": 86400}],
    "a stall": [{"stall": "stopped"}],
    "a wait for steering": [{"await_steer": True}],
    "a call": [{"call": {"tool": "workspace.read"}}],
}


@pytest.mark.parametrize("steps", WAITS.values(), ids=WAITS)
async def test_a_stop_ends_every_wait(steps):
    task = await start([{"text": "a"}, *steps], [{"text": "b"}])
    items, consumer = await played_until_silent(task)
    await task.stop("enough")
    await consumer
    assert items[-1] == STOPPED
    assert texts(items) == ["a"]


@pytest.mark.parametrize("steps", [*WAITS.values(), [{"stall": "closed"}]], ids=[*WAITS, "a deaf stall"])
async def test_a_close_ends_every_wait_without_another_item(steps):
    task = await start([{"text": "a"}, *steps], [{"text": "b"}])
    items, consumer = await played_until_silent(task)
    before = list(items)
    await task.close()
    await task.close()
    await consumer
    assert items == before


@pytest.mark.parametrize("steps", WAITS.values(), ids=WAITS)
async def test_cancelling_whoever_reads_ends_every_wait(steps):
    _, consumer = await played_until_silent(await start([{"text": "a"}, *steps]))
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def test_a_stop_before_the_start_plays_nothing():
    task = await start([{"text": "a"}])
    await task.stop("at once")
    assert await collect(task) == [STOPPED]


async def test_a_stop_cuts_a_burst_short():
    task = await start([{"burst": {"count": 1000, "size": 1}}])
    items: list[Any] = []
    async for item in task.events():
        items.append(item)
        if len(items) == 5:
            await task.stop("enough")
    assert len(items) == 6
    assert items[-1] == STOPPED


async def test_a_burst_is_the_same_item_again_and_again():
    items = await collect(await start([{"burst": {"count": 100_000, "size": 20}}]))
    assert len(items) == 100_003
    assert all(item is items[1] for item in items[1:100_001])
    completed = payloads(items)[-2]
    assert completed.content == [Text(text="burst burst burst bu" * 100_000)]


async def test_a_deaf_stall_does_not_hear_a_stop():
    task = await start([{"stall": "closed"}, {"text": "never"}])
    items, consumer = await played_until_silent(task)
    await task.stop("enough")
    await settle()
    assert not consumer.done()
    await task.close()
    await consumer
    assert items == [IDENTIFIED]


async def test_a_runtime_that_ignores_a_stop_plays_on():
    call = {"call": {"tool": "workspace.read"}}
    task = await start(
        [{"ignore_stop": True}, {"stall": "stopped"}, {"text": "late"}, call], [{"text": "end"}]
    )
    items, consumer = await played_until_silent(task)
    assert items == [IDENTIFIED]
    await task.stop("enough")
    await settle()
    await reply(task, "task_1.0.3")
    await consumer
    assert texts(items) == ["late", "end"]
    assert items[-1] == Finished(stop_reason="end_turn", raw={"turn": 1})


async def test_deltas_can_come_after_a_stop():
    task = await start([{"events_after_stop": 2}, {"text": "a"}, {"stall": "stopped"}])
    items, consumer = await played_until_silent(task)
    await task.stop("enough")
    await consumer
    late = delta("late ", "task_1.0.late")
    assert payloads(items) == [IDENTIFIED, delta("a", "task_1.0.1"), late, late, STOPPED]


async def test_a_crash_raises_or_ends_without_a_word():
    assert payloads(await collect(await start([{"text": "a"}, {"crash": "end"}]))) == [
        IDENTIFIED,
        delta("a", "task_1.0.0"),
    ]
    with pytest.raises(RuntimeError, match="The script made the runtime crash here"):
        await collect(await start([{"text": "a"}, {"crash": "raise"}]))


async def test_a_failure_ends_the_task_with_its_error():
    fail = {"code": "RATE_LIMITED", "message": "Try later.", "retryable": True}
    items = await collect(await start([{"text": "a"}, {"fail": fail}], [{"text": "b"}]))
    assert items[-1] == Failed(
        error=ErrorInfo(code="RATE_LIMITED", message="Try later.", retryable=True, runtime="scripted"),
        raw={"turn": 0, "kind": "fail", "step": 1},
    )
    assert texts(items) == ["a"]


async def test_a_retraction_takes_back_all_blocks_so_far():
    retract = {"retract": "the stream broke"}
    items = await collect(
        await start(
            [retract, {"text": "a"}, {"reasoning": "b"}, retract, {"text": "c"}, {"delay_s": 0}, retract]
        )
    )
    assert payloads(items)[1:] == [
        delta("a", "task_1.0.1"),
        delta("b", "task_1.0.2", kind="reasoning_delta"),
        OutputRetracted(block_ids=["task_1.0.1", "task_1.0.2"], reason="the stream broke"),
        delta("c", "task_1.0.4"),
        OutputRetracted(block_ids=["task_1.0.4"], reason="the stream broke"),
        OutputCompleted(message_id="task_1.0", content=[], stop_reason="end_turn"),
        Finished(stop_reason="end_turn", raw={"turn": 0}),
    ]


async def test_calls_keep_places_of_their_own_when_text_is_retracted():
    call = {"call": {"tool": "workspace.read"}}
    items = await collect(await start([{"text": "a"}, call, {"retract": "x"}, call, {"text": "b"}, call], []))
    assert [item.index for item in items if isinstance(item, ToolAnnouncement)] == [1, 2, 3]


async def test_ids_can_come_twice():
    call = {"call": {"tool": "workspace.read"}}
    again = [{"duplicate_ids": "call"}, {"duplicate_ids": "message"}]
    items = await collect(await start([*again, call, *again], [{"text": "b"}]))
    announced = [item for item in items if isinstance(item, ToolAnnouncement)]
    completed = [p.message_id for p in payloads(items) if isinstance(p, OutputCompleted)]
    assert len(announced) == 2
    assert announced[0] == announced[1]
    assert completed == ["task_1.0", "task_1.0", "task_1.0", "task_1.1"]


async def test_items_can_be_malformed():
    items = await collect(await start([{"malformed": "item"}, {"malformed": "payload"}, {"text": "a"}]))
    assert items[1] == {"turn": 0, "kind": "malformed", "step": 0}
    assert items[2].payload.delta == {"not": "text"}
    assert texts(items)[1:] == ["a"]


GATEWAY_ONLY = [
    {"http": {"status": 500}},
    *({name: True} for name in ("reset", "truncate", "silence", "context_too_large", "max_tokens", "empty")),
    {"refusal": "no"},
    {"malformed_frame": "{"},
]


@pytest.mark.parametrize("step", GATEWAY_ONLY, ids=lambda step: next(iter(step)))
def test_faults_of_a_model_endpoint_are_refused_by_name(step):
    with pytest.raises(InvalidRequest) as caught:
        ScriptedRuntime(script([{"text": "a"}], [step]))
    assert caught.value.message == (
        f"The scripted runtime cannot play turns[1].steps[0].{next(iter(step))}: these faults belong to a model"
        " endpoint. Play this script through the model gateway, or take them out."
    )


async def test_the_script_of_a_session_can_be_a_file_or_an_object(tmp_path):
    data = {"turns": [{"steps": [{"text": "hi"}]}]}
    (tmp_path / "a.json").write_text(json.dumps(data))
    env = RuntimeEnv(cwd=str(tmp_path), env={}, credential_namespace="x", isolation=ENV.isolation)
    runtime = ScriptedRuntime()
    for given in ("a.json", data):
        task = await runtime.start_task(HOST, task_input(env=env, runtime_config={"script": given}))
        assert texts(await collect(task)) == ["hi"]


async def test_a_session_plays_on_with_the_script_it_loaded_until_it_is_closed(tmp_path):
    path = tmp_path / "a.json"
    runtime = ScriptedRuntime()
    env = RuntimeEnv(cwd=str(tmp_path), env={}, credential_namespace="x", isolation=ENV.isolation)
    changes: dict[str, Any] = {"env": env, "runtime_config": {"script": path.name}}

    async def played(text: str, session: str) -> list[str]:
        path.write_text(json.dumps({"turns": [{"steps": [{"text": text}]}]}))
        return texts(await collect(await runtime.start_task(HOST, task_input(session_id=session, **changes))))

    assert [await played("one", "ses_1"), await played("two", "ses_1"), await played("two", "ses_2")] == [
        ["one"],
        ["one"],
        ["two"],
    ]
    await runtime.close_session("ses_1")
    await runtime.close_session("ses_9")
    assert await played("three", "ses_1") == ["three"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "The scripted runtime needs a script"),
        ({"script": 5}, "The scripted runtime needs a script"),
        (
            {"script": "missing.yaml"},
            'The script "missing.yaml" cannot be read: missing.yaml does not exist.',
        ),
        (
            {"script": {"turns": []}},
            'runtime_config["script"]: turns: expected at least one entry, got an empty list',
        ),
        (
            {"script": {"turns": [{"steps": [{"reset": True}]}]}},
            "The scripted runtime cannot play turns[0].steps[0].reset",
        ),
    ],
)
async def test_a_session_without_a_script_that_can_be_played_does_not_start(config, message, tmp_path):
    env = RuntimeEnv(cwd=str(tmp_path), env={}, credential_namespace="x", isolation=ENV.isolation)
    with pytest.raises(InvalidRequest) as caught:
        await ScriptedRuntime().start_task(HOST, task_input(env=env, runtime_config=config))
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/passwd", "the path is absolute"),
        ("../secret.yaml", 'the path contains ".."'),
        ("link.yaml", "link.yaml is a symbolic link"),
        ("up/secret.yaml", "up is a symbolic link"),
        ("fifo.yaml", "fifo.yaml is not a regular file"),
        ("large.yaml", "files over 10000000 bytes are not opened"),
        ("words.yaml", "is not a valid script"),
        ("words.json", "is not a valid script"),
        ("bytes.yaml", "is not a valid script"),
        ("keys.yaml", "is not a valid script"),
    ],
)
async def test_a_script_is_a_plain_file_of_the_workspace_and_no_error_quotes_it(path, why, tmp_path):
    folder = str(_traps(tmp_path))
    env = RuntimeEnv(cwd=folder, env={}, credential_namespace="x", isolation=ENV.isolation)
    with pytest.raises(InvalidRequest) as caught:
        await ScriptedRuntime().start_task(HOST, task_input(env=env, runtime_config={"script": path}))
    assert why in caught.value.message
    assert "hunter2" not in f"{caught.value.message} {caught.value.__cause__}"


def _traps(home: Path) -> Path:
    """Make a workspace with files that are not scripts, next to one that is."""
    (home / "secret.yaml").write_text("turns: [{steps: [{text: hunter2}]}]")
    folder = home / "workspace"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(home / "secret.yaml")
    (folder / "up").symlink_to(home)
    os.mkfifo(folder / "fifo.yaml")
    with (folder / "large.yaml").open("wb") as file:
        file.truncate(10_000_001)
    for name in ("words.yaml", "words.json"):
        (folder / name).write_text("hunter2")
    (folder / "bytes.yaml").write_bytes(b"hunter2 \xff")
    (folder / "keys.yaml").write_text("turns: [{steps: [{hunter2: 1}]}]")
    return folder


async def test_it_describes_itself_without_a_model_or_an_account():
    runtime: Runtime = ScriptedRuntime()
    capabilities = runtime.capabilities()
    assert runtime.name == "scripted"
    assert (capabilities.resume_model, capabilities.tool_execution_model, capabilities.auth_model) == (
        "reconstruct",
        "stream",
        "none",
    )
    assert await runtime.auth_status(ENV) == AuthStatus(
        ok=True, logged_in=False, auth_model="none", account_label="no account needed"
    )
