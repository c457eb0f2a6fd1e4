"""One task of opencode: what is said, what comes back until all is done, and how it is stopped.

The end is told by the request with which something was said: it is answered when opencode is done, and not before,
while events of an idle session come too early. The events before that end come over another connection; the session is
marked after the answer, and when the event of that mark arrives, all others have.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any

from codesdk.contract.errors import CodeSDKError, Conflict, ErrorInfo
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import Message
from codesdk.contract.runtime import Draft, Failed, Finished, Host, Identified, RuntimeItem, ToolReply
from codesdk.contract.tools import ToolIdentity
from codesdk.runtimes.opencode import NAME
from codesdk.runtimes.opencode.config import AGENT
from codesdk.runtimes.opencode.errors import waited_for
from codesdk.runtimes.opencode.input import parts_of
from codesdk.runtimes.opencode.normalize import ANSWERED, ASKED, cut_off, normalize
from codesdk.runtimes.opencode.server import TITLE, OpencodeServer
from codesdk.runtimes.opencode.state import State
from codesdk.runtimes.opencode.wire_v1 import Refused, Unreachable
from codesdk.runtimes.program.jsonrpc import Frame, Garbage, Gone, as_dict
from codesdk.runtimes.program.retelling import Content

INTERRUPT_S = 2.0
END_S = 5.0
"""How long a task that was interrupted may take to end."""
QUEUED_S = 5.0
MARK_S = 10.0
MAX_RETRIES = 4
"""How often the model may be asked again: within half a minute. Opencode itself would wait longer each time."""
LONGEST_WAIT_S = 60.0
"""Opencode waits as long as a provider asks it to, even for an hour."""
MAX_NOTED = 100
"""How many lines of a task that are no events are kept."""
_AGAIN_S = 0.5
_FAULTS = (Refused, Unreachable, TimeoutError)


class OpencodeTask:
    """One task: from the first words until opencode waits for more."""

    def __init__(
        self,
        server: OpencodeServer,
        state: State,
        host: Host,
        notices: Sequence[RuntimeItem] = (),
        max_retries: int = MAX_RETRIES,
    ) -> None:
        self._server = server
        self._state = state
        self._host = host
        self._notices = notices
        self._max_retries = max_retries
        self._over = False
        self._stopping = False
        self._answer: Frame = {}
        self._unread = 0
        self._saying: set[asyncio.Task[None]] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._mark = f"{TITLE} {time.monotonic_ns()}"
        self._marking = False
        self._ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = asyncio.Event()
        """Set by each message of a user that opencode has taken."""
        self._noise = server.listen()

    def say(self, parts: Content) -> None:
        """Send a message. The task ends when all messages are answered."""
        first = not self._saying
        saying = asyncio.create_task(self._say(parts))
        self._saying.add(saying)
        if first:
            self._begin(self._await_answers())

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        yield Identified(runtime_session_id=self._state.session_id, model=self._state.model)
        for item in (*self._notices, *map(_noted, self._noise[:MAX_NOTED])):
            yield item
        while not self._over:
            for item in await self._meaning(await self._server.frames.get()):
                self._over = isinstance(item, Finished | Failed)
                if self._over and not self._ending.done():
                    self._ending.set_result(None)
                yield item
        self._server.listening = False

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        """Do nothing: the result goes back through MCP."""

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        """Do nothing: the reason goes back through MCP."""

    async def steer(self, messages: Sequence[Message]) -> None:
        """Add input: opencode tells the model with its next request."""
        parts = await parts_of(messages, self._host.read_artifact)
        if self._marking or self._over:  # nobody would hear the answer
            raise Conflict("The task has just ended; start another one.", runtime=NAME)
        self._heard.clear()
        self.say(parts)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUEUED_S):
                await self._heard.wait()

    async def stop(self, reason: str) -> None:
        self._stopping = True
        await self._break_off()

    async def close(self) -> None:
        """End the program if the task still runs. The next one starts it again."""
        over, self._over = self._over, True
        self._server.listening = False
        for work in (*self._saying, *self._work):
            work.cancel()
        if not over:
            await self._server.stop()

    # --- what comes in ------------------------------------------------------------------------------

    async def _meaning(self, message: Frame | Garbage | Gone) -> list[RuntimeItem]:
        if isinstance(message, Gone):
            return [*cut_off(self._state), await self._ended()]
        if isinstance(message, Garbage):
            self._unread += 1
            return [_noted(message)] if self._unread <= MAX_NOTED else []
        if _is_marked(message, self._mark):
            message = self._answer
        items = normalize(self._state, message)
        self._react(message)
        if self._state.violation is not None:
            await self._server.stop()
            return [*items, *cut_off(self._state), _violated(self._state.violation)]
        return items

    def _react(self, frame: Frame) -> None:
        """Do what a frame asks for: answer a question, or end a task that goes nowhere."""
        properties = as_dict(frame.get("properties"))
        if frame.get("type") == ASKED:
            allowed = properties.get("permission") in self._state.tools and not self._stopping
            self._begin(self._reply(str(properties.get("id")), allowed=allowed))
        if frame.get("type") == "message.updated" and as_dict(properties.get("info")).get("role") == "user":
            self._heard.set()
        retry, self._state.retry = self._state.retry, None
        if retry is not None:
            wait_s = retry.next_ms / 1000 - time.time()
            if retry.attempt > self._max_retries or wait_s > LONGEST_WAIT_S:
                shown = wait_s if wait_s > LONGEST_WAIT_S else None
                self._state.failure = waited_for(retry.message, retry.attempt, shown)
        if self._state.failure is not None and not self._stopping:
            self._stopping = True
            self._begin(self._break_off())

    async def _ended(self) -> Finished | Failed:
        """Return the end of a task whose program has ended."""
        if self._state.failure is not None:
            return Failed(error=self._state.failure)
        if self._stopping:
            return Finished(stop_reason="stopped")
        return Failed(error=(await self._server.crash()).info())

    # --- what goes out ------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        doing = asyncio.create_task(work)
        self._work.add(doing)
        doing.add_done_callback(self._work.discard)

    async def _say(self, parts: Content) -> None:
        try:
            body = await self._server.wire.say(self._state.session_id, AGENT, parts)
            self._answer = {"type": ANSWERED, "properties": {"body": body}}
        except Refused as error:
            told = error.body or {"name": "UnknownError", "data": {"message": str(error)}}
            self._answer = {"type": ANSWERED, "properties": {"error": told}}

    async def _await_answers(self) -> None:
        """Wait until all is answered, and mark the place in the stream of events where that was."""
        with contextlib.suppress(*_FAULTS):
            while waiting := [saying for saying in self._saying if not saying.done()]:
                await asyncio.wait(waiting)
            self._marking = True
            for saying in self._saying:
                saying.result()
            await self._server.wire.mark(self._state.session_id, self._mark)
            await asyncio.wait([self._ending], timeout=MARK_S)
            if not self._ending.done():  # the event of the mark was lost
                await self._server.frames.put(self._answer)
            return
        # It does not answer, so it cannot be relied on to hang up either.
        await self._server.stop()
        await self._server.frames.put(Gone())

    async def _reply(self, question: str, *, allowed: bool) -> None:
        """Answer a question. If that fails the program has ended, or waits until it is stopped."""
        with contextlib.suppress(*_FAULTS):
            await self._server.wire.answer(question, allowed=allowed)

    async def _break_off(self) -> None:
        """Have opencode end the task, and refuse what it still asks: it would run that later. If it does not end, end it.

        It is told more than once, since it may not have begun when it is told first.
        """
        session_id, wire = self._state.session_id, self._server.wire
        with contextlib.suppress(*_FAULTS, CodeSDKError):
            async with asyncio.timeout(END_S):
                while not self._over and not self._marking:
                    await wire.abort(session_id, INTERRUPT_S)
                    for question in await wire.waiting(session_id, INTERRUPT_S):
                        await wire.answer(question, allowed=False)
                    await self._settled(_AGAIN_S)
                return
        if not self._over:
            await self._server.stop()
            await self._server.frames.put(Gone())

    async def _settled(self, seconds: float) -> None:
        """Wait until all that was said is answered, or for a moment."""
        waiting = [saying for saying in self._saying if not saying.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)


def _is_marked(frame: Frame, mark: str) -> bool:
    if frame.get("type") != "session.updated":
        return False
    return as_dict(as_dict(frame.get("properties")).get("info")).get("title") == mark


def _noted(line: Garbage) -> Draft:
    message = "opencode wrote something that is not a message."
    return Draft(
        RuntimeNotice(kind="unknown_frame", message=message, details={"size": line.size}), line.start
    )


def _violated(what: str) -> Failed:
    message = f"opencode used something of its own that is switched off ({what}), so the task was ended."
    return Failed(error=ErrorInfo(code="FORBIDDEN", message=message, retryable=False, runtime=NAME))
