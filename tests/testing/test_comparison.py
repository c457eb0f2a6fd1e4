"""A recorded session on another version of its agent: what changed in inputs, calls and decisions."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gateway.agent import agent_runtime, claude_like

from codesdk import CodeSDK, SessionSettings
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, ContentBlock, Message, Text
from codesdk.contract.payloads import Parent
from codesdk.contract.runtime import Finished, RuntimeItem, ToolAnnouncement, ToolDropped
from codesdk.gateway.providers import ORIGINS, Provider
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.script import parse_object
from codesdk.testing.comparison import Comparison, compare
from codesdk.testing.fakes import FakeTask, FakeTools, tool_spec
from codesdk.testing.recordings import NOT_RECORDED, LoggedTools, Recording, obstacle_of, read_recording

pytestmark = pytest.mark.slow

Play = Callable[[FakeTask], AsyncIterator[RuntimeItem]]
LONG = "a lot of milk, " * 1000
PARENT = Parent(
    session_id="ses_1",
    seq=1,
    transcript_ref=ArtifactRef(
        artifact_id="art_1", content_hash="sha256:0", content_type="text/plain", size_bytes=1
    ),
    messages=1,
    model_messages=0,
    chain="sha256:0",
)
TURNS: list[Any] = [
    {
        "steps": [
            {"call": {"tool": "own.read", "input": {"path": "a"}}},
            {"call": {"tool": "own.write", "input": {"path": "b"}}},
        ]
    },
    {"steps": [{"text": "Read, not written."}]},
    {"steps": [{"call": {"tool": "own.read", "input": {"path": "a"}}}]},
    {"steps": [{"text": "Again."}]},
]


async def record(data: Path, attach: bytes | None = None) -> Recording:
    """Record a session whose tools are an application's own: reading is allowed and gives much, writing is denied."""
    tools = FakeTools(tool_spec("own.read"), tool_spec("own.write", "write"))
    tools.give("own.read", LONG)
    async with Gateway() as provider:
        url = provider.admit(ScriptedModel(parse_object({"turns": TURNS}, "script")))
        async with CodeSDK.open(
            data,
            providers={wire: Provider(origin=url) for wire in ORIGINS},
            runtimes={"agent": agent_runtime()},
            tools=tools,
        ) as sdk:
            settings = SessionSettings(gateway="record", result_inline_bytes=100)
            session = await sdk.create_session(
                runtime="agent", workspace=data, permission_mode="auto", settings=settings
            )
            first: list[ContentBlock] = [Text(text="Read and write.")]
            if attach is not None:
                ref = await sdk.put_artifact(attach, "text/plain", "note.txt")
                first.append(ArtifactBlock(artifact_id=ref.artifact_id, content_type="text/plain"))
            for content in (first, [Text(text="Read again.")]):
                task = await session.start([Message(role="user", content=[*content])])
                async for event in task.events():
                    if event.type == "approval.requested":
                        await task.deny(event.payload.tool_call_id or "", "Read only.")
                await task.result()
            return await read_recording(sdk.archive, session.id)


async def changes(data: Path, play: Play) -> Comparison:
    return await compare(agent_runtime(play), await record(data))


@pytest.mark.slow
async def test_the_same_agent_changes_nothing_and_no_tool_runs(tmp_path: Path):
    found = await changes(tmp_path, claude_like)
    assert msgspec.structs.replace(found, session_id="") == Comparison(
        session_id="", tasks=2, left_out=0, inputs=[], calls=[], decisions=[]
    )
    assert found.behaves


async def polite(task: FakeTask) -> AsyncIterator[RuntimeItem]:
    """An agent that words its requests in another way."""
    first = msgspec.structs.replace(task.input.messages[0], content=[Text(text="Please: Read and write.")])
    task.input = msgspec.structs.replace(task.input, messages=[first, *task.input.messages[1:]])
    async for item in claude_like(task):
        yield item


@pytest.mark.slow
async def test_an_agent_that_words_its_requests_in_another_way_still_behaves(tmp_path: Path):
    found = await changes(tmp_path, polite)
    assert found.behaves
    assert len(found.inputs) == 4
    assert found.inputs[0].split("\n") == [
        "request 1 (main), recorded as 1:",
        "/messages/0/content",
        '  - "Read and write."',
        '  + "Please: Read and write."',
    ]


@pytest.mark.slow
async def test_exchanges_that_ended_in_another_order_are_played_in_that_of_their_requests(tmp_path: Path):
    recording = await record(tmp_path)
    first, second, *rest = recording.exchanges
    swapped = msgspec.structs.replace(recording, exchanges=[second, first, *rest])
    found = await compare(agent_runtime(polite), swapped)
    assert found.behaves
    assert len(found.inputs) == 4


