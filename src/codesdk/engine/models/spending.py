"""What each principal has spent over all stored sessions: summed once, then kept current.

Nothing is summed unless principals have a budget. A deleted session's spending is gone after the next start.
"""

import asyncio

from codesdk.contract.ports import EventLog
from codesdk.contract.records import Spent
from codesdk.contract.settings import Budget

_PAGE = 500


class Spending:
    """The spending of principals, if they are limited."""

    def __init__(self, log: EventLog, budget: Budget | None) -> None:
        self._log = log
        self._budget = budget
        self._spent: dict[str, Spent] = {}
        self._lock = asyncio.Lock()

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

    def add(self, principal: str, spent: Spent) -> None:
        """Add what was just spent."""
        if principal in self._spent:
            self._spent[principal] = self._spent[principal].plus(spent)

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
