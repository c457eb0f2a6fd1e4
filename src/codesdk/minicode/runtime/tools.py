"""The calls of a loop → the engine, which decides on them and runs them. Implements `ToolExecutor`."""

import asyncio
from collections.abc import Sequence

from codesdk.contract.tools import ToolSpec
from codesdk.minicode.types import ToolCall, ToolDefinition, ToolOutput


class EngineTools:
    """Waits for what the engine makes of each call. The calls themselves are announced in the stream of the task."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._definitions = [
            ToolDefinition(name=tool.name, description=tool.description, input_schema=tool.input_schema)
            for tool in tools
        ]
        self._waiting: dict[str, asyncio.Future[ToolOutput]] = {}
        self._kept_as: dict[str, str] = {}

    def definitions(self) -> Sequence[ToolDefinition]:
        return self._definitions

    async def run(self, call: ToolCall) -> ToolOutput:
        try:
            return await self._future(call.id)
        finally:
            self._waiting.pop(call.id, None)

    def kept_as(self, call: ToolCall) -> str:
        return self._kept_as.pop(call.id, call.id)

    def answer(self, call_id: str, kept_as: str, output: ToolOutput) -> None:
        """Give a call its result. It may come before anybody waits for it, or when nobody does any more."""
        self._kept_as[call_id] = kept_as
        future = self._future(call_id)
        if not future.done():
            future.set_result(output)

    def _future(self, call_id: str) -> asyncio.Future[ToolOutput]:
        return self._waiting.setdefault(call_id, asyncio.get_running_loop().create_future())
