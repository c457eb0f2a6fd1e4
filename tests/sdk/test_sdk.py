"""The SDK as an application uses it: the handles, from the first line to the last."""

import asyncio
from pathlib import Path

import pytest

from codesdk import (
    CodeSDK,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    SessionSettings,
    StorageFailure,
    TaskFailure,
    TaskResult,
    Text,
    UsageTotals,
    user,
)
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, call, delta, done, memory_sdk, message

pytestmark = pytest.mark.anyio

READ_AND_EDIT = [
    [
        {"text": ["Let me ", "look."]},
        {"call": {"tool": "workspace.read", "input": {"path": "a.txt"}}},
        {"call": {"tool": "workspace.edit", "input": {"path": "a.txt", "old": "Helo", "new": "Hello"}}},
    ],
    {"steps": [{"text": "Fixed."}], "usage": {"input": 10, "output": 2, "cost_usd": 0.5}},
]


def scripted(*turns: object, loop: bool = False) -> dict[str, ScriptedRuntime]:
    whole = [{"steps": turn} if isinstance(turn, list) else turn for turn in turns]
    return {"scripted": ScriptedRuntime(parse_object({"turns": whole, "loop": loop}, "test"))}


async def test_the_example_of_the_product_page_does_what_it_says(tmp_path: Path):
    (tmp_path / "a.txt").write_text("Helo, world\n")
    async with CodeSDK.open(data_dir=tmp_path / ".codesdk", runtimes=scripted(*READ_AND_EDIT)) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path, permission_mode="ask")
        task = await session.start("Summarize this repo")
        async for event in task.events():
            if event.type == "tool.call.requested":
                await task.approve(event.payload.tool_call_id or "")
        result = await task.result()
        assert [change.path for change in result.changes] == ["a.txt"]
        assert result == TaskResult(
            task_id=task.id,
            state="completed",
            text="Fixed.",
            stop_reason="end_turn",
            usage=UsageTotals(input=10, output=2, cost_usd=0.5),
            duration_ms=result.duration_ms,
            calls=2,
            changes=result.changes,
            changed=1,
        )
        assert result.cost_usd == 0.5
    assert (tmp_path / "a.txt").read_text() == "Hello, world\n"


async def test_what_was_done_is_there_when_the_directory_is_opened_again(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data", runtimes=scripted([{"text": "Hello"}])) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path, title="Greeting")
        task = await session.start("Say hello")
        first = await task.result()
        events = [event async for event in task.events()]
    async with CodeSDK.open(tmp_path / "data", runtimes=scripted([{"text": "Hello"}])) as sdk:
        assert [row.title for row in await sdk.sessions()] == ["Greeting"]
        again = await sdk.session(session.id)
        assert await again.task(task.id).result() == first
        assert [event async for event in again.task(task.id).events()] == events
        assert [each.content for each in await again.transcript()] == [
            [Text(text="Say hello")],
            [Text(text="Hello")],
        ]


async def test_a_directory_has_one_writer(tmp_path: Path):
    async with CodeSDK.open(tmp_path):
        with pytest.raises(Conflict, match="in use"):
            async with CodeSDK.open(tmp_path, share=False):
                pass


async def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailure):
        async with CodeSDK.open(tmp_path / "file" / "data"):
            pass


