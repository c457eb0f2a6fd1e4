"""Tool calls for tests of the MCP host: run at once, recorded, or held until they are let go."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from codesdk.contract.ports import ToolInvocation
from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import ToolClass, ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.tools.registry import ToolRegistry

PATIENCE_S = 120.0


def spec(name: str, tool_class: ToolClass = "read_only", **fields: Any) -> ToolSpec:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return ToolSpec(
        name=name, description=f"Does {name}.", input_schema=schema, tool_class=tool_class, **fields
    )


@dataclass
class RunnerCalls:
    """Runs what a runner offers, without asking anyone."""

    runner: ToolRegistry
    workspace: str = "/"

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        return self.runner.specs()

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        return asyncio.ensure_future(self._run(session_id, name, arguments))

    async def _run(self, session_id: str, name: str, arguments: Any) -> ToolReply:
        call = ToolInvocation(
            session_id=session_id,
            task_id=None,
            tool_call_id="tc_1",
            attempt=1,
            name=name,
            input=arguments,
            workspace=Workspace(self.workspace),
        )
        run = await self.runner.run(call, lambda stream, text: None)
        return ToolReply(result=run.result, is_error=run.is_error)


@dataclass
class RecordingCalls:
    """Keeps what it was asked and answers with `reply`, which may be an error to raise."""

    reply: Any = "done"
    is_error: bool = False
    offered: list[ToolSpec] = field(
        default_factory=lambda: [spec("workspace.read"), spec("workspace.edit", "write")]
    )
    asked: list[tuple[str, str, Any, str | None]] = field(default_factory=list)

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        return self.offered

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        return asyncio.ensure_future(self._answer(session_id, name, arguments, runtime_tool_call_id))

    async def _answer(
        self, session_id: str, name: str, arguments: Any, runtime_tool_call_id: str | None
    ) -> ToolReply:
        self.asked.append((session_id, name, arguments, runtime_tool_call_id))
        if isinstance(self.reply, Exception):
            raise self.reply
        return ToolReply(result=self.reply, is_error=self.is_error)


@dataclass
class HeldCalls(RecordingCalls):
    """A call waits here until it is let go or cancelled, and then needs several turns of the loop to clean up."""

    entered: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def _answer(
        self, session_id: str, name: str, arguments: Any, runtime_tool_call_id: str | None
    ) -> ToolReply:
        self.entered.release()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            for _ in range(5):
                await asyncio.sleep(0)
            self.cancelled.release()
            raise
        return await super()._answer(session_id, name, arguments, runtime_tool_call_id)


async def within(waiting: Any) -> Any:
    """Wait for a peer, but not forever."""
    return await asyncio.wait_for(waiting, PATIENCE_S)


def said(result: Any) -> tuple[str, bool]:
    """Return the text of a tool's result, and whether it is an error."""
    assert [block.type for block in result.content] == ["text"]
    return result.content[0].text, bool(result.is_error)
