"""Questions to a person while a call waits: put, waited for, and closed when nobody answers.

What is asked and answered is written by the ledger; this is only the waiting. Used by `calls`.
"""

import asyncio
from collections.abc import Callable

from codesdk.contract.events import BudgetLevel
from codesdk.contract.tools import InteractionMode
from codesdk.engine.calls import ledger
from codesdk.engine.log.clock import iso, millis
from codesdk.engine.log.state import CallState
from codesdk.engine.models.limits import Standing
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle


class Questions:
    """The open questions of one task."""

    def __init__(self, scope: SessionScope, near_budget: Callable[[], Standing | None]) -> None:
        self._scope = scope
        self._near_budget = near_budget
        self._budgets_asked: set[BudgetLevel] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def about(self, call: CallState, summary: str, is_open: Callable[[CallState], bool]) -> None:
        """Ask about a call and return when it is decided; no answer in time is a denial."""
        await self._wait(ledger.ask(self._scope.journal, call, summary, self._expiry()))
        if is_open(call) and call.phase == "waiting":
            ledger.refuse(self._scope.journal, call, lifecycle.ENGINE, self._nobody())

    async def about_budget(self) -> None:
        """Ask once per task whether a budget that is nearly used up is raised. Whatever the answer, the work goes on."""
        mode: InteractionMode = self._scope.state.config.interaction_mode
        standing = self._near_budget() if mode == "interactive" else None
        task = self._scope.state.task
        if standing is None or standing.level in self._budgets_asked or task is None or task.stop is not None:
            return
        self._budgets_asked.add(standing.level)
        journal = self._scope.journal
        approval_id = ledger.ask_budget(journal, standing.level, standing.summary, expires_at=self._expiry())
        await self._wait(approval_id)
        if approval_id in self._scope.state.budget_questions:
            ledger.answer_budget(journal, approval_id, "deny", lifecycle.ENGINE, self._nobody())

    def wake(self, approval_id: str) -> None:
        """Let go on what waited for an answer that is written now."""
        waiting = self._waiting.pop(approval_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def wake_all(self) -> None:
        """Let go on whatever waits."""
        for approval_id in list(self._waiting):
            self.wake(approval_id)

    async def _wait(self, approval_id: str) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[approval_id] = waiting
        await asyncio.wait([waiting], timeout=self._scope.settings.approval_timeout_s)
        self._waiting.pop(approval_id, None)

    def _expiry(self) -> str:
        timeout_s = self._scope.settings.approval_timeout_s
        return iso(millis(self._scope.journal.stamper.now()) + int(timeout_s * 1000))

    def _nobody(self) -> str:
        return f"Nobody answered within {self._scope.settings.approval_timeout_s:g} s."
