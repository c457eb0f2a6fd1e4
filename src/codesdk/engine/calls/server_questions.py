"""What is asked while a tool runs: an MCP server's elicitation, or a question of an application's tool.

Such a question ends with its call, so it is not carried over a crash: whoever asked it is gone then.
"""

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.tools import Question
from codesdk.engine.calls.approvals import Approvals
from codesdk.engine.calls.questions import clean_question, problem_of
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle

MAX_QUESTIONS = 16
"""How many questions one call may ask. A server can send them without an end, and each waits for a person."""
_OVER = "The call that asked has ended."


class ServerQuestions:
    """The questions that are asked during one call."""

    def __init__(self, scope: SessionScope, approvals: Approvals) -> None:
        self._scope = scope
        self._approvals = approvals
        self._open: set[str] = set()
        self._left = MAX_QUESTIONS
        self._over = False

    async def ask(self, question: Question) -> str | None:
        """Ask a person. Return the answer, or None if there is none, for whatever reason. Must not raise."""
        problem = self._problem(question)
        if problem is not None:
            self._note(question, problem)
            return None
        self._left -= 1
        try:
            return await self._approvals.ask_for_server(clean_question(self._scope, question), self._open)
        except CodeSDKError:  # the log cannot be written, which ends the task as well
            return None

    def close(self) -> None:
        """Close what is open: nobody waits for the answers any more."""
        self._over = True
        if self._scope.recorder.broken is None:
            self._approvals.close_server_questions(self._open, _OVER)

    def _problem(self, question: Question) -> str | None:
        """Return why nobody is asked, or None."""
        if self._over:
            return "its call has ended"
        if self._scope.state.config.interaction_mode == "non_interactive":
            return "nobody can be asked in a non-interactive session"
        if self._left <= 0:
            return f"one call may ask {MAX_QUESTIONS} questions"
        return problem_of(question)

    def _note(self, question: Question, problem: str) -> None:
        """Record that a question was declined, once for all that are too many."""
        if self._left < 0 or self._over or self._scope.recorder.broken is not None:
            return
        if self._left == 0:
            self._left = -1
        who = f"The MCP server {question.asker}" if question.asker else "A tool"
        words = f"{who} asked a question, which was declined: {problem}."
        lifecycle.notice(self._scope.journal, "warning", self._scope.redactor.text(words), {})
