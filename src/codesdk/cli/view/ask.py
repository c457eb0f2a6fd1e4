"""Questions at the terminal: a tool call waits, a person answers, the session is told.

Reading the keyboard never blocks, so that an answer from elsewhere, a timeout or a stop also ends a question.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Coroutine
from typing import Any

from codesdk.cli.view.pieces import chosen, note, prompt_line, question_lines, whole_input
from codesdk.cli.view.screen import Screen
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import ApprovalAnswered, ApprovalRequested
from codesdk.contract.tools import Question
from codesdk.handles import Session

DENIED = "Denied at the terminal."
NO_INPUT = "Denied: the terminal's input has ended."
DECLINED = "Declined at the terminal."
_CHOICES = (("y", "yes"), ("n", "no [reason]"), ("a", "always in this session"), ("s", "show"))
_ANSWER = (("…", "your answer, or a number from above"), ("⏎", "decline"))


class Keyboard:
    """Lines from the terminal, read only while a question waits for one."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._take: Callable[[str | None], None] | None = None
        self._rest = b""

    def listen(self, take: Callable[[str | None], None], *, fresh: bool) -> None:
        """Call `take` with the next line, or None at the end of input.

        `fresh` discards what was typed before, so that it cannot answer a question nobody had seen yet.
        """
        if fresh:
            self._rest = b""
            try:
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
            except termios.error:
                pass
        if self._take is None:
            asyncio.get_running_loop().add_reader(self._descriptor, self._ready)
        self._take = take

    def ignore(self) -> None:
        """Stop reading."""
        if self._take is not None:
            self._take = None
            asyncio.get_running_loop().remove_reader(self._descriptor)

    def _ready(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except OSError:
            data = b""
        take = self._take
        if not data and take is not None:
            self.ignore()
            take(None)
        self._rest += data
        if b"\n" in self._rest and take is not None:
            line, _, self._rest = self._rest.partition(b"\n")
            self.ignore()
            take(line.decode("utf-8", "replace"))


class Asker:
    """Asks one question after the other. `introduce` shows the call in question and returns its input."""

    def __init__(
        self,
        screen: Screen,
        session: Session,
        introduce: Callable[[str], Any],
        keyboard: Keyboard | None = None,
        *,
        denies_by_default: bool = False,
    ) -> None:
        """`denies_by_default`: an empty line is a no. Otherwise it is no answer."""
        self._console = screen.console
        self._send = screen.send
        self._session = session
        self._introduce = introduce
        self._input: Any = None
        self._keyboard = keyboard or Keyboard()
        self._denies_by_default = denies_by_default
        self._open: dict[str, ApprovalRequested] = {}
        self._current: ApprovalRequested | None = None
        self._on_prompt = False
        self._ended = False
        self._work: set[asyncio.Task[None]] = set()

    @property
    def asking(self) -> bool:
        """Whether a question is on the screen."""
        return self._current is not None

    def step_aside(self) -> None:
        """Leave the line of the prompt: something else is about to be printed."""
        if self._on_prompt:
            self._on_prompt = False
            self._console.print()

    def step_back(self) -> None:
        """Show the prompt again, or ask the next question."""
        if self._current is None:
            self._next()
        elif not self._on_prompt:
            self._prompt()

    def ask(self, question: ApprovalRequested) -> None:
        """Queue a question."""
        self._open[question.approval_id] = question

    def settle(self, answer: ApprovalAnswered) -> None:
        """Drop a question that was answered, here or elsewhere."""
        self._open.pop(answer.approval_id, None)
        if self._current is not None and self._current.approval_id == answer.approval_id:
            self._current = None
            self._keyboard.ignore()

    def close(self) -> None:
        """Stop asking."""
        self._open.clear()
        self._current = None
        self._keyboard.ignore()
        for work in self._work:
            work.cancel()

    def _next(self) -> None:
        question = next(iter(self._open.values()), None)
        if question is None:
            return
        self._current = question
        if self._ended:  # nobody can type an answer any more, and the task must not wait for one
            self._begin(self._deny(question, NO_INPUT))
            return
        if question.question is not None:
            for line in question_lines(question.question):
                self._console.print(line)
        elif question.tool_call_id is None:
            self._input = None
            self._console.print(note(question.summary, "yellow"))
        else:
            self._input = self._introduce(question.tool_call_id)
        self._prompt()
        self._keyboard.listen(self._typed, fresh=True)

    def _prompt(self) -> None:
        about_call = self._current is None or self._current.tool_call_id is not None
        # A question about a budget has no tool to approve for the session, and no input to show.
        choices = _CHOICES if about_call else _CHOICES[:2]
        if self._denies_by_default:
            choices = tuple((f"{key}/⏎" if key == "n" else key, meaning) for key, meaning in choices)
        if self._current is not None and self._current.question is not None:
            choices = _ANSWER
        self._console.print(prompt_line(choices), end="", soft_wrap=True)
        self._on_prompt = True

    def _typed(self, line: str | None) -> None:
        self._on_prompt = False
        if line is None:
            self._ended = True
        if self._current is not None:
            self._begin(self._act(self._current, line))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _act(self, question: ApprovalRequested, line: str | None) -> None:
        if line is None:
            self._console.print()
            await self._deny(question, NO_INPUT)
            return
        if question.question is not None:
            await self._answer(question, question.question, line)
            return
        word, _, reason = line.strip().partition(" ")
        word = word.lower()
        if word in ("y", "yes") and not reason:
            await self._approve(question, always=False)
        elif word in ("a", "always") and not reason:
            await self._approve(question, always=True)
        elif word in ("n", "no") or (not word and self._denies_by_default):
            await self._deny(question, reason.strip() or DENIED)
        else:
            if word in ("s", "show"):
                for text in whole_input(self._input):
                    self._console.print(text)
            if self._current is question:
                self._prompt()
                self._keyboard.listen(self._typed, fresh=False)
        await self._send()

    async def _answer(self, approval: ApprovalRequested, question: Question, line: str) -> None:
        """Answer a question with what was typed. If that is not what it expects, ask again."""
        text = chosen(question, line)
        if not text and not question.optional:
            await self._deny(approval, DECLINED)
        elif (
            not await self._tell(self._session.answer(approval.approval_id, text))
            and self._current is approval
        ):
            self._prompt()
            self._keyboard.listen(self._typed, fresh=False)
        await self._send()

    async def _approve(self, question: ApprovalRequested, *, always: bool) -> None:
        scope = "session" if always else "once"
        await self._tell(self._session.approve(**_meant(question), scope=scope))

    async def _deny(self, question: ApprovalRequested, reason: str) -> None:
        await self._tell(self._session.deny(**_meant(question), reason=reason))

    async def _tell(self, answering: Coroutine[Any, Any, None]) -> bool:
        """Deliver an answer, and return whether it was taken. If the call was decided meanwhile, say so; the task goes on."""
        try:
            await answering
        except CodeSDKError as error:
            self._console.print(note(error.message, "yellow"))
            await self._send()
            return False
        return True


def _meant(question: ApprovalRequested) -> dict[str, Any]:
    """Return the call with its attempt and hash, so that an answer is refused if another one was shown."""
    return {
        "tool_call_id": question.tool_call_id or question.approval_id,
        "attempt": question.attempt,
        "input_hash": question.input_hash,
    }
