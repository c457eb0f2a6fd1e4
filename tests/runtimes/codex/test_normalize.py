"""What frames of codex mean: recorded ones, and those that are hard to provoke."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtimes.codex.goldens import CASES, GOLDENS, meanings

from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import Message, Reasoning, Text, ToolResult, ToolUse, user
from codesdk.contract.runtime import Draft, Failed, Finished, ToolAnnouncement, ToolDropped, ToolEnded
from codesdk.runtimes.codex.errors import error_of
from codesdk.runtimes.codex.input import history, split, turn_input
from codesdk.runtimes.codex.normalize import normalize
from codesdk.runtimes.codex.server import answer
from codesdk.runtimes.codex.state import State
from codesdk.runtimes.program.signals import MAX_BYTES, MAX_OF_ALL, MAX_OF_ONE


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n") if line]


def fresh() -> State:
    return State(turn_id="t1", model="m", tools={"workspace_read": "workspace.read"})


def said(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "th", "turnId": "t1", **params}}


def notices(items: list[Any]) -> list[tuple[str, str]]:
    found = [item.payload for item in items if isinstance(item, Draft)]
    return [(p.kind, p.message) for p in found if isinstance(p, RuntimeNotice)]


@pytest.mark.parametrize("case", CASES)
def test_recorded_frames_mean_what_they_meant(case: str):
    raw = lines(GOLDENS / case / "raw.jsonl")
    assert meanings(raw, CASES[case]) == lines(GOLDENS / case / "events.jsonl")


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_turn_has_one_end_and_nothing_that_nobody_knows(case: str):
    events = lines(GOLDENS / case / "events.jsonl")
    ends = [event["type"] for event in events if event["type"] in ("Finished", "Failed")]
    assert len(ends) == 1
    assert events[-1]["type"] == ends[0]
    kinds = {e["payload"]["kind"] for e in events if e["type"] == "runtime.notice"}
    assert kinds <= {"retry", "signal"}


@pytest.mark.parametrize("case", CASES)
def test_frames_that_are_damaged_lost_or_repeated_raise_nothing(case: str):
    chance = random.Random(case)
    for _ in range(50):
        raw = [line["frame"] for line in lines(GOLDENS / case / "raw.jsonl")]
        state = State(turn_id=raw[-1]["params"]["turn"]["id"], model="m", tools={})
        for frame in raw:
            for _ in range(chance.choice([0, 1, 1, 2])):
                normalize(state, _damage(frame, chance) if chance.random() < 0.3 else frame)


def _damage(frame: Any, chance: random.Random) -> Any:
    """Return a frame with one value replaced, somewhere."""
    if isinstance(frame, dict) and frame and chance.random() < 0.8:
        key = chance.choice(sorted(frame))
        return {**frame, key: _damage(frame[key], chance)}
    if isinstance(frame, dict):
        return frame
    return chance.choice([None, 0, "x", [], {}, ["a"]])


def test_a_message_that_nobody_knows_is_kept_as_a_notice_with_its_raw():
    frame = said("thread/dreams/started", dream=1)
    [item] = normalize(fresh(), frame)
    assert isinstance(item, Draft)
    assert item.raw is frame
    assert notices([item]) == [
        ("unknown_frame", "codex sent the message thread/dreams/started, which CodeSDK does not know.")
    ]


@pytest.mark.parametrize("case", CASES)
def test_no_recorded_frame_is_lost(case: str):
    """Each frame becomes something, or its content is in what becomes of a later one, or is the user's own."""
    raw = lines(GOLDENS / case / "raw.jsonl")
    made = {event["frame"] for event in lines(GOLDENS / case / "events.jsonl")}
    silent = [line["frame"] for number, line in enumerate(raw) if number not in made]
    names = {(f["method"], f["params"].get("item", {}).get("type")) for f in silent}
    assert names <= {
        ("item/started", "userMessage"),
        ("item/completed", "userMessage"),
        ("item/started", "agentMessage"),
        ("item/completed", "agentMessage"),
        ("item/started", "reasoning"),
        ("item/completed", "reasoning"),
        ("item/completed", "mcpToolCall"),
        ("error", None),
    }


def test_frames_of_another_turn_are_signals_and_mean_nothing_else():
    frame = {"method": "item/agentMessage/delta", "params": {"turnId": "t0", "itemId": "i", "delta": "late"}}
    [item] = normalize(fresh(), frame)
    assert item == Draft(
        RuntimeNotice(
            kind="signal",
            message="codex: item/agentMessage/delta",
            details={"method": "item/agentMessage/delta"},
        ),
        frame,
    )


def test_a_question_about_an_owned_tool_is_a_signal():
    frame = {**said("mcpServer/elicitation/request", serverName="codesdk"), "id": 7}
    [item] = normalize(fresh(), frame)
    assert isinstance(item, Draft)
    assert (notices([item]), item.raw) == ([("signal", "codex: mcpServer/elicitation/request")], frame)


