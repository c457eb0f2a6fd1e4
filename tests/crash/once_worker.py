"""A process that runs one tool call and is killed on its way, at a moment that is told: see `test_exactly_once`.

    once_worker.py DATA_DIR WORKSPACE FLOW MOMENT

FLOW is `person` (asks and answers itself), `policy` (a rule allows it), `resume` (goes on with the call that was
approved after a crash) or `ask` (asks, and nobody answers). MOMENT is one of `MOMENTS`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import msgspec

from codesdk import CodeSDK, Session, SessionSettings
from codesdk.store.sqlite.log import SqliteLog
from codesdk.tools.registry import ToolContext, ToolRegistry

MOMENTS = [
    "approved unstored",
    "approved stored",
    "started unstored",
    "started stored",
    "tool before",
    "tool after",
    "completed unstored",
    "completed stored",
]
SCRIPT = {
    "turns": [
        {"steps": [{"call": {"tool": "count.write", "input": {"text": "once"}}}]},
        {"steps": [{"text": "Done."}]},
    ]
}
EFFECTS = "effects.txt"


class CountInput(msgspec.Struct):
    text: str


def die() -> None:
    """End as a process does that the kernel ends: nothing more is done."""
    os.kill(os.getpid(), signal.SIGKILL)


def counting_tools(moment: str = "") -> ToolRegistry:
    """Return a tool whose every run leaves a line in the workspace, on disk before it returns."""
    registry = ToolRegistry()

    @registry.tool(name="count.write", tool_class="write")
    async def count(args: CountInput, context: ToolContext) -> str:
        """Leave a line."""
        if moment == "tool before":
            die()
        with (Path(context.call.workspace) / EFFECTS).open("a") as file:
            file.write(f"{args.text} {context.call.tool_call_id} {context.call.attempt}\n")
            file.flush()
            os.fsync(file.fileno())
        if moment == "tool after":
            die()
        return "counted"

    return registry


def die_at(moment: str) -> None:
    """Be killed just before an event of the call is handed to the store, or just after it was committed."""
    name, _, when = moment.partition(" ")
    mark = f'"type":"tool.call.{name}"'.encode()
    append = SqliteLog.append

    def watched(
        self: SqliteLog, session_id: str, epoch: int, first_seq: int, frames: Any, **options: Any
    ) -> Any:
        if not any(mark in frame for frame in frames):
            return append(self, session_id, epoch, first_seq, frames, **options)
        if when == "unstored":
            die()
        return _stored(append(self, session_id, epoch, first_seq, frames, **options))

    async def _stored(appending: Any) -> None:
        await appending
        die()

    SqliteLog.append = watched


async def work(sdk: CodeSDK, workspace: Path, flow: str) -> None:
    if flow == "resume":
        session = await sdk.session((await sdk.sessions())[0].session_id)
        task = await session.resume()
    else:
        session = await sdk.create_session(
            runtime="scripted",
            workspace=workspace,
            permission_mode="yolo" if flow == "policy" else "ask",
            settings=SessionSettings(runtime_config={"script": SCRIPT}),
        )
        task = await session.start("Count")
    async for event in task.events():
        if event.type == "approval.requested":
            await answer(session, flow, event.payload.tool_call_id or "")


async def answer(session: Session, flow: str, tool_call_id: str) -> None:
    if flow == "ask":
        die()
    await session.approve(tool_call_id, reason="go on")


async def main() -> None:
    directory, workspace, flow, moment = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    die_at(moment)
    async with CodeSDK.open(directory, tools=counting_tools(moment), allow_yolo=True) as sdk:
        await work(sdk, workspace, flow)


if __name__ == "__main__":
    asyncio.run(main())
