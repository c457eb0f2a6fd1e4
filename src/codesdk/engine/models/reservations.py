"""Model requests that run side by side, kept within a budget: each reserves what it will probably use.

A request that does not fit beside the open ones waits until one of them settles. The first of a task, session or
principal always passes, so an estimate alone never refuses anything, and a budget is exceeded by the estimate of one
request at most, and by as much as answers turn out larger than estimated.
"""

import asyncio
from collections.abc import Callable

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.models import ModelAsked, Refused, Tokens
from codesdk.contract.records import Spent
from codesdk.engine.models.limits import Spending, Standing, find_over, limits_use
from codesdk.engine.sessions.scope import SessionScope

BUDGET_WAIT_S = 300.0
"""How long a request waits for room in a budget."""
MAX_WAITING = 64
"""How many requests of a session may wait for that."""
ASSUMED_OUTPUT = 4096
"""How many tokens an answer is taken to have before there was any; in the mean it counts as one answer."""


class Reservations:
    """The reservations of one session's requests. `refuse` ends the task for a reason."""

    def __init__(
        self,
        scope: SessionScope,
        spending: Spending,
        refuse: Callable[[ErrorInfo, Standing | None], Refused],
    ) -> None:
        self._scope = scope
        self._spending = spending
        self._refuse = refuse
        self._releases: dict[str, Callable[[], None]] = {}
        self._output = ASSUMED_OUTPUT
        self._answers = 1
        self._waiting = 0
        self._turned_away = 0

    async def room(self, asked: ModelAsked) -> Refused | None:
        """Wait until the request fits beside the open ones. Return why it must not go out if it never does."""
        if not self._is_limited(asked) or self._fits(asked):
            return None
        if self._waiting >= MAX_WAITING:
            return self._no_room(f"More than {MAX_WAITING} requests wait for room in a budget")
        self._waiting += 1
        try:
            async with asyncio.timeout(BUDGET_WAIT_S):
                return await self._wait(asked)
        except TimeoutError:
            return self._no_room(
                f"Open requests have reserved what is left of a budget, and none ended within {BUDGET_WAIT_S:g} s"
            )
        finally:
            self._waiting -= 1

    def take(self, request_id: str, asked: ModelAsked) -> None:
        """Reserve what a request will probably use. Call it without an await after `room`."""
        if self._is_limited(asked):
            expected = self._expected(asked)
            self._releases[request_id] = self._spending.hold(self._scope.state, expected)

    def settle(self, request_id: str, used: Tokens | None) -> None:
        """End a reservation. Call it when what was really used is counted, and without an await in between."""
        if used is not None:
            self._output += used.output + used.reasoning
            self._answers += 1
        release = self._releases.pop(request_id, None)
        if release is not None:
            release()

    def turn_away(self) -> None:
        """Refuse the requests that wait: their task ends."""
        self._turned_away += 1
        self._spending.wake(self._scope.state.principal)

    async def _wait(self, asked: ModelAsked) -> Refused | None:
        state, turned_away = self._scope.state, self._turned_away
        while not self._fits(asked):
            await self._spending.wait(state.principal)
            if self._turned_away != turned_away:
                return Refused("The task of this request has ended.")
            standing = find_over(state, self._spending.standing(state.principal))
            if standing is not None:
                return self._refuse(standing.error, standing)
        return None

    def _no_room(self, what: str) -> Refused:
        message = f"{what}. Start the task again with fewer requests at once, or raise the budget."
        return self._refuse(ErrorInfo(code="BUDGET_EXCEEDED", message=message, retryable=True), None)

    def _is_limited(self, asked: ModelAsked) -> bool:
        state = self._scope.state
        return not asked.asks_no_model and limits_use(state, self._spending.standing(state.principal))

    def _fits(self, asked: ModelAsked) -> bool:
        return self._spending.fits(self._scope.state, self._expected(asked))

    def _expected(self, asked: ModelAsked) -> Spent:
        """Return what a request will probably use: its input, and as much output as the session's mean."""
        tokens = Tokens(input=asked.estimated_input, output=self._output // self._answers)
        return Spent(tokens=tokens.input + tokens.output, cost_usd=asked.price_of(tokens) or 0.0)
