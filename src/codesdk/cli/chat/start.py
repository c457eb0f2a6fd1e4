"""From the command line to the prompt, and behind it to a conversation.

The prompt is on the screen before anything heavy is loaded; what is typed meanwhile waits, and is sent then.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from codesdk.cli.chat.complete import ChatCompleter
from codesdk.cli.chat.logs import remarks
from codesdk.cli.chat.marks import SAYS
from codesdk.cli.chat.pastes import Pastes
from codesdk.cli.chat.screen import Screen
from codesdk.contract.errors import CodeSDKError

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation
    from codesdk.cli.chat.plain import PlainScreen

TICK_S = 0.25
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Plan(NamedTuple):
    """What a chat is started with. `connect` loads the rest and opens it."""

    workspace: Path
    history: Path | None
    connect: "Callable[[Chat], AbstractAsyncContextManager[Conversation]]"


class Chat:
    """What the screen asks and tells: a conversation, once there is one."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.talk: Conversation | None = None
        self.colour = not os.environ.get("NO_COLOR")
        self.styled = os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self.completer = ChatCompleter(plan.workspace)
        self.screen: Screen | PlainScreen = self._screen()
        self.pastes = Pastes()
        self._early: list[str] = []
        self._remarks: list[str] = []
        self._answered = False

    def _screen(self) -> "Screen | PlainScreen":
        if not self.styled:
            from codesdk.cli.chat.plain import PlainScreen

            return PlainScreen(self)
        return Screen(self, self.completer, self._plan.history, colour=self.colour)

    async def run(self) -> None:
        """Talk until somebody leaves."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        behind = asyncio.create_task(self._behind())
        try:
            with remarks(self._warn):
                await self.screen.run()
        finally:
            # Whoever does not want to wait for the end presses Ctrl-C once more.
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: os._exit(130))
            behind.cancel()
            await asyncio.wait([behind])
        if not behind.cancelled() and (error := behind.exception()) is not None:
            raise error

    async def _behind(self) -> None:
        """Load, connect, and keep the clock of the screen."""
        await self.screen.ready.wait()
        try:
            await self._converse()
        except (CodeSDKError, OSError) as error:
            self.screen.fail(error)

    async def _converse(self) -> None:
        async with self._plan.connect(self) as talk:
            self.talk = talk
            self.completer.talk = talk
            self._remark()
            self.screen.refresh()
            early, self._early = self._early, []
            for text in early:
                self.enter(text)
            beats = 0
            while True:
                await asyncio.sleep(TICK_S)
                beats += 1
                if talk.desk.front is not None or (talk.facts.task_id is not None and beats % 4 == 0):
                    self.screen.refresh()

    def _signalled(self, number: int) -> None:
        if number == signal.SIGINT:
            self.interrupt(False)
        else:
            self.screen.leave()

    @property
    def session_id(self) -> str | None:
        """The session that the chat is in."""
        return None if self.talk is None or self.talk.session is None else self.talk.session.id

    # --- what the screen asks -----------------------------------------------------------------------

    def live(self, most: int) -> list[str]:
        """Return the lines that still change."""
        if self.talk is None:
            return []
        self.talk.paint.resize(self.screen.columns)
        return self.talk.story.live(most)

    def panel(self, most: int) -> list[str]:
        """Return what waits for an answer."""
        return [] if self.talk is None else self.talk.answers.panel(most, self.screen.typed)

    def label(self) -> str:
        """Return what stands before the line that is typed."""
        if self.talk is not None:
            if self.talk.desk.reason_for is not None:
                return f"why not {SAYS} "
            if self.talk.desk.takes_line(self.screen.typed):
                return f"answer {SAYS} "
        return f"{SAYS} "

    def status(self) -> str:
        """Return the words of the last line."""
        if self.talk is None:
            return f"starting{'; what you send waits' if self._early else ''}"
        facts = self.talk.facts
        if self.talk.leaving:
            return "Ctrl-C again leaves"
        if facts.stopping:
            return "stopping · Ctrl-C again leaves"
        words = " · ".join(["sending"] * bool(self.talk.sending) + facts.parts())
        if facts.task_id is None:
            return f"{words} · /help"
        does = "steers" if self.talk.steers else "queues"
        return f"{facts.doing} · Ctrl-C stops · Enter {does} · {words}"

    # --- what it tells ------------------------------------------------------------------------------

    def enter(self, text: str) -> bool:
        """Take a line: an answer, a command or a message."""
        if self.talk is None:
            if text.strip():
                self._early.append(text)
            return bool(text.strip())
        self.talk.leaving = 0
        if self.talk.answers.line(text):
            return True
        if not text.strip():
            return False
        from codesdk.cli.chat.commands import command_in

        command = command_in(text, self.talk)
        work = self.talk.send(text) if command is None else command
        self.talk.spawn(work, text)
        return True

    def answers(self, key: str) -> bool:
        """Return whether a key would answer what is asked."""
        talk = self.talk
        return (
            talk is not None and talk.desk.takes_keys(self.screen.typed) and talk.desk.verb(key) is not None
        )

    def answer(self, key: str) -> None:
        """Take such a key."""
        if self.talk is not None:
            self._answered = True
            self.talk.answers.press(key)

    def paste(self, text: str) -> str:
        """Return what goes into the line for a paste."""
        pasted = self.pastes.take(text)
        if pasted.remark:
            self._warn(pasted.remark)
        return pasted.text

    def _warn(self, text: str) -> None:
        self._remarks.append(text)
        self._remark()

    def _remark(self) -> None:
        """Say what there is to say, once there is somebody to say it."""
        while self.talk is not None and self._remarks:
            self.talk.say(self._remarks.pop(0), "yellow")

    def interrupt(self, typed: bool) -> bool:
        """Stop the task, then leave. Without a task, clear the line, then leave."""
        talk = self.talk
        if talk is None:
            self.screen.leave()
            return False
        if talk.desk.reason_for is not None:
            talk.desk.reason_for = None
            return True
        if talk.facts.task_id is not None:
            if talk.facts.stopping:
                self.screen.leave()
            else:
                talk.stop()
            return False
        if typed:
            return True
        if talk.leaving:
            self.screen.leave()
        talk.leaving = 2
        return False

    def leave(self) -> None:
        """Leave."""
        self.screen.leave()

    def pressed(self) -> None:
        """Note that a key was pressed."""
        answered, self._answered = self._answered, False
        if self.talk is not None and not answered:  # an answer is no typing
            self.talk.desk.pressed()
            self.talk.leaving = max(0, self.talk.leaving - 1)


def has_terminal() -> bool:
    """Return whether somebody sits at a terminal."""
    with contextlib.suppress(ValueError):  # a stream that is closed
        return sys.stdin.isatty() and sys.stdout.isatty()
    return False
