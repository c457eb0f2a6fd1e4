"""From a runtime's emit to the reader of the stream, with 0, 10 and 100 handlers of that event; and to the last handler,
in a thread and in a process of its own.

100 notices a second over one session: each is dispatched to every handler, in order, while the stream goes on.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from bench.latency import received, ticks
from bench.measure import percentile, scratch
from bench.rig import StreamRuntime, workspace_of
from bench.table import Report, at_most
from codesdk import CodeSDK
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.runtime import Draft, Finished, RuntimeItem, TaskInput
from codesdk.extensions import AgentEventEmitResult, ExtensionOptions, Hosting, Signal

_RATE = 100
_MANIFEST = """
name = "bench"
version = "1.0.0"
agent_id = "bench"
display_name = "Bench"
runtime = {core_api_version = 1}
entrypoints = {events = "events.py"}
capabilities = {events = ["runtime.notice"]}
"""
_EVENTS = """
def handler(number):
    async def handle(event, tools):
        return number
    return handle
def register(registry):
    for number in range(%d):
        registry.on("runtime.notice", handler(number))
"""


async def run(report: Report, quick: bool) -> None:
    count = 20 if quick else 500
    for handlers in (0, 10, 100):
        report.progress(f"{count} events with {handlers} handlers")
        seen, handled = await _measure(handlers, count)
        name = f"{handlers} handlers"
        report.line(f"to the stream, {name}, p50", percentile(seen, 0.5), "ms", goal=at_most(1.0))
        report.line(f"to the stream, {name}, p99", percentile(seen, 0.99), "ms", goal=at_most(5.0))
        if handled:
            report.line(f"to the last of {name}, p50", percentile(handled, 0.5), "ms")
    report.progress(f"{count} events with 10 handlers in a process of their own")
    seen, handled = await _measure(10, count, "subprocess")
    report.line(
        "to the stream, 10 handlers in a process, p99", percentile(seen, 0.99), "ms", goal=at_most(5.0)
    )
    report.line("to the last of 10 handlers in a process, p50", percentile(handled, 0.5), "ms")


async def _measure(
    handlers: int, count: int, hosting: Hosting = "in_process"
) -> tuple[list[float], list[float]]:
    """Return how old each event was, in milliseconds, when it was read and when its last handler had ended."""
    sent: list[float] = []
    handled: list[float] = []

    async def stream(task: TaskInput) -> AsyncGenerator[RuntimeItem, None]:
        async for _ in ticks(count, 1 / _RATE, 0.0):
            sent.append(time.perf_counter())
            yield Draft(RuntimeNotice(kind="note", message="measured", details={}))
        yield Finished(stop_reason="end_turn")

    def dispatched(signal: Signal, results: Sequence[AgentEventEmitResult]) -> None:
        assert len(results) == handlers
        handled.append((time.perf_counter() - sent[len(handled)]) * 1000)

    with scratch() as path:
        workspace_of(path).mkdir()
        options = None
        if handlers:
            options = ExtensionOptions(roots=[str(_extension(path, handlers))], hosting=hosting)
        async with CodeSDK.open(
            path / "data", runtimes={"scripted": StreamRuntime(stream)}, extensions=options
        ) as sdk:
            session = await sdk.create_session(runtime="scripted", workspace=workspace_of(path))
            if handlers:
                sdk.extensions.on_emitted = dispatched
            seen = await received(session, sent, "runtime.notice")
            if handlers and sdk.extensions.settle is not None:
                await sdk.extensions.settle()
    assert len(seen) == count, f"{count} sent, {len(seen)} received"
    assert len(handled) == (count if handlers else 0), "an event was not dispatched"
    return seen, handled


def _extension(path: Path, handlers: int) -> Path:
    root = path / "extension"
    root.mkdir()
    (root / "extension.toml").write_text(_MANIFEST)
    (root / "events.py").write_text(_EVENTS % handlers)
    return root
