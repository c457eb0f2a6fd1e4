"""Questions to a person while a call waits: asked, answered, and closed when nobody answers.

The ledger writes questions and answers; this module waits for them and checks which may still be answered.
"""

import asyncio
from collections.abc import Mapping, Sequence

from codesdk.contract.errors import SETTLED, Conflict, Forbidden, NotFound
from codesdk.contract.events import BudgetLevel
from codesdk.contract.tools import Actor, Decision, Question, Scope
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import check_identity
from codesdk.engine.calls.inputs import LiveCall
from codesdk.engine.calls.questions import clean_question, unanswerable
from codesdk.engine.log.clock import iso, millis
from codesdk.engine.log.state import CallState
from codesdk.engine.models.limits import Standing
from codesdk.engine.sessions.scope import SessionScope
from codesdk.policy import may_answer


class Approvals:
    """The open questions of one task. `live` holds its calls by attempt key."""

    def __init__(self, scope: SessionScope, live: Mapping[str, LiveCall]) -> None:
        self._scope = scope
        self._live = live
        self._budgets_asked: set[BudgetLevel] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._answers: dict[str, str] = {}

    async def ask(self, call: LiveCall) -> None:
        """Ask about a call and return when it is decided. No answer in time denies it."""
        journal, state = self._scope.journal, call.state
        question = None if call.prepared is None else call.prepared.question
        if question is None:
            summary = ledger.summarize(state.name, call.input.stored)
        else:
            question = clean_question(self._scope, question)
            summary = ledger.summarize_question(question)
        await self._wait(ledger.ask(journal, state, summary, self._expiry(), question))
        if self._scope.state.is_open(state) and state.phase == "waiting":
            # Nobody answered in time. A stop or another answer would have closed it.
            ledger.refuse(journal, state, self._nobody())

    async def ask_budget(self, standing: Standing) -> None:
        """Ask once per task and level whether to raise a nearly used up budget. Work goes on either way."""
        task = self._scope.state.task
        if standing.level in self._budgets_asked or task is None or task.stop is not None:
            return
        self._budgets_asked.add(standing.level)
        journal = self._scope.journal
        approval_id = ledger.ask_budget(journal, standing.level, standing.summary, expires_at=self._expiry())
        await self._wait(approval_id)
        if approval_id in self._scope.state.budget_questions:
            ledger.answer_question(journal, approval_id, "deny", ledger.ENGINE, self._nobody())

    async def ask_for_server(self, question: Question, asked: set[str]) -> str | None:
        """Ask what an MCP server asks while it works on a call. Return the answer, or None if there is none.

        `asked` holds the question while it is open.
        """
        task = self._scope.state.task
        if task is None or task.stop is not None:
            return None
        journal = self._scope.journal
        approval_id = ledger.ask_for_server(journal, question, self._expiry())
        asked.add(approval_id)
        try:
            await self._wait(approval_id)
        finally:
            asked.discard(approval_id)
            if approval_id in self._scope.state.server_questions:
                ledger.answer_question(journal, approval_id, "deny", ledger.ENGINE, self._nobody())
        return self._answers.pop(approval_id, None)

    def answer_server(self, approval_id: str, text: str | None, by: Actor, reason: str | None) -> None:
        """Record a person's answer to an MCP server, or that there is none, and wake who waits for it."""
        decision: Decision = "deny" if text is None else "approve"
        ledger.answer_question(self._scope.journal, approval_id, decision, by, reason, text)
        if text is not None:
            self._answers[approval_id] = text
        self.wake(approval_id)

    def close_server_questions(self, asked: set[str], why: str) -> None:
        """Close what an MCP server asked during a call that has ended."""
        for approval_id in list(asked):
            if approval_id in self._scope.state.server_questions:
                self._decline(approval_id, why)

    def _decline(self, approval_id: str, why: str) -> None:
        ledger.answer_question(self._scope.journal, approval_id, "deny", ledger.ENGINE, why)
        self.wake(approval_id)

    async def answer(
        self,
        tool_call_id: str,
        decision: Decision,
        by: Actor,
        scope: Scope,
        reason: str | None,
        attempt: int | None,
        input_hash: str | None,
        text: str | None = None,
    ) -> None:
        """Record a person's answer to a call. Repeating what was already decided is no error.

        `text` answers what the call itself asks.
        """
        state = self._find(tool_call_id, decision)
        if state is None:
            _refuse_late(by, tool_call_id)
            return
        check_identity(state.identity, attempt, input_hash)
        call = self._live.get(state.key)
        # An answer may come before the policy has spoken; the policy's opinions are recorded first.
        if call is not None and not call.judged.done():
            await asyncio.wait([call.judged])
        if state.question is not None and decision == "approve" and text is None:
            raise unanswerable(tool_call_id)
        approval_id = state.approval_id
        # Somebody else may have decided during that wait: agreeing is fine, `_find` raises otherwise.
        if state.phase != "waiting" or approval_id is None or not self._scope.state.is_open(state):
            self._find(tool_call_id, decision)
            _refuse_late(by, tool_call_id)
            return
        if by.kind == "extension" and not may_answer(ledger.extension_name(by), state.evaluations):
            raise Forbidden(
                f"No rule lets the extension {by.id} answer the question about {tool_call_id}: the rule that asks"
                f' must say answer_by = ["extension:{by.id}"].'
            )
        ledger.answer(self._scope.journal, state, decision, by, scope, reason, text)
        self.wake(approval_id)

    def deny_each(self, approval_ids: Sequence[str], by: Actor, reason: str) -> None:
        """Record that somebody denies some of the running task's questions. Those that are settled stay so."""
        known, journal = self._scope.state, self._scope.journal
        calls = {} if known.task is None else {call.approval_id: call for call in known.task.calls.values()}
        for approval_id in approval_ids:
            call = calls.get(approval_id)
            asked = known.budget_questions.get(approval_id) or known.server_questions.get(approval_id)
            if call is not None and call.phase == "waiting":
                ledger.answer(journal, call, "deny", by, "once", reason)
            elif asked is not None and asked.task_id is not None:
                ledger.answer_question(journal, approval_id, "deny", by, reason)
            self.wake(approval_id)

    def refuse(self, state: CallState, why: str) -> None:
        """Deny a call that nobody waits for any more, and close its question."""
        approval_id = state.approval_id
        ledger.refuse(self._scope.journal, state, why)
        if approval_id is not None:
            self.wake(approval_id)

    def refuse_all(self, why: str) -> None:
        """Deny the calls that wait for a person: nobody is left who would use the answer."""
        task = self._scope.state.task
        for state in list(task.calls.values()) if task is not None else []:
            if state.phase == "waiting" and state.approval_id is not None:
                self.refuse(state, why)

    def wake(self, approval_id: str) -> None:
        """Wake whoever waits for this answer, now recorded."""
        waiting = self._waiting.pop(approval_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def wake_all(self) -> None:
        """Wake everyone who waits."""
        for approval_id in list(self._waiting):
            self.wake(approval_id)

    def _find(self, tool_call_id: str, decision: Decision) -> CallState | None:
        """Return the call if it still waits, or None if it was decided the same way already."""
        task = self._scope.state.task
        if task is not None:
            for state in reversed(list(task.calls.values())):
                if state.identity.tool_call_id == tool_call_id and state.phase == "waiting":
                    return state
        decided = [] if task is None else [k for k in task.decisions if k.startswith(f"{tool_call_id}#")]
        if task is None or not decided:
            raise NotFound(f"No call {tool_call_id} waits for an answer in this task.")
        approved = task.decisions[decided[-1]]
        if approved != (decision == "approve"):
            raise Conflict(
                f"Call {tool_call_id} was already {'approved' if approved else 'denied'}.",
                details={SETTLED: True},
            )
        return None

    def leave(self) -> None:
        """End all waits and leave the questions open: the task is interrupted, and they are carried."""
        for waiting in self._waiting.values():
            waiting.cancel()

    async def _wait(self, approval_id: str) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[approval_id] = waiting
        await asyncio.wait([waiting], timeout=self._scope.settings.approval_timeout_s)
        self._waiting.pop(approval_id, None)
        if waiting.cancelled():
            raise asyncio.CancelledError

    def _expiry(self) -> str:
        timeout_s = self._scope.settings.approval_timeout_s
        return iso(millis(self._scope.journal.now()) + int(timeout_s * 1000))

    def _nobody(self) -> str:
        return f"Nobody answered within {self._scope.settings.approval_timeout_s:g} s."


def _refuse_late(by: Actor, tool_call_id: str) -> None:
    """Raise `Conflict` for an extension whose answer came too late. A person who agrees with it is not bothered."""
    if by.kind == "extension":
        raise Conflict(f"Call {tool_call_id} was decided already.", details={SETTLED: True})
