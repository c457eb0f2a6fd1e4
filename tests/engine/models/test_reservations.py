"""Requests side by side on budgets of every level: whatever the order, at most one of them goes beyond a limit."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.contract.examples import EVENTS

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.models import ModelAsked, Refused, Tokens
from codesdk.contract.records import Spent
from codesdk.contract.settings import Budget, Budgets
from codesdk.engine.log.state import ActiveTask, SessionState
from codesdk.engine.models import reservations
from codesdk.engine.models.limits import Spending, Standing, find_over
from codesdk.engine.models.reservations import Reservations
from codesdk.engine.sessions.scope import SessionScope
from codesdk.store.memory import MemoryLog

CREATED: Any = EVENTS["session.created"].payload
LEVELS = ("task", "session", "principal")


def price(tokens: Tokens) -> float:
    return (tokens.input + tokens.output) / 1024  # exact in binary, so that limits can be compared


class Member:
    """A session of the principal, with a running task."""

    def __init__(self, number: int, spending: Spending, budgets: Budgets) -> None:
        task = ActiveTask(task_id=f"task_{number}", started_seq=1, started_at="", created_at="")
        created = msgspec.structs.replace(CREATED, budgets=budgets)
        self.state = SessionState(session_id=f"ses_{number}", principal="ann", created=created, task=task)
        self.spending = spending
        self.causes: list[ErrorInfo] = []
        scope = cast("SessionScope", SimpleNamespace(state=self.state))
        self.reservations = Reservations(scope, spending, self.refuse)

    def refuse(self, cause: ErrorInfo, standing: Standing | None) -> Refused:
        self.causes.append(cause)
        return Refused(cause.message)

    def spend(self, spent: Spent) -> None:
        """Count what a request has used, as the log does."""
        task, before = self.state.task, self.state.spent
        assert task is not None
        task.spent = task.spent.plus(spent)
        self.state.spent = self.state.spent.plus(spent)
        self.spending.follow(self.state, before)

    def spent(self, level: str) -> Spent:
        if level == "principal":
            standing = self.spending.standing("ann")
            assert standing is not None
            return standing[1]
        assert self.state.task is not None
        return self.state.task.spent if level == "task" else self.state.spent


class Request:
    """A request that asks for room, runs until it is let go, and then settles."""

    def __init__(self, name: str, member: Member, asked: ModelAsked, share: float) -> None:
        self.name = name
        self.member = member
        self.asked = asked
        self.share = share
        self.expected = Spent()
        self.end = asyncio.Event()
        self.is_open = False
        self.refused: Refused | None = None

    async def run(self, world: "World") -> None:
        over = find_over(self.member.state, self.member.spending.standing("ann"))
        if over is not None:  # as the session's tap does first
            self.refused = Refused(over.error.message)
            return
        self.refused = await self.member.reservations.room(self.asked)
        if self.refused is not None:
            return
        self.expected = self.member.reservations._expected(self.asked)
        world.check(self)
        self.member.reservations.take(self.name, self.asked)
        self.is_open = True
        await self.end.wait()
        self.is_open = False
        tokens = round(self.expected.tokens * self.share)
        used = Tokens(input=min(tokens, self.asked.estimated_input))
        used = Tokens(input=used.input, output=tokens - used.input)
        self.member.spend(Spent(tokens=tokens, cost_usd=price(used)))
        self.member.reservations.settle(self.name, used)


class World:
    """Two sessions of one principal, their budgets, and all their requests."""

    def __init__(self, budgets: dict[str, Budget]) -> None:
        self.budgets = budgets
        self.spending = Spending(MemoryLog(), budgets["principal"])
        own = Budgets(task=budgets["task"], session=budgets["session"])
        self.members = [Member(number, self.spending, own) for number in range(2)]
        self.requests: list[Request] = []
        self.largest = Spent()

    def open_beside(self, request: Request, level: str) -> list[Request]:
        return [
            other
            for other in self.requests
            if other.is_open and (level == "principal" or other.member is request.member)
        ]

    def check(self, request: Request) -> None:
        """Check that a request that is let through is the only one, or fits beside the open ones."""
        self.largest = self.largest.larger(request.expected)
        for level in LEVELS:
            beside, budget = self.open_beside(request, level), self.budgets[level]
            total = request.member.spent(level)
            for each in (*beside, request):
                total = total.plus(each.expected)
            if beside and budget.tokens is not None:
                assert total.tokens <= budget.tokens
            if beside and budget.cost_usd is not None:
                assert total.cost_usd <= budget.cost_usd

    def check_end(self) -> None:
        """Check that nobody waits for nothing, and that at most one request went beyond a limit."""
        assert all(request.refused is not None or request.end.is_set() for request in self.requests)
        for member in self.members:
            for level in LEVELS:
                spent, budget = member.spent(level), self.budgets[level]
                if budget.tokens is not None:
                    assert spent.tokens <= budget.tokens + self.largest.tokens
                if budget.cost_usd is not None:
                    assert spent.cost_usd <= budget.cost_usd + self.largest.cost_usd


async def quiet() -> None:
    """Let everything run that can."""
    for _ in range(8):
        await asyncio.sleep(0)


budgets = st.fixed_dictionaries(
    {
        level: st.builds(
            Budget,
            tokens=st.none() | st.integers(1, 40_000),
            cost_usd=st.none() | st.integers(1, 40).map(float),
        )
        for level in LEVELS
    }
)
steps = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5000), st.floats(0, 1), st.integers(0, 3)), max_size=30
)


@given(budgets=budgets, steps=steps)
def test_in_any_order_at_most_one_request_goes_beyond_its_budget(
    budgets: dict[str, Budget], steps: list[tuple[int, int, float, int]]
) -> None:
    async def play() -> None:
        world = World(budgets)
        await world.spending.load("ann")
        async with asyncio.TaskGroup() as group:
            for number, (whose, size, share, settled) in enumerate(steps):
                asked = ModelAsked(purpose="main", model="m", estimated_input=size, price=price)
                request = Request(f"req_{number}", world.members[whose], asked, share)
                world.requests.append(request)
                group.create_task(request.run(world))
                await quiet()
                await settle(world, settled)
            while any(request.is_open for request in world.requests):
                await settle(world, 1)
            for member in world.members:
                member.reservations.turn_away()
        world.check_end()
        assert world.spending._held == {}

    asyncio.run(play())


async def settle(world: World, count: int) -> None:
    for request in [request for request in world.requests if request.is_open][:count]:
        request.end.set()
        await quiet()


# --- how a wait ends ----------------------------------------------------------------------------------------


async def two(tokens: int = 5000) -> tuple[World, Request, Request, asyncio.Task[None], asyncio.Task[None]]:
    """Return a world with an open request and one that waits for it."""
    world = World({"task": Budget(), "session": Budget(tokens=tokens), "principal": Budget()})
    asked = ModelAsked(purpose="main", model="m", estimated_input=1000)
    first, second = [Request(name, world.members[0], asked, 1.0) for name in ("first", "second")]
    world.requests += [first, second]
    tasks = [asyncio.create_task(request.run(world)) for request in world.requests]
    await quiet()
    assert (first.is_open, second.is_open, second.refused) == (True, False, None)
    return world, first, second, tasks[0], tasks[1]


async def test_a_request_that_waited_is_refused_when_the_budget_is_used_up() -> None:
    world, first, second, *tasks = await two()
    first.end.set()
    await asyncio.gather(*tasks)
    assert second.refused is not None
    assert [cause.code for cause in world.members[0].causes] == ["BUDGET_EXCEEDED"]


async def test_a_request_that_waits_is_turned_away_when_its_task_ends() -> None:
    world, first, second, _, waiting = await two()
    world.members[0].reservations.turn_away()
    await waiting
    assert second.refused == Refused("The task of this request has ended.")
    assert world.members[0].causes == []
    first.end.set()


async def test_a_client_that_leaves_while_it_waits_holds_nothing() -> None:
    world, first, _, running, waiting = await two(tokens=9000)
    waiting.cancel()
    await asyncio.wait([waiting])
    first.end.set()
    await running
    assert world.spending._held == {}
    assert world.members[0].reservations._waiting == 0


async def test_a_wait_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "BUDGET_WAIT_S", 0.01)
    world, first, second, _, waiting = await two()
    await waiting
    assert second.refused is not None
    [cause] = world.members[0].causes
    assert cause.message.startswith("Open requests have reserved what is left of a budget")
    first.end.set()


async def test_only_so_many_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "MAX_WAITING", 1)
    world, first, second, *_ = await two()
    third = Request("third", world.members[0], second.asked, 1.0)
    await third.run(world)
    assert third.refused is not None
    assert world.members[0].causes[0].message.startswith("More than 1 requests wait")
    first.end.set()
