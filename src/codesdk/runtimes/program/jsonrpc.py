"""A child that speaks JSON-RPC in lines → requests with answers, and a queue of what it says by itself.

One task reads, and waits only for whoever takes the messages. A request of the child is answered at once by a plain
function, or later by whoever takes it. What is not JSON becomes `Garbage`. The field "jsonrpc" is not required, and sent to children that want it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.processes import Child
from codesdk.runtimes.program.backlog import Unread, catch_up, is_behind
from codesdk.runtimes.program.framing import MAX_LINE_BYTES, TooLong, read_lines
from codesdk.sending import send, write

MAX_WAITING = 1_000
_SHOWN = 200
_ID_CHARS = 1_000
# A child that reads nothing for so long hangs.
_WRITE_S = 30.0

Frame = dict[str, Any]
Answer = Callable[[str, Any], Frame | None]
"""A request of the child, by method and params → `{"result": …}` or `{"error": …}`. Must not raise, must not wait.

None if whoever takes the message answers it, with `respond`.
"""

Tap = Callable[[Frame, int], None]
"""Sees a notification or a request of the child, and about how many bytes it has. Must not raise, must not wait."""


class Garbage(msgspec.Struct, frozen=True):
    """A line that is not a message: how long it was, and how it began."""

    size: int
    start: str


class Gone(msgspec.Struct, frozen=True):
    """The child closed its output. Always the last message of a connection."""


class RequestFailed(Exception):
    """The child answered a request with an error."""

    def __init__(self, method: str, error: Any) -> None:
        self.method = method
        self.error = error
        self.message = str(as_dict(error).get("message", error))
        super().__init__(f"{method}: {self.message}")


class Connection:
    """The connection to one child."""

    def __init__(
        self,
        child: Child,
        answer: Answer,
        *,
        versioned: bool = False,
        max_line_bytes: int = MAX_LINE_BYTES,
        tap: Tap | None = None,
    ) -> None:
        """Begin to read. `tap` sees what the child says by itself before it is queued."""
        self._child = child
        self._answer = answer
        self._tap = tap
        self._head: Frame = {"jsonrpc": "2.0"} if versioned else {}
        self._max_line_bytes = max_line_bytes
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._asked: dict[int, str] = {}
        self._number = 0
        self._writing = asyncio.Lock()
        self._gone = False
        self._answered = False
        self.hangs: str | None = None
        """Why the child was ended, if it asked without end and read no answer."""
        self.messages: asyncio.Queue[Frame | Garbage | Gone] = asyncio.Queue(MAX_WAITING)
        """What the child says by itself, with its requests, most of them answered already. Bounded, so that a slow reader slows the child."""
        self._reading = asyncio.create_task(self._read())

    @property
    def open(self) -> bool:
        """Whether the child may still say something."""
        return not self._gone

    async def request(self, method: str, params: Any, *, timeout_s: float | None) -> Any:
        """Ask, and return the answer; without a timeout if the child may take as long as it likes. Raise `RequestFailed`, `TimeoutError`, or `TaskFailure` if the child is gone."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._write({"id": number, "method": method, "params": params})
                return _result(method, await answer)
        finally:
            self._waiting.pop(number, None)

    async def ask(self, method: str, params: Any) -> None:
        """Ask what may take long. The answer comes among the messages, after all that was said before it.

        It is a frame with the method, and its result or error. Raise `TaskFailure` if the child is gone.
        """
        self._number += 1
        self._asked[self._number] = method
        await self._write({"id": self._number, "method": method, "params": params})

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a message that gets no answer."""
        await self._write({"method": method} if params is None else {"method": method, "params": params})

    def respond(self, number: Any, answer: Frame) -> None:
        """Answer a request of the child, without a wait. No more of its requests are read while it leaves too many unread."""
        if not _is_id(number):
            return  # no child needs such an id, and it would be sent back
        self._answered = True
        with contextlib.suppress(ConnectionError):
            write(self._child.stdin, msgspec.json.encode({**self._head, "id": number, **answer}) + b"\n")

    async def close(self) -> None:
        """Stop reading. Requests that still wait for an answer fail."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._end()

    async def _write(self, frame: Frame) -> None:
        if self._gone:
            raise _no_child()
        async with self._writing, asyncio.timeout(_WRITE_S):
            try:
                await send(self._child.stdin, msgspec.json.encode({**self._head, **frame}) + b"\n")
            except ConnectionError:
                raise _no_child() from None

    async def _read(self) -> None:
        try:
            async for line in read_lines(self._child.stdout, self._max_line_bytes):
                message = self._sort(line) if line else None
                if self._answered:
                    self._answered = False
                    if is_behind(self._child.stdin):
                        await catch_up(self._child.stdin)
                if message is None:
                    continue
                if self.messages.full():
                    await self.messages.put(message)
                else:  # the common case, without a coroutine
                    self.messages.put_nowait(message)
        except (ConnectionError, OSError):
            pass
        except Unread as unread:
            self.hangs = str(unread)
            await self._child.stop(0)
        self._end()
        await self.messages.put(Gone())

    def _sort(self, line: bytes | TooLong) -> Frame | Garbage | None:
        """Return a message as it is taken from the queue, None if it is an answer that somebody waits for."""
        message = _decode(line)
        if isinstance(message, Garbage) or isinstance(line, TooLong):
            return message
        if "method" not in message:
            method = self._asked.pop(_number_of(message), None)
            if method is not None:
                return {"method": method, **_outcome_of(message)}
            self._settle(message)
            return None
        if "id" in message:
            self._reply(message)
        if self._tap is not None:
            self._tap(message, len(line))
        return message

    def _settle(self, reply: Frame) -> None:
        """Hand an answer to whoever waits for it. One that comes too late is dropped."""
        waiting = self._waiting.pop(_number_of(reply), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def _reply(self, request: Frame) -> None:
        answer = self._answer(str(request["method"]), request.get("params"))
        if answer is not None:
            self.respond(request["id"], answer)

    def _end(self) -> None:
        self._gone = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_no_child())
                # Taken as seen: a request whose writing fails at the same time raises that, and never awaits this.
                waiting.exception()
        self._waiting.clear()


def as_dict(value: Any) -> Frame:
    """Return an object; an empty one in place of anything else."""
    return cast("Frame", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list; an empty one in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _decode(line: bytes | TooLong) -> Frame | Garbage:
    if isinstance(line, TooLong):
        return Garbage(line.size, line.start.decode("utf-8", "replace"))
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (ValueError, RecursionError):
        return Garbage(len(line), line[:_SHOWN].decode("utf-8", "replace"))


def _is_id(number: Any) -> bool:
    if isinstance(number, str):
        return len(number) <= _ID_CHARS
    return number is None or isinstance(number, int | float)


def _number_of(reply: Frame) -> int:
    number: Any = reply.get("id")
    return number if isinstance(number, int) else 0


def _outcome_of(reply: Frame) -> Frame:
    return {"error": reply["error"]} if "error" in reply else {"result": reply.get("result")}


def _result(method: str, reply: Frame) -> Any:
    if "error" in reply:
        raise RequestFailed(method, reply["error"])
    return reply.get("result")


def _no_child() -> TaskFailure:
    return TaskFailure("The program has ended. Start the task again.", code="RUNTIME_CRASHED", retryable=True)
