"""`ProcessWorker`: the process of one extension, in which all its code runs, from an empty environment.

Whatever happens in there (a crash of the interpreter, a handler that blocks, a flood) ends that process with all that
it started, and becomes an error of the handlers that ran. The next event starts it again, from what was hashed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import Any, NamedTuple

import msgspec

from codesdk.contract.errors import CodeSDKError, ErrorInfo, InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.extensions.frames import (
    LOADING,
    MAX_BYTES,
    Answer,
    Asked,
    Call,
    FromExtension,
    Handler,
    Load,
    Logged,
    Raised,
    Ready,
    Registered,
    Returned,
    ToExtension,
    pack,
    read_frame,
    read_report,
)
from codesdk.extensions.outcomes import AgentRuntimeEvent, HandlerTimeout
from codesdk.extensions.registry import Registration
from codesdk.extensions.tools import ToolPorts
from codesdk.extensions.worker import Code
from codesdk.foreign import ForeignCrash, name_of
from codesdk.processes import SEARCH_PATH, Child, start_child
from codesdk.sending import send

START_S = 30.0
"""How long the interpreter may take to run. The extension's own time begins afterwards."""
TRIES = 3
"""How often a handler is called for one event, if others end its process."""
MAX_ASKED = 256
"""How many questions of tools may wait for an answer."""
_LAST_WORDS_S = 2.0
_TAIL_CHARS = 300
# Isolated from what the environment and the current directory say; modules are found where this process finds them.
_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from codesdk.extensions.child import main; main()"
)


class _Bystander(ForeignCrash):
    """The process was ended for another handler's sake."""


class _Open(NamedTuple):
    """A call that has not ended."""

    result: "asyncio.Future[object]"
    ports: ToolPorts


