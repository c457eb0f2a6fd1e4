"""A model that does the same again and again is stopped; one that gets on is not."""

from collections.abc import Iterable
from typing import Any

import pytest

from codesdk import TaskFailure
from codesdk.contract.settings import Limits
from codesdk.testing.fakes import FakeRuntime, FakeTools, call, done, memory_sdk, message


async def play(
    paths: Iterable[str], tools: FakeTools | None = None, mode: Any = "yolo", max_calls: int = 100
) -> str:
    """Play a task that reads these, one after the other. Return what it says at its end."""
    runtime, tools = FakeRuntime(), tools or FakeTools()
    limits = Limits(max_same_calls=3, max_calls=max_calls)
    async with memory_sdk(runtimes=[runtime], tools=tools, limits=limits) as sdk:
        session = await sdk.create_session(
            runtime="fake", permission_mode=mode, interaction_mode="non_interactive"
        )
        task = await session.start("Go")
        await runtime.started()
        for number, path in enumerate(paths):
            runtime.tasks[-1].emit(call("fake.write", {"path": path}, f"c{number}", f"m{number}"))
            await runtime.tasks[-1].reply(f"c{number}")
        runtime.tasks[-1].emit(message("Done.", "last"), done())
        return (await task.result()).text


@pytest.mark.parametrize("mode", ["yolo", "auto"], ids=["that runs", "that is denied"])
async def test_the_same_call_once_too_often_ends_the_task(mode: Any):
    with pytest.raises(
        TaskFailure, match=r"called fake\.write with the same input more than 3 times"
    ) as raised:
        await play("aaaa", mode=mode)
    assert (raised.value.code, raised.value.retryable) == ("MODEL_ERROR", False)


@pytest.mark.parametrize("paths", ["aaa", "aaabaaa", "abababab"])
async def test_a_call_that_is_not_made_too_often_in_a_row_is_no_loop(paths: str):
    assert await play(paths) == "Done."


async def test_a_call_whose_result_changes_gets_on():
    tools = FakeTools()

    def paths() -> Iterable[str]:
        for number in range(9):
            tools.give("fake.write", f"result {number // 3}")
            yield "a"

    assert await play(paths(), tools) == "Done."


@pytest.mark.parametrize("mode", ["yolo", "auto"], ids=["that run", "that are denied"])
async def test_a_model_that_only_ever_calls_tools_comes_to_an_end_however_it_varies_them(mode: Any):
    with pytest.raises(TaskFailure, match=r"made more than 9 tool calls .*limits\.max_calls") as raised:
        await play("ababababab", mode=mode, max_calls=9)
    assert (raised.value.code, raised.value.retryable) == ("MODEL_ERROR", False)
    assert await play("ababababa", mode=mode, max_calls=9) == "Done."
