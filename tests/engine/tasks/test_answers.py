"""Tasks with an output schema: how the result is asked for, given, refused, asked for again, kept and missed."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.engine.rig import ENGINE, Rig, rig, texts
from tests.engine.tasks.test_history import Keeper

from codesdk import Conflict, InvalidRequest, Session, Task
from codesdk.contract import events as ev
from codesdk.contract.errors import ErrorInfo, TaskFailure
from codesdk.contract.runtime import Failed, Host, Identified, TaskInput, ToolReply
from codesdk.contract.tools import ANSWER_TOOL
from codesdk.engine.tasks.answers import MAX_REFUSED, MAX_REMINDERS
from codesdk.policy import ModePolicy
from codesdk.testing.fakes import FAKE_CAPABILITIES, FakeRuntime, FakeTask, call, delta, done, message

STARS = {
    "type": "object",
    "properties": {"stars": {"type": "integer", "minimum": 1}, "note": {"type": "string"}},
    "required": ["stars"],
}
STRICT = {
    "type": "object",
    "properties": {"stars": {"type": "integer"}, "notes": {"type": "array", "items": {"type": "string"}}},
    "required": ["stars", "notes"],
    "additionalProperties": False,
}
GOOD = {"stars": 3, "notes": []}
NATIVE = msgspec.structs.replace(FAKE_CAPABILITIES, output_schema="native")
SECRET = "hunter2-canary"


def answered(value: Any, number: int = 1) -> list[Any]:
    """Return a turn of the model that gives a result with the tool."""
    return [message("", f"m{number}"), call(ANSWER_TOOL, value, f"c{number}", f"m{number}")]


def asked(r: Rig, session: Session) -> list[str]:
    """Return what the engine said to a session's tasks."""
    said = [p for p in r.all(session, ev.TaskSteered) if p.by == ENGINE]
    return [block.text for p in said for m in p.messages for block in m.content]


def ended(r: Rig, task: Task) -> Any:
    try:
        return r.get(task.result())
    except TaskFailure as error:
        return error


def offered(r: Rig) -> list[str]:
    return [spec.name for spec in r.play.input.tools]


# --- with the tool -------------------------------------------------------------------------------


def test_an_accepted_call_is_the_result_and_nobody_is_asked_about_it():
    with rig(policy=ModePolicy(denied=[ANSWER_TOOL])) as r:
        session = r.open("ask", interaction_mode="non_interactive")
        task = r.start(session, "Rate it.", output_schema=STARS)
        assert ANSWER_TOOL in offered(r)
        assert r.play.input.output_schema is None
        [ask] = asked(r, session)
        assert json.dumps(STARS, separators=(",", ":")) in ask
        assert "task_answer" in ask
        assert texts(r.play.input.messages) == [("user", "Rate it."), ("user", ask)]
        r.emit(*answered({"stars": 4, "note": "Good."}))
        assert r.play.replies["c1"] == ToolReply(
            result="The result is accepted. The task is done: end your turn.", is_error=False
        )
        r.emit(message("Four stars.", "m2"), done())
        result = ended(r, task)
        assert (result.data, result.text, result.calls) == ({"stars": 4, "note": "Good."}, "Four stars.", 1)
        assert r.story(session, task) == [
            "task.started",
            "task.steered",
            "model.input",
            "model.output.completed",
            "tool.call.requested",
            "tool.call.policy_evaluated",
            "tool.call.approved",
            "tool.call.started",
            "tool.call.completed",
            "model.output.completed",
            "task.completed",
        ]
        [started] = r.all(session, ev.TaskStarted)
        assert (started.output_schema, started.output_way) == (STARS, "tool")


def test_the_last_accepted_result_counts_and_a_refused_one_after_it_does_not():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        for number, value in enumerate([{"stars": 1}, {"stars": 2}, {"stars": 0}], start=1):
            r.emit(*answered(value, number))
        r.emit(done())
        assert (ended(r, task).data, len(asked(r, session))) == ({"stars": 2}, 1)


def test_a_refused_result_says_what_is_wrong_so_that_the_model_can_mend_it():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(*answered({"stars": "many"}))
        assert r.play.replies["c1"] == (
            "The input of task.answer is not valid. stars: expected integer, got string."
            " It takes: stars (integer, required), note (string)."
        )
        r.emit(*answered({"stars": 5}, 2), done())
        result = ended(r, task)
        assert (result.data, result.denied, len(asked(r, session))) == ({"stars": 5}, 1, 1)


