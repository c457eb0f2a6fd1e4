"""The process of one extension: orders on one pipe → its code → reports on the other.

The pipes are taken away from stdin and stdout first, so that what an extension prints is no report, and a copy of the
process that it forks has neither of them.
"""

import asyncio
import logging
import os
import traceback
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest, from_info
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
    Tool,
    pack,
    read_frame,
    read_order,
)
from codesdk.extensions.handling import register, run_handler
from codesdk.extensions.outcomes import EnqueueResult, HandlerTimeout
from codesdk.extensions.registry import Registration
from codesdk.extensions.snapshot import Snapshot, SnapshotModules
from codesdk.extensions.tools import HandlerEnded, HandlerTools
from codesdk.foreign import ForeignCrash

_PACKAGE = "_codesdk_extension"
_SHOWN_CHARS = 8_000


def main() -> None:
    """Serve until the orders end."""
    orders, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def cut_off() -> None:
        os.dup2(nothing, orders, inheritable=False)
        os.dup2(nothing, reports, inheritable=False)

    os.register_at_fork(after_in_child=cut_off)
    try:
        asyncio.run(_Served(reports).run(orders))
    except BaseException:  # noqa: BLE001 - also what a task of the extension raised to end the process
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # whatever threads the extension left behind


class _Served:
    """The extension of this process."""

    def __init__(self, reports: int) -> None:
        self._reports = reports
        self._pid = os.getpid()
        self._registrations: list[Registration] = []
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._work: set[asyncio.Task[None]] = set()

    async def run(self, orders: int) -> None:
        """Take orders until there are no more."""
        reader = asyncio.StreamReader()
        pipe = os.fdopen(orders, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self.report(Ready())
        while (data := await read_frame(reader)) is not None:
            self._take(read_order(data))

    def report(self, message: FromExtension) -> None:
        """Write a message. A copy of this process, which a handler forked, ends here: it has nothing to say."""
        if os.getpid() != self._pid:
            os._exit(0)
        rest = memoryview(pack(message))
        if len(rest) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes cannot be sent")
        while rest:
            rest = rest[os.write(self._reports, rest) :]

    async def ask(self, call: int, tool: Tool, argument: Any) -> Any:
        """Put a tool's question. Raise what the answer says."""
        self._asked += 1
        number = self._asked
        self._waiting[number] = waiting = asyncio.get_running_loop().create_future()
        try:
            self.report(Asked(id=number, call=call, tool=tool, argument=argument))
            return await waiting
        finally:
            del self._waiting[number]

    def _take(self, order: ToExtension) -> None:
        match order:
            case Load():
                self._begin(self._load(order))
            case Call():
                self._begin(self._call(order))
            case Answer():
                self._settle(order)

    def _begin(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody would ever be answered. How this process ended is an answer.
            traceback.print_exception(error)
            os._exit(1)

    async def _load(self, order: Load) -> None:
        log = logging.getLogger(f"codesdk.extensions.{order.name}")
        log.setLevel(order.level)
        log.propagate = False
        log.addHandler(_Reporting(self))
        modules = SnapshotModules(_PACKAGE, Snapshot(Path(order.root), order.files))
        try:
            self._registrations = await register(order.name, order.file, modules)
        except InvalidRequest as error:
            self.report(Raised(LOADING, _plain(error.message), "refused"))
        except ForeignCrash as error:
            self.report(Raised(LOADING, _plain(str(error)), "error"))
        else:
            self.report(
                Registered(
                    [
                        Handler(one.event_type, one.priority, one.timeout_ms, one.attempts, one.backoff_ms)
                        for one in self._registrations
                    ]
                )
            )

    async def _call(self, order: Call) -> None:
        one = self._registrations[order.place]
        assert one.handler is not None, "registered in this process"
        tools = HandlerTools(one.module_name, _RemotePorts(self, order.id))
        result: FromExtension
        try:
            data = await run_handler(one.handler, order.event, tools)
            result = Returned(order.id, msgspec.Raw(data))
        except (ForeignCrash, HandlerTimeout) as error:
            kind = "timeout" if isinstance(error, HandlerTimeout) else "error"
            result = Raised(order.id, _plain(str(error)), kind)
        finally:
            tools.end()
        self.report(result)

    def _settle(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.id)
        if waiting is None or waiting.done():
            return  # whoever asked waits no more
        if answer.ended:
            waiting.set_exception(HandlerEnded("The handler has ended, so its tools do nothing any more."))
        elif answer.error is not None:
            waiting.set_exception(from_info(answer.error))
        else:
            waiting.set_result(answer.value)


class _RemotePorts:
    """What the tools of one call reach, over the pipe. Implements `ToolPorts`."""

    def __init__(self, served: _Served, call: int) -> None:
        self._served = served
        self._call = call

    async def enqueue(self, job: dict[str, Any]) -> EnqueueResult:
        return msgspec.convert(await self._served.ask(self._call, "enqueue_job", job), EnqueueResult)

    async def settings_of(self, session_id: str) -> dict[str, Any]:
        return await self._served.ask(self._call, "get_session_settings", session_id)


class _Reporting(logging.Handler):
    """Sends log lines on."""

    def __init__(self, served: _Served) -> None:
        super().__init__()
        self._served = served

    def emit(self, record: logging.LogRecord) -> None:
        """Send one. What cannot be formatted is logging's matter."""
        try:
            words = _plain(self.format(record))
        except Exception:  # noqa: BLE001 - as logging does it
            self.handleError(record)
            return
        self._served.report(Logged(record.levelno, words))


def _plain(words: str) -> str:
    """Return words that any message can carry."""
    return words[:_SHOWN_CHARS].encode("utf-8", "replace").decode()
