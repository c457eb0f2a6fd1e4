"""One task of an adapter in another process: its items as the engine pulls them, and what goes back to it.

Back-pressure is credit. An adapter may send `WINDOW` items; as the engine takes them, it asks for as many more (`pull`).
An adapter that sends more breaks the protocol. A few that are very large make the reader of the pipe wait, too.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Sequence

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import Message
from codesdk.contract.runtime import Draft, Failed, Finished, RuntimeItem, ToolReply
from codesdk.contract.tools import ToolIdentity
from codesdk.runtimes.external.items import Item, from_wire
from codesdk.runtimes.external.messages import (
    WINDOW,
    Description,
    OfTask,
    Pull,
    SendToolDenied,
    SendToolResult,
    Steer,
    Stop,
)
from codesdk.runtimes.external.peer import Noise, Violation
from codesdk.runtimes.external.process import AdapterProcess

CLOSE_S = 2.0
MAX_HELD_BYTES = 32 * 1024 * 1024
"""How much of a task may wait for the engine before nothing more is read."""
_HALF = WINDOW // 2
_ENDINGS = (Finished, Failed)


class ExternalTask:
    """A running task, as the engine has it. The process gives it the items."""

    def __init__(self, process: AdapterProcess, task_id: str) -> None:
        self._process = process
        self._task_id = task_id
        self._items: deque[tuple[RuntimeItem, int]] = deque()
        self._held = 0
        self._credit = WINDOW
        self._complete = False
        self._closed = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    # --- from the process ---

    def take(self, item: Item, size: int) -> Awaitable[None] | None:
        """Take an item of so many bytes. What comes after the last one is dropped."""
        if self._complete or self._closed:
            return None
        if self._credit == 0:
            raise Violation(f"sent more than the {WINDOW} items of a task that it was asked for")
        self._credit -= 1
        taken = from_wire(item)
        self._complete = isinstance(taken, _ENDINGS)
        self._items.append((taken, size))
        self._held += size
        self._wake.set()
        return None if self._held <= MAX_HELD_BYTES else self._wait_for_room()

    def introduce(self, described: Description) -> None:
        """Have the log say which adapter works here: an operator may replace it."""
        details = {
            "name": described.name,
            "version": described.version,
            "protocol": described.protocol_version,
        }
        message = f"The adapter {described.name}, version {described.version}, has been started."
        self._say(Draft(RuntimeNotice(kind="adapter", message=message, details=details)))

    def note(self, noise: Noise) -> None:
        """Have the log say what the adapter printed."""
        notice = RuntimeNotice(
            kind="unknown_frame",
            message="The adapter wrote a line that is no message of the protocol.",
            details={"size": noise.size},
        )
        self._say(Draft(notice, noise.start))

    def _say(self, draft: Draft) -> None:
        """Put something of our own between what the adapter says."""
        if not self._complete:
            self._items.append((draft, 0))
            self._wake.set()

    def wake(self) -> None:
        """The process is gone."""
        self._wake.set()
        self._room.set()

    # --- to the engine ---

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        taken = 0
        while True:
            while self._items:
                item, size = self._items.popleft()
                self._held -= size
                if self._held <= MAX_HELD_BYTES:
                    self._room.set()
                yield item
                if isinstance(item, _ENDINGS):
                    return
                taken += size > 0  # a notice of our own is not counted
                if taken >= _HALF:
                    await self._pull(taken)
                    taken = 0
            if not self._process.open:
                yield Failed(error=(await self._process.failure()).info())
                return
            self._wake.clear()
            await self._wake.wait()

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        await self._tell("send_tool_result", SendToolResult(task_id=self._task_id, call=call, reply=reply))

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        await self._tell("send_tool_denied", SendToolDenied(task_id=self._task_id, call=call, reason=reason))

    async def steer(self, messages: Sequence[Message]) -> None:
        await self._process.ask("steer", Steer(task_id=self._task_id, messages=list(messages)))

    async def stop(self, reason: str) -> None:
        await self._tell("stop", Stop(task_id=self._task_id, reason=reason))

    async def close(self) -> None:
        """Have the adapter release the task; end it if it does not. The next task starts it again."""
        if self._closed:
            return
        self._closed = True
        self._items.clear()
        self._room.set()
        released = False
        try:
            if self._process.open:
                await self._process.ask("close", OfTask(task_id=self._task_id), timeout_s=CLOSE_S)
                released = True
        except (CodeSDKError, TimeoutError):
            pass
        finally:
            self._process.dismiss(self._task_id)
            if not released:  # it hangs, so it is not asked to end either
                await self._process.stop(0)

    async def _tell(self, method: str, params: OfTask) -> None:
        """Tell the adapter something. If it is gone, the stream says so, and says why."""
        try:
            await self._process.ask(method, params)
        except CodeSDKError:
            if self._process.open:
                raise

    async def _pull(self, count: int) -> None:
        self._credit += count
        try:
            await self._process.peer.notify("pull", Pull(task_id=self._task_id, items=count))
        except CodeSDKError:
            pass  # it is gone, and what it still said comes first

    async def _wait_for_room(self) -> None:
        while self._held > MAX_HELD_BYTES and not self._closed:
            self._room.clear()
            await self._room.wait()
