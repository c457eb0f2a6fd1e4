"""What events of opencode mean: recorded ones, and those that are hard to provoke."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.opencode.goldens import CASES, GOLDENS, TOOLS, fresh, meanings, session_in

from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RuntimeNotice,
    UsageReported,
)
from codesdk.contract.messages import Text
from codesdk.contract.runtime import Draft, Failed, Finished, ToolAnnouncement, ToolDropped, ToolEnded
from codesdk.runtimes.opencode.errors import error_of, waited_for
from codesdk.runtimes.opencode.normalize import ANSWERED, cut_off, normalize
from codesdk.runtimes.opencode.state import State
from codesdk.runtimes.program.signals import MAX_OF_ONE

SESSION = "ses_1"


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n") if line]


def told(kind: str, **properties: Any) -> dict[str, Any]:
    return {"id": "evt_1", "type": kind, "properties": {"sessionID": SESSION, **properties}}


def part(kind: str, number: int = 1, **rest: Any) -> dict[str, Any]:
    inner = {"id": f"prt_{number}", "messageID": "msg_1", "sessionID": SESSION, "type": kind, **rest}
    return told("message.part.updated", part=inner)


def tool(status: str, name: str = "codesdk_workspace_read", number: int = 1, **state: Any) -> dict[str, Any]:
    return part(
        "tool", number, tool=name, callID="c1", state={"status": status, "input": {"path": "a"}, **state}
    )


def delta(text: str, number: int = 1) -> dict[str, Any]:
    return told("message.part.delta", messageID="msg_1", partID=f"prt_{number}", field="text", delta=text)


def begun() -> State:
    """Return the state of a task whose model has begun to answer."""
    state = fresh(SESSION)
    normalize(state, told("message.updated", info={"id": "msg_1", "role": "assistant"}))
    return state


def notices(items: list[Any]) -> list[tuple[str, str]]:
    found = [item.payload for item in items if isinstance(item, Draft)]
    return [(p.kind, p.message) for p in found if isinstance(p, RuntimeNotice)]


def drafted(items: list[Any], kind: type[Any]) -> list[Any]:
    return [item.payload for item in items if isinstance(item, Draft) and isinstance(item.payload, kind)]


def every(state: State, *frames: dict[str, Any]) -> list[Any]:
    return [item for frame in frames for item in normalize(state, frame)]


@pytest.mark.parametrize("case", CASES)
def test_recorded_events_mean_what_they_meant(case: str):
    raw = lines(GOLDENS / case / "raw.jsonl")
    assert meanings(raw, CASES[case]) == lines(GOLDENS / case / "events.jsonl")


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_task_has_one_end_and_nothing_that_nobody_knows(case: str):
    events = lines(GOLDENS / case / "events.jsonl")
    ends = [event["type"] for event in events if event["type"] in ("Finished", "Failed")]
    assert len(ends) == 1
    assert events[-1]["type"] == ends[0]
    kinds = {e["payload"]["kind"] for e in events if e["type"] == "runtime.notice"}
    assert kinds <= {"retry", "signal"}


@pytest.mark.parametrize("case", CASES)
def test_events_that_are_damaged_lost_or_repeated_raise_nothing(case: str):
    chance = random.Random(case)
    raw = lines(GOLDENS / case / "raw.jsonl")
    for _ in range(50):
        state = fresh(session_in(raw))
        for frame in raw:
            for _ in range(chance.choice([0, 1, 1, 2])):
                normalize(state, _damage(frame, chance) if chance.random() < 0.3 else frame)
        cut_off(state)


def _damage(frame: Any, chance: random.Random) -> Any:
    """Return a frame with one value replaced, somewhere."""
    if isinstance(frame, dict) and frame and chance.random() < 0.8:
        key = chance.choice(sorted(frame))
        return {**frame, key: _damage(frame[key], chance)}
    if isinstance(frame, dict):
        return frame
    return chance.choice([None, 0, "x", [], {}, ["a"]])


@pytest.mark.parametrize("case", CASES)
def test_no_recorded_event_is_lost(case: str):
    """Each becomes something, or its content is in what becomes of a later one, or is the user's own, or repeats."""
    raw = lines(GOLDENS / case / "raw.jsonl")
    made = {event["frame"] for event in lines(GOLDENS / case / "events.jsonl")}
    silent = [frame for number, frame in enumerate(raw) if number not in made]
    names = {(f["type"], f["properties"].get("part", {}).get("type")) for f in silent}
    assert names <= {
        ("message.updated", None),
        ("message.part.updated", "text"),
        ("message.part.updated", "reasoning"),
        ("message.part.updated", "tool"),
    }