def test_signals_of_one_method_are_bounded_and_the_last_one_says_so():
    state, frame = fresh(), said("turn/diff/updated", diff="-")
    kept = [item for _ in range(1_000) for item in normalize(state, frame)]
    found = [item.payload for item in kept if isinstance(item, Draft)]
    assert [notice.details for notice in found if isinstance(notice, RuntimeNotice)] == [
        *([{"method": "turn/diff/updated"}] * (MAX_OF_ONE - 1)),
        {"method": "turn/diff/updated", "last": True},
    ]
    assert len(notices(normalize(state, said("thread/name/updated")))) == 1


def test_signals_of_all_methods_are_bounded():
    state = fresh()
    late = [{"method": f"m/{number}", "params": {"turnId": "t0"}} for number in range(1_000)]
    assert sum(len(normalize(state, frame)) for frame in late) == MAX_OF_ALL


def test_a_long_signal_is_kept_by_its_size_and_its_beginning():
    frame = said("turn/diff/updated", diff="x" * MAX_BYTES)
    [item] = normalize(fresh(), frame)
    assert isinstance(item, Draft)
    assert {**item.raw, "start": item.raw["start"][:30]} == {
        "method": "turn/diff/updated",
        "size": len(msgspec.json.encode(frame)),
        "start": '{"method":"turn/diff/updated",',
    }
    assert len(msgspec.json.encode(item.raw)) < MAX_BYTES // 4


@pytest.mark.parametrize(
    "kind", ["commandExecution", "fileChange", "webSearch", "dynamicToolCall", "imageView"]
)
def test_a_tool_of_its_own_is_a_violation(kind: str):
    state = fresh()
    items = normalize(state, said("item/started", item={"type": kind, "id": "i1", "command": "rm -rf /"}))
    assert [kind for kind, _ in notices(items)] == ["violation"]
    assert state.violation == f"{kind} rm -rf /"


def test_a_tool_of_another_server_is_a_violation():
    state = fresh()
    item = {"type": "mcpToolCall", "id": "c1", "server": "other", "tool": "x", "arguments": {}}
    assert [kind for kind, _ in notices(normalize(state, said("item/started", item=item)))] == ["violation"]
    assert state.violation == "the tool x of the server other"


def test_a_call_that_codex_gives_up_is_dropped_with_its_reason():
    item = {"type": "mcpToolCall", "id": "c1", "status": "failed", "error": {"message": "bad arguments"}}
    assert normalize(fresh(), said("item/completed", item=item)) == [
        ToolDropped(runtime_tool_call_id="c1", reason="bad arguments")
    ]


def test_an_interrupted_turn_closes_what_codex_leaves_open():
    state = fresh()
    call = {"type": "mcpToolCall", "id": "c1", "server": "codesdk", "tool": "workspace_read", "arguments": {}}
    normalize(state, said("item/started", item=call))
    items = normalize(
        state, said("turn/completed", turn={"id": "t1", "status": "interrupted", "error": None})
    )
    assert [type(item) for item in items] == [ToolDropped, Finished]


@pytest.mark.parametrize(
    ("info", "message", "code", "retryable"),
    [
        ("contextWindowExceeded", "x", "CONTEXT_TOO_LARGE", False),
        ("usageLimitExceeded", "x", "RATE_LIMITED", False),
        ("serverOverloaded", "x", "OVERLOADED", True),
        ("internalServerError", "x", "MODEL_ERROR", True),
        ("unauthorized", "x", "AUTH_FAILED", False),
        ("cyberPolicy", "x", "CONTENT_FILTERED", False),
        ("something new", "x", "MODEL_ERROR", False),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "x", "AUTH_FAILED", False),
        ({"httpConnectionFailed": {"httpStatusCode": None}}, "x", "MODEL_ERROR", True),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "x", "RATE_LIMITED", True),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "x", "MODEL_ERROR", True),
        ("other", '{"error": {"code": "context_length_exceeded"}}', "CONTEXT_TOO_LARGE", False),
        ("other", "stream disconnected before completion", "MODEL_ERROR", True),
        ("other", "Missing environment variable: `K`", "AUTH_REQUIRED", False),
        (None, "x", "MODEL_ERROR", False),
    ],
)
def test_errors_have_our_codes(info: Any, message: str, code: str, retryable: bool):
    error = error_of({"message": message, "codexErrorInfo": info})
    assert (error.code, error.retryable, error.runtime) == (code, retryable, "codex-sdk")
    assert message in error.message


@pytest.mark.parametrize("odd", [None, "text", 3, [], {}, {"message": None}])
def test_an_error_of_any_shape_is_an_error(odd: Any):
    assert error_of(odd).code == "MODEL_ERROR"


def test_the_message_of_an_error_is_cut_to_a_size_for_reading():
    assert len(error_of({"message": "x" * 100_000}).message) < 1_200