def test_a_runtime_that_ends_without_a_result_is_asked_again_in_its_own_conversation():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(Identified(runtime_session_id="own-1"), message("Four stars."), done())
        again = asked(r, session)[-1]
        assert again == (
            "You ended your turn, but the task has no result yet. The tool task_answer was not called."
            " Call task_answer with the result now."
        )
        assert (r.play.input.history, texts(r.play.input.messages)) == ("native", [("user", again)])
        assert texts(r.runtime.asked[-1][1]) == [("assistant", "Four stars.")]
        assert [play.closed for play in r.runtime.tasks] == [True, False]
        r.emit(*answered({"stars": 4}, 2), message("There.", "m3"), done())
        assert ended(r, task).data == {"stars": 4}
        assert [p.context_window.strategy for p in r.all(session, ev.ModelInput)] == ["full", "delta"]


def test_a_runtime_that_keeps_nothing_is_given_the_whole_conversation_again():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(message("Four stars."), done())
        first, again = asked(r, session)
        assert texts(r.play.input.messages) == [
            ("user", "Rate it."),
            ("user", first),
            ("assistant", "Four stars."),
            ("user", again),
        ]
        r.emit(*answered({"stars": 4}, 2), done())
        assert ended(r, task).data == {"stars": 4}


def test_a_runtime_that_never_gives_a_result_fails_after_so_many_times_and_says_what_was_wrong_last():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        for number in range(1, MAX_REMINDERS + 2):
            r.emit(*answered({"stars": -number}, number), done())
        error = ended(r, task)
        assert (error.code, error.retryable, len(asked(r, session))) == (
            "MODEL_ERROR",
            False,
            MAX_REMINDERS + 1,
        )
        assert error.message == (
            "The model gave no result that fits the output schema. The input of task.answer is not valid. stars:"
            " must be at least 1. It takes: stars (integer, required), note (string). Change the wording, the schema or"
            " the model, and start the task again."
        )
        assert len(r.runtime.tasks) == MAX_REMINDERS + 1


def test_a_model_that_gives_wrong_results_for_ever_within_one_turn_is_ended():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        for number in range(1, MAX_REFUSED + 1):
            assert r.all(session, ev.TaskFailed) == []
            r.emit(*answered({"stars": -number}, number))
        assert r.play.stopped is not None
        r.emit(done())
        assert (ended(r, task).code, len(asked(r, session))) == ("MODEL_ERROR", 1)


def test_a_turn_that_broke_off_in_a_message_and_a_call_is_closed_before_the_next_one():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(delta("Four st", "m1"), call("fake.read", {}, "c9", "m0", "mcp"), done())
        assert [p.partial for p in r.all(session, ev.OutputCompleted)] == [True]
        assert [p.name for p in r.all(session, ev.ToolCallDenied)] == ["fake.read"]
        assert texts(r.play.input.messages)[-1] == ("user", asked(r, session)[-1])
        r.emit(*answered({"stars": 4}, 2), done())
        assert ended(r, task).data == {"stars": 4}


def test_the_tool_is_there_in_tasks_with_a_schema_only():
    with rig() as r:
        session = r.open("yolo")
        first = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(*answered({"stars": 4}), done())
        assert ended(r, first).data == {"stars": 4}
        second = r.start(session, "Say hello.")
        assert ANSWER_TOOL not in offered(r)
        r.emit(*answered({"stars": 4}, 2), message("Hello.", "m3"), done())
        assert (ended(r, second).data, len(asked(r, session))) == (None, 1)
        [denied] = r.all(session, ev.ToolCallDenied)
        assert denied.reason.startswith("There is no tool task.answer.")
        manifests = [[tool.name for tool in p.tool_manifest] for p in r.all(session, ev.ModelInput)]
        assert [ANSWER_TOOL in names for names in manifests] == [True, False]


def test_each_task_has_its_own_schema():
    with rig() as r:
        session = r.open()
        for number, name in enumerate(["a", "b"], start=1):
            schema = {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}
            task = r.start(session, "Go", output_schema=schema)
            r.emit(*answered({name: number}, number), done())
            assert ended(r, task).data == {name: number}