async def test_a_workspace_must_be_a_directory_and_a_runtime_must_exist(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        with pytest.raises(InvalidRequest, match="not a directory"):
            await sdk.create_session(runtime="scripted", workspace=tmp_path / "nowhere")
        with pytest.raises(InvalidRequest, match="no runtime"):
            await sdk.create_session(runtime="scripped", workspace=tmp_path)
        assert await sdk.sessions() == []


async def test_a_failed_task_raises_its_error_and_a_stopped_one_has_a_result():
    async with memory_sdk(
        [[{"fail": {"code": "MODEL_ERROR", "message": "No."}}], [{"stall": "stopped"}]]
    ) as sdk:
        session = await sdk.create_session(runtime="scripted")
        with pytest.raises(TaskFailure, match=r"No\.") as caught:
            await (await session.start("one")).result()
        assert caught.value.code == "MODEL_ERROR"
    async with memory_sdk([[{"text": "hm"}, {"stall": "stopped"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        task = await session.start("two")
        await task.stop("enough")
        result = await task.result()
        assert (result.state, result.stop_reason, result.text) == ("stopped", "enough", "")


async def test_a_denial_reaches_the_model_with_its_reason():
    turns = [
        [{"call": {"tool": "fake.write"}}],
        {"expect": {"tool_result_contains": "not today"}, "steps": [{"text": "Then not."}]},
    ]
    async with memory_sdk(turns) as sdk:
        session = await sdk.create_session(runtime="scripted")
        task = await session.start("write")
        async for event in task.events():
            if event.type == "approval.requested":
                assert [row.approval_id for row in await sdk.approvals()] == [event.payload.approval_id]
                await task.deny(event.payload.tool_call_id or "", "not today")
        assert (await task.result()).text == "Then not."
        assert await sdk.approvals() == []


async def test_a_running_task_is_steered_through_its_handle():
    turns = [[{"text": "waiting"}, {"await_steer": True}, {"text": " thanks"}]]
    async with memory_sdk(turns) as sdk:
        session = await sdk.create_session(runtime="scripted")
        task = await session.start("go")
        async for event in task.events():
            if event.type == "model.output.delta" and event.payload.delta == "waiting":
                await task.steer("here")
        assert (await task.result()).text == "waiting thanks"


async def test_a_fork_goes_its_own_way_from_where_it_was_taken():
    async with memory_sdk([[{"text": "one"}], [{"text": "two"}], [{"text": "three"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted", title="Main")
        await (await session.start("first")).result()
        fork = await session.fork(title="Side")
        assert (await (await session.start("second")).result()).text == "two"
        assert (await (await fork.start("other")).result()).text == "two"
        assert (await fork.info()).parent_session_id == session.id
        assert [each.content for each in await fork.transcript()][:2] == [
            each.content for each in (await session.transcript())[:2]
        ]


async def test_a_session_is_followed_across_its_tasks_until_the_sdk_closes():
    seen: list[str] = []

    async def follow(session) -> None:
        async for event in session.events():
            seen.append(event.type)

    async with memory_sdk([[{"text": "a"}], [{"text": "b"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        reading = asyncio.create_task(follow(session))
        for _ in range(2):
            await (await session.start("go")).result()
    await reading
    assert seen.count("task.completed") == 2
    assert seen[0] == "session.created"


async def test_waiting_for_a_task_that_the_sdk_was_closed_on_is_an_interruption():
    runtime = FakeRuntime()
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake", settings=SessionSettings(stop_grace_s=0.01))
        await session.start("first")
        waiting = await session.start("second")
        result = asyncio.create_task(waiting.result())
        await asyncio.sleep(0)
    with pytest.raises(TaskFailure) as caught:
        await result
    assert (caught.value.code, caught.value.retryable) == ("INTERRUPTED", True)


async def test_what_is_not_there_is_not_found():
    async with memory_sdk([[{"text": "a"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        for look in (
            lambda: sdk.session("ses_unknown"),
            lambda: sdk.read_artifact("art_unknown"),
            lambda: session.task("task_unknown").result(),
            lambda: session.event(99),
            lambda: session.approve("call_unknown"),
        ):
            with pytest.raises(NotFound):
                await look()


async def test_bytes_are_put_and_read_back_in_parts():
    async with memory_sdk([[{"text": "a"}]]) as sdk:
        ref = await sdk.put_artifact(b"0123456789", "text/plain", "digits")
        assert await sdk.read_artifact(ref.artifact_id) == b"0123456789"
        assert await sdk.read_artifact(ref.artifact_id, 2, 5) == b"234"


async def test_a_session_is_closed_and_deleted_through_the_sdk():
    async with memory_sdk([[{"text": "a"}]]) as sdk:
        session = await sdk.create_session(runtime="scripted")
        await session.close()
        assert [row.status for row in await sdk.sessions()] == ["closed"]
        with pytest.raises(Conflict, match="closed"):
            await session.start("more")
        await sdk.delete_session(session.id)
        assert await sdk.sessions() == []


async def test_messages_may_be_given_as_messages():
    runtime = FakeRuntime([message("hi"), done()])
    async with memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await (await session.start([user("one"), user("two")])).result()
        assert runtime.tasks[0].input.messages == [user("one"), user("two")]


async def test_a_runtime_of_the_applications_own_needs_no_registration():
    async def play(task):
        yield call("fake.read", {"path": "a"})
        reply = await task.reply("c1")
        yield delta(reply.result)
        yield message(reply.result)
        yield done()

    async with memory_sdk(runtimes=[FakeRuntime(play)]) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="yolo")
        assert (await (await session.start("read")).result()).text == "ok"


async def test_the_mode_that_asks_about_nothing_must_be_enabled_by_whoever_opens_the_sdk():
    runtime = {"fake": FakeRuntime([done()])}
    async with CodeSDK.open(runtimes=runtime) as sdk:
        with pytest.raises(Forbidden, match="yolo"):
            await sdk.create_session(runtime="fake", permission_mode="yolo")
        assert await sdk.sessions() == []
    async with CodeSDK.open(runtimes=runtime, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="fake", permission_mode="yolo")
        assert (await (await session.start("go")).result()).state == "completed"
