"""Runtimes that keep their own conversation: what they are given, and that the log says just that."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.engine.rig import Rig, rig, texts

from codesdk import Busy, Conflict, InvalidRequest, Session
from codesdk.contract import events as ev
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import Message, ToolResult
from codesdk.contract.runtime import Failed, HistoryLost, Host, Identified, TaskInput
from codesdk.contract.settings import Budget, Budgets
from codesdk.contract.tools import Actor
from codesdk.testing.fakes import FakeRuntime, FakeTask, call, done, message

ENGINE, USER = Actor(kind="engine"), Actor(kind="user")


class Keeper(FakeRuntime):
    """A runtime that has its own copy of the conversation, as long as the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[TaskInput, list[Message]]] = []
        self.has: int | None = -1
        """How much of the tail it says that it has; -1 for all of it."""
        self.refuses = 0
        self.fails: Exception | None = None

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        self.asked.append((task, list(tail)))
        if isinstance(self.fails, RuntimeError):
            raise self.fails
        return len(tail) if self.has == -1 else self.has

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        if task.history == "native" and self.refuses:
            self.refuses -= 1
            raise HistoryLost("it is damaged")
        if isinstance(self.fails, InvalidRequest):
            raise self.fails
        return await super().start_task(host, task)


def turn(r: Rig, session: Session, asked: str, answered: str = "Yes.") -> None:
    r.start(session, asked)
    answer(r, session, answered)


def answer(r: Rig, session: Session, text: str = "Yes.") -> None:
    r.emit(Identified(runtime_session_id="own-1"), message(text, f"m{r.last(session).seq}"), done())


def inputs(r: Rig, session: Session) -> list[ev.ModelInput]:
    return r.all(session, ev.ModelInput)


def strategies(r: Rig, session: Session) -> list[str]:
    return [given.context_window.strategy for given in inputs(r, session)]


def notices(r: Rig, session: Session) -> list[str]:
    return [notice.message for notice in r.all(session, ev.RuntimeNotice)]


def given(r: Rig) -> tuple[str, list[Any]]:
    """Return what the runtime was given for its last task."""
    return r.play.input.history, texts(r.play.input.messages)


def test_a_runtime_that_goes_on_natively_gets_what_is_new_and_nothing_is_said_to_be_left_out():
    with rig(runtime=Keeper()) as r:
        session = r.open(context_budget_tokens=5_000)
        turn(r, session, "one")
        assert given(r) == ("given", [("user", "one")])
        turn(r, session, "two")
        assert given(r) == ("native", [("user", "two")])
        task, tail = r.runtime.asked[-1]
        assert (texts(tail), task.messages, task.runtime_session_id) == ([("assistant", "Yes.")], (), "own-1")
        window = inputs(r, session)[-1].context_window
        assert (window.strategy, window.omitted, window.replaced) == ("delta", [], [])
        assert notices(r, session) == []


def test_a_runtime_without_a_copy_is_given_the_transcript_and_the_log_says_so():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.runtime.has = None
        turn(r, session, "two")
        assert given(r) == ("given", [("user", "one"), ("assistant", "Yes."), ("user", "two")])
        assert strategies(r, session) == ["full", "full"]
        assert notices(r, session) == [
            "fake could not continue its own copy of the conversation; it was given the transcript."
        ]


def test_a_native_resume_that_fails_is_compiled_and_recorded_again():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.runtime.refuses = 1
        turn(r, session, "two")
        assert strategies(r, session) == ["full", "delta", "full"]
        assert given(r) == ("given", [("user", "one"), ("assistant", "Yes."), ("user", "two")])
        assert "(it is damaged)" in notices(r, session)[-1]
        turn(r, session, "three")
        assert given(r) == ("native", [("user", "three")])


