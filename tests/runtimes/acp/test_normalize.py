"""What frames of agents mean: recorded ones of the seven, and those that are hard to provoke."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.acp.goldens import CASES, GOLDENS, meanings, state_of

from codesdk.contract.events import OutputCompleted, RuntimeNotice, UsageReported
from codesdk.contract.models import ModelAnswered
from codesdk.contract.runtime import Draft, Failed, Finished, ToolAnnouncement, ToolDropped, ToolEnded
from codesdk.runtimes.acp.errors import error_of, model_error
from codesdk.runtimes.acp.normalize import CANCELLED, cut_off, normalize
from codesdk.runtimes.acp.row import Reading
from codesdk.runtimes.acp.state import State


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n") if line]


def fresh(**more: Any) -> State:
    tools = {"workspace_read": "workspace.read", "workspace_list": "workspace.list"}
    return State(runtime="acp:x", session_id="s", task_id="t", tools=tools, reading=Reading(), **more)


def update(kind: str, **fields: Any) -> dict[str, Any]:
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def text(words: str, **more: Any) -> dict[str, Any]:
    return update("agent_message_chunk", content={"type": "text", "text": words}, **more)


def messages(items: list[Any]) -> list[tuple[str, str | None]]:
    found = [item.payload for item in items if isinstance(item, Draft)]
    return [
        ("".join(block.text for block in p.content), p.stop_reason)  # pyright: ignore[reportAttributeAccessIssue]
        for p in found
        if isinstance(p, OutputCompleted)
    ]


def notices(items: list[Any]) -> list[str]:
    found = [item.payload for item in items if isinstance(item, Draft)]
    return [p.kind for p in found if isinstance(p, RuntimeNotice)]


@pytest.mark.parametrize("case", CASES)
def test_recorded_frames_mean_what_they_meant(case: str):
    raw = lines(GOLDENS / case / "raw.jsonl")
    assert meanings(raw, CASES[case]) == lines(GOLDENS / case / "events.jsonl")


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_turn_has_one_end_and_no_violation(case: str):
    events = lines(GOLDENS / case / "events.jsonl")
    ends = [event["type"] for event in events if event["type"] in ("Finished", "Failed")]
    assert len(ends) == 1
    assert events[-1]["type"] == ends[0]
    kinds = {e["payload"]["kind"] for e in events if e["type"] == "runtime.notice"}
    assert kinds <= {"signal", "unknown_frame"}


@pytest.mark.parametrize("case", [name for name in CASES if name.endswith("tools")])
def test_every_agent_announces_both_calls_with_their_inputs(case: str):
    events = lines(GOLDENS / case / "events.jsonl")
    calls = [event["payload"] for event in events if event["type"] == "ToolAnnouncement"]
    assert [(call["name"], call["input"]) for call in calls] == [
        ("workspace.read", {"path": "notes.txt"}),
        ("workspace.read", {"path": "no.txt"}),
    ]


@pytest.mark.parametrize("case", CASES)
def test_frames_that_are_damaged_lost_or_repeated_raise_nothing(case: str):
    chance = random.Random(case)
    raw = lines(GOLDENS / case / "raw.jsonl")
    for _ in range(30):
        state = state_of(CASES[case], raw[0]["session"])
        for line in raw:
            for _ in range(chance.choice([0, 1, 1, 2])):
                frame = line["frame"]
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


def test_texts_with_ids_of_their_own_are_messages_of_their_own():
    state = fresh()
    items = [*normalize(state, text("One.", messageId="a")), *normalize(state, text("Two.", messageId="b"))]
    items += normalize(state, {"method": "session/prompt", "result": {"stopReason": "end_turn"}})
    assert messages(items) == [("One.", "end_turn"), ("Two.", "end_turn")]


def asked(call_id: str, given: dict[str, Any]) -> dict[str, Any]:
    call = {"toolCallId": call_id, "title": "workspace_read", "status": "pending", "rawInput": given}
    options = [{"optionId": "yes", "kind": "allow_once"}]
    params = {"sessionId": "s", "toolCall": call, "options": options}
    return {"id": 1, "method": "session/request_permission", "params": params}


def announced(items: list[Any]) -> list[tuple[Any, ...]]:
    found = [item for item in items if isinstance(item, ToolAnnouncement)]
    return [(item.runtime_tool_call_id, item.input, item.message_id, item.index) for item in found]


@pytest.mark.parametrize(
    "whole",
    [
        asked("c1", {"path": "a", "offset": 2}),
        update("tool_call_update", toolCallId="c1", status="in_progress"),
        update("tool_call_update", toolCallId="c1", status="completed"),
    ],
    ids=["it is asked about", "it is under way", "it is over"],
)
def test_a_call_is_announced_once_and_with_its_whole_input_when(whole: dict[str, Any]):
    state = fresh()
    call = {"toolCallId": "c1", "title": "workspace_read", "status": "pending", "rawInput": {}}
    assert normalize(state, update("tool_call", **call)) == []
    for given in ({"path": "a"}, {"path": "a", "offset": 2}):
        assert normalize(state, update("tool_call_update", toolCallId="c1", rawInput=given)) == []
    assert announced(normalize(state, whole)) == [("c1", {"path": "a", "offset": 2}, "t.0", 0)]
    assert announced(normalize(state, whole)) == []


def test_calls_that_begin_side_by_side_are_of_one_message_although_one_is_over_when_the_next_is_asked_about():
    state = fresh()
    for call_id in ("a", "b"):
        call = {"toolCallId": call_id, "title": "workspace_read", "status": "pending", "rawInput": {}}
        normalize(state, update("tool_call", **call))
    first = normalize(state, asked("a", {"path": "a"}))
    normalize(state, update("tool_call_update", toolCallId="a", status="completed"))
    second = normalize(state, asked("b", {"path": "b"}))
    assert announced([*first, *second]) == [("a", {"path": "a"}, "t.0", 0), ("b", {"path": "b"}, "t.0", 1)]


def test_a_call_that_is_cut_off_while_its_input_streams_is_none():
    state = fresh()
    call = {"toolCallId": "c1", "title": "workspace_read", "status": "pending", "rawInput": {"path": "no"}}
    normalize(state, update("tool_call", **call))
    end = {"method": "session/prompt", "result": {"stopReason": "cancelled"}}
    assert normalize(state, end) == [Finished(stop_reason="cancelled", raw=end)]


def test_a_call_without_an_input_is_announced_when_it_begins():
    state = fresh()
    [_, announced] = normalize(
        state, update("tool_call", toolCallId="c1", title="workspace_list", status="in_progress")
    )
    assert isinstance(announced, ToolAnnouncement)
    assert announced.input == {}


def test_calls_side_by_side_are_of_one_message_and_one_after_another_of_two():
    state = fresh()

    def begin(call_id: str) -> ToolAnnouncement:
        call = {"toolCallId": call_id, "title": "workspace_read", "rawInput": {"path": call_id}}
        items = normalize(state, update("tool_call", status="in_progress", **call))
        [found] = [item for item in items if isinstance(item, ToolAnnouncement)]
        return found

    first, second = begin("a"), begin("b")
    for call_id in ("a", "b"):
        normalize(state, update("tool_call_update", toolCallId=call_id, status="completed"))
    third = begin("c")
    assert (first.message_id, first.index, second.message_id, second.index) == ("t.0", 0, "t.0", 1)
    assert (third.message_id, third.index) == ("t.1", 0)


def test_a_call_that_failed_before_it_reached_us_is_dropped_with_the_agents_words():
    state = fresh()
    call = {"toolCallId": "c1", "title": "workspace_read", "rawInput": {"path": 1}}
    normalize(state, update("tool_call", status="in_progress", **call))
    words = [{"type": "content", "content": {"type": "text", "text": "path must be a string"}}]
    failed = update("tool_call_update", toolCallId="c1", status="failed", content=words)
    assert normalize(state, failed) == [
        ToolDropped(runtime_tool_call_id="c1", reason="path must be a string")
    ]


@pytest.mark.parametrize(("status", "end"), [("pending", ToolDropped), ("in_progress", ToolEnded)])
def test_a_call_of_the_agents_own_is_a_violation(status: str, end: type[Any]):
    state = fresh()
    items = normalize(
        state, update("tool_call", toolCallId="c1", title="shell", status=status, rawInput={"command": "id"})
    )
    assert isinstance(items[0], ToolAnnouncement)
    assert isinstance(items[1], end)
    assert notices(items) == ["violation"]
    assert state.violation == "shell"


@pytest.mark.parametrize("name", ["reread", "workspace_reader", "workspace", "workspace_read_all", ""])
def test_a_name_that_is_only_like_ours_is_not_ours(name: str):
    state = fresh()
    normalize(state, update("tool_call", toolCallId="c1", title=name, status="pending"))
    assert state.violation is not None


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (["allow_always", "allow_once", "reject_once"], "allow_once"),
        (["allow_always", "reject_once"], "allow_always"),
        (["reject_once"], None),
        ([], None),
    ],
)
def test_a_question_about_our_tool_is_allowed_this_once_if_that_can_be_chosen(
    kinds: list[str], chosen: str | None
):
    state = fresh()
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
    call = {"toolCallId": "c1", "title": "workspace_read", "rawInput": {"path": "a"}}
    frame = {
        "id": 5,
        "method": "session/request_permission",
        "params": {"sessionId": "s", "toolCall": call, "options": options},
    }
    items = normalize(state, frame)
    assert any(isinstance(item, ToolAnnouncement) for item in items)
    outcome = {"outcome": {"outcome": "selected", "optionId": chosen}} if chosen else CANCELLED["result"]
    assert state.answers == [(5, {"result": outcome})]


def test_what_another_session_says_is_not_of_this_turn():
    frame = {
        "method": "session/update",
        "params": {
            "sessionId": "other",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}},
        },
    }
    assert notices(normalize(fresh(), frame)) == ["signal"]


def test_an_answer_without_an_end_waits_for_the_state_that_says_so():
    state = fresh()
    assert notices(normalize(state, update("state_update", state="idle"))) == ["signal"]  # of an earlier turn
    normalize(state, {"method": "session/prompt", "result": {"messageId": "m"}})
    normalize(state, text("Done."))
    items = normalize(state, update("state_update", state="idle", stopReason="max_tokens"))
    assert isinstance(items[-1], Finished)
    assert items[-1].stop_reason == "max_tokens"


def test_what_a_turn_took_is_reported_only_where_the_row_says_that_nobody_else_counts_it():
    quota = {"token_count": {"input_tokens": 11, "output_tokens": 7}}
    answer = {"method": "session/prompt", "result": {"stopReason": "end_turn", "_meta": {"quota": quota}}}
    end = Finished(stop_reason="end_turn", raw=answer)
    assert normalize(fresh(), answer) == [end]
    places = {
        "input": "_meta.quota.token_count.input_tokens",
        "output": "_meta.quota.token_count.output_tokens",
    }
    state = fresh()
    state.model, state.reading = "model-7", Reading(used=places)
    used = UsageReported(
        model="model-7",
        input=11,
        output=7,
        cache_read=0,
        cache_write=0,
        reasoning=0,
        cost_usd=None,
        source="runtime",
    )
    assert normalize(state, answer) == [Draft(used, answer), end]
    state = fresh()
    state.reading = Reading(used=places)
    cancelled = {"method": "session/prompt", "result": {"stopReason": "cancelled"}}
    assert normalize(state, cancelled) == [Finished(stop_reason="cancelled", raw=cancelled)]


def test_thoughts_begin_without_blank_lines_and_what_the_agent_says_itself_is_left_out():
    state = fresh()
    state.reading = Reading(dropped=("[MODE_UPDATE]",))
    [thought] = normalize(state, update("agent_thought_chunk", content={"type": "text", "text": "\n\nHm."}))
    assert isinstance(thought, Draft)
    assert thought.payload.delta == "Hm."  # pyright: ignore[reportAttributeAccessIssue]
    assert notices(normalize(state, text("[MODE_UPDATE] plan"))) == ["signal"]


@pytest.mark.parametrize(
    ("status", "words", "code", "again"),
    [
        (401, None, "AUTH_FAILED", False),
        (403, None, "AUTH_FAILED", False),
        (429, None, "RATE_LIMITED", True),
        (500, None, "MODEL_ERROR", True),
        (503, None, "OVERLOADED", True),
        (529, None, "OVERLOADED", True),
        (400, "prompt is too long: 9 tokens", "CONTEXT_TOO_LARGE", False),
        (400, "This model's maximum context length is 9", "CONTEXT_TOO_LARGE", False),
        (400, "exceeds the maximum number of tokens allowed", "CONTEXT_TOO_LARGE", False),
        (404, "no such model", "MODEL_ERROR", False),
        (200, None, "MODEL_ERROR", True),
        (None, None, "MODEL_ERROR", True),
    ],
)
def test_the_gateways_word_decides_what_went_wrong(
    status: int | None, words: str | None, code: str, again: bool
):
    answered = ModelAnswered(status="failed", duration_ms=1, http_status=status, error=words)
    error = model_error("acp:x", "chat", answered)
    assert error is not None
    assert (error.code, error.retryable) == (code, again)


@pytest.mark.parametrize(
    "error",
    [
        {"code": 401, "message": "Not valid."},
        {"code": 400, "message": "invalid_grant"},
        {"code": 400, "message": "no", "data": {"details": "invalid_token: revoked"}},
    ],
)
def test_a_login_that_is_refused_says_how_to_log_in_again(error: dict[str, Any]):
    told = error_of("acp:x", error, "codesdk login x")
    assert (told.code, told.retryable) == ("AUTH_FAILED", False)
    assert told.message.endswith("The provider refused the login; log in again: codesdk login x")
    assert "log in" not in error_of("acp:x", error).message


@pytest.mark.parametrize("status", ["completed", "abandoned"])
def test_a_request_that_did_not_fail_is_no_error(status: Any):
    assert model_error("acp:x", "chat", ModelAnswered(status=status, duration_ms=1)) is None
    assert model_error("acp:x", "chat", None) is None


def test_an_agent_that_outlives_the_program_behind_it_has_crashed_all_the_same():
    lost = {
        "code": -32603,
        "message": "Internal error",
        "data": "The connection to the inner program was lost.",
    }
    told = error_of("acp:x", lost, crashed=("inner program was lost",))
    assert (told.code, told.retryable) == ("RUNTIME_CRASHED", True)
    assert told.message == (
        "The agent gave up: Internal error: The connection to the inner program was lost. Start the task again."
    )
    assert error_of("acp:x", lost).code == "RUNTIME_PROTOCOL"


@pytest.mark.parametrize(
    "error", [None, "x", {}, {"code": "x"}, {"message": None, "data": 7}, {"data": "more"}]
)
def test_any_error_of_an_agent_becomes_one_of_ours(error: Any):
    found = error_of("acp:x", error)
    assert found.code == "RUNTIME_PROTOCOL"
    assert found.message.endswith("words.")


def test_a_failed_prompt_closes_what_was_said():
    state = fresh()
    normalize(state, text("Half"))
    items = normalize(state, {"method": "session/prompt", "error": {"code": 429, "message": "slow down"}})
    assert messages(items) == [("Half", "interrupted")]
    assert isinstance(items[-1], Failed)
    assert items[-1].error.code == "RATE_LIMITED"


def test_a_plan_is_a_notice_with_the_whole_of_it_and_without_what_is_no_entry():
    first = {"content": "Look", "priority": "high", "status": "completed"}
    frame = update(
        "plan", entries=[first, {"content": "Change", "status": "in_progress"}, {"status": "x"}, 7]
    )
    (draft,) = normalize(fresh(), frame)
    assert draft == Draft(
        RuntimeNotice(
            kind="plan",
            message="The plan: 1 of 2 done, now: Change.",
            details={
                "entries": [first, {"content": "Change", "priority": "medium", "status": "in_progress"}]
            },
        ),
        frame,
    )
    assert notices(normalize(fresh(), update("plan"))) == ["unknown_frame"]


def begun(number: int, **more: Any) -> dict[str, Any]:
    return update("tool_call", toolCallId=f"c{number}", title="workspace_read", **more)


def test_calls_that_an_agent_speaks_of_and_never_makes_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codesdk.runtimes.acp.state.MAX_CALLS", 5)
    state = fresh()
    for number in range(5):
        normalize(state, begun(number))
    assert (len(state.calls), state.excess) == (5, None)
    assert normalize(state, begun(5)) == []
    assert (len(state.calls), state.excess) == (5, "speaks of more than 5 calls in one prompt")
    question = {"toolCall": {"toolCallId": "c6", "title": "workspace_read"}}
    normalize(state, {"id": 1, "method": "session/request_permission", "params": question})
    assert (state.answers, state.violation) == ([(1, CANCELLED)], None)


def test_what_an_agent_says_of_its_calls_is_bounded_and_forgotten_with_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codesdk.runtimes.acp.state.MAX_HELD_BYTES", 50_000)
    state = fresh()
    for number in range(50):
        normalize(state, begun(number, status="completed", rawInput={"path": "a"}, rawOutput="r" * 20_000))
    assert (state.excess, state.held < 10_000) == (None, True)
    for number in range(50, 55):
        normalize(state, begun(number, rawInput={"path": "p" * 20_000}))
    assert state.excess == "says more than 50,000 bytes about its calls"


def test_a_call_gets_its_place_without_a_look_at_all_earlier_ones():
    class Watched(dict[str, Any]):
        def values(self) -> Any:
            raise AssertionError("all calls are looked at")

    state = fresh()
    state.calls = Watched()
    for number in range(3):
        normalize(state, begun(number, status="in_progress", rawInput={"path": "a"}))
        normalize(state, update("tool_call_update", toolCallId=f"c{number}", status="completed"))
    assert {call.message_id for call in map(state.calls.__getitem__, ("c0", "c1", "c2"))} == {
        "t.0",
        "t.1",
        "t.2",
    }


def test_an_option_of_megabytes_is_not_sent_back():
    state = fresh()
    params = {
        "toolCall": {"toolCallId": "c", "title": "workspace_read"},
        "options": [{"kind": "allow_once", "optionId": "o" * 100_000}],
    }
    normalize(state, {"id": 1, "method": "session/request_permission", "params": params})
    assert state.answers == [(1, CANCELLED)]
