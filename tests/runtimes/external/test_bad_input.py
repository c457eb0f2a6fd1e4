"""Adapters that break the protocol, lie, flood, hang or die: each ends in one clear error, and nobody else notices."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.runtimes.external.adapters import LIAR, python_adapter

from codesdk import CodeSDK
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.settings import SessionSettings
from codesdk.runtimes.external.hosting import external_runtime
from codesdk.runtimes.external.items import Item
from codesdk.runtimes.external.messages import METHODS, WINDOW
from codesdk.runtimes.external.process import MAX_NOISE
from codesdk.runtimes.external.runtime import ExternalRuntime
from codesdk.testing.fakes import memory_sdk

Plan = dict[str, list[dict[str, Any]]]
GRACE = SessionSettings(stop_grace_s=1.0, end_grace_s=1.0, start_timeout_s=15.0)
STARTED = {"result": {}}
CALL = {"type": "tool.announced", "name": "fake.read", "input": {"path": "x"}, "runtime_tool_call_id": "c1"}


def asks(method: str, params: Any) -> list[dict[str, Any]]:
    return [STARTED, {"send": {"id": 1, "method": method, "params": params}}]


def said(item: Any) -> Plan:
    return {"start_task": [STARTED, {"item": item}]}


@asynccontextmanager
async def opened(plan: Plan) -> AsyncIterator[tuple[CodeSDK, ExternalRuntime]]:
    runtime = python_adapter(LIAR, plan)
    await runtime.introduce()
    async with memory_sdk([[{"text": "Undisturbed."}]], runtimes=[runtime]) as sdk:
        yield sdk, runtime


async def ended(plan: Plan, message: str = "Go.", **session: Any) -> CodeSDKError:
    """Return the error of a task, after which another runtime works as before and no process is left."""
    async with opened(plan) as (sdk, runtime):
        made = await sdk.create_session(runtime=runtime.name, settings=GRACE, **session)
        task = await made.start(message)
        with pytest.raises(CodeSDKError) as raised:
            await task.result()
        terminal = [event async for event in task.events() if event.type.startswith("task.")][-1]
        assert terminal.type == "task.failed"
        other = await sdk.create_session(runtime="scripted")
        assert (await (await other.start("Hello")).result()).text == "Undisturbed."
        await made.close()
        assert not any(process.open for process in runtime._sessions.values())
    return raised.value


# --- messages that do not fit ---------------------------------------------------------------------

OF_ADAPTER = [method.name for method in METHODS if method.caller != "engine"]
MISFITS: dict[str, Any] = {
    "item": {"task_id": "TASK", "item": {"type": "model.output.delta", "payload": {"delta": 1}}},
    "model_endpoint": {"task_id": "TASK", "rules": {"natives": "all"}},
    "tool_endpoint": {"task_id": 1},
    "tools_read": {"task_id": "TASK", "after": "never"},
    "last_answer": {},
    "may_run": {"task_id": "TASK", "call": {"name": "x"}},
    "ask_user": {"task_id": "TASK", "call": {"name": "x", "input": {}}, "question": "?"},
    "put_artifact": {"task_id": "TASK", "data": "not base64!", "content_type": "text/plain"},
    "read_artifact": {"task_id": "TASK"},
    "learn": {"task_id": "TASK", "secrets": "hunter2"},
    "app_server": {"task_id": "TASK", "message": {"params": {}}},
    "show": {"prompt": {}},
    "ask": [],
    "$/cancel": {"id": {}},
}


def test_every_message_of_an_adapter_has_a_misfit():
    assert sorted(MISFITS) == sorted(OF_ADAPTER)


@pytest.mark.parametrize("method", MISFITS)
async def test_params_that_do_not_fit_end_the_task(method: str):
    frame = {"method": method, "params": MISFITS[method]}
    if next(one for one in METHODS if one.name == method).result is not None:
        frame["id"] = 1
    error = await ended({"start_task": [STARTED, {"send": frame}]})
    assert error.code == "RUNTIME_PROTOCOL"
    assert f"sent {method} with params that do not fit" in error.message


@pytest.mark.parametrize("tag", [kind.__struct_config__.tag for kind in Item.__args__])
async def test_an_item_that_does_not_fit_ends_the_task(tag: str):
    # None of the kinds has a field `payload` or `error` that is a number, and none can do without its fields.
    item = {"type": tag, "payload": 1, "error": 1, "stop_reason": 1, "runtime_tool_call_id": 1, "name": 1}
    error = await ended(said(item | {"runtime_session_id": 1}))
    assert (error.code, "sent item with params that do not fit" in error.message) == (
        "RUNTIME_PROTOCOL",
        True,
    )


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"start_task": [{"result": []}]}, "answered start_task with something other than its result"),
        ({"start_task": [{"raw": '{"jsonrpc":"2.0","id":2}\n'}]}, "with neither result and error"),
        ({"start_task": [{"raw": '{"jsonrpc":"2.0","id":99,"result":{}}\n'}]}, "that it was not sent (id 99)"),
        ({"start_task": [{"raw": '{"jsonrpc":"2.0","id":null,"result":{}}\n'}]}, "was not sent (id None)"),
        ({"start_task": [{"error": {"code": "x"}}]}, "something other than its result"),
        (said({"type": "no such item"}), "sent item with params that do not fit"),
        (
            {"start_task": [{"send": {"method": "item", "params": {"task_id": "x", "item": CALL}}}]},
            "of a task that it was not given",
        ),
        (
            {"start_task": [STARTED, {"send": {"id": 7, "method": "may_run", "params": {"task_id": "TASK", "call": {"name": "x", "input": {}, "runtime_tool_call_id": "n"}}}, "times": 2}]},
            "sent two requests with the id 7",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
async def test_what_breaks_the_protocol_in_another_way_ends_the_task(plan: Plan, problem: str):
    error = await ended(plan)
    assert (error.code, problem in error.message) == ("RUNTIME_PROTOCOL", True), error.message


@pytest.mark.parametrize(
    ("method", "code"), [("initialize", "RUNTIME_PROTOCOL"), ("check_available", "RUNTIME_PROTOCOL")]
)
async def test_a_question_outside_of_a_session_that_is_answered_with_nonsense_is_a_problem(
    method: str, code: str
):
    from codesdk.contract.capabilities import Isolation
    from codesdk.contract.runtime import RuntimeEnv

    env = RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace="n",
        isolation=Isolation(level="ephemeral", mode="subprocess"),
    )
    runtime = python_adapter(LIAR, {method: [{"result": {"ok": "perhaps"}}]})
    found = await runtime.check_available(env)
    assert not found.ok
    assert f"answered {method} with something other" in (found.problem or "")


# --- lies -----------------------------------------------------------------------------------------


def described(**changes: Any) -> list[dict[str, Any]]:
    usual = {"protocol_version": 1, "name": "liar", "version": "1", "capabilities": {}}
    return [{"result": usual | changes}]


async def test_another_version_of_the_protocol_is_refused_when_a_session_is_created():
    async with opened({"initialize": described(protocol_version=2)}) as (sdk, runtime):
        with pytest.raises(CodeSDKError, match="speaks version 2 of the adapter protocol") as raised:
            await sdk.create_session(runtime=runtime.name)
        assert raised.value.code == "RUNTIME_UNAVAILABLE"


async def test_an_adapter_that_describes_itself_in_another_way_than_before_is_refused():
    runtime = python_adapter(LIAR, {})
    await runtime.introduce()
    other = python_adapter(LIAR, {"initialize": described(capabilities={"supports_steer": False})})
    runtime._launch = other._launch
    async with memory_sdk(runtimes=[runtime]) as sdk:
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        with pytest.raises(CodeSDKError, match="describes itself differently") as raised:
            await task.result()
    assert raised.value.code == "RUNTIME_PROTOCOL"


async def test_an_adapter_that_says_it_steers_and_does_not_is_told_apart():
    plan: Plan = {
        "start_task": [STARTED, {"item": CALL | {"name": "fake.write"}}],
        "steer": [{"error": {"code": -32601, "message": "no such method"}}],
    }
    async with opened(plan) as (sdk, runtime):
        session = await sdk.create_session(runtime=runtime.name, settings=GRACE)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                break
        with pytest.raises(CodeSDKError, match="did not take the input") as raised:
            await task.steer("Left.")
        assert raised.value.code == "RUNTIME_PROTOCOL"
        await task.stop()
        assert (await task.result()).state == "stopped"


@pytest.mark.parametrize("known", [-1, 1.5, "all", 10_000])
async def test_a_recollection_that_cannot_be_does_no_harm(known: Any):
    plan: Plan = {
        "initialize": described(keeps_history=True),
        "start_task": [
            STARTED,
            {"item": {"type": "identified", "runtime_session_id": "own"}},
            {"item": {"type": "model.output.completed", "payload": {"message_id": "TASK", "content": [{"type": "text", "text": "Hi."}]}}},
            {"item": {"type": "finished", "stop_reason": "end_turn"}},
        ],
        "recall": [{"result": {"known": known}}],
    }  # fmt: skip
    async with opened(plan) as (sdk, runtime):
        session = await sdk.create_session(runtime=runtime.name, settings=GRACE)
        assert (await (await session.start("One.")).result()).text == "Hi."
        assert (await (await session.start("Two.")).result()).text == "Hi."


# --- floods, and what is too large ----------------------------------------------------------------


async def test_more_items_than_were_asked_for_end_the_task():
    notice = {"type": "runtime.notice", "payload": {"kind": "x", "message": "x", "details": {}}}
    delta = {"type": "model.output.delta", "payload": {"kind": "text_delta", "block_id": "b", "message_id": "m", "delta": "x"}}  # fmt: skip
    error = await ended({"start_task": [STARTED, {"item": delta, "times": WINDOW * 40}, {"item": notice}]})
    assert error.code == "RUNTIME_PROTOCOL"
    assert f"more than the {WINDOW} items" in error.message


async def test_endless_noise_ends_the_task():
    error = await ended({"start_task": [STARTED, {"raw": "Loading...\n", "times": MAX_NOISE + 1}]})
    assert (error.code, "lines that are not messages" in error.message) == ("RUNTIME_PROTOCOL", True)


async def test_requests_that_nobody_knows_without_end_end_the_task():
    steps = [{"send": {"id": n, "method": "dream", "params": {}}} for n in range(MAX_NOISE + 1)]
    error = await ended({"start_task": [STARTED, *steps]})
    assert (error.code, "lines that are not messages" in error.message) == ("RUNTIME_PROTOCOL", True)


async def test_a_secret_that_would_match_everywhere_ends_the_task_and_not_its_reader():
    learn = {"method": "learn", "params": {"task_id": "TASK", "secrets": ["abc"]}}
    error = await ended({"start_task": [STARTED, {"send": learn}]})
    assert error.code == "RUNTIME_PROTOCOL"
    assert "A secret must have at least 4 characters" in error.message


async def test_a_line_of_100_megabytes_ends_the_task():
    error = await ended({"start_task": [STARTED, {"bytes": 100 * 1024 * 1024}]})
    assert (error.code, "sent a line of 104,857,600 bytes" in error.message) == ("RUNTIME_PROTOCOL", True)


async def test_a_line_of_too_many_values_ends_the_task():
    steps = [{"raw": "["}, {"raw": "[]," * 10_000, "times": 60}, {"raw": "[]]\n"}]
    error = await ended({"start_task": [STARTED, *steps]})
    assert error.code == "RUNTIME_PROTOCOL"
    assert "sent a line of 1,800,004 bytes; a message may have 1,000,000 values" in error.message


async def test_questions_without_end_end_the_task():
    call = {"name": "own", "input": {}, "runtime_tool_call_id": "x"}
    steps = [
        {"send": {"id": n, "method": "may_run", "params": {"task_id": "TASK", "call": call | {"runtime_tool_call_id": str(n)}}}}
        for n in range(300)
    ]  # fmt: skip
    error = await ended({"start_task": [STARTED, *steps]})
    assert (error.code, "requests open" in error.message) == ("RUNTIME_PROTOCOL", True)


async def test_what_an_adapter_prints_by_mistake_is_noted_and_the_task_goes_on():
    usual = [{"result": {}}, {"raw": "Welcome!\n[]\nnull\n"}]
    items = [
        {"item": {"type": "model.output.completed", "payload": {"message_id": "m", "content": [{"type": "text", "text": "Hi."}]}}},
        {"item": {"type": "finished", "stop_reason": "end_turn"}},
    ]  # fmt: skip
    async with opened({"start_task": [*usual, *items]}) as (sdk, runtime):
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        assert (await task.result()).text == "Hi."
        notices = [event.payload.kind async for event in task.events() if event.type == "runtime.notice"]
        assert notices == ["adapter", *["unknown_frame"] * 3]


# --- never ending, and dying ----------------------------------------------------------------------


async def test_an_adapter_that_never_ends_is_ended_by_a_stop():
    plan: Plan = {"start_task": [STARTED, {"hang": True}]}
    async with opened(plan) as (sdk, runtime):
        session = await sdk.create_session(runtime=runtime.name, settings=GRACE)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "model.input":
                break
        await task.stop("enough")
        assert (await task.result()).state == "stopped"
        assert not any(process.open for process in runtime._sessions.values())
        # The next task gets a new process.
        assert (await (await session.start("Behave.")).result()).text == "Hello."


async def test_an_adapter_that_says_nothing_is_ended_when_it_has_been_silent_for_long():
    quiet = SessionSettings(stop_grace_s=1.0, end_grace_s=1.0, idle_timeout_s=0.2)
    async with opened({"start_task": [STARTED]}) as (sdk, runtime):
        task = await (await sdk.create_session(runtime=runtime.name, settings=quiet)).start("Go.")
        with pytest.raises(CodeSDKError, match="sent nothing for") as raised:
            await task.result()
    assert raised.value.code == "TIMEOUT"


DEATHS: dict[str, Plan] = {
    "in the answer to start_task": {"start_task": [{"die": True}]},
    "after it has started": {"start_task": [STARTED, {"die": True}]},
    "in the middle of a line": {"start_task": [STARTED, {"raw": '{"jsonrpc":"2.0","meth'}, {"die": True}]},
    "with a code": {"start_task": [STARTED, {"leave": 3}]},
    "when it is given a result": {
        "start_task": [STARTED, {"item": CALL}],
        "send_tool_result": [{"die": True}],
    },
    "while a tool call waits for a person": {
        "start_task": [STARTED, {"item": CALL | {"name": "fake.write"}}, {"die": True}]
    },
    "while it asks": {
        "start_task": [
            *asks("may_run", {"task_id": "TASK", "call": {"name": "own", "input": {}, "runtime_tool_call_id": "1"}}),
            {"die": True},
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("when", DEATHS)
async def test_an_adapter_that_dies_crashes_its_task(when: str):
    error = await ended(DEATHS[when], permission_mode="yolo" if "result" in when else "ask")
    assert error.code == "RUNTIME_CRASHED"
    assert error.retryable
    if when == "with a code":
        assert "ended with code 3" in error.message
        assert "no disk left" in error.message


async def test_an_adapter_that_dies_before_it_says_what_it_is_is_not_available():
    async with opened({"initialize": [{"leave": 9}]}) as (sdk, runtime):
        with pytest.raises(CodeSDKError, match="no disk left") as raised:
            await sdk.create_session(runtime=runtime.name)
        assert raised.value.code == "RUNTIME_UNAVAILABLE"


@pytest.mark.parametrize("method", ["close", "close_session", "stop"])
async def test_an_adapter_that_dies_at_the_end_changes_nothing(method: str):
    async with opened({method: [{"die": True}]}) as (sdk, runtime):
        session = await sdk.create_session(runtime=runtime.name, settings=GRACE)
        for _ in range(2):
            assert (await (await session.start("Go.")).result()).text == "Hello."
        await session.close()
        assert not runtime._sessions


async def test_a_death_is_one_sessions_alone():
    async with opened({"start_task": [STARTED, {"item": CALL | {"name": "fake.write"}}]}) as (sdk, runtime):
        bad, good = [await sdk.create_session(runtime=runtime.name, settings=GRACE) for _ in range(2)]
        tasks = [await session.start("Go.") for session in (bad, good)]
        for task in tasks:
            async for event in task.events():
                if event.type == "approval.requested":
                    break
        child: Any = runtime._sessions[bad.id]._child
        child._process.kill()
        with pytest.raises(CodeSDKError) as raised:
            await tasks[0].result()
        assert raised.value.code == "RUNTIME_CRASHED"
        assert runtime._sessions[good.id].open
        await tasks[1].stop()
        assert (await tasks[1].result()).state == "stopped"


async def test_a_program_that_is_not_there_is_named():
    runtime = external_runtime("none", ["/no/such/program"])
    problem = await runtime.introduce()
    assert problem is not None
    assert problem.code == "RUNTIME_UNAVAILABLE"
    assert "/no/such/program" in problem.message


async def test_a_program_that_does_not_speak_the_protocol_is_told_by_what_it_printed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("codesdk.runtimes.external.process.INITIALIZE_S", 0.5)
    source = "import time\nprint('Usage: prog [OPTIONS]', flush=True)\ntime.sleep(60)"
    runtime = external_runtime("usage", [sys.executable, "-c", source])
    problem = await runtime.introduce()
    assert problem is not None
    assert "did not answer initialize within 0.5 s" in problem.message
    assert "Usage: prog [OPTIONS]" in problem.message