def test_a_large_result_is_stored_apart_and_comes_back_whole():
    with rig() as r:
        session = r.open(input_inline_bytes=100)
        task = r.start(session, "Rate it.", output_schema=STARS)
        value = {"stars": 4, "note": "x" * 5_000}
        r.emit(*answered(value), done())
        assert ended(r, task).data == value
        [end] = r.all(session, ev.TaskCompleted)
        assert (end.data, end.data_ref.size_bytes > 5_000) == (None, True)


def test_a_secret_in_a_result_or_a_schema_is_not_stored():
    with rig() as r:
        session = r.open(secrets=(SECRET,))
        schema = {**STARS, "description": f"the key is {SECRET}"}
        task = r.start(session, "Rate it.", output_schema=schema)
        r.emit(*answered({"stars": 4, "note": SECRET}), done())
        assert SECRET not in json.dumps(ended(r, task).data)
        assert ended(r, task).data["stars"] == 4
        assert SECRET not in "".join(str(frame.data) for frame in r.frames(session.id))
        r.start(session, "Rate it.", output_schema=STARS)
        for number in range(MAX_REMINDERS + 1):
            r.emit(*answered({"stars": SECRET}, 10 + number), done())
        assert SECRET not in r.ended(session)[-1].error.message


# --- natively ------------------------------------------------------------------------------------


def test_a_runtime_that_passes_schemas_to_its_model_is_given_it_and_its_last_answer_is_the_result():
    with rig(runtime=FakeRuntime(capabilities=NATIVE)) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STRICT)
        assert (r.play.input.output_schema, ANSWER_TOOL in offered(r)) == (STRICT, False)
        assert texts(r.play.input.messages) == [("user", "Rate it.")]
        r.emit(message("Let me look.", "m0"), message(json.dumps(GOOD)), done())
        result = ended(r, task)
        assert (result.data, result.text, asked(r, session)) == (GOOD, json.dumps(GOOD), [])
        assert r.one(session, ev.TaskStarted).output_way == "native"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("Three stars.", "It is not JSON."),
        ('{"stars": 3}', "The required field notes is missing."),
        ('{"stars": 3, "notes": [1]}', "notes[0]: expected string, got integer."),
        ("[3]", "Expected object, got array."),
        ("", "It is not JSON."),
        ("[" * 200 + "]" * 200, "It is nested too deeply."),
    ],
)
def test_an_answer_that_does_not_fit_is_asked_for_again_with_what_is_wrong(said: str, problem: str):
    with rig(runtime=FakeRuntime(capabilities=NATIVE)) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STRICT)
        r.emit(message(said), done())
        [again] = asked(r, session)
        assert again == (
            f"Your last answer is not the result that was asked for. {problem} Answer again, with JSON that fits the"
            " schema and with nothing else."
        )
        assert r.play.input.output_schema == STRICT
        r.emit(message(json.dumps(GOOD), "m2"), done())
        assert ended(r, task).data == GOOD


def test_an_answer_that_never_fits_fails_the_task():
    with rig(runtime=FakeRuntime(capabilities=NATIVE)) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STRICT)
        for number in range(MAX_REMINDERS + 1):
            r.emit(message("No.", f"m{number}"), done())
        error = ended(r, task)
        assert (error.code, error.retryable, len(asked(r, session))) == ("MODEL_ERROR", False, MAX_REMINDERS)
        assert "It is not JSON." in error.message


def test_a_schema_that_providers_would_refuse_is_answered_with_the_tool_even_then():
    with rig(runtime=FakeRuntime(capabilities=NATIVE)) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        assert (r.play.input.output_schema, ANSWER_TOOL in offered(r)) == (None, True)
        r.emit(*answered({"stars": 4}), done())
        assert ended(r, task).data == {"stars": 4}


def test_a_large_answer_is_stored_apart_too():
    with rig(runtime=FakeRuntime(capabilities=NATIVE)) as r:
        session = r.open(result_inline_bytes=100)
        task = r.start(session, "Rate it.", output_schema=STRICT)
        value = {"stars": 3, "notes": ["x" * 50] * 20}
        r.emit(message(json.dumps(value)), done())
        assert (ended(r, task).data, r.one(session, ev.TaskCompleted).data) == (value, None)


# --- what is no schema ---------------------------------------------------------------------------

