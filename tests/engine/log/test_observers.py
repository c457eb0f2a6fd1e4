"""Observers: they hear of every event once, after it is stored, and of a log that cannot be written."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.acting import create_session, start

from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.figures import Strain
from codesdk.contract.messages import user
from codesdk.contract.settings import Limits, SessionConfig, SessionSettings
from codesdk.engine.engine import Engine
from codesdk.engine.log.observers import Observers
from codesdk.engine.sessions.scope import Ports
from codesdk.local.directory import DataDir
from codesdk.policy.modes import ModePolicy
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.sdk import CodeSDK
from codesdk.testing.fakes import FakeRuntime, FakeTools, FrozenStamper, done


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Event]] = []
        self.failures: list[tuple[str, str, str]] = []
        self.has_failed = asyncio.Event()

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        self.heard += [(principal, event) for event in events]

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        self.failures.append((principal, session_id, error.code))
        self.has_failed.set()


async def test_an_observer_hears_of_every_stored_event_once_and_whose_it_is():
    listener = Listener()
    script = parse_object({"name": "hello", "turns": [{"steps": [{"text": "Hello."}]}]}, "hello")
    async with CodeSDK.open(
        runtimes={"scripted": ScriptedRuntime(script)}, observers=[listener], principal="ann"
    ) as sdk:
        session = await sdk.create_session(runtime="scripted")
        await (await session.start("Say hello.")).result()
        frames = [frame.data async for frame in sdk.archive.frames(session.id)]
    assert listener.heard == [("ann", decode(frame)) for frame in frames]
    assert not listener.failures


async def test_an_observer_hears_that_a_session_could_not_be_stored(tmp_path: Path):
    listener = Listener()
    script = parse_object({"name": "flood", "turns": [{"steps": [{"text": "x" * 400_000}]}]}, "flood")
    directory = await DataDir.open_writer(tmp_path, max_pages=60)
    ports = Ports(
        identify=lambda workspace: workspace,
        log=directory.log,
        blobs=directory.blobs,
        tools=FakeTools(),
        policy=ModePolicy(),
        stamper=FrozenStamper(),
        limits=Limits(),
        observers=[listener],
    )
    engine = Engine(ports, lambda _: ScriptedRuntime(script), owner="test")
    await engine.open()
    session = await create_session(engine, SessionConfig(runtime="scripted", workspace=str(tmp_path)))
    await start(engine, session, [user("Flood the disk.")])
    await listener.has_failed.wait()
    await engine.close()
    await directory.close()
    assert listener.failures == [("local", session.session_id, "STORAGE_FAILED")]


class Clumsy(Listener):
    """An observer that fails at its second batch, and when it is told of a failure."""

    calls = 0

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("an observer of mine")

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        raise RuntimeError("an observer of mine")


async def test_an_observer_that_raises_is_dropped_and_reported_and_nobody_else_is_affected(
    caplog: pytest.LogCaptureFixture,
):
    clumsy, listener = Clumsy(), Listener()
    script = parse_object({"name": "hello", "turns": [{"steps": [{"text": "Hello."}]}]}, "hello")
    async with CodeSDK.open(
        runtimes={"scripted": ScriptedRuntime(script)}, observers=[clumsy, listener]
    ) as sdk:
        first, second = [await sdk.create_session(runtime="scripted") for _ in range(2)]
        for session in (first, second):
            assert (await (await session.start("Say hello.")).result()).text == "Hello."
        frames = [frame async for frame in sdk.archive.frames(first.id)]
        frames += [frame async for frame in sdk.archive.frames(second.id)]
        assert sdk.engine.ports.strain.dropped_observers == 1
    assert clumsy.calls == 2
    assert len(listener.heard) == len(frames)
    (told,) = [record for record in caplog.records if record.name == "codesdk.observers"]
    assert "Clumsy" in told.getMessage()


def test_an_observer_that_cannot_hear_of_a_failure_is_dropped_too():
    clumsy, listener, strain = Clumsy(), Listener(), Strain()
    observers = Observers([clumsy, listener], strain)
    for _ in range(2):
        observers.failed("local", "ses_1", CodeSDKError("no room"))
    assert strain.dropped_observers == 1
    assert len(listener.failures) == 2


async def test_closing_the_sdk_does_not_wait_for_an_observer_that_raised(caplog: pytest.LogCaptureFixture):
    """It raises at the first event, the end of the task and at the closing, and hangs none of them."""
    async with asyncio.timeout(30):
        async with CodeSDK.open(runtimes={"fake": FakeRuntime()}, observers=[Leaving()]) as sdk:
            settings = SessionSettings(stop_grace_s=0.05)  # it is deaf to the stop, too
            session = await sdk.create_session(runtime="fake", settings=settings)
            await session.start("Go")  # and it still runs when the SDK is closed
    assert [record.name for record in caplog.records if "Leaving" in record.getMessage()] == [
        "codesdk.observers"
    ]


class Leaving(Listener):
    """An observer that raises whenever it is told something."""

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        raise RuntimeError("an observer of mine")


class Hanging(Listener):
    """An observer whose methods are coroutines that never end: it is called, and nobody waits for it."""

    async def committed(self, principal: str, events: Sequence[Event]) -> None:
        await asyncio.Event().wait()


class Insisting(Listener):
    """An observer that waits for the SDK inside of the SDK's own call, which cannot be."""

    sdk: CodeSDK

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        coroutine = self.sdk.sessions()
        try:
            asyncio.get_running_loop().run_until_complete(coroutine)
        finally:
            coroutine.close()


@pytest.mark.parametrize("kind", [Hanging, Insisting])
async def test_an_observer_that_hangs_or_waits_for_the_sdk_is_dropped_and_reported(
    kind: type[Listener], caplog: pytest.LogCaptureFixture
):
    observer = kind()
    async with CodeSDK.open(runtimes={"fake": FakeRuntime([done()])}, observers=[observer]) as sdk:
        if isinstance(observer, Insisting):
            observer.sdk = sdk
        session = await sdk.create_session(runtime="fake")
        await (await session.start("Go")).result()
        assert sdk.engine.ports.strain.dropped_observers == 1
    assert [kind.__name__ in record.getMessage() for record in caplog.records] == [True]


async def test_an_observer_may_act_on_the_sdk_in_a_task_of_its_own():
    class Acting(Listener):
        closing: asyncio.Task[None]

        def committed(self, principal: str, events: Sequence[Event]) -> None:
            super().committed(principal, events)
            if any(event.type == "task.completed" for event in events):
                self.closing = asyncio.create_task(session.close())

    acting = Acting()
    async with CodeSDK.open(runtimes={"fake": FakeRuntime([done()])}, observers=[acting]) as sdk:
        session = await sdk.create_session(runtime="fake")
        await (await session.start("Go")).result()
        await acting.closing
        assert (await session.info()).status == "closed"
    assert acting.heard[-1][1].type == "session.closed"