def test_an_event_that_nobody_knows_is_a_notice_with_its_raw_and_a_flood_of_them_is_bounded():
    state, frame = begun(), told("dream.began", dream=1)
    [item] = normalize(state, frame)
    assert isinstance(item, Draft)
    assert item.raw is frame
    assert notices([item]) == [
        ("unknown_frame", "opencode sent the event dream.began, which CodeSDK does not know.")
    ]
    assert len(every(state, *[frame] * 1_000)) == MAX_OF_ONE - 1


def test_events_of_another_session_are_signals_and_mean_nothing_else():
    frame = {**delta("late"), "properties": {**delta("late")["properties"], "sessionID": "ses_2"}}
    assert notices(normalize(begun(), frame)) == [
        ("signal", "opencode: message.part.delta of another session")
    ]


def test_what_the_user_said_is_not_the_models():
    state = fresh(SESSION)
    frames = [
        told("message.updated", info={"id": "msg_1", "role": "user"}),
        part("text", text="Hello?", time={"start": 1, "end": 2}),
    ]
    assert every(state, *frames) == []


def test_what_counts_of_a_text_is_what_it_is_at_its_end():
    state = begun()
    items = every(
        state,
        part("text", text="", time={"start": 1}),
        delta("Good day. "),
        part("text", text="Good day.", time={"start": 1, "end": 2}),
        part("step-finish", 2, reason="stop", tokens={}),
    )
    assert drafted(items, OutputRetracted) == []
    [said] = drafted(items, OutputCompleted)
    assert (said.content, said.partial, said.stop_reason) == ([Text(text="Good day.")], False, "end_turn")


@pytest.mark.parametrize("end", ["", "Other words."])
def test_what_was_streamed_and_is_no_longer_there_is_retracted(end: str):
    state = begun()
    items = every(
        state,
        part("text", text="", time={"start": 1}),
        delta("Half"),
        part("text", text=end, time={"start": 1, "end": 2}),
    )
    assert [p.block_ids for p in drafted(items, OutputRetracted)] == [["prt_1"]]
    said = drafted(cut_off(state), OutputCompleted)
    assert [p.content for p in said] == ([[Text(text=end)]] if end else [])


def test_what_had_streamed_before_the_model_is_asked_again_is_retracted():
    state = begun()
    frames = [part("text", text="", time={"start": 1}), delta("Half")]
    again = told("session.status", status={"type": "retry", "attempt": 2, "message": "Reset", "next": 7_000})
    items = every(state, *frames, again)
    assert [p.block_ids for p in drafted(items, OutputRetracted)] == [["prt_1"]]
    assert notices(items) == [("retry", "opencode asks the model again: Reset")]
    assert state.retry is not None
    assert (state.retry.attempt, state.retry.next_ms) == (2, 7_000)


def test_what_follows_a_call_in_the_same_message_is_a_message_of_its_own():
    state = begun()
    items = every(
        state,
        part("text", 1, text="", time={"start": 1}),
        delta("Look.", 1),
        tool("running", number=2),
        part("text", 3, text="", time={"start": 1}),
        delta("More.", 3),
        part("step-finish", 4, reason="tool-calls", tokens={}),
    )
    assert [(p.message_id, p.content) for p in drafted(items, OutputCompleted)] == [
        ("msg_1", [Text(text="Look.")]),
        ("msg_1.1", [Text(text="More.")]),
    ]
    assert [p.message_id for p in drafted(items, OutputDelta)] == ["msg_1", "msg_1.1"]


def test_a_call_is_announced_once_and_by_its_part_since_ids_of_models_repeat():
    state = begun()
    items = every(
        state,
        tool("pending"),
        tool("running"),
        tool("running"),
        tool("completed", output="x"),
        tool("running"),
    )
    [call] = [item for item in items if isinstance(item, ToolAnnouncement)]
    assert (call.name, call.input, call.runtime_tool_call_id) == ("workspace.read", {"path": "a"}, "prt_1")


