"""A process with a session that goes on by itself, killed at a moment that is told: see `test_going_on`.

    going_on_worker.py DATA_DIR WORKSPACE RUNTIME MOMENT

The first one creates the session and starts its task; later ones only open the directory. All of them end when the
task has ended. MOMENT is the type of an event: the process is killed once that is stored; `never` is none.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from tests.crash.once_worker import counting_tools, die

from codesdk import CodeSDK, SessionSettings
from codesdk.script import parse_object
from codesdk.store.sqlite.log import SqliteLog

SCRIPT = {
    "turns": [
        {"steps": [{"text": "I will count."}, {"call": {"tool": "count.write", "input": {"text": "once"}}}]},
        {"steps": [{"text": "Done."}]},
    ]
}


def die_once(kind: str) -> None:
    """Be killed just after an event of a type was committed."""
    mark, append = f'"type":"{kind}"'.encode(), SqliteLog.append

    def watched(
        self: SqliteLog, session_id: str, epoch: int, first_seq: int, frames: Any, **options: Any
    ) -> Any:
        appending = append(self, session_id, epoch, first_seq, frames, **options)
        return _stored(appending) if any(mark in frame for frame in frames) else appending

    async def _stored(appending: Any) -> None:
        await appending
        die()

    SqliteLog.append = watched


async def begin(sdk: CodeSDK, workspace: Path, runtime: str) -> None:
    scripted = runtime == "scripted"
    await sdk.create_session(
        runtime=runtime,
        workspace=workspace,
        permission_mode="yolo",
        plays=None if scripted else parse_object(SCRIPT, "script"),
        settings=SessionSettings(
            on_interrupt="resume",
            max_resumes=2,
            resume_backoff_s=0.0,
            runtime_config={"script": SCRIPT} if scripted else {},
        ),
    )
    (row,) = await sdk.sessions()
    await (await sdk.session(row.session_id)).start("Count")


async def main() -> None:
    data, workspace, runtime, moment = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    die_once(moment)
    async with CodeSDK.open(data, tools=counting_tools(), allow_yolo=True, providers={}) as sdk:
        if not await sdk.sessions():
            await begin(sdk, workspace, runtime)
        (row,) = await sdk.sessions()
        session = await sdk.session(row.session_id)
        async for event in session.events():
            if event.type in ("task.completed", "session.not_resumed"):
                return


if __name__ == "__main__":
    asyncio.run(main())
