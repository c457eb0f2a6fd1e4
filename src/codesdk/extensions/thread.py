"""`ThreadWorker`: the thread of one extension, in which all its code runs.

An extension that blocks, loops or exits there hurts itself only: the engine's loop never runs its code and waits for
none of it beyond a deadline. A thread cannot be ended from outside, so one that is stuck is left behind.
"""

import asyncio
import concurrent.futures
import itertools
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from codesdk.extensions.handling import register, run_handler
from codesdk.extensions.outcomes import AgentRuntimeEvent, HandlerTimeout
from codesdk.extensions.registry import Registration
from codesdk.extensions.snapshot import SnapshotModules
from codesdk.extensions.tools import HandlerTools, ToolPorts
from codesdk.extensions.worker import Code

GRACE_S = 1.0
"""How long a thread may take to show that it only waits. One that does not counts as blocked until it does."""
_PACKAGES = itertools.count(1)
"""Each load has a package name of its own, so that a reload runs the new sources."""
_log = logging.getLogger("codesdk.extensions")
T = TypeVar("T")


class ThreadWorker:
    """Runs an extension's functions, one after the other or interleaved where they wait. Implements `Worker`."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._modules = SnapshotModules(f"_codesdk_extension_{next(_PACKAGES)}", code.snapshot)
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._stuck: concurrent.futures.Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"codesdk-extension-{code.name}", daemon=True)
        self._thread.start()

    async def register(self, timeout_s: float) -> list[Registration]:
        """Import the code and let it register."""
        return await self._call(register(self._code.name, self._code.file, self._modules), timeout_s)

    async def handle(self, one: Registration, event: AgentRuntimeEvent, ports: ToolPorts) -> object:
        """Call a handler."""
        assert one.handler is not None, "registered in this thread"
        tools = HandlerTools(one.module_name, ports)
        # Each handler gets its own copy: what one does to it, the next does not see.
        told = msgspec.structs.replace(event, payload=msgspec.json.decode(msgspec.json.encode(event.payload)))
        try:
            data = await self._call(run_handler(one.handler, told, tools), one.timeout_ms / 1000)
        finally:
            tools.end()
        return msgspec.json.decode(data)

    def close(self) -> None:
        """End the thread when it is idle. One that is stuck ends with the process."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._modules.forget()

    async def ended(self) -> None:
        """Wait for nothing: a thread ends by itself or not at all."""

    async def _call(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return what a coroutine returns that runs in the thread. Raise what it raises, or `HandlerTimeout`."""
        if self._stuck is not None and not self._stuck.done():
            work.close()
            raise HandlerTimeout(f"The extension {self._code.name} is still busy with an earlier call.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        waiting = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait([waiting], timeout=timeout_s)
        except asyncio.CancelledError:
            future.cancel()
            raise
        if not done:
            future.cancel()
            # If the thread does not even get to this, it blocks, and nobody else should wait for it.
            self._stuck = asyncio.run_coroutine_threadsafe(_nothing(), self._loop)
            await asyncio.wait([asyncio.wrap_future(self._stuck)], timeout=GRACE_S)
            raise HandlerTimeout(f"It took longer than {timeout_s * 1000:g} ms.")
        return waiting.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - asyncio lets exits of tasks through; they end nothing here
                _log.warning(
                    "a task of the extension %s tried to exit (%r); the extension runs on",
                    self._code.name,
                    error,
                )
        _end(self._loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what an extension left behind, and close its loop."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    try:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0)) if left else None
    except BaseException as error:  # noqa: BLE001 - the extension's last words; the thread ends anyway
        _log.warning("an extension did not end in order (%r)", error)
    loop.close()


async def _nothing() -> None:
    """Show that the loop gets to do something."""