def test_what_we_answered_with_is_no_reason_of_opencodes():
    state = begun()
    items = every(state, tool("running"), tool("error", error="a does not exist."))
    assert not [item for item in items if isinstance(item, ToolDropped)]


@pytest.mark.parametrize("reason", ["MCP error -32001: Request timed out", "Tool execution aborted"])
def test_a_call_that_did_not_get_through_is_dropped_with_its_reason(reason: str):
    [_, _, dropped] = every(begun(), tool("running"), tool("error", error=reason))
    assert dropped == ToolDropped(runtime_tool_call_id="prt_1", reason=reason)


def test_a_call_of_its_own_tool_that_opencode_refuses_is_dropped():
    state = begun()
    reason = "Model tried to call unavailable tool 'invalid'. Available tools: codesdk_workspace_read."
    items = every(state, tool("running", "bash"), tool("error", "bash", error=reason))
    assert [type(item) for item in items] == [Draft, ToolAnnouncement, ToolDropped]
    assert state.violation is None


@pytest.mark.parametrize(
    "frame",
    [
        tool("running", "bash", metadata={"output": ""}),
        tool("running", "write", title="a.txt"),
        tool("completed", "read", output="x"),
        tool("error", "bash", error="exit code 1"),
    ],
)
def test_a_tool_of_its_own_that_runs_is_a_violation_and_on_record(frame: dict[str, Any]):
    state = begun()
    items = every(state, frame)
    name = frame["properties"]["part"]["tool"]
    [over] = [item for item in items if isinstance(item, ToolEnded)]
    assert (over.is_error, over.outcome) == (True, "unknown")
    assert [kind for kind, _ in notices(items)] == ["violation"]
    assert state.violation == name


def test_an_agent_of_its_own_is_a_violation():
    state = begun()
    every(state, part("subtask", prompt="x"))
    assert state.violation == "an agent of its own"


@pytest.mark.parametrize(("name", "violates"), [("codesdk_workspace_read", False), ("bash", True)])
def test_a_question_about_ours_is_a_signal_and_any_other_is_a_violation(name: str, violates: bool):
    state = begun()
    items = every(state, told("permission.asked", id="per_1", permission=name, patterns=["*"]))
    assert [kind for kind, _ in notices(items)] == ["violation" if violates else "signal"]
    assert (state.violation is not None) == violates


def test_an_answer_that_broke_off_ends_the_task_as_opencode_would_ask_for_ever():
    state = begun()
    items = every(
        state,
        part("text", text="", time={"start": 1}),
        delta("Half"),
        part("text", text="Half", time={"start": 1, "end": 2}),
        part("step-finish", 2, reason="unknown", tokens={}),
    )
    assert [(p.content, p.partial) for p in drafted(items, OutputCompleted)] == [([Text(text="Half")], True)]
    assert state.failure is not None
    assert (state.failure.code, state.failure.retryable) == ("MODEL_ERROR", True)
    aborted = {"id": "msg_1", "error": {"name": "MessageAbortedError", "data": {}}}
    [end] = every(state, {"type": ANSWERED, "properties": {"body": {"info": aborted, "parts": []}}})
    assert isinstance(end, Failed)
    assert end.error is state.failure


def test_an_unknown_end_after_a_call_is_none():
    state = begun()
    every(state, tool("running"), part("step-finish", 2, reason="unknown", tokens={}))
    assert state.failure is None


def test_a_text_whose_events_were_lost_is_in_the_answer():
    state = begun()
    every(state, part("text", text="", time={"start": 1}), delta("Go"))
    whole = {**part("text", text="Good day.", time={"start": 1, "end": 2})["properties"]["part"]}
    body = {"info": {"id": "msg_1", "finish": "stop"}, "parts": [whole]}
    items = every(state, {"type": ANSWERED, "properties": {"body": body}})
    assert [(p.content, p.partial) for p in drafted(items, OutputCompleted)] == [
        ([Text(text="Good day.")], False)
    ]
    assert isinstance(items[-1], Finished)
    assert items[-1].stop_reason == "end_turn"


