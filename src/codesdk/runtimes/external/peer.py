"""Two pipes → one side of a duplex JSON-RPC 2.0 connection: requests both ways, typed, with cancellation.

The engine and the adapter library are two users of the same `Peer`. It differs from `program/jsonrpc`, which speaks with
programs as they are: messages are decoded at once into the structs of `messages`, each request of the other side has
a task of its own, so that it may take as long as a person does, and large answers wait for the pipe.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from codesdk.contract.errors import CodeSDKError, ErrorInfo, TaskFailure, from_info
from codesdk.contract.runtime import HistoryLost
from codesdk.foreign import call, name_of
from codesdk.runtimes.external.frames import (
    Frame,
    Notification,
    Refusal,
    Request,
    Result,
    RpcError,
    decode,
    decode_error,
    encode,
    error_of,
)
from codesdk.runtimes.external.messages import (
    BY_NAME,
    CANCEL,
    CANCELLED,
    HISTORY_LOST,
    INVALID_PARAMS,
    KNOWN_ERROR,
    METHOD_NOT_FOUND,
    Cancel,
    Method,
    Nothing,
)
from codesdk.runtimes.program.backlog import Unread, catch_up, is_behind
from codesdk.runtimes.program.framing import MAX_LINE_BYTES, Source, TooLong, read_lines
from codesdk.sending import write

MAX_OPEN_CALLS = 256
"""How many requests of the other side may wait for an answer."""
MAX_OPEN_BYTES = 4 * MAX_LINE_BYTES
"""How many bytes those requests may have together."""
WRITE_S = 30.0
"""A side that reads nothing for so long hangs."""
MAX_ID_CHARS = 1_000
_SHOWN = 200
_BUFFERED = 1 << 16


class Violation(Exception):
    """The other side broke the protocol. Says how, as the rest of a sentence that begins with its name."""


class Noise(msgspec.Struct, frozen=True):
    """A line that is not a message: how long it was, and how it began. A program may print something by mistake."""

    size: int
    start: str


class Handler(Protocol):
    """What a side does with what the other one sends."""

    async def answer(self, method: str, params: Any) -> Any:
        """Return the result of a request. What it raises is the error that the other side gets."""
        ...

    def take(self, method: str, params: Any, size: int) -> Awaitable[None] | None:
        """Take a notification of so many bytes. Nothing more is read until the awaitable is done.

        Raise `Violation` if it may not come.
        """
        ...

    def ignore(self, noise: Noise) -> None:
        """Take note of a line that is not a message, or of a notification that nobody knows."""
        ...

    def end(self, why: Violation | None) -> None:
        """The other side is gone, or broke the protocol. Nothing more comes. Must not raise."""
        ...


_PARAMS = {name: msgspec.json.Decoder(method.params) for name, method in BY_NAME.items()}
_RESULTS = {name: msgspec.json.Decoder(method.result or Nothing) for name, method in BY_NAME.items()}


class Peer:
    """One side. `known` are the methods that the other side may call."""

    def __init__(
        self,
        reader: Source,
        writer: asyncio.StreamWriter,
        handler: Handler,
        known: Mapping[str, Method],
        *,
        other: str,
        strict: bool,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        """Begin to read. `strict`: params that do not fit are a violation, and not only answered with an error."""
        self._reader, self._writer = reader, writer
        self._handler, self._known, self._other, self._strict = handler, known, other, strict
        self._max_line_bytes = max_line_bytes
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._number = 0
        self._calls: dict[int | str | None, asyncio.Task[None]] = {}
        self._open_bytes = 0
        self._refused = False
        self._over = False
        self._violation: Violation | None = None
        self.reading = asyncio.create_task(self._read())

    @property
    def open(self) -> bool:
        """Whether the other side may still say something."""
        return not self._over

    async def request(self, method: str, params: msgspec.Struct, *, timeout_s: float | None = None) -> Any:
        """Ask, and return the typed answer. Raise what the other side answers, `TimeoutError`, or that it is gone.

        Whoever stops waiting, by a timeout or by being cancelled, tells the other side so.
        """
        self._number += 1
        number = self._number
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = method, answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(Request(id=number, method=method, params=params))
                return await answer
        except (asyncio.CancelledError, TimeoutError):
            self.post(CANCEL, Cancel(id=number))
            raise
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: msgspec.Struct) -> None:
        """Send a message that gets no answer. Waits while the other side does not read."""
        await self._send(Notification(method=method, params=params))

    def post(self, method: str, params: msgspec.Struct) -> None:
        """Send a small message that gets no answer, at once."""
        self._write(Notification(method=method, params=params))

    async def close(self) -> None:
        """Stop reading. Requests of either side that are open are given up."""
        self.reading.cancel()
        await asyncio.wait([self.reading])
        self._finish(None)

    # --- out ---

    async def _send(self, frame: msgspec.Struct) -> None:
        if self._over:
            raise self._gone()
        self._write(frame)
        # Only a full pipe is waited for: looking is cheaper than a drain for each of many small messages.
        if self._writer.transport.get_write_buffer_size() > _BUFFERED:
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._writer.drain()
            except TimeoutError:
                self._finish(Violation(f"has read nothing for {WRITE_S:g} s"))
                raise self._gone() from None
            except (OSError, RuntimeError):
                raise self._gone() from None

    def _write(self, frame: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # the other side is gone: the reader finds out
            write(self._writer, encode(frame))

    # --- in ---

    async def _read(self) -> None:
        why: Violation | None = None
        try:
            async for line in read_lines(self._reader, self._max_line_bytes):
                if line:
                    await self._taken(line)
        except Violation as violation:
            why = violation
        except (OSError, RuntimeError):
            pass
        self._finish(why)

    async def _taken(self, line: bytes | TooLong) -> None:
        """Take a line. Whatever goes wrong with it is a violation: a reader that dies says nothing to those who wait."""
        try:
            waits = self._take(line)
            if waits is not None:
                await waits
        except Violation:
            raise
        except Exception as error:
            said = error.message if isinstance(error, CodeSDKError) else name_of(error)
            raise Violation(f"sent something that could not be taken: {_brief(said)}") from error
        if self._refused:
            self._refused = False
            if is_behind(self._writer):
                try:
                    await catch_up(self._writer)
                except Unread as unread:
                    raise Violation(str(unread)) from None

    def _take(self, line: bytes | TooLong) -> Awaitable[None] | None:
        if isinstance(line, TooLong):
            raise Violation(f"sent a line of {line.size:,} bytes; a message may have {line.most}")
        try:
            frame = decode(line)
        except (ValueError, RecursionError):
            self._handler.ignore(_noise(line))
            return None
        if frame.method is None:
            self._settle(frame)
            return None
        method = self._known.get(frame.method)
        if frame.id is not UNSET:
            self._begin(frame, method, line)
            return None
        if method is None or method.result is not None:
            self._handler.ignore(_noise(line))
            return None
        try:
            params = self._params(frame)
        except msgspec.ValidationError as error:
            if self._strict:
                raise Violation(_misfit(frame.method, error)) from None
            return None
        if frame.method == CANCEL:
            self._cancel(params)
            return None
        return self._handler.take(frame.method, params, len(line))

    def _params(self, frame: Frame) -> Any:
        assert frame.method is not None
        try:
            return _PARAMS[frame.method].decode(frame.params)
        except msgspec.ValidationError:
            raise
        except (ValueError, RecursionError) as error:  # only now are texts and depths looked at
            raise msgspec.ValidationError(str(error) or "nested too deeply") from None

    def _settle(self, frame: Frame) -> None:
        """Hand an answer to whoever waits for it. One that comes too late is dropped."""
        number = frame.id
        if not isinstance(number, int) or not 0 < number <= self._number:
            raise Violation(f"answered a request that it was not sent (id {_brief(number)})")
        # It stays among those that wait until it has its answer: a violation is then the answer of all of them.
        method, waiting = self._waiting.get(number, ("", None))
        if waiting is None or waiting.done():
            return
        if (frame.result is UNSET) == (frame.error is UNSET):
            raise Violation(
                f"answered {method} with {'neither' if frame.result is UNSET else 'both'} result and error"
            )
        try:
            if frame.result is not UNSET:
                waiting.set_result(_RESULTS[method].decode(frame.result))
            else:
                assert frame.error is not UNSET
                waiting.set_exception(self._raised(method, decode_error(frame.error)))
        except (ValueError, RecursionError) as error:
            raise Violation(
                f"answered {method} with something other than its result: {_brief(error)}"
            ) from None

    def _raised(self, method: str, error: RpcError) -> Exception:
        """Return what the other side's error is on this side."""
        if error.code == HISTORY_LOST:
            return HistoryLost(error.message)
        if error.code == KNOWN_ERROR:
            try:
                return from_info(msgspec.convert(error.data, ErrorInfo))
            except msgspec.ValidationError:
                pass
        broken = error.code in (METHOD_NOT_FOUND, INVALID_PARAMS)
        return TaskFailure(
            f"{self._other} answered {method} with an error ({error.code}): {_brief(error.message)}.",
            code="RUNTIME_PROTOCOL" if broken else "RUNTIME_CRASHED",
            retryable=not broken,
        )

    def _begin(self, frame: Frame, method: Method | None, line: bytes) -> None:
        """Answer a request in a task of its own."""
        number = frame.id
        assert number is not UNSET
        assert frame.method is not None
        if isinstance(number, str) and len(number) > MAX_ID_CHARS:
            raise Violation(f"sent a request whose id has more than {MAX_ID_CHARS:,} characters")
        if number in self._calls:
            raise Violation(f"sent two requests with the id {_brief(number)}")
        if len(self._calls) >= MAX_OPEN_CALLS:
            raise Violation(f"has more than {MAX_OPEN_CALLS} requests open")
        if self._open_bytes + len(line) > MAX_OPEN_BYTES:
            raise Violation(f"has requests of more than {MAX_OPEN_BYTES:,} bytes open")
        if method is None or method.result is None:
            self._handler.ignore(_noise(line))
            self._refuse(number, RpcError(METHOD_NOT_FOUND, f"There is no request {_brief(frame.method)}."))
            return
        try:
            params = self._params(frame)
        except msgspec.ValidationError as error:
            self._refuse(number, RpcError(INVALID_PARAMS, f"{frame.method}: {_brief(error)}."))
            if self._strict:
                raise Violation(_misfit(frame.method, error)) from None
            return
        task = self._calls[number] = asyncio.create_task(self._answer(number, frame.method, params))
        size = len(line)
        self._open_bytes += size
        task.add_done_callback(lambda _: self._close_call(number, size))

    def _close_call(self, number: int | str | None, size: int) -> None:
        self._calls.pop(number, None)
        self._open_bytes -= size

    async def _answer(self, number: int | str | None, method: str, params: Any) -> None:
        try:
            result = await call(self._handler.answer, method, params)
            await self._send(Result(id=number, result=result))
        except asyncio.CancelledError:
            self._refuse(number, RpcError(CANCELLED, "Nobody waits for this any more."))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side waits for an answer
            self._refuse(number, error_of(error))

    def _refuse(self, number: int | str | None, error: RpcError) -> None:
        self._refused = True
        try:
            self._write(Refusal(id=number, error=error))
        except (TypeError, ValueError, RecursionError):
            self._write(Refusal(id=number, error=RpcError(error.code, "An error that JSON cannot say.")))

    def _cancel(self, params: Cancel) -> None:
        task = self._calls.get(params.id)
        if task is not None:
            task.cancel()

    # --- the end ---

    def _finish(self, why: Violation | None) -> None:
        if self._over:
            return
        self._over, self._violation = True, why
        for _, waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._gone())
                waiting.exception()  # taken as seen: its request may have failed in another way already
        self._waiting.clear()
        for task in [*self._calls.values()]:
            task.cancel()
        self._handler.end(why)

    def _gone(self) -> TaskFailure:
        if self._violation is not None:
            return TaskFailure(f"{self._other} {self._violation}.", code="RUNTIME_PROTOCOL")
        return TaskFailure(
            f"{self._other} has ended. Start the task again.", code="RUNTIME_CRASHED", retryable=True
        )


def _noise(line: bytes) -> Noise:
    return Noise(len(line), line[:_SHOWN].decode("utf-8", "replace"))


def _misfit(method: str, error: object) -> str:
    return f"sent {method} with params that do not fit: {_brief(error)}"


def _brief(value: object) -> str:
    return str(value)[:_SHOWN].rstrip(".")