async def test_an_agent_that_makes_another_call_is_found(tmp_path: Path):
    async def other(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        async for item in claude_like(task):
            if isinstance(item, ToolAnnouncement) and item.name == "own.write":
                item = msgspec.structs.replace(item, input={"path": "/etc/passwd"})
            yield item

    found = await changes(tmp_path, other)
    assert found.calls == ['- own.write {"path":"b"}', '+ own.write {"path":"/etc/passwd"}']
    assert not found.behaves
    # The model was told that nobody knows this call, and not what the other one gave back.
    assert any(NOT_RECORDED in change for change in found.inputs)


async def test_an_agent_that_drops_a_call_has_it_decided_in_another_way(tmp_path: Path):
    async def squeamish(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        async for item in claude_like(task):
            yield item
            if isinstance(item, ToolAnnouncement) and item.name == "own.read":
                yield ToolDropped(runtime_tool_call_id=item.runtime_tool_call_id or "", reason="Not I.")
                return

    found = await changes(tmp_path, squeamish)
    assert "own.read: approved then, denied now" in found.decisions
    assert found.problem is not None
    assert not found.behaves


@pytest.mark.slow
async def test_an_agent_that_asks_for_more_than_was_recorded_is_told_so(tmp_path: Path):
    async def insatiable(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        for _ in range(2):
            async for item in claude_like(task):
                if not isinstance(item, Finished):
                    yield item
        yield Finished(stop_reason="end_turn")

    found = await changes(tmp_path, insatiable)
    assert "was not made in the recording" in found.inputs[-1]


async def test_only_tasks_that_nobody_interfered_with_are_played(tmp_path: Path):
    tools = FakeTools(tool_spec("own.read"))
    tools.hold()
    async with Gateway() as provider:
        url = provider.admit(
            ScriptedModel(parse_object({"turns": [{"steps": [{"text": "One."}]}, *TURNS[2:]]}, "s"))
        )
        async with CodeSDK.open(
            tmp_path,
            providers={wire: Provider(origin=url) for wire in ORIGINS},
            runtimes={"agent": agent_runtime()},
            tools=tools,
            allow_yolo=True,
        ) as sdk:
            settings = SessionSettings(gateway="record")
            session = await sdk.create_session(
                runtime="agent", workspace=tmp_path, permission_mode="yolo", settings=settings
            )
            await (await session.start("One.")).result()
            stopped = await session.start("Read again.")
            await tools.started()
            await stopped.stop("enough")
            await stopped.result()
            recording = await read_recording(sdk.archive, session.id)
    assert (len(recording.tasks), recording.left_out, recording.calls) == (1, 1, [])


@pytest.mark.slow
async def test_attachments_go_with_the_recording(tmp_path: Path):
    recording = await record(tmp_path, attach=b"milk")
    [block] = [block for block in recording.tasks[0].messages[0].content if isinstance(block, ArtifactBlock)]
    assert recording.files == {block.artifact_id: b"milk"}
    assert (await compare(agent_runtime(), recording)).behaves


@pytest.mark.slow
async def test_tools_of_others_are_offered_as_the_recorded_requests_describe_them(tmp_path: Path):
    recording = await record(tmp_path)
    specs = LoggedTools(recording).specs()
    assert [(spec.name, spec.description, spec.tool_class) for spec in specs] == [
        ("own.read", "Stands for own.read.", "read_only"),
        ("own.write", "Stands for own.write.", "write"),
    ]
    assert recording.calls[0].result == LONG


async def test_what_cannot_be_played_again_says_why(tmp_path: Path):
    created = (await record(tmp_path)).created
    assert obstacle_of(created, 1) is None
    assert obstacle_of(created, 0) == "none of its tasks was left to end by itself"
    assert obstacle_of(None, 0) == "its first event is damaged"
    natively = msgspec.structs.replace(created, native_tools=["Bash"])
    assert obstacle_of(natively, 1) == "it has tools of its runtime's own, which would run"
    forked = msgspec.structs.replace(created, parent=PARENT)
    assert obstacle_of(forked, 1) == "it is a fork, and continues another session"


async def test_a_session_without_a_recording_cannot_be_compared(tmp_path: Path):
    async with CodeSDK.open(tmp_path, runtimes={"agent": agent_runtime()}, providers={}) as sdk:
        session = await sdk.create_session(runtime="agent", workspace=tmp_path)
        with pytest.raises(InvalidRequest, match="has no recorded exchanges"):
            await read_recording(sdk.archive, session.id)


@pytest.mark.slow
async def test_a_task_with_an_output_schema_is_played_with_it_and_what_the_engine_said_is_no_interference(
    tmp_path: Path,
):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    turns = [
        {"steps": [{"text": "Seven."}]},
        {"steps": [{"call": {"tool": "task.answer", "input": {"n": 7}}}]},
        {"steps": [{"text": "Done."}]},
    ]
    async with Gateway() as provider:
        url = provider.admit(ScriptedModel(parse_object({"turns": turns}, "s")))
        async with CodeSDK.open(
            tmp_path,
            providers={wire: Provider(origin=url) for wire in ORIGINS},
            runtimes={"agent": agent_runtime()},
            tools=FakeTools(tool_spec("own.read")),
        ) as sdk:
            settings = SessionSettings(gateway="record")
            session = await sdk.create_session(runtime="agent", workspace=tmp_path, settings=settings)
            task = await session.start("How many?", output_schema=schema)
            assert (await task.result()).data == {"n": 7}
            recording = await read_recording(sdk.archive, session.id)
    assert [started.output_schema for started in recording.tasks] == [schema]
    assert (recording.left_out, recording.tools) == (0, ["own.read"])
    found = await compare(agent_runtime(), recording)
    assert (found.problem, found.behaves, found.inputs) == (None, True, [])