class ProcessWorker:
    """Runs an extension's code in a process, and starts another when that is gone. Implements `Worker`."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._handlers: list[Handler] = []
        self._load_s = START_S
        self._starting = asyncio.Lock()
        self._running: _Running | None = None
        self._closed = False

    async def register(self, timeout_s: float) -> list[Registration]:
        """Start the process and let the extension register."""
        self._load_s = timeout_s
        async with self._starting:
            self._running, self._handlers = await self._start()
        return [
            Registration(
                one.priority,
                self._code.name,
                place,
                one.event_type,
                None,
                one.timeout_ms,
                one.attempts,
                one.backoff_ms,
            )
            for place, one in enumerate(self._handlers)
        ]

    async def handle(self, one: Registration, event: AgentRuntimeEvent, ports: ToolPorts) -> object:
        """Call a handler. One that takes too long ends the process; those that ran beside it are called again."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(_Bystander):
                return await self._try(one, event, ports)
        return await self._try(one, event, ports)

    async def _try(self, one: Registration, event: AgentRuntimeEvent, ports: ToolPorts) -> object:
        running = await self._alive()
        try:
            async with asyncio.timeout(one.timeout_ms / 1000):
                return await running.call(one.place, event, ports)
        except TimeoutError:
            why = f"was ended, because a handler of {one.event_type} took too long"
            await running.end(why, _Bystander)
            raise HandlerTimeout(f"It took longer than {one.timeout_ms:g} ms.") from None
        except asyncio.CancelledError:  # a job was canceled: it ends now, and not when it likes to
            running.kill(f"was ended, because a call for {one.event_type} was canceled", _Bystander)
            raise

    def close(self) -> None:
        """Kill the process with all it started."""
        self._closed = True
        if self._running is not None:
            self._running.kill("was ended")

    async def ended(self) -> None:
        """Wait until it is gone."""
        async with self._starting:
            if self._running is not None:
                await self._running.end("was ended")

    async def _alive(self) -> "_Running":
        """Return the process. If it has ended, start another."""
        async with self._starting:
            if self._running is None or self._running.over:
                if self._running is not None:
                    await self._running.end("was ended")
                running, handlers = await self._start()
                self._running = running
                if handlers != self._handlers:
                    await running.end("was ended")
                    raise ForeignCrash(
                        f"The extension {self._code.name} registered other handlers when it was started again."
                        " Reload the extensions."
                    )
            return self._running

    async def _start(self) -> "tuple[_Running, list[Handler]]":
        if self._closed:
            raise ForeignCrash(f"The extension {self._code.name} has been closed.")
        child = await start_child(
            _command(),
            cwd=Workspace(os.getcwd()),  # noqa: PTH109 - as its thread would have it
            env={"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **self._code.env},
        )
        running = _Running(self._code.name, child)
        try:
            return running, await running.load(self._code, self._load_s)
        except BaseException:
            await running.end("was ended")
            raise


class _Running:
    """One process, from its start to its end."""

    def __init__(self, name: str, child: Child) -> None:
        self.over = False
        """Whether it is gone or about to be."""
        self._name = name
        self._child = child
        self._log = logging.getLogger(f"codesdk.extensions.{name}")
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[object] = loop.create_future()
        self._loaded: asyncio.Future[object] = loop.create_future()
        self._calls: dict[int, _Open] = {}
        self._last = LOADING
        self._asking: set[asyncio.Task[None]] = set()
        self._why = ""
        self._error = ForeignCrash
        self._reading = asyncio.create_task(self._read())
        self._living = asyncio.create_task(self._live())

    async def load(self, code: Code, load_s: float) -> list[Handler]:
        """Let the extension register. Raise `HandlerTimeout`, `InvalidRequest`, or `ForeignCrash`."""
        try:
            async with asyncio.timeout(START_S):
                await self._ready
        except TimeoutError:
            raise ForeignCrash(
                f"The process of the extension {self._name} did not run within {START_S:g} s."
            ) from None
        try:
            async with asyncio.timeout(load_s):
                await self._send(
                    Load(
                        name=code.name,
                        file=code.file,
                        root=str(code.snapshot.root),
                        files=dict(code.snapshot.files),
                        level=self._log.getEffectiveLevel(),
                    )
                )
                found = await self._loaded
        except TimeoutError:
            raise HandlerTimeout(
                f"The extension {self._name} did not register within {load_s:g} s."
            ) from None
        assert isinstance(found, Registered)
        return found.handlers

    async def call(self, place: int, event: AgentRuntimeEvent, ports: ToolPorts) -> object:
        """Call a handler. Raise what it raises, or how the process ended."""
        self._last += 1
        number = self._last
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls[number] = _Open(result, ports)
        try:
            if self.over:
                raise self._error(self._words())
            await self._send(Call(id=number, place=place, event=event))
            return await result
        finally:
            self._calls.pop(number, None)

    def kill(self, why: str, error: type[ForeignCrash] = ForeignCrash) -> None:
        """Begin to end it. `why` goes on after its name, in the error of those whose calls are open."""
        if not self.over:
            self.over, self._why, self._error = True, why, error
            self._reading.cancel()

    async def end(self, why: str, error: type[ForeignCrash] = ForeignCrash) -> None:
        """End it, and wait until it is gone with all that it started."""
        self.kill(why, error)
        await asyncio.wait([self._living])

    async def _live(self) -> None:
        """Wait for its end, leave nothing of it, and tell those who wait for it."""
        await asyncio.wait([self._reading])
        self.over = True
        try:
            if not self._why:  # it has closed its pipe: most likely it has just ended
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORDS_S):
                        await self._child.wait()
                self._why = _how(self._child)
        finally:
            for task in self._asking:
                task.cancel()
            await self._child.stop(0)
            for waiting in (self._ready, self._loaded, *(one.result for one in self._calls.values())):
                if not waiting.done():
                    waiting.set_exception(self._error(self._words()))
                    waiting.exception()  # taken as seen: nobody may wait for it any more

    def _words(self) -> str:
        return f"The process of the extension {self._name} {self._why or 'has ended'}."

    async def _send(self, message: ToExtension) -> None:
        with contextlib.suppress(OSError):  # it is gone, which the reader finds out
            await send(self._child.stdin, pack(message))

    async def _read(self) -> None:
        try:
            while (data := await read_frame(self._child.stdout, MAX_BYTES)) is not None:
                self._take(read_report(data))
        except (ValueError, RecursionError) as error:
            self._why = (
                f"was ended, because it wrote what is no message to its pipe: {str(error)[:_TAIL_CHARS]}"
            )
        except OSError:
            pass  # as if it had closed the pipe

    def _take(self, report: FromExtension) -> None:
        match report:
            case Ready():
                _settle(self._ready, None)
            case Registered():
                _settle(self._loaded, report)
            case Returned():
                if (one := self._calls.get(report.id)) is not None:  # else nobody waits for it any more
                    _settle(one.result, report.value)
            case Raised():
                self._raised(report)
            case Asked():
                self._asked(report)
            case Logged():
                self._log.log(min(max(report.level, 0), logging.CRITICAL), "%s", report.message)

    def _raised(self, report: Raised) -> None:
        error: Exception
        match report.kind:
            case "timeout":
                error = HandlerTimeout(report.message)
            case "refused":
                error = InvalidRequest(report.message)
            case "error":
                error = ForeignCrash(report.message)
        one = self._calls.get(report.id)
        waiting = self._loaded if report.id == LOADING else one.result if one is not None else None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
            waiting.exception()  # taken as seen: whoever waits may have given up at the same moment

    def _asked(self, asked: Asked) -> None:
        if len(self._asking) >= MAX_ASKED:
            raise ValueError(f"more than {MAX_ASKED} questions of its tools at once")
        task = asyncio.create_task(self._answer(asked))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answer(self, asked: Asked) -> None:
        one = self._calls.get(asked.call)
        if one is None:
            await self._send(Answer(id=asked.id, ended=True))
            return
        try:
            value = await _served(one.ports, asked)
        except CodeSDKError as error:
            answer = Answer(id=asked.id, error=error.info())
        except Exception as error:  # noqa: BLE001 - whatever a port fails of, the handler is told
            info = ErrorInfo(code="INTERNAL", message=name_of(error), retryable=False)
            answer = Answer(id=asked.id, error=info)
        else:
            answer = Answer(id=asked.id, value=value)
        await self._send(answer)


def _command() -> list[str]:
    where = [os.path.abspath(place) for place in sys.path]  # noqa: PTH100 - an empty one is the current directory
    return [sys.executable, "-I", "-c", _BEGIN, msgspec.json.encode(where).decode()]


async def _served(ports: ToolPorts, asked: Asked) -> Any:
    match asked.tool:
        case "enqueue_job":
            return await ports.enqueue(asked.argument)
        case "get_session_settings":
            return await ports.settings_of(asked.argument)


def _settle(waiting: "asyncio.Future[object]", value: object) -> None:
    if not waiting.done():
        waiting.set_result(value)


def _how(child: Child) -> str:
    """Return how a process ended: its code, the signal behind it, and its last line."""
    code = child.exit_code
    if code is None:
        return "was ended, because it closed its pipe"
    number = -code if code < 0 else code - 128
    by = f", by {signal.Signals(number).name}" if number in set(signal.Signals) else ""
    last = child.stderr_tail().rpartition("\n")[2][:_TAIL_CHARS]
    return f"ended with code {code}{by}" + (f" (it wrote: {last})" if last else "")
