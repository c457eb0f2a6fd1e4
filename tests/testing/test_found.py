"""What chaos brought to light, each in a test without chance."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.testing.fast import run

from codesdk import CodeSDK, Message, SessionSettings, TaskFailure
from codesdk.contract.runtime import Host, TaskInput
from codesdk.testing.fakes import FakeRuntime, FakeTask, delta, done, memory_sdk


async def never() -> None:
    await asyncio.Event().wait()


class Holding(FakeRuntime):
    """Does not let go of its first session: hangs, or raises."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__([delta("hi"), done()])
        self._error = error

    async def close_session(self, session_id: str) -> None:
        await super().close_session(session_id)
        if len(self.closed_sessions) == 1:
            if self._error is not None:
                raise self._error
            await never()


class RudeTask(FakeTask):
    async def stop(self, reason: str) -> None:
        await super().stop(reason)
        self.emit(done("stopped"))
        await never()

    async def steer(self, messages: Sequence[Message]) -> None:
        raise asyncio.CancelledError


class Rude(FakeRuntime):
    async def start_task(self, host: Host, task: TaskInput) -> Any:
        self.tasks.append(RudeTask(host, task, None))
        self.tasks[-1].emit(delta("hi"))
        return self.tasks[-1]


async def greet(sdk: CodeSDK) -> Any:
    """Start a task and return it once it has said something."""
    session = await sdk.create_session(runtime="fake", settings=SessionSettings(stop_grace_s=1))
    task = await session.start("go")
    async for event in task.events():
        if event.type == "model.output.delta":
            break
    return task


@pytest.mark.slow
@pytest.mark.parametrize("error", [None, RuntimeError("no"), asyncio.CancelledError()])
def test_a_runtime_that_does_not_let_go_of_a_session_holds_no_other_up(error: BaseException | None):
    async def main() -> None:
        runtime = Holding(error)
        async with memory_sdk(runtimes=[runtime]) as sdk:
            tasks = [await greet(sdk) for _ in range(3)]
        assert runtime.closed_sessions == [task.session.id for task in tasks]

    run(main())


@pytest.mark.slow
def test_a_stop_that_never_returns_is_not_left_behind_when_the_stream_ends():
    async def main() -> None:
        async with memory_sdk(runtimes=[Rude()]) as sdk:
            task = await greet(sdk)
            await task.stop("enough")
            assert (await task.result()).stop_reason == "enough"

    run(main())  # fails if anything still runs


@pytest.mark.slow
def test_a_runtime_that_is_cancelled_from_inside_does_not_cancel_who_called_it():
    async def main() -> None:
        async with memory_sdk(runtimes=[Rude()]) as sdk:
            task = await greet(sdk)
            with pytest.raises(TaskFailure, match="cancelled from inside"):
                await task.steer("left")
            await task.stop()
            assert (await task.result()).state == "stopped"

    run(main())
