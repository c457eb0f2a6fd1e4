"""A process that is killed while it asks about a call of a real agent: see `test_consent`.

consent_worker.py DATA_DIR WORKSPACE RUNTIME
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from codesdk import CodeSDK
from codesdk.contract.actions import Caller
from codesdk.contract.tools import Actor
from codesdk.script import parse_object

NOTE = "notes.txt"
SCRIPT = {
    "turns": [
        {
            "steps": [
                {"call": {"tool": "workspace.edit", "input": {"path": NOTE, "old": "milk", "new": "rum"}}}
            ]
        },
        {"steps": [{"text": "Then not."}]},
    ]
}


def client(sdk: CodeSDK, name: str) -> CodeSDK:
    """Return the same sessions as a client of this name has them."""
    return sdk.as_caller(Caller(actor=Actor(kind="user", id=name), client_id=name))


async def main() -> None:
    directory, workspace, runtime = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    async with CodeSDK.open(directory, providers={}) as sdk:
        session = await client(sdk, "first").create_session(
            runtime=runtime, workspace=workspace, permission_mode="ask", plays=parse_object(SCRIPT, "note")
        )
        task = await session.start("Change my note.")
        async for event in task.events():
            if event.type == "approval.requested":
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main())
