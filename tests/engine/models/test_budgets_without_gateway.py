"""Budgets hold for a runtime whose requests no gateway sees, or not all: by its messages, and by what it reports."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.acting import live_session
from tests.engine.rig import Rig, rig

from codesdk import CodeSDK, Session, SessionSettings
from codesdk.contract import events as ev
from codesdk.contract.errors import TaskFailure
from codesdk.contract.models import ModelAnswered, ModelAsked, Tokens
from codesdk.contract.runtime import Draft
from codesdk.contract.settings import Budget, Budgets, Limits
from codesdk.testing.fakes import call, done, message

ASK = {"call": {"tool": "fake.write", "input": {"n": 1}}}
USAGE = {"input": 60, "output": 40, "cost_usd": 0.5}
TURNS = [{"steps": [{"text": f"turn {n}"}, ASK], "usage": USAGE} for n in range(4)]
SILENT = [{"steps": [ASK], "usage": USAGE} for _ in range(4)]
DONE = [{"steps": [{"text": "done"}], "usage": USAGE} for _ in range(4)]


COUNTS: dict[str, Any] = {"input": 60, "output": 40, "cache_read": 0, "cache_write": 0, "reasoning": 0}


def asked(request_id: str = "x") -> Draft:
    return Draft(ev.RequestStarted(request_id=request_id, purpose="main"))


def used() -> Draft:
    return Draft(ev.UsageReported(model="m", cost_usd=0.5, source="runtime", **COUNTS))


def through_gateway(r: Rig, session: Session) -> None:
    """Have a request of the running task pass the gateway, with the same usage as `used` reports."""

    async def pass_gateway() -> None:
        tap = (await live_session(r.engine, session.id)).resources.tap
        request_id = await tap.opened(ModelAsked(purpose="main", model="m", price=lambda _: 0.5))
        assert isinstance(request_id, str)
        answered = ModelAnswered(status="completed", duration_ms=1, usage=Tokens(**COUNTS), cost_usd=0.5)
        tap.closed(request_id, answered)

    r.get(pass_gateway())


def spent(r: Rig, session: Session) -> tuple[int, int, float]:
    found = r.get(session.info()).spent
    return found.requests, found.tokens, found.cost_usd


def limited(r: Rig, **budgets: Budget) -> Session:
    session = r.open("yolo", interaction_mode="non_interactive")
    r.get(session.set(budgets=Budgets(**budgets)))
    return session


@pytest.mark.parametrize("turns", [TURNS, SILENT])
@pytest.mark.parametrize("budget", [Budget(requests=2), Budget(tokens=200), Budget(cost_usd=1.0)])
def test_a_task_ends_when_its_budget_is_used_up(turns: list[object], budget: Budget):
    with rig(turns) as r:
        session = limited(r, task=budget)
        task = r.start(session)
        end = r.one(session, ev.TaskFailed)
        assert (end.error.code, end.error.retryable) == ("BUDGET_EXCEEDED", False)
        # Two requests fit, and what they asked for was done; a third may have begun, and nothing follows from it.
        assert len(r.tools.invocations) == 2
        assert [row.kind for row in r.get(r.sdk.approvals())] == ["budget"]
        assert r.get(task.info()).state == "failed"


def test_the_next_task_of_a_session_without_budget_left_is_not_begun_until_it_is_raised():
    with rig(DONE) as r:
        session = limited(r, session=Budget(requests=1))
        r.start(session)
        assert r.last(session).type == "task.completed"
        r.start(session, "again")
        assert r.one(session, ev.TaskFailed).error.code == "BUDGET_EXCEEDED"
        assert r.get(session.info()).spent.requests == 1
        [question] = r.get(r.sdk.approvals())
        r.get(session.approve(question.approval_id))
        r.get(session.resume())
        r.settle()
        assert r.last(session).type == "task.completed"
        assert r.get(session.info()).spent.requests == 2


def test_without_a_budget_nothing_is_stopped():
    with rig([*TURNS[:3], *DONE]) as r:
        session = r.open("yolo")
        r.start(session)
        assert r.last(session).type == "task.completed"
        spent = r.get(session.info()).spent
        assert spent is not None
        assert (spent.requests, spent.tokens, spent.cost_usd) == (4, 400, 2.0)


@pytest.mark.anyio
async def test_a_principals_budget_counts_what_was_spent_before_a_restart(tmp_path):
    script = {"loop": True, "turns": [{"steps": [{"text": "Hello."}], "usage": {"input": 100, "output": 0}}]}
    settings = SessionSettings(runtime_config={"script": script})
    limits = Limits(principal_budget=Budget(tokens=100))
    async with CodeSDK.open(tmp_path / "data", limits=limits) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path, settings=settings)
        await (await session.start("Hi")).result()
    async with CodeSDK.open(tmp_path / "data", limits=limits) as sdk:
        other = await sdk.create_session(runtime="scripted", workspace=tmp_path, settings=settings)
        with pytest.raises(TaskFailure) as failed:
            await (await other.start("Hi")).result()
        assert failed.value.code == "BUDGET_EXCEEDED"


@pytest.mark.parametrize("gateway", [False, True])
@pytest.mark.parametrize("budget", [Budget(requests=2), Budget(tokens=200), Budget(cost_usd=1.0)])
def test_requests_that_a_runtime_drafts_and_one_that_passes_the_gateway_switch_no_budget_off(
    budget: Budget, gateway: bool
):
    with rig() as r:
        session = limited(r, task=budget)
        r.start(session)
        if gateway:
            through_gateway(r, session)
        for number in range(4):
            if r.last(session).type == "task.failed":
                break
            r.emit(asked(f"x{number}"), message("m", f"m{number}"), used())
            r.emit(call("fake.write", {"n": number}, f"c{number}", f"m{number}"))
        r.pass_time(1_000)
        assert r.one(session, ev.TaskFailed).error.code == "BUDGET_EXCEEDED"
        assert 1 <= len(r.tools.invocations) <= 2


def test_after_a_request_that_passed_the_gateway_messages_that_follow_calls_still_count_as_requests():
    with rig() as r:
        session = limited(r, task=Budget(requests=3))
        r.start(session)
        through_gateway(r, session)
        for number in range(6):
            if r.last(session).type == "task.failed":
                break
            r.emit(message("m", f"m{number}"), call("fake.write", {"n": number}, f"c{number}", f"m{number}"))
        r.pass_time(1_000)
        assert r.one(session, ev.TaskFailed).error.code == "BUDGET_EXCEEDED"
        assert len(r.tools.invocations) <= 4


@pytest.mark.parametrize("budget", [Budget(requests=3), Budget(tokens=300), Budget(cost_usd=1.5)])
def test_requests_that_gateway_and_runtime_both_report_count_once_and_the_last_answer_is_kept(budget: Budget):
    with rig() as r:
        session = limited(r, task=budget)
        r.start(session)
        for number in range(3):
            through_gateway(r, session)
            r.emit(asked(f"x{number}"), message("m", f"m{number}"), message("n", f"n{number}"), used())
            if number < 2:
                r.emit(call("fake.write", {"n": number}, f"c{number}", f"m{number}"))
        r.emit(done())
        assert r.last(session).type == "task.completed"
        assert spent(r, session) == (3, 300, 1.5)


def test_a_runtime_that_drafts_its_requests_and_writes_messages_is_counted_once():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(*(item for n in range(3) for item in (asked(f"x{n}"), message("m", f"m{n}"), used())), done())
        assert spent(r, session) == (3, 300, 1.5)


@pytest.mark.parametrize(
    "payload",
    [
        lambda one: ev.RequestStarted(request_id=one, purpose="main"),
        lambda one: ev.RequestCompleted(request_id=one, status="ok", duration_ms=1),
        lambda one: ev.UsageReported(model="m", cost_usd=0.5, source="runtime", request_id=one, **COUNTS),
    ],
)
def test_a_runtime_cannot_speak_of_a_request_in_the_name_of_the_gateway(payload: Callable[[str], Any]):
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(Draft(payload(r.stamper.mint("req"))), done())
        (notice,) = r.all(session, ev.RuntimeNotice)
        assert "an id of a request that only CodeSDK gives" in notice.message
        assert r.get(session.info()).spent is None
