"""Spending compared with budgets: over a limit, near one, or neither, and what open requests may still use.

`requests` checks before a model request goes out, `calls` before a tool call is judged. Raising a budget
grants the same amount once more.
"""

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import BudgetLevel
from codesdk.contract.ports import EventLog
from codesdk.contract.records import Spent
from codesdk.contract.settings import Budget
from codesdk.engine.log.state import SessionState

NEAR = 0.8
"""The share of a budget after which somebody is asked, so that there is time to answer."""
_PAGE = 500


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far one limit is used up."""

    level: BudgetLevel
    what: str
    used: float
    limit: float

    @property
    def over(self) -> bool:
        """Whether it is used up."""
        return self.used >= self.limit

    def has_room(self, held: "_Held", expected: Spent) -> bool:
        """Return whether a request fits within the limit, beside what the open ones may still use."""
        if self.what == "requests":  # counted when they begin, so the open ones are among the used
            return not self.over
        if self.what == "tokens":
            return self.used + held.tokens + expected.tokens <= self.limit
        return self.used + held.cost_usd + expected.cost_usd <= self.limit

    @property
    def summary(self) -> str:
        """The question for a person who may raise it."""
        state = "is used up" if self.over else "is nearly used up"
        whose = {"task": "a task", "session": "this session", "principal": "all your sessions"}[self.level]
        return (
            f"The budget of {whose} {state}: {_amount(self.what, self.used)} of {_amount(self.what, self.limit)}"
            f" {self.what}. Raise it by the same amount?"
        )

    @property
    def error(self) -> ErrorInfo:
        """The error of a task that it ends."""
        message = (
            f"The {self.level} budget of {_amount(self.what, self.limit)} {self.what} is used up."
            " Approve the open budget question, then resume the session."
        )
        details = {"level": self.level, "what": self.what, "used": self.used, "limit": self.limit}
        return ErrorInfo(code="BUDGET_EXCEEDED", message=message, retryable=False, details=details)


def find_over(state: SessionState, principal: tuple[Budget, Spent] | None) -> Standing | None:
    """Return a limit that is used up, or None."""
    return next((standing for standing in _standings(state, principal) if standing.over), None)


def find_near(state: SessionState, principal: tuple[Budget, Spent] | None) -> Standing | None:
    """Return a limit that is nearly used up, or None."""
    near = (standing for standing in _standings(state, principal) if standing.used >= NEAR * standing.limit)
    return next(near, None)


def limits_cost(state: SessionState, principal: tuple[Budget, Spent] | None) -> bool:
    """Return whether the cost is limited, so that a model without a known price cannot be used."""
    return any(budget.cost_usd is not None for _, budget, _ in _budgets(state, principal))


def limits_use(state: SessionState, principal: tuple[Budget, Spent] | None) -> bool:
    """Return whether tokens or cost are limited, so that open requests have to reserve what they may use."""
    return any(
        budget.tokens is not None or budget.cost_usd is not None
        for _, budget, _ in _budgets(state, principal)
    )


def is_asked(state: SessionState, level: BudgetLevel) -> bool:
    """Return whether somebody was already asked to raise a budget and has not answered."""
    return any(question.level == level for question in state.budget_questions.values())


def _standings(state: SessionState, principal: tuple[Budget, Spent] | None) -> Iterator[Standing]:
    for level, budget, spent in _budgets(state, principal):
        allotments = 1 + state.raises.get(level, 0)
        for what, limit, used in (
            ("requests", budget.requests, spent.requests),
            ("tokens", budget.tokens, spent.tokens),
            ("dollars", budget.cost_usd, spent.cost_usd),
        ):
            if limit is not None:
                yield Standing(level=level, what=what, used=used, limit=limit * allotments)


def _budgets(
    state: SessionState, principal: tuple[Budget, Spent] | None
) -> Iterator[tuple[BudgetLevel, Budget, Spent]]:
    budgets = state.config.budgets
    if budgets is not None and budgets.task is not None and state.task is not None:
        yield "task", budgets.task, state.task.spent
    if budgets is not None and budgets.session is not None:
        yield "session", budgets.session, state.spent
    if principal is not None:
        yield "principal", *principal


def _places(state: SessionState) -> Iterator[tuple[BudgetLevel, str]]:
    """Return whose budgets a request of a session counts for."""
    if state.task is not None:
        yield "task", state.task.task_id
    yield "session", state.session_id
    yield "principal", state.principal


def _amount(what: str, value: float) -> str:
    return f"{value:.4g}" if what == "dollars" else f"{value:,.0f}"


class _Held(msgspec.Struct):
    """What the open requests of a task, session or principal are expected to spend."""

    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def add(self, expected: Spent, times: int) -> None:
        self.requests += times
        self.tokens += times * expected.tokens
        self.cost_usd += times * expected.cost_usd


class Spending:
    """What each limited principal has spent over all stored sessions: summed once, then kept current.

    A deleted session's spending is gone after the next start. Also what open requests have reserved, of all levels.
    """

    def __init__(self, log: EventLog, budget: Budget | None) -> None:
        self._log = log
        self._budget = budget
        self._spent: dict[str, Spent] = {}
        self._lock = asyncio.Lock()
        self._held: dict[tuple[BudgetLevel, str], _Held] = {}
        self._released: dict[str, asyncio.Event] = {}

    async def load(self, principal: str) -> None:
        """Load a principal's spending, once."""
        if self._budget is None:
            return
        async with self._lock:
            if principal not in self._spent:
                self._spent[principal] = await self._sum(principal)

    def standing(self, principal: str) -> tuple[Budget, Spent] | None:
        """Return a principal's budget and what it has spent, or None if it is not limited."""
        if self._budget is None:
            return None
        return self._budget, self._spent.get(principal, Spent())

    def follow(self, state: SessionState, before: Spent) -> None:
        """Add to a principal's spending what one of its sessions has spent since `before`."""
        principal = state.principal
        if principal in self._spent:
            self._spent[principal] = self._spent[principal].plus(state.spent.minus(before))

    def fits(self, state: SessionState, expected: Spent) -> bool:
        """Return whether a request fits beside the open ones. Where none is open, it does: an estimate refuses nothing."""
        places = dict(_places(state))
        for standing in _standings(state, self.standing(state.principal)):
            held = self._held.get((standing.level, places[standing.level]))
            if held is not None and not standing.has_room(held, expected):
                return False
        return True

    def hold(self, state: SessionState, expected: Spent) -> Callable[[], None]:
        """Reserve what a request is expected to spend. Return the function that ends the reservation."""
        places, principal = list(_places(state)), state.principal
        for place in places:
            self._held.setdefault(place, _Held()).add(expected, 1)

        def release() -> None:
            for place in places:
                held = self._held[place]
                held.add(expected, -1)
                if not held.requests:  # also drops what rounding has left of the cost
                    del self._held[place]
            self.wake(principal)

        return release

    async def wait(self, principal: str) -> None:
        """Wait until a reservation of a principal has ended, or somebody calls `wake`."""
        await self._released.setdefault(principal, asyncio.Event()).wait()

    def wake(self, principal: str) -> None:
        """Wake everyone who waits, to look again."""
        released = self._released.pop(principal, None)
        if released is not None:
            released.set()

    async def _sum(self, principal: str) -> Spent:
        total, after = Spent(), None
        while True:
            page = await self._log.sessions(after=after, limit=_PAGE, principal=principal, status=None)
            for row in page:
                if row.spent is not None:
                    total = total.plus(row.spent)
            if len(page) < _PAGE:
                return total
            after = page[-1].session_id