@pytest.mark.parametrize("odd", [-1, "x", 2**60, None, 1.5])
def test_counts_that_cannot_be_are_not_reported(odd: Any):
    items = every(begun(), part("step-finish", reason="stop", tokens={"input": odd}))
    assert drafted(items, UsageReported) == []
    assert [kind for kind, _ in notices(items)] == ["unknown_frame"]


def test_a_refusal_of_the_request_is_an_error():
    error = {"name": "UnknownError", "data": {"message": "no such agent"}}
    [end] = every(fresh(SESSION), {"type": ANSWERED, "properties": {"error": error}})
    assert isinstance(end, Failed)
    assert "no such agent" in end.error.message


@pytest.mark.parametrize(
    ("name", "data", "code", "retryable"),
    [
        ("APIError", {"statusCode": 401}, "AUTH_FAILED", False),
        ("APIError", {"statusCode": 403}, "AUTH_FAILED", False),
        ("APIError", {"statusCode": 404}, "MODEL_ERROR", False),
        ("APIError", {"statusCode": 400}, "MODEL_ERROR", False),
        ("APIError", {"statusCode": 400, "responseBody": '{"code":"context_length_exceeded"}'}, "CONTEXT_TOO_LARGE", False),
        ("APIError", {"statusCode": 429}, "RATE_LIMITED", True),
        ("APIError", {"statusCode": 429, "responseBody": "insufficient_quota"}, "RATE_LIMITED", False),
        ("APIError", {"statusCode": 500}, "MODEL_ERROR", True),
        ("APIError", {"statusCode": 503}, "OVERLOADED", True),
        ("ProviderAuthError", {}, "AUTH_FAILED", False),
        ("ContextOverflowError", {}, "CONTEXT_TOO_LARGE", False),
        ("ContentFilterError", {}, "CONTENT_FILTERED", False),
        ("UnknownError", {"message": "Unable to connect. Is the computer able to access the url?"}, "MODEL_ERROR", True),
        ("UnknownError", {"message": "JSON parsing failed"}, "MODEL_ERROR", True),
        ("SomethingNew", {}, "MODEL_ERROR", False),
    ],
)  # fmt: skip
def test_errors_have_our_codes(name: str, data: Any, code: str, retryable: bool):
    error = error_of({"name": name, "data": {"message": "x", **data}})
    assert (error.code, error.retryable, error.runtime) == (code, retryable, "opencode-server")


@pytest.mark.parametrize("odd", [None, "text", 3, [], {}, {"data": None}])
def test_an_error_of_any_shape_is_an_error(odd: Any):
    assert error_of(odd).code == "MODEL_ERROR"


def test_the_message_of_an_error_is_cut_to_a_size_for_reading():
    assert len(error_of({"data": {"message": "x" * 100_000}}).message) < 1_200


def test_the_key_that_was_refused_is_named_by_the_format():
    refused = {"name": "APIError", "data": {"message": "no", "statusCode": 401}}
    assert "ANTHROPIC_API_KEY" in error_of(refused, "anthropic").message


@pytest.mark.parametrize(
    ("message", "code"),
    [("Too Many Requests", "RATE_LIMITED"), ("Overloaded", "OVERLOADED"), ("Reset", "MODEL_ERROR")],
)
def test_a_model_that_would_be_asked_again_too_late_says_when(message: str, code: str):
    error = waited_for(message, 1, 3600.0)
    assert (error.code, error.retryable) == (code, True)
    assert "the next try would be in 3600 s" in error.message
    assert "5 tries failed" in waited_for(message, 5, None).message


def test_our_tools_have_one_prefix():
    assert all(name.startswith("codesdk_") for name in TOOLS)


def test_what_is_to_do_is_a_plan_without_what_was_cancelled():
    todos = [
        {"content": "Look", "status": "completed", "priority": "high"},
        {"content": "Dream", "status": "cancelled", "priority": "low"},
        {"content": "Change", "status": "in_progress", "priority": "medium"},
    ]
    (draft,) = normalize(fresh(SESSION), told("todo.updated", todos=todos))
    assert isinstance(draft, Draft)
    assert draft.payload == RuntimeNotice(
        kind="plan",
        message="The plan: 1 of 2 done, now: Change.",
        details={"entries": [todos[0], todos[2]]},
    )
