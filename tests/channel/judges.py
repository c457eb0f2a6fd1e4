"""Who decides in tests: tools whose names begin with `ok` may run; `wait` waits for ever."""

import asyncio
from typing import Any

from codesdk.channel import Decided, ToolRequest, ToolResult


class Judge:
    """Decides by names, and remembers everything. Implements the arbiter's `Judge`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.watched: list[str] = []
        self.ended: list[tuple[str, bool | None]] = []
        self.notes: list[tuple[str, str]] = []
        self.withdrawn: list[str] = []
        self.waiting = asyncio.Event()

    async def decide(self, request: ToolRequest) -> Decided:
        self.asked.append(request.id)
        if request.tool == "wait":
            self.waiting.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.withdrawn.append(request.id)
                raise
        if request.tool == "bug":
            raise ZeroDivisionError
        allow = request.tool.startswith("ok")
        return Decided(allow=allow, reason="fine" if allow else "no such thing", rule_id="by-name")

    async def watch(self, request: ToolRequest) -> None:
        self.watched.append(request.id)

    async def end(self, request: ToolRequest, result: ToolResult | None, *, watched: bool) -> None:
        self.ended.append((request.id, None if result is None else result.ok))

    async def note(self, kind: str, words: str, details: dict[str, Any]) -> None:
        self.notes.append((kind, words))
