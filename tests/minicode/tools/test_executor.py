"""Whatever a tool does, the outcome is an output."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.minicode.tools.rig import Bench, failed, said

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.minicode import deadlines
from codesdk.minicode.config import ToolLimits
from codesdk.minicode.tools import DirectExecutor, Tool, ToolContext, define_tool
from codesdk.minicode.types import StoredArtifact, ToolCall, ToolExecutor, ToolOutput
from codesdk.tools import ToolError


def executor(*tools: Tool, artifacts: Any = None, **limits: int) -> ToolExecutor:
    return DirectExecutor(
        tools, session_id="ses", cwd="/work", limits=ToolLimits(**limits), artifacts=artifacts or Full()
    )


class Full:
    """A disk without space."""

    async def write_text(self, session_id: str, kind: str, content: str) -> StoredArtifact:
        raise StorageFailure("the disk is full")

    async def write_bytes(
        self, session_id: str, kind: str, data: bytes, media_type: str | None = None
    ) -> StoredArtifact:
        raise StorageFailure("the disk is full")


async def run(tool: Tool, given: Any = None, **limits: int) -> ToolOutput:
    return await executor(tool, **limits).run(
        ToolCall(id="call_1", name=tool.name, input={} if given is None else given)
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("Order 7 is gone."), "Order 7 is gone."),
        (InvalidRequest("Say more."), "Say more."),
        (ValueError("secret"), "The tool breaks failed unexpectedly (ValueError). Its log has the details."),
        (TimeoutError(), "The tool breaks failed unexpectedly (TimeoutError). Its log has the details."),
        (SystemExit(1), "The tool breaks failed unexpectedly (SystemExit). Its log has the details."),
        (
            KeyboardInterrupt(),
            "The tool breaks failed unexpectedly (KeyboardInterrupt). Its log has the details.",
        ),
        (
            asyncio.CancelledError(),
            "The tool breaks failed unexpectedly (CancelledError). Its log has the details.",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_tool_raises_becomes_an_output(error: BaseException, words: str):
    @define_tool
    async def breaks() -> None:
        """Break."""
        raise error

    assert await run(breaks) == failed(words)


async def test_a_result_that_is_not_json_becomes_an_output():
    @define_tool
    async def odd() -> Any:
        """Return something odd."""
        return sys

    assert await run(odd) == failed("The tool odd failed unexpectedly (TypeError). Its log has the details.")


async def test_a_tool_that_hangs_is_stopped():
    ended = asyncio.Event()

    @define_tool
    async def hangs() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    assert await run(hangs, timeout_ms=10) == failed(
        "The tool hangs was stopped: it took more than 0.01 seconds."
    )
    assert ended.is_set()


async def test_a_tool_has_the_time_that_it_asks_for():
    @define_tool(timeout_ms=20)
    async def hangs() -> None:
        """Hang."""
        await asyncio.Event().wait()

    assert (await run(hangs)).output_message == "The tool hangs was stopped: it took more than 0.02 seconds."


async def test_a_tool_that_does_not_heed_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(deadlines, "GRACE_S", 0.01)
    go_on = asyncio.Event()

    @define_tool
    async def stubborn() -> None:
        """Go on."""
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    assert not (await run(stubborn, timeout_ms=10)).ok
    assert caplog.messages == ["The tool stubborn does not end although it was cancelled; it is left behind"]
    (task,) = deadlines._left_behind
    go_on.set()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert not deadlines._left_behind


async def test_cancelling_a_call_cancels_its_tool():
    began, ended = asyncio.Event(), asyncio.Event()

    @define_tool
    async def works() -> None:
        """Work."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.create_task(run(works))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_bad_input_and_an_unknown_tool_are_told_to_the_model():
    @define_tool
    async def greet(name: str, context: ToolContext) -> str:
        """Greet."""
        return f"{name} {context.session_id} {context.call_id} {context.cwd}"

    assert await run(greet, {"name": "Ann"}) == said("Ann ses call_1 /work")
    assert await run(greet, {"name": 5}) == failed(
        "The input of greet is not valid. name: expected string, got integer. It takes: name (string, required)."
    )
    assert await executor(greet).run(ToolCall(id="c", name="grete", input={})) == failed(
        "There is no tool named grete. The tools are: greet."
    )


async def test_a_long_output_of_any_tool_is_kept_and_shortened(tmp_path: Path):
    @define_tool
    async def talks() -> ToolOutput:
        """Talk."""
        return ToolOutput(ok=True, output_message="a" * 600 + "b" * 900, details=[1], meta={"mine": True})

    bench = Bench(tmp_path, ToolLimits(max_shown_chars=1000), tools=[talks])
    output = await bench.use("talks")
    assert output.meta is not None
    kept = output.meta["artifact"]
    assert output == ToolOutput(
        ok=True,
        output_message=f"{'a' * 250}\n… (500 characters left out; all of it is in {kept['path']}) …\n{'b' * 750}",
        details=[1],
        meta={"mine": True, "truncated": True, "artifact": kept},
    )
    assert kept == {
        "id": kept["id"],
        "path": str(tmp_path / "artifacts" / "ses" / f"talks-output-{kept['id']}.txt"),
        "size_bytes": 1500,
        "media_type": "text/plain",
    }


async def test_a_full_disk_does_not_cost_the_model_its_answer():
    @define_tool
    async def talks() -> str:
        """Talk."""
        return "a" * 2000

    output = await run(talks, max_shown_chars=1000)
    assert (output.ok, output.meta) == (True, {"truncated": True})
    assert "(1000 characters left out; it could not be kept)" in output.output_message


def test_two_tools_of_one_name_are_refused():
    @define_tool
    async def one() -> None:
        """Do."""

    with pytest.raises(InvalidRequest, match="There are two tools named one"):
        executor(one, one)
