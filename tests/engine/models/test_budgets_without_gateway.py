"""Budgets hold for a runtime whose requests no gateway sees: by its messages, and by what it reports."""

import pytest
from tests.engine.rig import Rig, rig

from codesdk import CodeSDK, Session, SessionSettings
from codesdk.contract import events as ev
from codesdk.contract.errors import TaskFailure
from codesdk.contract.settings import Budget, Budgets, Limits

ASK = {"call": {"tool": "fake.write", "input": {"n": 1}}}
USAGE = {"input": 60, "output": 40, "cost_usd": 0.5}
TURNS = [{"steps": [{"text": f"turn {n}"}, ASK], "usage": USAGE} for n in range(4)]
SILENT = [{"steps": [ASK], "usage": USAGE} for _ in range(4)]
DONE = [{"steps": [{"text": "done"}], "usage": USAGE} for _ in range(4)]


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
