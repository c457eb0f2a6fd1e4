"""Readers of a session that is deleted: they end, also those who come in the middle of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codesdk import CodeSDK, NotFound, Session
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object

SCRIPT = parse_object({"turns": [{"steps": [{"text": "Hello."}]}]}, "hello")


class Held:
    """Keeps a method of the log from beginning, or from giving back what it found, until it is let go."""

    def __init__(self, log: Any, name: str, *, after: bool = False) -> None:
        self._method: Callable[..., Any] = getattr(log, name)
        self._after = after
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        setattr(log, name, self)

    async def __call__(self, *args: Any, **options: Any) -> Any:
        found = await self._method(*args, **options) if self._after else None
        self.reached.set()
        await self.go.wait()
        return found if self._after else await self._method(*args, **options)


async def ended(sdk: CodeSDK, path: Path) -> Session:
    session = await sdk.create_session(runtime="scripted", workspace=path)
    await (await session.start("Say hello.")).result()
    await session.close()
    return session


async def all_types(session: Session) -> list[str]:
    return [event.type async for event in session.events()]


@pytest.fixture(params=[True, False], ids=["stored", "in memory"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param else None


async def test_a_reader_who_comes_while_a_session_is_deleted_comes_to_an_end(
    data_dir: Path | None, tmp_path: Path
):
    async with CodeSDK.open(data_dir, runtimes={"scripted": ScriptedRuntime(SCRIPT)}) as sdk:
        session = await ended(sdk, tmp_path)
        held = Held(sdk.archive.log, "delete")
        deleting = asyncio.create_task(session.delete())
        await held.reached.wait()
        events = session.events()
        assert (await anext(events)).type == "session.created"
        held.go.set()
        await deleting
        assert "task.completed" in [event.type async for event in events]


async def test_a_reader_who_looked_just_before_a_session_was_deleted_is_told_that_there_is_none(
    data_dir: Path | None, tmp_path: Path
):
    async with CodeSDK.open(data_dir, runtimes={"scripted": ScriptedRuntime(SCRIPT)}) as sdk:
        session = await ended(sdk, tmp_path)
        deletion = Held(sdk.archive.log, "delete")
        deleting = asyncio.create_task(session.delete())
        await deletion.reached.wait()
        look = Held(sdk.archive.log, "head", after=True)
        reading = asyncio.create_task(all_types(session))
        await look.reached.wait()
        deletion.go.set()
        await deleting
        look.go.set()
        with pytest.raises(NotFound):
            await reading
