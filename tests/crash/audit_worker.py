"""A process that runs one tool call and is killed on its way into the audit: see `test_audit_kill`.

    audit_worker.py DATA_DIR WORKSPACE MOMENT COUNT

MOMENT is one of `MOMENTS`; the process is killed when it comes for the COUNTth time.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from codesdk import CodeSDK, SessionSettings
from codesdk.store.audit.chain_file import ChainFile
from codesdk.store.audit.trail import Audit
from codesdk.store.sqlite.log import SqliteLog

MOMENTS = ["stored", "taking", "torn", "written", "kept"]
SCRIPT = {
    "turns": [
        {"steps": [{"call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}}}]},
        {"steps": [{"text": "Done."}]},
    ]
}


class Countdown:
    """Ends the process as the kernel does, when it has been asked often enough."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == 0

    def die(self) -> None:
        if self():
            os.kill(os.getpid(), signal.SIGKILL)


def die_at(moment: str, countdown: Countdown) -> None:
    """Be killed behind a commit, before its events are taken, in a line, before the cursor is kept, or behind that."""
    append, take, write, keep = SqliteLog.append, Audit.take, ChainFile._write, SqliteLog.keep_cursor

    def watched_append(self: SqliteLog, *args: Any, **options: Any) -> Any:
        return stored(append(self, *args, **options)) if args[3] else append(self, *args, **options)

    async def stored(appending: Any) -> None:
        await appending
        countdown.die()

    async def watched_take(self: Audit, events: Any) -> None:
        countdown.die()
        await take(self, events)

    def watched_write(self: ChainFile, data: bytes) -> None:
        if countdown():
            write(self, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, data)

    async def watched_keep(self: SqliteLog, subscriber: str, cursor: int) -> None:
        if moment == "written":
            countdown.die()
        await keep(self, subscriber, cursor)
        if moment == "kept":
            countdown.die()

    if moment == "stored":
        SqliteLog.append = watched_append
    elif moment == "taking":
        Audit.take = watched_take
    elif moment == "torn":
        ChainFile._write = watched_write
    else:
        SqliteLog.keep_cursor = watched_keep


async def main() -> None:
    directory, workspace, moment, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    die_at(moment, Countdown(count))
    async with CodeSDK.open(directory, allow_yolo=True) as sdk:
        while True:
            session = await sdk.create_session(
                runtime="scripted",
                workspace=workspace,
                permission_mode="yolo",
                settings=SessionSettings(runtime_config={"script": SCRIPT}),
            )
            await (await session.start("Write")).result()


if __name__ == "__main__":
    asyncio.run(main())
