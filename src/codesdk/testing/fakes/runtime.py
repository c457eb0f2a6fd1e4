"""A runtime that says what a test wants: items to say, and a `FakeRuntime` that plays them.

It plays a list of items, an async function, or what the test emits while it runs.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.events import OutputCompleted, OutputDelta
from codesdk.contract.messages import Message, Text
from codesdk.contract.runtime import (
    Draft,
    Failed,
    Finished,
    Host,
    RuntimeEnv,
    RuntimeItem,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity, ToolOrigin


def delta(text: str, message_id: str = "m1", block_id: str | None = None) -> Draft:
    """Return a piece of a message's text. Without `block_id` the message has one block."""
    block = block_id or f"{message_id}.0"
    return Draft(OutputDelta(kind="text_delta", block_id=block, message_id=message_id, delta=text))


def message(text: str, message_id: str = "m1") -> Draft:
    """Return a whole message of one text block."""
    return Draft(OutputCompleted(message_id=message_id, content=[Text(text=text)]))


def call(
    name: str,
    arguments: Any = None,
    call_id: str = "c1",
    message_id: str = "m1",
    origin: ToolOrigin | None = None,
) -> ToolAnnouncement:
    """Return the announcement of a tool call. Without `origin`, it is one that comes in the stream."""
    given: Any = {} if arguments is None else arguments
    return ToolAnnouncement(
        name=name, input=given, runtime_tool_call_id=call_id, message_id=message_id, origin=origin
    )


def done(stop_reason: str = "end_turn") -> Finished:
    """Return the end of a good stream."""
    return Finished(stop_reason=stop_reason)


Play = Callable[["FakeTask"], AsyncIterator[RuntimeItem]]
"""An async generator function: yields what a task's stream says, and may wait for its replies."""

FAKE_CAPABILITIES = Capabilities()
"""Everything that a runtime in this process can do."""


class FakeRuntime:
    """A `Runtime` that plays what it is told: a list of items, a `Play`, or, given neither, what tests `emit`.

    `tasks` holds the handles of all tasks it started, the last one last.
    """

    def __init__(
        self,
        play: Play | Sequence[RuntimeItem] | None = None,
        *,
        name: str = "fake",
        capabilities: Capabilities = FAKE_CAPABILITIES,
    ) -> None:
        self.name = name
        self.tasks: list[FakeTask] = []
        self.closed_sessions: list[str] = []
        self._play = play
        self._capabilities = capabilities
        self._change = asyncio.Event()

    async def started(self, number: int = 1) -> "FakeTask":
        """Wait until this many tasks have started, and return the last of them."""
        while len(self.tasks) < number:
            self._change.clear()
            await self._change.wait()
        return self.tasks[number - 1]

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=False, auth_model="none")

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        return LoginOutcome(logged_in=False, problem="There is no account to log in to.")

    async def start_task(self, host: Host, task: TaskInput) -> "FakeTask":
        self.tasks.append(FakeTask(host, task, self._play))
        self._change.set()
        return self.tasks[-1]

    async def close_session(self, session_id: str) -> None:
        self.closed_sessions.append(session_id)


class FakeTask:
    """A running task: what it was given, what came in, and the stream that goes out."""

    def __init__(self, host: Host, given: TaskInput, play: Play | Sequence[RuntimeItem] | None) -> None:
        self.host = host
        self.input = given
        self.replies: dict[str, ToolReply | str] = {}
        self.steered: list[Message] = []
        self.stopped: str | None = None
        self.closed = False
        self._play = play
        self._emitted: list[RuntimeItem | BaseException] = []
        self._change = asyncio.Event()

    def emit(self, *items: RuntimeItem | BaseException) -> None:
        """Put items on the stream; an exception is raised from it. For a runtime without a play."""
        self._emitted.extend(items)
        self._change.set()

    async def reply(self, call_id: str) -> ToolReply | str:
        """Wait for the result of an announced call, or for the reason of its denial."""
        await self.until(lambda: call_id in self.replies)
        return self.replies[call_id]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this task holds."""
        while not condition():
            self._change.clear()
            await self._change.wait()

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        if self._play is None:
            async for item in self._told():
                yield item
        elif callable(self._play):
            async for item in self._play(self):
                yield item
        else:
            for item in self._play:
                yield item

    async def _told(self) -> AsyncIterator[RuntimeItem]:
        while True:
            await self.until(lambda: bool(self._emitted) or self.closed)
            if not self._emitted:
                return
            item = self._emitted.pop(0)
            if isinstance(item, BaseException):
                raise item
            yield item
            if isinstance(item, Finished | Failed):
                return

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        self._answer(call, reply)

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        self._answer(call, reason)

    async def steer(self, messages: Sequence[Message]) -> None:
        self.steered.extend(messages)
        self._change.set()

    async def stop(self, reason: str) -> None:
        self.stopped = reason
        self._change.set()

    async def close(self) -> None:
        self.closed = True
        self._change.set()

    def _answer(self, call: ToolIdentity, reply: ToolReply | str) -> None:
        self.replies[call.runtime_tool_call_id or call.tool_call_id] = reply
        self._change.set()
