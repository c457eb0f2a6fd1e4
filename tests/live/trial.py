"""One prompt and one tool call on a runtime, with whatever answers its model: a provider, or a script."""

import asyncio
from pathlib import Path
from typing import Any

from codesdk import Budget, Budgets, CodeSDK
from codesdk.contract.codec import decode
from codesdk.engine.checks.verify import verify_session

NUMBER = "4711"
PROMPT = (
    "Read the file note.txt with the tool that reads files. Answer with the number in it and nothing else."
)
BUDGET = Budget(requests=8, tokens=200_000, cost_usd=1.0)
"""What a trial may use of a real account."""
TIMEOUT_S = 300.0


async def read_a_note(runtime: str, folder: Path, model: str | None = None, **opening: Any) -> None:
    """Have a runtime read a file and say what is in it; check the answer, the log, and what it cost."""
    workspace = await asyncio.to_thread(_workspace, folder)
    async with asyncio.timeout(TIMEOUT_S), CodeSDK.open(folder / "data", **opening) as sdk:
        session = await sdk.create_session(
            runtime=runtime,
            workspace=workspace,
            permission_mode="auto",
            interaction_mode="non_interactive",
            model=model,
            budgets=Budgets(session=BUDGET),
        )
        result = await (await session.start(PROMPT)).result()
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        problems = await verify_session(sdk.archive.log, sdk.archive.blobs, session.id)
    payloads = [(event.type, event.payload) for event in events]
    read: list[Any] = [payload for kind, payload in payloads if kind == "tool.call.completed"]
    assert NUMBER in result.text, result.text
    assert [(each.name, each.is_error) for each in read] == [("workspace.read", False)] * len(read)
    assert read, "the tool was called"
    assert result.usage.input > 0, "the provider said what it counted"
    assert problems == []


def _workspace(folder: Path) -> Path:
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / "note.txt").write_text(f"The number is {NUMBER}.\n")
    return workspace