DEEP: dict[str, Any] = {"type": "object"}
for _ in range(90):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
LOOP = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, 'must have "type": "object"'),
        ({"type": "array"}, 'must have "type": "object"'),
        ({"type": ["object", "null"]}, 'must have "type": "object"'),
        ({"type": "objet"}, "at type"),
        ({"type": "object", "properties": 3}, "at properties: expected an object"),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, "at properties/a/minimum"),
        ({"type": "object", "properties": {"a": {"pattern": "(a+)+$("}}}, "at properties/a/pattern"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}, "at properties/a/$ref"),
        (LOOP, "apply to one value by each other"),
        (DEEP, "nested"),
        ({"type": "object", "description": "x" * 70_000}, "65,536 bytes"),
        ({"type": "object", "enum": [{"a": 1}] * 21_000}, "bytes"),
        ({"type": "object", "maxProperties": 2**60}, "an integer beyond"),
        ({"type": "object", "description": "\ud800"}, ""),
        ({"type": "object", "default": object()}, "which JSON cannot represent"),
    ],
)
def test_what_is_no_schema_of_an_object_is_refused_before_anything_is_stored(schema: Any, why: str):
    with rig() as r:
        session = r.open()
        before = r.frames(session.id)
        with pytest.raises(InvalidRequest) as refused:
            r.get(session.start("Rate it.", output_schema=schema))
        assert why in refused.value.message
        assert (r.frames(session.id), r.runtime.tasks) == (before, [])


def test_a_message_for_the_running_task_cannot_bring_a_schema():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Go")
        with pytest.raises(Conflict, match="cannot be given another schema"):
            r.get(session.start("And?", on_busy="steer", output_schema=STARS))
        r.emit(done())
        assert (ended(r, task).data, r.all(session, ev.TaskSteered)) == (None, [])


def test_a_runtime_that_calls_no_tools_is_given_no_task_with_a_schema():
    capabilities = msgspec.structs.replace(FAKE_CAPABILITIES, supports_tool_calls=False)
    with rig(runtime=FakeRuntime(capabilities=capabilities)) as r:
        session = r.open()
        assert r.refused(session.start("Rate it.", output_schema=STARS), InvalidRequest) == "INVALID_REQUEST"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
words = st.sampled_from(
    ["type", "properties", "items", "required", "$ref", "anyOf", "enum", "pattern", "not"]
)


@given(schema=st.dictionaries(words, json_values, max_size=4), value=st.dictionaries(st.text(), json_values))
@pytest.mark.slow
def test_whatever_is_given_as_a_schema_or_a_result_the_log_stays_in_order(schema: Any, value: Any):
    with rig() as r:
        session = r.open()
        try:
            task = r.start(session, "Rate it.", output_schema={"type": "object", **schema})
        except InvalidRequest:
            assert r.story(session) == ["session.created"]
            return
        for number in range(MAX_REMINDERS + 1):
            if r.all(session, ev.TaskCompleted):
                break
            r.emit(*answered(value, number), done())
        result = ended(r, task)
        if isinstance(result, TaskFailure):
            assert result.code == "MODEL_ERROR"
        else:
            assert isinstance(result.data, dict)


# --- queue, steering, stops, crashes -------------------------------------------------------------


def test_a_queued_task_keeps_its_schema_also_over_a_restart():
    with rig() as r:
        session = r.open()
        r.start(session, "First.")
        second = r.start(session, "Rate it.", output_schema=STARS)
        assert r.one(session, ev.TaskQueued).output_schema == STARS
        r.crash()
        session = r.handle(session)
        r.get(session.resume())  # the interrupted one
        r.emit(message("Done."), done())
        assert r.play.input.task_id == second.id
        assert ANSWER_TOOL in offered(r)
        r.emit(*answered({"stars": 4}, 2), done())
        assert ended(r, session.task(second.id)).data == {"stars": 4}


def test_a_queued_task_that_never_runs_says_what_it_was_to_give():
    with rig() as r:
        session = r.open()
        r.start(session, "First.")
        second = r.start(session, "Rate it.", output_schema=STARS)
        r.get(second.stop())
        dropped = [p for p in r.all(session, ev.TaskStarted) if not p.executed]
        assert [(p.output_schema, p.output_way) for p in dropped] == [(STARS, None)]
        assert asked(r, session) == []
        r.emit(done())