OWNED = {"serverName": "codesdk", "_meta": {"codex_approval_kind": "mcp_tool_call"}}


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("mcpServer/elicitation/request", OWNED, {"action": "accept"}),
        ("mcpServer/elicitation/request", {**OWNED, "serverName": "other"}, {"action": "decline"}),
        ("mcpServer/elicitation/request", {**OWNED, "_meta": None}, {"action": "decline"}),
        ("item/commandExecution/requestApproval", {}, {"decision": "decline"}),
        ("item/fileChange/requestApproval", {}, {"decision": "decline"}),
        ("execCommandApproval", {}, {"decision": "denied"}),
        ("applyPatchApproval", None, {"decision": "denied"}),
        ("item/permissions/requestApproval", {}, {"permissions": {}}),
        ("item/tool/requestUserInput", {}, {"answers": {}}),
        ("item/tool/call", {}, {"success": False}),
    ],
)
def test_codex_is_answered_at_once_yes_to_owned_tools_and_no_to_the_rest(
    method: str, params: Any, result: Any
):
    told = answer(method, params)["result"]
    assert {key: told[key] for key in result} == result


def test_a_question_that_nobody_knows_is_answered_with_an_error():
    assert answer("account/chatgptAuthTokens/refresh", {})["error"]["code"] == -32601


def test_what_codex_was_refused_is_on_record():
    frame = {"id": 7, **said("item/commandExecution/requestApproval", command="ls")}
    state = fresh()
    assert [kind for kind, _ in notices(normalize(state, frame))] == ["violation"]


def test_a_turn_that_failed_says_why():
    error = {"message": "no", "codexErrorInfo": "serverOverloaded"}
    [end] = normalize(fresh(), said("turn/completed", turn={"id": "t1", "status": "failed", "error": error}))
    assert isinstance(end, Failed)
    assert end.error.code == "OVERLOADED"


async def test_nothing_to_say_is_said_as_go_on():
    async def none(artifact_id: str) -> bytes:
        raise AssertionError

    assert await turn_input([], none) == [{"type": "text", "text": "Go on."}]
    assert split([]) == ([], [])
    assert history([]) == []


def test_a_thread_that_codex_knows_gets_what_came_since_and_an_unknown_one_its_history():
    use = ToolUse(tool_call_id="call_1", name="workspace.read", input={"path": "a"}, attempt=2)
    asked = Message(role="assistant", content=[Reasoning(text="Hm."), Text(text="I look."), use])
    result = Message(role="tool", content=[ToolResult(tool_call_id="call_1", result={"n": 1}, attempt=2)])
    transcript = [user("Look."), asked, result, user("And?")]
    before, new = split(transcript)
    assert (before, new) == ([user("Look."), asked, result], [user("And?")])
    assert history(before) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {
            "type": "function_call",
            "call_id": "call_1_2",
            "namespace": "mcp__codesdk",
            "name": "workspace_read",
            "arguments": '{"path":"a"}',
        },
        {"type": "function_call_output", "call_id": "call_1_2", "output": '{"n": 1}'},
    ]


def test_to_type_into_a_command_is_a_violation_and_to_look_for_output_is_not():
    state = State(turn_id="t1", model="m", tools={}, natives=frozenset({"exec_command"}))
    method = "item/commandExecution/terminalInteraction"
    assert normalize(state, said(method, itemId="i1", processId="1", stdin="")) == []
    items = normalize(state, said(method, itemId="i1", processId="1", stdin="id\n"))
    assert [kind for kind, _ in notices(items)] == ["violation"]
    assert state.violation == "write_stdin id\n"


def test_a_second_question_about_the_same_call_announces_nothing():
    state = State(turn_id="t1", model="m", tools={}, natives=frozenset({"exec_command"}))
    item = {"type": "commandExecution", "id": "i1", "command": "id", "cwd": "/w", "status": "inProgress"}
    normalize(state, said("item/started", item=item))
    asked = {"id": 7, **said("item/commandExecution/requestApproval", itemId="i1", reason="No network.")}
    [announced] = normalize(state, asked)
    assert isinstance(announced, ToolAnnouncement)
    assert announced.input == {"command": "id", "cwd": "/w", "reason": "No network."}
    assert normalize(state, {**asked, "id": 8}) == []


def test_what_codex_did_by_itself_is_on_record():
    item = {"type": "commandExecution", "id": "i1", "command": "rm -rf /"}
    [announced, over, _] = normalize(fresh(), said("item/started", item=item))
    assert isinstance(announced, ToolAnnouncement)
    assert isinstance(over, ToolEnded)
    assert (announced.name, announced.input) == ("exec_command", {"command": "rm -rf /"})
    assert (over.runtime_tool_call_id, over.is_error, over.outcome) == ("i1", True, "unknown")


def test_a_plan_is_a_notice_with_the_whole_of_it():
    steps = [{"step": "Look", "status": "completed"}, {"step": "Change", "status": "inProgress"}]
    frame = said("turn/plan/updated", explanation=None, plan=steps)
    (draft,) = normalize(fresh(), frame)
    assert isinstance(draft, Draft)
    assert draft.payload == RuntimeNotice(
        kind="plan",
        message="The plan: 1 of 2 done, now: Change.",
        details={
            "entries": [
                {"content": "Look", "status": "completed", "priority": "medium"},
                {"content": "Change", "status": "in_progress", "priority": "medium"},
            ]
        },
    )
    assert (
        notices(normalize(fresh(), said("turn/plan/updated", plan=[{"status": "x"}])))[0][0]
        == "unknown_frame"
    )
