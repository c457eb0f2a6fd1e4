"""Sessions of each program, used and ended in every way: nothing is left of them."""

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.counts import COUNTS
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import TRIED

from codesdk import CodeSDK, Session, Task
from codesdk.contract.errors import CodeSDKError
from codesdk.engine.checks.verify import verify_session
from codesdk.script import parse_object
from codesdk.testing.processes import children

AT_ONCE = 4
ENDINGS = ("used", "stopped", "closed")
"""How a session may end besides being killed."""
STORY = {"steps": [{"text": ["Once upon ", "a time"]}, {"delay_s": 3600}, {"text": "The end."}]}


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that no other test uses; its name is short, because sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def live(sdk: CodeSDK, folder: Path, runtime: str, ending: str) -> Session:
    """Start a session, use it, and end it in one of the ways."""
    turns = [{"steps": [{"text": "Hello."}]}, STORY]
    session = await sdk.create_session(
        runtime=runtime,
        workspace=folder,
        plays=parse_object({"turns": turns}, "story"),
    )
    assert (await (await session.start("Say hello.")).result()).text == "Hello."
    if ending == "closed":
        await session.close()
    elif ending != "used":
        task = await session.start("Tell a story.")
        async for event in task.events():
            if event.type == "model.output.delta":
                break
        if ending == "stopped":
            await task.stop()
        else:
            await kill_one(sdk, session)
        assert await outcome(task) == {"stopped": "stopped", "killed": "RUNTIME_CRASHED"}[ending]
    return session


async def outcome(task: Task) -> str:
    try:
        return (await task.result()).state
    except CodeSDKError as error:
        return error.code


async def kill_one(sdk: CodeSDK, session: Session) -> None:
    """Kill the program of a session, found by its state folder."""
    for child in psutil.Process().children(recursive=True):
        try:
            if session.id in " ".join([*child.environ().values(), *child.cmdline()]):
                os.kill(child.pid, signal.SIGKILL)
        except (psutil.Error, ProcessLookupError):
            pass


@pytest.mark.parametrize("runtime", TRIED)
async def test_no_process_socket_file_or_port_is_left(tmp_path: Path, runtime: str, scratch: Path):
    chance, before = random.Random(7), children()
    endings = [*ENDINGS, *["killed"] * COUNTS.program_deaths]
    chance.shuffle(endings)
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        for start in range(0, len(endings), AT_ONCE):
            batch = endings[start : start + AT_ONCE]
            sessions = await asyncio.gather(*(live(sdk, tmp_path, runtime, ending) for ending in batch))
            for session in sessions:
                assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
                await session.close()
    assert children() == before
    assert names_in(scratch) == []
    assert [c for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN] == []
