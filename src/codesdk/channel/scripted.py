"""A program that is no process: it says what a test tells it to, and remembers what it was told. For tests."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from codesdk.channel.protocol import PolicyAbort, PolicyCommand, PolicyDecision, ToolEvent
from codesdk.channel.runner import Exchange, Launch, ParsedEvent, RunnerSession, StreamClosed, ToolSeen

Play = Callable[["ScriptedSession"], Awaitable[int]]
"""What the program does; returns its exit code."""


class ScriptedSession(Exchange):
    """The session of a scripted program, and what it has at hand. Implements `RunnerSession`."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self.told: list[PolicyCommand] = []
        self.signals: list[signal.Signals] = []
        self._news = asyncio.Condition()
        self._playing = asyncio.create_task(self._play(play))
        self._taking = asyncio.create_task(self._take())

    async def say(self, event: ToolEvent) -> None:
        """Print an event."""
        await self.report(ToolSeen("stdout", event, 0))

    async def report(self, seen: ParsedEvent) -> None:
        """Have the runner report something."""
        self.heard()
        await self.events.put(seen)

    async def decision(self, call_id: str) -> PolicyDecision | PolicyAbort:
        """Wait for the decision on a call, or for the abort."""
        async with self._news:
            while True:
                for command in self.told:
                    if isinstance(command, PolicyAbort) or (
                        isinstance(command, PolicyDecision) and command.id == call_id
                    ):
                        return command
                await self._news.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Remember a signal; SIGKILL ends the play."""
        self.signals.append(number)
        if number == signal.SIGKILL:
            self._playing.cancel()

    async def close(self) -> None:
        """Stop playing."""
        self._playing.cancel()
        self._taking.cancel()
        await asyncio.wait([self._playing, self._taking])

    async def _play(self, play: Play) -> None:
        code = -int(signal.SIGKILL)
        try:
            code = await play(self)
            await self.events.put(StreamClosed("stdout"))
            await self.events.put(StreamClosed("stderr"))
        finally:
            if not self.status.done():
                self.status.set_result(code)

    async def _take(self) -> None:
        while True:
            command = await self.control.get()
            async with self._news:
                self.told.append(command)
                self._news.notify_all()


class ScriptedRunner:
    """Starts a scripted program in place of every real one. Implements `Runner`."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.session: ScriptedSession | None = None
        """The last one started."""

    async def start_session(self, launch: Launch) -> RunnerSession:
        """Start it."""
        self.session = ScriptedSession(self._play)
        return self.session
