"""The events of a turn as the engine takes them, one by one."""

from collections.abc import AsyncGenerator

from tests.minicode.playing import PlannedModel, Try, broken, whole

from codesdk.contract.capabilities import Isolation
from codesdk.contract.events import OutputCompleted, OutputDelta, OutputRetracted, RuntimeNotice
from codesdk.contract.messages import Reasoning, Text, user
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    RuntimeEnv,
    RuntimeItem,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity, ToolSpec
from codesdk.minicode.agent import Agent
from codesdk.minicode.runtime.task import MinicodeTask
from codesdk.minicode.runtime.tools import EngineTools
from codesdk.minicode.types import ModelItem, ModelMessage, ModelRequest
from codesdk.testing.fakes import FakeRuntime

SPEC = ToolSpec(name="read", description="Read.", input_schema={"type": "object"}, tool_class="read_only")
ENV = RuntimeEnv(
    cwd="/", env={}, credential_namespace="local", isolation=Isolation(level="ephemeral", mode="in_process")
)


class ClosingModel(PlannedModel):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class Repeating(ClosingModel):
    """Gives its calls the same ids in every answer, as some servers do."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem, None]:
        async for item in super().stream(request):
            if isinstance(item, ModelMessage) and item.calls:
                yield whole("same", Try(calls=["read"]))
            else:
                yield item


def task_of(model: ClosingModel, **options: object) -> MinicodeTask:
    given = TaskInput(
        session_id="s1",
        task_id="t1",
        env=ENV,
        messages=[user("Go.")],
        model_messages=3,
        tools=[SPEC],
        permission_mode="ask",
        interaction_mode="interactive",
        runtime_config={},
    )
    agent = Agent(model=model, tools=EngineTools(given.tools), **options)  # type: ignore[arg-type]
    return MinicodeTask(agent, model, FakeRuntime(), given)  # type: ignore[arg-type]


def identity(call: ToolAnnouncement, number: int = 1) -> ToolIdentity:
    return ToolIdentity(
        tool_call_id=f"call_{number}",
        attempt=1,
        input_hash="h",
        runtime_tool_call_id=call.runtime_tool_call_id,
    )


async def test_a_turn_is_told_in_the_words_of_the_contract():
    model = ClosingModel(Try(["Hm"], thought="So.", calls=["read"]), Try(["Done."]))
    task = task_of(model)
    items: list[RuntimeItem] = []
    async for item in task.events():
        items.append(item)
        if isinstance(item, ToolAnnouncement):
            await task.send_tool_result(identity(item), ToolReply(result={"n": 1}, is_error=False))
    assert items == [
        Identified(model="planned"),
        Draft(OutputDelta(kind="reasoning_delta", block_id="t1.3.t", message_id="t1.3", delta="So.")),
        Draft(OutputDelta(kind="text_delta", block_id="t1.3.0", message_id="t1.3", delta="Hm")),
        Draft(
            OutputCompleted(
                message_id="t1.3", content=[Reasoning(text="So."), Text(text="Hm")], stop_reason="tool_use"
            )
        ),
        ToolAnnouncement(
            name="read",
            input={"n": 0},
            runtime_tool_call_id="t1.3:read0",
            message_id="t1.3",
            index=2,
            origin="stream",
        ),
        Draft(OutputDelta(kind="text_delta", block_id="t1.4.0", message_id="t1.4", delta="Done.")),
        Draft(OutputCompleted(message_id="t1.4", content=[Text(text="Done.")], stop_reason="end_turn")),
        Finished(stop_reason="end_turn"),
    ]
    tool = model.requests[1].messages[-1]
    assert [(block.tool_call_id, block.result) for block in tool.content] == [("call_1", '{"n":1}')]  # type: ignore[union-attr]
    assert model.closed == 1


async def test_calls_with_the_same_ids_are_different_calls():
    task = task_of(Repeating(Try(calls=["read"]), Try(calls=["read"]), Try(["Done."])))
    announced: list[str | None] = []
    async for item in task.events():
        if isinstance(item, ToolAnnouncement):
            announced.append(item.runtime_tool_call_id)
            await task.send_tool_denied(identity(item, len(announced)), "no")
    assert announced == ["same:read0", "same:read0@same"]


async def test_a_failed_attempt_is_a_notice_and_what_it_said_is_retracted():
    task = task_of(ClosingModel(Try(["Ha"], broken(0.0)), Try(fault=broken(retryable=False))))
    items = [item async for item in task.events()]
    assert items[2] == Draft(OutputRetracted(block_ids=["t1.3.0"], reason="The stream broke."))
    [notice] = [
        item.payload for item in items if isinstance(item, Draft) and isinstance(item.payload, RuntimeNotice)
    ]
    assert (notice.kind, notice.details) == ("retry", {"attempt": 1, "code": "MODEL_ERROR"})
    end = items[-1]
    assert isinstance(end, Failed)
    assert (end.error.code, end.error.runtime) == ("MODEL_ERROR", "minicode")


async def test_a_stop_ends_the_stream_and_late_results_hurt_nobody():
    task = task_of(ClosingModel(Try(calls=["read"])))
    call: ToolAnnouncement | None = None
    last: RuntimeItem | None = None
    async for last in task.events():
        if isinstance(last, ToolAnnouncement):
            call = last
            await task.stop("enough")
    assert last == Finished(stop_reason="stopped")
    assert call is not None
    await task.send_tool_result(identity(call), ToolReply(result="late", is_error=False))
    await task.send_tool_denied(ToolIdentity(tool_call_id="x", attempt=1, input_hash="h"), "unknown")
    await task.close()
    await task.close()