def test_steering_keeps_what_is_owed():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.get(task.steer("Be strict."))
        r.emit(message("Two."), done())
        assert len(asked(r, session)) == 2
        r.get(task.steer("Very strict."))
        assert texts(r.play.steered) == [("user", "Very strict.")]
        r.emit(*answered({"stars": 1}, 2), done())
        assert ended(r, task).data == {"stars": 1}


def test_a_resumed_task_owes_what_the_interrupted_one_did():
    with rig() as r:
        session = r.open()
        r.start(session, "Rate it.", output_schema=STARS)
        r.emit(message("Let me see."))
        r.crash()
        session = r.handle(session)
        task = r.get(session.resume())
        assert ANSWER_TOOL in offered(r)
        assert len(asked(r, session)) == 2
        r.emit(*answered({"stars": 4}, 2), done())
        assert ended(r, task).data == {"stars": 4}
        plain = r.start(session, "Say hello.")
        r.emit(message("Hello.", "m3"), done())
        assert ended(r, plain).data is None


def test_a_result_that_was_accepted_before_a_crash_is_given_again_by_the_resumed_task():
    with rig() as r:
        session = r.open()
        r.start(session, "Rate it.", output_schema=STARS)
        r.emit(*answered({"stars": 4}))
        r.crash()
        session = r.handle(session)
        task = r.get(session.resume())
        r.emit(message("I gave it.", "m2"), done())
        assert len(asked(r, session)) == 3  # the old task's result is not this one's
        r.emit(*answered({"stars": 4}, 3), done())
        assert ended(r, task).data == {"stars": 4}


def test_a_stop_ends_a_task_that_owes_a_result_and_nobody_asks_for_it_again():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(message("Four."), done())
        r.get(task.stop("enough"))
        r.emit(done())
        result = ended(r, task)
        assert (result.state, result.data, len(asked(r, session))) == ("stopped", None, 2)


class SlowToClose(FakeRuntime):
    """A runtime whose turns are released only when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        started = await super().start_task(host, task)
        started.close = self.gate.wait  # type: ignore[method-assign,assignment]
        return started


class SlowKeeper(SlowToClose, Keeper):
    """One that keeps its own conversation."""


def test_a_stop_between_two_turns_begins_no_other():
    with rig(runtime=SlowToClose()) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(message("Four."), done())
        r.get(task.stop("enough"))
        r.runtime.gate.set()
        r.settle()
        assert (ended(r, task).state, len(r.runtime.tasks), len(asked(r, session))) == ("stopped", 1, 1)


@pytest.mark.parametrize("runtime", [SlowToClose, SlowKeeper])
def test_what_is_said_between_two_turns_is_part_of_the_next(runtime: Any):
    with rig(runtime=runtime()) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(Identified(runtime_session_id="own-1"), message("Four."), done())
        r.get(task.steer("Be strict."))
        r.runtime.gate.set()
        r.settle()
        assert [said for _, *said in texts(r.play.input.messages)][-2:] == [
            ["Be strict."],
            [asked(r, session)[-1]],
        ]
        assert r.play.steered == []
        assert r.play.input.history == ("native" if runtime is SlowKeeper else "given")
        r.emit(*answered({"stars": 1}, 2), done())
        assert ended(r, task).data == {"stars": 1}


def test_a_runtime_that_fails_is_not_asked_again():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(Failed(error=ErrorInfo(code="OVERLOADED", message="Later.", retryable=True)))
        assert (ended(r, task).code, len(asked(r, session))) == ("OVERLOADED", 1)


def test_a_runtime_that_does_not_start_again_fails_the_task():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.runtime.fails = InvalidRequest("not today")
        r.emit(message("Four."), done())
        assert ended(r, task).code == "INVALID_REQUEST"


def test_a_fork_and_a_summary_owe_nothing():
    with rig() as r:
        session = r.open()
        task = r.start(session, "Rate it.", output_schema=STARS)
        r.emit(*answered({"stars": 4}), message("Four. " * 500, "m2"), done())
        assert ended(r, task).data == {"stars": 4}
        summing = r.do(session.compact("summary", keep_tokens=1))
        r.settle()
        assert ANSWER_TOOL not in offered(r)
        r.emit(message("It was good.", "m3"), done())
        assert summing.done()
        assert [p.output_schema for p in r.all(session, ev.TaskStarted)] == [STARS, None]
        fork = r.get(session.fork())
        r.start(fork, "And now?")
        assert ANSWER_TOOL not in offered(r)
        r.emit(message("Nothing.", "m4"), done())
