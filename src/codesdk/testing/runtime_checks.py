"""What every runtime must do, cell by cell: each plays a script and looks at what the engine made of it.

The scripts have only plain steps: the scripted runtime plays them itself, a real program gets them from a
model endpoint.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import text_of
from codesdk.script import parse_object
from codesdk.testing.bench import FORBIDDEN, READ, WRITE, Bench, Scenario, in_order, payloads, seen
from codesdk.testing.cells import holds, same

CONTENT = "The number is 4711."
REASON = "Not on a Friday."
LARGE = CONTENT + " and so on" * 30_000


async def _streaming(bench: Bench) -> None:
    async with bench.task("Count to three.") as task:
        result = await task.result()
    events = await bench.events(task)
    same("the answer", result.text, "One, two, three.")
    deltas = [p.delta for p in payloads(events, "model.output.delta") if p.kind == "text_delta"]
    holds(len(deltas) > 1, f"the text comes in pieces, found {deltas}")
    same("the pieces together", "".join(deltas), result.text)
    in_order(
        events,
        "task.started",
        "model.input",
        "model.output.delta",
        "model.output.completed",
        "task.completed",
    )


async def _approve(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    async with bench.task("Read the note.") as task:
        call = await seen(task, "tool.call.requested")
        await task.approve(call.tool_call_id)
        same("the answer", (await task.result()).text, "Done.")
    same("what ran", [(run.name, run.input) for run in bench.tools.invocations], [(READ, {"path": "note"})])
    names = ("requested", "approved", "started", "completed")
    in_order(await bench.events(task), *(f"tool.call.{name}" for name in names), "task.completed")


async def _deny(bench: Bench) -> None:
    async with bench.task("Change the note.") as task:
        call = await seen(task, "tool.call.requested")
        await task.deny(call.tool_call_id, REASON)
        same("the answer", (await task.result()).text, "Then not.")
    denied = payloads(await bench.events(task), "tool.call.denied")
    same("the denials", [(p.by.kind, p.reason) for p in denied], [("user", REASON)])
    same("what ran", bench.tools.invocations, [])


async def _parallel(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    bench.tools.hold(READ)
    async with bench.task("Read both notes.", "yolo") as task:
        runs = await bench.begun(task, 2)
        holds(not any(run.over for run in runs), "both calls run at the same time")
        bench.tools.release()
        same("the answer", (await task.result()).text, "Done.")
    paths = sorted(run.input["path"] for run in bench.tools.invocations)
    same("what ran", paths, ["first", "second"])


async def _stop_mid_stream(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        task = await session.start("Tell a story.")
        await seen(task, "model.output.delta")
        await task.stop("enough")
        result = await task.result()
        same("the end", (result.state, result.stop_reason), ("stopped", "enough"))
        said = text_of((await session.transcript())[-1].content)
    holds("Once upon" in said and "The end." not in said, f"what was said so far is kept, found {said!r}")
    partial = [p.partial for p in payloads(await bench.events(task), "model.output.completed")]
    same("the message is partial", partial, [True])


async def _stop_in_a_tool(bench: Bench) -> None:
    bench.tools.hold()
    async with bench.task("Change the note.", "yolo") as task:
        (run,) = await bench.begun(task)
        await task.stop("enough")
        same("the end", (await task.result()).state, "stopped")
    # Whatever the runtime does: its `cancellation_model` is about the tools that CodeSDK runs.
    holds(run.cancelled, "the tool is cancelled")
    completed = payloads(await bench.events(task), "tool.call.completed")
    same("is_error of the call", [p.is_error for p in completed], [True])


async def _stop_while_an_approval_waits(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        task = await (await bench.session(sdk)).start("Change the note.")
        await seen(task, "approval.requested")
        await task.stop("enough")
        same("the end", (await task.result()).state, "stopped")
        same("what still waits", await sdk.approvals(), [])
    denied = payloads(await bench.events(task), "tool.call.denied")
    same("who denied the call", [p.by.kind for p in denied], ["engine"])
    same("what ran", bench.tools.invocations, [])


async def _non_interactive(bench: Bench) -> None:
    async with bench.task("Change the note.", interaction="non_interactive") as task:
        same("the answer", (await task.result()).text, "Then not.")
    events = await bench.events(task)
    same("who denied the call", [p.by.kind for p in payloads(events, "tool.call.denied")], ["policy"])
    same("questions", payloads(events, "approval.requested"), [])
    same("what ran", bench.tools.invocations, [])


async def _forbidden(bench: Bench) -> None:
    async with bench.task("Do what you must not.", "yolo") as task:
        with contextlib.suppress(CodeSDKError):  # a runtime may give up here, as long as nothing runs
            await task.result()
    events = await bench.events(task)
    same("what ran", [run.name for run in bench.tools.invocations], [])
    asked = len(payloads(events, "tool.call.requested"))
    denied = payloads(events, "tool.call.denied")
    same("denials of the calls", len(denied), asked)
    same("calls that started", payloads(events, "tool.call.started"), [])
    if bench.capabilities.permission_model == "codesdk":
        same("whose denial counts", {p.by.kind for p in denied} - {"policy"}, set())


async def _usage(bench: Bench) -> None:
    async with bench.task("Say hello.") as task:
        usage = (await task.result()).usage
    reports = payloads(await bench.events(task), "usage.reported")
    counts = [(p.input, p.output) for p in reports]
    holds((1234, 56) in counts, f"1234 tokens in and 56 out are reported, found {counts}")
    holds(usage.input >= 1234 and usage.output >= 56, f"the task's totals have them, found {usage}")
    costs = [p.cost_usd for p in reports if (p.input, p.output) == (1234, 56)]
    holds(
        usage.cost_usd in costs, f"the task's cost is the one of the report, {costs}, found {usage.cost_usd}"
    )


async def _resume(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    async with bench.sdk() as first:
        session = await bench.session(first)
        task = await session.start("Read the note.")
        call = await seen(task, "approval.requested")
        async with bench.sdk() as second:  # takes over, like the next process after a crash
            again = await bench.again(second, session)
            await again.approve(call.tool_call_id)
            resumed = await again.resume()
            same("the answer", (await resumed.result()).text, "Done.")
            holds(CONTENT in await bench.told(resumed), "the model is told what the call gave back")
    (failed,) = payloads(await bench.events(task), "task.failed")
    same("the end of the interrupted task", failed.error.code, "INTERRUPTED")
    (started,) = payloads(await bench.events(resumed), "task.started")
    same("the task that was resumed", started.resumes and started.resumes.task_id, task.id)
    same("the attempts that ran", [run.attempt for run in bench.tools.invocations], [2])
    (went,) = payloads(await bench.history(session), "session.resumed")
    compiled = [p for p in payloads(await bench.events(resumed), "model.input") if p.capture == "compiled"]
    native = compiled[-1].context_window.strategy == "delta"
    same("how the log says that it went on", went.resume_model, "native" if native else "reconstruct")


async def _steer(bench: Bench) -> None:
    bench.tools.hold()
    async with bench.task("Go on.", "yolo") as task:
        await bench.begun(task)
        await task.steer("Turn left.")
        bench.tools.release()
        same("the answer", (await task.result()).text, "Left it is.")
        holds("Turn left." in await bench.told(task), "the model is told what was added")
    steered = payloads(await bench.events(task), "task.steered")
    same("what was added", [text_of(m.content) for p in steered for m in p.messages], ["Turn left."])


async def _large_result(bench: Bench) -> None:
    bench.tools.give(READ, LARGE)
    async with bench.sdk() as sdk:
        task = await (await bench.session(sdk, "yolo")).start("Read the note.")
        same("the answer", (await task.result()).text, "Done.")
        (completed,) = payloads(await bench.events(task), "tool.call.completed")
        holds(completed.result_ref is not None, "the result is kept as an artifact")
        kept = await sdk.read_artifact(completed.result_ref.artifact_id)
    holds(kept == LARGE.encode(), "the artifact has the whole result")
    holds(len(str(completed.result_preview)) < len(LARGE) // 10, "the event has a preview only")


class Check(msgspec.Struct, frozen=True):
    """A cell of the matrix: a scenario and what to do with a runtime that plays it."""

    scenario: Scenario
    run: Callable[[Bench], Awaitable[None]]
    shares: bool = False
    """Whether it can be played in a session in which others were played before."""


def make_check(
    name: str,
    run: Callable[[Bench], Awaitable[None]],
    *turns: dict[str, Any],
    needs: tuple[str, ...] = (),
    where: tuple[tuple[str, str], ...] = (),
    shows: tuple[str, ...] = (),
    rewords: bool = False,
    shares: bool = False,
) -> Check:
    """Return a cell. `rewords`: a program may tell its model about a result in its own words."""
    script = parse_object({"name": name, "turns": list(turns)}, name)
    plain = [{key: value for key, value in turn.items() if key != "expect"} for turn in turns]
    model = parse_object({"name": name, "turns": plain}, name) if rewords else script
    scenario = Scenario(name=name, script=script, model=model, needs=needs, where=where, shows=shows)
    return Check(scenario, run, shares)


def says(*chunks: str, **rest: Any) -> dict[str, Any]:
    """Return a turn in which the model says something, in pieces."""
    return {"steps": [{"text": list(chunks)}], **rest}


def calls(tool: str, *paths: str) -> dict[str, Any]:
    """Return a turn in which the model calls a tool, once for each path."""
    steps = [{"call": {"tool": tool, "input": {"path": path}}} for path in paths]
    return {"steps": [{"text": "Let me see."}, *steps]}


_CALLS = ("supports_tool_calls",)
_STOPS = ("supports_tool_calls", "supports_stop")
_STORY = {"steps": [{"text": ["Once upon ", "a time"]}, {"delay_s": 3600}, {"text": "The end."}]}
_KNOWS = {"expect": {"tool_result_contains": CONTENT}}

RUNTIME_CHECKS = (
    make_check(
        "streaming", _streaming, says("One, ", "two, ", "three."), needs=("supports_streaming",), shares=True
    ),
    make_check(
        "tool approve", _approve, calls(READ, "note"), says("Done.", **_KNOWS), needs=_CALLS, shares=True
    ),
    make_check(
        "tool deny with reason",
        _deny,
        calls(WRITE, "note"),
        says("Then not.", expect={"tool_result_contains": REASON}),
        needs=_CALLS,
        shares=True,
    ),
    make_check(
        "parallel tool calls",
        _parallel,
        calls(READ, "first", "second"),
        says("Done."),
        needs=("supports_tool_calls", "supports_parallel_tool_calls"),
        shares=True,
    ),
    make_check(
        "stop mid-stream",
        _stop_mid_stream,
        _STORY,
        needs=("supports_streaming", "supports_stop"),
        shares=True,
    ),
    make_check(
        "stop in a tool",
        _stop_in_a_tool,
        calls(WRITE, "note"),
        needs=_STOPS,
        shows=("cancellation_model",),
        shares=True,
    ),
    make_check(
        "stop while an approval waits",
        _stop_while_an_approval_waits,
        calls(WRITE, "note"),
        needs=_STOPS,
        shares=True,
    ),
    make_check(
        "non-interactive ask",
        _non_interactive,
        calls(WRITE, "note"),
        says("Then not."),
        needs=("supports_tool_calls", "supports_non_interactive"),
        shares=True,
    ),
    make_check(
        "forbidden tool does not run",
        _forbidden,
        calls(FORBIDDEN, "note"),
        says("Then not."),
        shows=("permission_model",),
        shares=True,
    ),
    make_check(
        "usage and cost",
        _usage,
        says("Hello.", usage={"input": 1234, "output": 56, "cost_usd": 0.0123}),
        needs=("supports_usage_reporting",),
    ),
    make_check(
        "resume by reconstruction",
        _resume,
        calls(READ, "note"),
        says("Done.", **_KNOWS),
        needs=("supports_tool_calls", "supports_session_resume"),
        shows=("tool_replay_safety",),
        rewords=True,
    ),
    make_check(
        "steer",
        _steer,
        calls(READ, "note"),
        says("Left it is.", expect={"user_contains": "Turn left."}),
        needs=("supports_tool_calls", "supports_steer"),
        rewords=True,
        shares=True,
    ),
    make_check(
        "large tool result",
        _large_result,
        calls(READ, "note"),
        says("Done.", **_KNOWS),
        needs=_CALLS,
        rewords=True,
    ),
)