@pytest.mark.parametrize("life", ["the same engine", "a reopened one"])
def test_a_message_that_the_copy_lacks_is_told_with_the_next_task_and_one_that_it_has_is_not(life: str):
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.start(session, "two")
        r.emit(Failed(error=ErrorInfo(code="MODEL_ERROR", message="No.", retryable=True)))
        if life == "a reopened one":
            r.reopen()
            session = r.handle(session)
        r.runtime.has = 1
        r.start(session, "three")
        assert texts(r.runtime.asked[-1][1]) == [("assistant", "Yes."), ("user", "two")]
        assert given(r) == ("native", [("user", "two"), ("user", "three")])
        r.emit(Failed(error=ErrorInfo(code="MODEL_ERROR", message="No.", retryable=True)))
        r.runtime.has = -1
        r.start(session, "four")
        assert given(r) == ("native", [("user", "four")])
        answer(r, session)


def test_a_start_that_fails_leaves_doubt_so_the_next_task_begins_with_the_transcript():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.runtime.fails = InvalidRequest("not today")
        r.start(session, "two")
        assert r.ended(session)[-1].error.code == "INVALID_REQUEST"
        r.runtime.fails = None
        turn(r, session, "three")
        assert given(r)[0] == "given"
        assert [said for _, said in given(r)[1]] == ["one", "Yes.", "two", "three"]


def test_a_runtime_that_breaks_when_asked_for_its_copy_has_none():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.runtime.fails = RuntimeError("broken")
        turn(r, session, "two")
        assert strategies(r, session) == ["full", "full"]


def test_a_conversation_that_the_model_never_answered_is_begun_again():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        r.start(session, "one")
        r.emit(Identified(runtime_session_id="own-1"))
        r.emit(Failed(error=ErrorInfo(code="MODEL_ERROR", message="No.", retryable=True)))
        turn(r, session, "two")
        assert given(r) == ("given", [("user", "one"), ("user", "two")])


# --- what was never handed over ------------------------------------------------------------------


def limit(r: Rig, session: Session) -> None:
    """Leave the session no budget for another task."""
    r.get(session.set(budgets=Budgets(session=Budget(requests=1))))


def raise_budget(r: Rig, session: Session) -> None:
    [question] = r.get(r.sdk.approvals())
    r.get(session.approve(question.approval_id))


@pytest.mark.parametrize("life", ["the same engine", "a reopened one"])
@pytest.mark.parametrize("next_words", [None, "three"])
def test_a_task_that_ends_before_it_is_handed_over_is_told_with_the_next_one(
    life: str, next_words: str | None
):
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        limit(r, session)
        r.start(session, "two")
        assert r.ended(session)[-1].error.code == "BUDGET_EXCEEDED"
        assert len(r.runtime.tasks) == 1, "the runtime never heard of it"
        if life == "a reopened one":
            r.reopen()
            session = r.handle(session)
        raise_budget(r, session)
        r.get(session.resume()) if next_words is None else r.start(session, next_words)
        r.settle()
        assert texts(r.runtime.asked[-1][1]) == [("assistant", "Yes."), ("user", "two")]
        more = [] if next_words is None else [("user", next_words)]
        assert given(r) == ("native", [("user", "two"), *more])
        assert strategies(r, session) == ["full", "delta"]
        answer(r, session)
        r.get(session.set(budgets=None))
        turn(r, session, "four")
        assert given(r) == ("native", [("user", "four")]), "and not once more"


def test_what_was_handed_over_and_not_answered_is_not_told_again_beside_what_was_not():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.start(session, "two")
        r.emit(Failed(error=ErrorInfo(code="MODEL_ERROR", message="No.", retryable=True)))
        limit(r, session)
        for words in ("three", "four"):
            r.start(session, words)
        r.get(session.set(budgets=None))
        r.start(session, "five")
        tail = [("assistant", "Yes."), ("user", "two"), ("user", "three"), ("user", "four")]
        assert texts(r.runtime.asked[-1][1]) == tail
        assert given(r) == ("native", [("user", "three"), ("user", "four"), ("user", "five")])
        answer(r, session)


