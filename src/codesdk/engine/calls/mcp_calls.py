"""Calls that come over MCP: who waits for which outcome. `calls` decides and runs them."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from codesdk.contract.runtime import ToolReply
from codesdk.engine.calls.inputs import Arrival, LiveCall

ENDING = ToolReply(result="The call was not run: the task is ending.", is_error=True)


class Request(msgspec.Struct, kw_only=True, eq=False):
    """A call requested over MCP, the asyncio task that works on it, and those who wait for its outcome."""

    key: tuple[str, str] | None
    """The runtime's id and the input's hash. Without an id, every request is a new one."""
    call: LiveCall | None = None
    worker: "asyncio.Task[ToolReply] | None" = None
    waiting: "list[asyncio.Future[ToolReply]]" = msgspec.field(default_factory=list[Any])


class Requests:
    """The requests of one task. A repeated one gets the same outcome; an abandoned one is reported."""

    def __init__(self, abandoned: Callable[[Request], None]) -> None:
        self._abandoned = abandoned
        self._known: dict[tuple[str, str], Request] = {}
        self._held: list[Request] | None = None

    def find(self, arrival: Arrival) -> Request:
        """Return the request if it came before, else a new one."""
        runtime_id = arrival.item.runtime_tool_call_id
        key = None if runtime_id is None else (runtime_id, arrival.input.digest)
        known = None if key is None else self._known.get(key)
        return known or Request(key=key)

    def wait(self, request: Request) -> "asyncio.Future[ToolReply]":
        """Return a future of the outcome. Cancelling it means hanging up."""
        worker = request.worker
        assert worker is not None, "a request has a worker"
        waiter: asyncio.Future[ToolReply] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(lambda _: self._leave(request, waiter))
        if not request.waiting and not worker.done():
            worker.add_done_callback(lambda _: self._deliver(request))
        if request.key is not None:
            self._known[request.key] = request
        request.waiting.append(waiter)
        if worker.done():
            self._deliver(request)
        return waiter

    def hold(self) -> None:
        """Hold outcomes back until the runtime was told to stop: with one it would ask its model again."""
        self._held = self._held or []

    def release(self) -> None:
        """Deliver the outcomes that were held back."""
        held, self._held = self._held or [], None
        for request in held:
            self._deliver(request)

    def _deliver(self, request: Request) -> None:
        request.call = None  # only the outcome is kept for the rest of the task
        if self._held is not None:
            self._held.append(request)
            return
        for waiter in list(request.waiting):
            if not waiter.done():
                _finish(waiter, request.worker)

    def _leave(self, request: Request, waiter: "asyncio.Future[ToolReply]") -> None:
        request.waiting.remove(waiter)
        if waiter.cancelled() and not request.waiting and request.worker and not request.worker.done():
            if request.key is not None:
                self._known.pop(request.key, None)  # if it is made again, that is a new call
            self._abandoned(request)


def _finish(waiter: "asyncio.Future[ToolReply]", worker: "asyncio.Task[ToolReply] | None") -> None:
    if worker is None or worker.cancelled():
        waiter.set_result(ENDING)
    elif (error := worker.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(worker.result())
