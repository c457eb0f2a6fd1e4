"""Whatever an adapter or a tool says against its types: every stored frame decodes, and nothing breaks in the background."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.engine.world import World, payloads, world

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import (
    OutputDelta,
    RequestCompleted,
    RequestStarted,
    RuntimeNotice,
    ToolCallCompleted,
    ToolOutputDelta,
)
from codesdk.contract.ids import ulid
from codesdk.contract.ports import FileChange, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Identified,
    ToolAnnouncement,
    ToolDropped,
    ToolEnded,
)
from codesdk.contract.settings import Limits
from codesdk.testing.fakes import FakeTools, call, done

OURS = f"req_{ulid(1, 1)}"
ODD: list[Any] = [None, True, -1, 2**63, 2**70, 1.5, float("nan"), "", "a", "\ud800", b"x", [], ["a"], {}, {"a": 1}, {1: 2}, object(), ("a",), {"a"}]  # fmt: skip
odd = st.sampled_from(ODD)


class OddTools(FakeTools):
    """Tools whose one call says and gives back what it is told to."""

    said: tuple[Any, Any] = ("stdout", "text")
    given: Any = None

    async def run(self, call: ToolInvocation, output: ToolSink) -> Any:
        output(*self.said)
        return self.given


def run_odd(tools: OddTools) -> tuple[list[ToolOutputDelta], ToolCallCompleted]:
    with world(tools=tools) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(call("fake.read"))
        w.emit(done())
        w.check_all()  # reads every stored frame back
        events = w.events(session)
        (completed,) = payloads(events, ToolCallCompleted)
        assert events[-1].type == "task.completed"
        return payloads(events, ToolOutputDelta), completed


def test_output_on_an_unknown_stream_is_kept_as_plain_output():
    tools = OddTools()
    tools.said, tools.given = ("console", "hello"), ToolRun(result="ok")
    (delta,), completed = run_odd(tools)
    assert (delta.stream, delta.delta) == ("stdout", "hello")
    assert completed.result_preview == "ok"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ToolRun(result=1, exit_code="0"), "exit_code"),  # type: ignore[arg-type]
        (ToolRun(result=1, exit_code=2**70), "exit_code"),
        (ToolRun(result=1, is_error="no"), "is_error"),  # type: ignore[arg-type]
        (ToolRun(result=1, changes=[FileChange(path=1, diff="")]), "changes"),  # type: ignore[arg-type]
        (ToolRun(result=1, changes=["a"]), "changes"),  # type: ignore[list-item]
        ("no run at all", "str"),
    ],
)
def test_a_run_that_is_not_what_its_type_promises_is_one_clear_error(given, said):
    tools = OddTools()
    tools.given = given
    _, completed = run_odd(tools)
    assert completed.is_error
    assert f"gave back something that cannot be recorded ({said}" in completed.result_preview


@given(stream=odd, text=odd, result=odd, is_error=odd, exit_code=odd, changes=odd)
@settings(max_examples=40, deadline=None)
def test_whatever_a_tool_says_is_stored_so_that_it_can_be_read(
    stream: Any, text: Any, result: Any, is_error: Any, exit_code: Any, changes: Any
):
    tools = OddTools()
    tools.said = stream, text
    tools.given = ToolRun(result=result, is_error=is_error, exit_code=exit_code, changes=changes)
    run_odd(tools)


items = st.one_of(
    st.builds(
        ToolAnnouncement,
        name=st.sampled_from(["fake.read", "native.tool", 1, "\ud800"]),
        input=odd,
        runtime_tool_call_id=st.sampled_from(["c1", "c2", None, 1]),
        message_id=odd,
        index=odd,
        raw=odd,
        origin=st.sampled_from([None, "stream", "native", "mcp", "other"]),
    ),
    st.builds(
        ToolEnded,
        runtime_tool_call_id=st.sampled_from(["c1", "c2", 1]),
        result=odd,
        is_error=odd,
        refused=odd,
        outcome=odd,
        exit_code=odd,
    ),
    st.builds(ToolDropped, runtime_tool_call_id=st.sampled_from(["c1", "c2", 1]), reason=odd),
    st.builds(Identified, model=odd, runtime_session_id=odd),
    st.builds(
        Draft,
        payload=st.builds(OutputDelta, kind=odd, block_id=odd, message_id=odd, delta=odd, tool_call_id=odd),
        raw=odd,
    ),
    st.builds(Draft, payload=st.builds(RuntimeNotice, kind=odd, message=odd, details=odd), raw=odd),
    st.builds(
        Draft,
        payload=st.builds(RequestStarted, request_id=odd | st.just(OURS), purpose=odd, model=odd),
        raw=odd,
    ),
    st.builds(
        Draft,
        payload=st.builds(RequestCompleted, request_id=odd | st.just(OURS), status=odd, duration_ms=odd),
        raw=odd,
    ),
)
long = st.sampled_from(["x" * 20_000, "\ud800" * 20_000, [[]] * 20_000, {"x" * 20_000: "y"}])
long_items = st.one_of(
    st.builds(Identified, model=long, runtime_session_id=long),
    st.builds(ToolDropped, runtime_tool_call_id=st.sampled_from(["c1", "c2"]), reason=long),
    st.builds(
        ToolEnded, runtime_tool_call_id=st.sampled_from(["c1", "c2"]), result=long, refused=st.booleans()
    ),
    st.builds(
        ToolAnnouncement,
        name=st.just("native.tool"),
        input=odd,
        runtime_tool_call_id=st.sampled_from(["c1", "c2"]),
        origin=st.just("native"),
    ),
)
errors = st.builds(
    ErrorInfo, code=st.just("MODEL_ERROR") | odd, message=odd | long, retryable=odd, details=odd | long
)
ends = st.builds(Finished, stop_reason=odd | long) | st.builds(Failed, error=errors | odd)


@given(st.lists(items, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_whatever_an_adapter_says_is_stored_so_that_it_can_be_read(said: list[Any]):
    with world() as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(*said, done())
        _end(w)
        w.check_all()


@given(st.lists(items | long_items, max_size=6), ends)
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_whatever_an_adapter_says_is_stored_in_events_of_a_bounded_size(said: list[Any], end: Any):
    with world(limits=Limits(max_event_bytes=10_000)) as w:
        session = w.create(permission_mode="yolo")
        w.start(session)
        w.emit(*said, end)
        _end(w)
        w.check_all()
        assert max(len(frame.data) for frame in w.frames(session)) < 3 * 10_000


def _end(w: World) -> None:
    """Let the time pass that the engine gives calls which never end."""
    w.pass_time(1_000)