class SlowKeeper(Keeper):
    """A keeper that starts a task only when its gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        await self.gate.wait()
        return await super().start_task(host, task)


def test_what_was_added_while_a_task_began_and_was_stopped_is_told_with_the_next_one():
    with rig(runtime=SlowKeeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.runtime.gate.clear()
        r.start(session, "two")
        assert strategies(r, session) == ["full", "delta"]
        r.get(session.steer("and this"))
        r.do(session.stop())
        r.runtime.gate.set()
        r.settle()
        assert isinstance(r.ended(session)[-1], ev.TaskStopped)
        assert r.play.steered == [], "it came too late for that task"
        turn(r, session, "three")
        assert given(r) == ("native", [("user", "and this"), ("user", "three")])


# --- the budget ----------------------------------------------------------------------------------


def test_a_native_conversation_that_passes_the_budget_is_begun_again_inside_of_it_and_an_event_says_so():
    with rig(runtime=Keeper()) as r:
        session = r.open(context_budget_tokens=400)
        for number in range(4):
            turn(r, session, f"question {number} " + "q" * 200, f"answer {number} " + "a" * 200)
        (compacted,) = r.all(session, ev.SessionCompacted)
        assert (compacted.by, compacted.strategy) == (ENGINE, "window")
        assert compacted.tokens_before > 400
        assert compacted.tokens_after <= 200
        assert strategies(r, session) == ["full", "delta", "delta", "window"]
        last = inputs(r, session)[-1].context_window
        assert last.omitted == [ev.Omission(first=0, last=compacted.first - 1, reason="compacted")]
        assert last.estimated_tokens == compacted.tokens_after
        assert given(r)[0] == "given"
        assert len(given(r)[1]) == len(r.get(session.transcript())) - 1 - compacted.first
        turn(r, session, "short")
        assert given(r) == ("native", [("user", "short")]), "and it goes on natively"


def test_over_the_budget_after_one_reconstruction_is_an_error_without_another_try():
    with rig(runtime=Keeper()) as r:
        session = r.open(context_budget_tokens=300)
        turn(r, session, "one")
        before = len(r.runtime.tasks)
        r.start(session, "x" * 4_000)
        assert r.ended(session)[-1].error.code == "CONTEXT_TOO_LARGE"
        assert (len(r.runtime.tasks), r.all(session, ev.SessionCompacted)) == (before, [])
        turn(r, session, "short")
        assert [said for _, said in given(r)[1]] == ["short"]
        r.get(session.set(context_budget_tokens=5_000))
        turn(r, session, "y" * 8_000)
        assert isinstance(r.ended(session)[-1], ev.TaskCompleted)


@pytest.mark.parametrize("kept", ["as text", "as json"])
def test_large_results_become_previews_before_any_turn_goes(kept: str):
    result = "y" * 6_000 if kept == "as text" else {"lines": ["y" * 100] * 57}
    with rig() as r:
        r.tools.give("fake.read", result)
        session = r.open("yolo", context_budget_tokens=3_500)
        for number in range(2):
            r.start(session, f"read {number}")
            r.emit(call("fake.read", call_id=f"c{number}", message_id=f"m{number}"))
            r.emit(message("Long.", f"m{number}"), done())
        r.start(session, "And?")
        window = inputs(r, session)[-1].context_window
        assert (window.strategy, window.omitted, len(window.replaced)) == ("full", [], 0)
        r.emit(call("fake.read", call_id="c9", message_id="m9"), message("Long.", "m9"), done())
        r.start(session, "And now?")
        window = inputs(r, session)[-1].context_window
        assert (window.strategy, window.omitted) == ("full", [])
        first, second, third = (
            b for m in r.play.input.messages for b in m.content if isinstance(b, ToolResult)
        )
        assert first.result_ref is not None
        assert [r.content_hash for r in window.replaced] == [first.result_ref.content_hash]
        assert (second.result, third.result) == (result, result)
        assert first.result.endswith(f"kept as {first.result_ref.content_hash})")
        whole = r.get(r.play.host.read_artifact(first.result_ref.artifact_id))
        assert whole == (result.encode() if isinstance(result, str) else msgspec.json.encode(result))
        r.emit(done())
        for number in range(12):
            turn(r, session, f"more {number} " + "z" * 800)
        window = inputs(r, session)[-1].context_window
        assert window.strategy == "window"
        assert window.omitted[0].reason == "over the context budget"
        r.reopen()
        r.start(r.handle(session), "After a restart")
        again = inputs(r, r.handle(session))[-1].context_window
        assert len(again.replaced) == len(window.replaced)


# --- compaction ----------------------------------------------------------------------------------


def filled(r: Rig, session: Session, count: int = 6) -> None:
    for number in range(count):
        turn(r, session, f"question {number} " + "q" * 100, f"answer {number} " + "a" * 100)


@pytest.mark.parametrize("runtime", [Keeper, FakeRuntime])
def test_compacting_by_window_leaves_out_the_oldest_turns_from_the_next_task_on(runtime: Any):
    with rig(runtime=runtime()) as r:
        session = r.open()
        filled(r, session)
        before = r.get(session.transcript())
        r.get(session.compact(keep_tokens=200))
        assert r.get(session.transcript()) == before
        (compacted,) = r.all(session, ev.SessionCompacted)
        assert (compacted.by, compacted.strategy, compacted.summary) == (USER, "window", None)
        assert compacted.tokens_after <= 200 < compacted.tokens_before
        r.start(session, "next")
        sent = list(r.play.input.messages)
        assert sent[:-1] == before[compacted.first :]
        window = inputs(r, session)[-1].context_window
        assert window.strategy == "window"
        assert window.omitted == [ev.Omission(first=0, last=compacted.first - 1, reason="compacted")]
        answer(r, session)
        assert r.refused(session.compact(keep_tokens=90_000), Conflict) == "CONFLICT"


def test_a_summary_is_written_by_the_runtime_kept_as_an_artifact_and_given_first():
    with rig(runtime=Keeper()) as r:
        session = r.open("yolo", context_budget_tokens=2_000)
        filled(r, session)
        before = r.get(session.transcript())
        working = r.do(session.compact("summary", keep_tokens=200))
        asked = r.play.input
        assert (asked.history, texts(asked.messages)[0][1][:10]) == ("given", "question 0")
        assert "Write a summary" in texts(asked.messages)[-1][1]
        assert r.refused(session.steer("more"), Conflict) == "CONFLICT"
        assert r.refused(session.compact(), Busy) == "SESSION_BUSY"
        r.emit(call("fake.read", call_id="no", message_id="s"), message("They counted.", "s"), done())
        r.settle()
        working.result()
        assert r.all(session, ev.ToolCallDenied)[-1].reason.startswith("No tools are used")
        (compacted,) = r.all(session, ev.SessionCompacted)
        assert r.get(r.sdk.read_artifact(compacted.summary_ref.artifact_id)) == b"They counted."
        transcript = r.get(session.transcript())
        assert transcript[:-1] == before
        assert transcript[-1] == compacted.summary
        assert (transcript[-1].summary_of.first, transcript[-1].summary_of.last) == (0, compacted.first - 1)
        r.reopen()
        session = r.handle(session)
        turn(r, session, "next")
        sent = list(r.play.input.messages)
        assert sent[0] == compacted.summary
        assert "They counted." in texts(sent)[0][1]
        assert sent[1:-1] == before[compacted.first :]
        assert r.play.input.history == "given"
        turn(r, session, "after")
        assert given(r) == ("native", [("user", "after")])
        fork = r.get(session.fork())
        r.start(fork, "in the fork")
        assert texts(r.play.input.messages)[0] == texts(sent)[0]


@pytest.mark.parametrize("how", ["failed", "stopped", "silent", "crashed"])
def test_without_a_summary_the_conversation_is_as_it_was(how: str):
    with rig(runtime=Keeper()) as r:
        session = r.open()
        filled(r, session)
        before = r.get(session.transcript())
        working = r.do(session.compact("summary"))
        if how == "failed":
            r.emit(Failed(error=ErrorInfo(code="MODEL_ERROR", message="No.", retryable=True)))
        elif how == "stopped":
            r.get(session.stop())
            r.emit(done())
        elif how == "silent":
            r.emit(done())
        else:
            r.crash()
            session = r.handle(session)
        r.settle()
        assert how == "crashed" or working.exception() is not None
        assert r.all(session, ev.SessionCompacted) == []
        assert r.get(session.transcript()) == before
        assert r.refused(session.resume(), Conflict) == "CONFLICT", "there is no work to go on with"
        turn(r, session, "next")
        assert r.play.input.history == "given"
        assert list(r.play.input.messages)[:-1] == before


# --- by itself -----------------------------------------------------------------------------------

REFUSED = Failed(error=ErrorInfo(code="CONTEXT_TOO_LARGE", message="Too long.", retryable=False))


@pytest.mark.parametrize("setting", ["off", "window"])
def test_after_a_refusal_of_the_model_a_session_compacts_itself_only_if_it_should(setting: Any):
    with rig(runtime=Keeper()) as r:
        session = r.open(auto_compact=setting)
        filled(r, session)
        r.start(session, "too much")
        r.emit(REFUSED)
        assert r.all(session, ev.SessionCompacted) == []
        turn(r, session, "next")
        found = [(c.by, c.strategy, c.reason) for c in r.all(session, ev.SessionCompacted)]
        wanted = [(ENGINE, "window", "The model found the conversation too large.")]
        assert found == ([] if setting == "off" else wanted)
        assert r.play.input.history == ("native" if setting == "off" else "given")


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("written", [True, False])
def test_a_session_that_sums_itself_up_does_so_between_two_tasks_and_tries_once(queued: bool, written: bool):
    with rig(runtime=Keeper()) as r:
        session = r.open(auto_compact="summary")
        filled(r, session)
        r.start(session, "too much")
        if queued:
            r.start(session, "next")
        r.emit(REFUSED)
        r.settle()
        assert "Write a summary" in texts(r.play.input.messages)[-1][1]
        if not queued:
            r.start(session, "next")
        r.emit(message("They counted.", "s"), done()) if written else r.emit(done())
        r.settle()
        assert texts(r.play.input.messages)[-1] == ("user", "next")
        (compacted,) = r.all(session, ev.SessionCompacted)
        assert (compacted.by, compacted.strategy) == (ENGINE, "summary" if written else "window")
        assert (texts(r.play.input.messages)[0][1].endswith("They counted.")) == written
        answer(r, session)


def test_one_at_its_budget_sums_up_what_it_leaves_out():
    with rig(runtime=Keeper()) as r:
        session = r.open(auto_compact="summary", context_budget_tokens=400)
        while not r.all(session, ev.SessionCompacted):
            turn(r, session, "question " + "q" * 200, "answer " + "a" * 200)
            if "Write a summary" in texts(r.play.input.messages)[-1][1]:
                r.emit(message("They counted.", "s"), done())
                r.settle()
        turn(r, session, "next")
        assert texts(r.play.input.messages)[0][1].endswith("They counted.")
        assert strategies(r, session)[-1] == "window"


@pytest.mark.parametrize(
    ("has", "refuses", "model", "lost"),
    [
        (-1, 0, "native", []),
        (None, 0, "reconstruct", ["reasoning", "what fake kept of the conversation on its own"]),
        (-1, 1, "reconstruct", ["reasoning", "what fake kept of the conversation on its own"]),
    ],
)
def test_the_log_says_how_a_session_went_on_after_a_crash(
    has: int | None, refuses: int, model: str, lost: list[str]
):
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.start(session, "two")
        r.crash()
        session = r.handle(session)
        r.runtime.has, r.runtime.refuses = has, refuses
        r.get(session.traced(request_id="r-1").resume("go on"))
        r.settle()
        [resumed] = [event for event in r.events(session.id) if event.type == "session.resumed"]
        assert (resumed.payload.resume_model, resumed.payload.lost) == (model, lost)
        assert (resumed.payload.resume_model == "native") == (strategies(r, session)[-1] == "delta")
        started = [event.seq for event in r.events(session.id) if event.type == "task.started"][-1]
        assert (resumed.payload.from_seq, resumed.trace.task_id, resumed.trace.request_id) == (
            started - 1,
            None,
            "r-1",
        )
        answer(r, session)


def test_a_runtime_that_does_not_begin_has_not_resumed_anything():
    with rig(runtime=Keeper()) as r:
        session = r.open()
        turn(r, session, "one")
        r.start(session, "two")
        r.crash()
        session = r.handle(session)
        r.runtime.fails = InvalidRequest("It does not like that.")
        r.get(session.resume())
        r.settle()
        assert r.all(session, ev.SessionResumed) == []
        assert r.all(session, ev.TaskFailed)[-1].error.code == "INVALID_REQUEST"
