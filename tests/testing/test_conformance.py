"""The conformance matrix holds for what ships, and notices what does not keep to the contract."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codesdk.contract.messages import Message
from codesdk.contract.records import Changes, StoredFrame
from codesdk.contract.runtime import Host, Runtime, RuntimeItem, TaskInput, ToolReply
from codesdk.contract.tools import Actor, ToolIdentity
from codesdk.engine.calls import ledger
from codesdk.runtimes.scripted.adapter import ScriptedRuntime, ScriptedTask
from codesdk.script.model import GatewayOnlyStep, RuntimeOnlyStep
from codesdk.store.audit import trail
from codesdk.store.audit.chain import Who
from codesdk.store.memory import MemoryLog
from codesdk.store.sqlite.log import SqliteLog
from codesdk.testing import conformance
from codesdk.testing.conformance import (
    RUNTIME_CELLS,
    Cell,
    MakeRuntime,
    Scenario,
    check_event_log,
    check_rows,
    check_runtime,
)
from codesdk.testing.runtime_checks import RUNTIME_CHECKS

pytestmark = pytest.mark.anyio


def playing(kind: Callable[[Scenario], Runtime]) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        yield kind(scenario)

    return make


# --- runtimes ------------------------------------------------------------------------------------


EXCLUDED = {
    "images": "supports_images is false; InvalidRequest: The runtime scripted cannot take images.",
    "artifacts": "supports_artifacts is false; InvalidRequest: The runtime scripted cannot take files.",
    "output schema, natively": "output_schema is tool",
}


@pytest.mark.parametrize("name", RUNTIME_CELLS)
@pytest.mark.slow
async def test_the_scripted_runtime_keeps_the_contract(name: str):
    made = playing(lambda scenario: ScriptedRuntime(scenario.script))
    expected = Cell(name, "unsupported", EXCLUDED[name]) if name in EXCLUDED else Cell(name, "pass")
    assert await check_runtime(made, only=[name]) == [expected]


def test_every_scenario_can_be_played_by_a_runtime_and_by_a_model_endpoint():
    for check in RUNTIME_CHECKS:
        for turn in check.scenario.script.turns:
            assert not any(isinstance(step, RuntimeOnlyStep | GatewayOnlyStep) for step in turn.steps)


async def test_a_cell_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no such cell: teleport"):
        await check_runtime(playing(lambda scenario: ScriptedRuntime(scenario.script)), only=["teleport"])


class Flawed(ScriptedRuntime):
    """The scripted runtime with a flaw in its tasks, and perhaps the honesty to say so."""

    def __init__(self, scenario: Scenario, flaw: type["FlawedTask"], **flags: Any) -> None:
        super().__init__(scenario.script)
        self._given = scenario.script
        self._flaw = flaw
        self._flags = flags

    def capabilities(self) -> Any:
        return msgspec.structs.replace(super().capabilities(), **self._flags)

    async def start_task(self, host: Host, task: TaskInput) -> "FlawedTask":
        return self._flaw(self._given, task)


class FlawedTask(ScriptedTask):
    pass


class Whole(FlawedTask):
    """Does not stream: text comes with the whole message."""

    async def events(self) -> Any:
        async for item in super().events():
            if "OutputDelta" not in repr(item):
                yield item


class Deaf(FlawedTask):
    """Takes steering, and does not tell its model."""

    async def steer(self, messages: Sequence[Message]) -> None:
        pass


class Liar(FlawedTask):
    """Tells its model that every call went well, whatever came back."""

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        await super().send_tool_result(call, ToolReply(result="fine", is_error=False))

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        await super().send_tool_denied(call, "fine")


class Forgetful(FlawedTask):
    """Starts with the new messages only."""

    def __init__(self, script: Any, task: TaskInput) -> None:
        super().__init__(script, msgspec.structs.replace(task, messages=task.messages[:1]))


class Thoughtless(FlawedTask):
    """Does not say what its model thinks."""

    async def events(self) -> Any:
        async for item in super().events():
            if "reasoning_delta" not in repr(item):
                yield item


class Serial(FlawedTask):
    """Announces a call only when the one before it is answered."""

    async def events(self) -> Any:
        waiting: list[RuntimeItem] = []
        async for item in super().events():
            if "ToolAnnouncement" not in repr(item):
                yield item
            elif not waiting:
                waiting.append(item)
                yield item


@pytest.mark.parametrize(
    ("flaw", "name", "flag"),
    [
        (Whole, "streaming", "supports_streaming"),
        (Whole, "stop mid-stream", "supports_streaming"),
        (Deaf, "steer", "supports_steer"),
        (Liar, "tool approve", "supports_tool_calls"),
        (Liar, "tool deny with reason", "supports_tool_calls"),
        (Liar, "large tool result", "supports_tool_calls"),
        (Forgetful, "resume by reconstruction", "supports_session_resume"),
        (Thoughtless, "reasoning", "supports_reasoning"),
        (Serial, "parallel tool calls", "supports_parallel_tool_calls"),
    ],
)
@pytest.mark.slow
async def test_a_flaw_is_found_unless_it_is_declared(flaw: type[FlawedTask], name: str, flag: str):
    (found,) = await check_runtime(
        playing(lambda scenario: Flawed(scenario, flaw)), only=[name], timeout_s=0.3
    )
    assert (found.name, found.outcome) == (name, "fail")
    assert found.detail
    declared = playing(lambda scenario: Flawed(scenario, flaw, **{flag: False}))
    (found,) = await check_runtime(declared, only=[name], timeout_s=0.3)
    assert (found.name, found.outcome) == (name, "unsupported")
    assert found.detail.startswith(f"{flag} is false; ")


@pytest.mark.parametrize("name", ["images", "artifacts"])
async def test_a_runtime_that_takes_what_it_is_given_passes(name: str):
    """Of a runtime whose requests nobody sees no more can be said."""
    flags = {"supports_images": True, "supports_artifacts": True}
    taking = playing(lambda scenario: Flawed(scenario, FlawedTask, **flags))
    assert await check_runtime(taking, only=[name]) == [Cell(name, "pass")]


async def test_a_runtime_that_is_hosted_in_another_way_than_it_says_is_found():
    hosted = playing(lambda scenario: Flawed(scenario, FlawedTask, supported_isolation_modes=["subprocess"]))
    [found] = await check_runtime(hosted, only=["session create"])
    assert found == Cell("session create", "fail", "not so: the recommended mode is a supported one")


async def test_a_capability_that_is_there_but_not_declared_is_mentioned():
    modest = playing(lambda scenario: Flawed(scenario, FlawedTask, supports_usage_reporting=False))
    assert await check_runtime(modest, only=["usage and cost"]) == [
        Cell("usage and cost", "pass", "it works, although supports_usage_reporting is false")
    ]


async def test_a_runtime_that_cannot_be_made_fails_its_cell():
    def broken(scenario: Scenario) -> Runtime:
        raise RuntimeError("not installed")

    found = await check_runtime(playing(broken), only=["streaming"])
    assert found == [Cell("streaming", "fail", "RuntimeError: not installed")]


# --- consent -------------------------------------------------------------------------------------


SOMEBODY = Actor(kind="user", id="somebody")


@pytest.mark.parametrize("name", [row for row in RUNTIME_CELLS if row.startswith("consent: ")])
@pytest.mark.slow
async def test_an_answer_that_somebody_else_is_said_to_have_given_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    told = ledger.answer

    def answer(journal: Any, call: Any, decision: Any, by: Actor, *rest: Any) -> None:
        told(journal, call, decision, SOMEBODY, *rest)

    monkeypatch.setattr(ledger, "answer", answer)
    monkeypatch.setattr(ledger, "ENGINE", SOMEBODY)
    [found] = await check_runtime(playing(lambda scenario: ScriptedRuntime(scenario.script)), only=[name])
    assert found.outcome == "fail"
    assert "by user somebody" in found.detail


async def test_an_audit_that_says_something_else_than_the_log_is_found(monkeypatch: pytest.MonkeyPatch):
    entry_of = trail.entry_of

    def forged(event: Any) -> Any:
        entry = entry_of(event)
        who = Who(principal="local", kind="user", id="somebody")
        return entry and msgspec.structs.replace(entry, who=who)

    monkeypatch.setattr(trail, "entry_of", forged)
    made = playing(lambda scenario: ScriptedRuntime(scenario.script))
    [found] = await check_runtime(made, only=["consent: timeout"])
    assert found.outcome == "fail"
    assert found.detail.startswith("what the audit says: wanted ['answered by engine', 'denied by engine']")


class Eager(FlawedTask):
    """Runs what is asked about as if it had been allowed: it is told so whatever was decided."""

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        raise RuntimeError("it does not take a denial")


async def test_a_runtime_that_does_not_go_on_after_a_denial_is_found():
    eager = playing(lambda scenario: Flawed(scenario, Eager))
    [found] = await check_runtime(eager, only=["consent: timeout"], timeout_s=5)
    assert found.outcome == "fail"


# --- one started agent for many rows -----------------------------------------------------------------


class Programlike(Flawed):
    """The scripted runtime as if it were a program. It asks no model, so it plays the script of the first row only."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, FlawedTask, input_capture="exact")


async def test_a_row_that_does_not_pass_on_a_shared_agent_is_played_again_by_itself(
    monkeypatch: pytest.MonkeyPatch,
):
    played: list[str] = []

    async def alone(make: MakeRuntime, row: str, *, timeout_s: float) -> Cell:
        played.append(row)
        return Cell(row, "pass")

    monkeypatch.setattr(conformance, "check_row", alone)
    rows = ("streaming", "tool approve")
    cells = [cell async for cell in check_rows(playing(Programlike), rows, timeout_s=0.5)]
    assert cells == [Cell(row, "pass") for row in rows]
    assert played == ["tool approve"]


async def test_a_runtime_that_is_no_program_shares_nothing():
    made = playing(lambda scenario: ScriptedRuntime(scenario.script))
    rows = ("tool approve", "streaming", "images")
    cells = [cell async for cell in check_rows(made, rows)]
    assert [(cell.name, cell.outcome) for cell in cells] == [
        ("streaming", "pass"),
        ("tool approve", "pass"),
        ("images", "unsupported"),
    ]


# --- logs ----------------------------------------------------------------------------------------


async def test_the_log_in_memory_keeps_the_contract():
    async def make() -> MemoryLog:
        return MemoryLog()

    assert [cell for cell in await check_event_log(make) if cell.outcome != "pass"] == []


@pytest.mark.slow
async def test_the_log_on_disk_keeps_the_contract(tmp_path: Path):
    numbers = count()
    cells = await check_event_log(lambda: SqliteLog.open(tmp_path / f"{next(numbers)}.db"))
    assert [cell for cell in cells if cell.outcome != "pass"] == []
    assert len(cells) == next(numbers)


class Forgiving(MemoryLog):
    """Says yes to an append that it does not store."""

    def append(self, session_id: str, epoch: int, first_seq: int, *rest: Any, **options: Any) -> Any:
        if first_seq > 0:
            return super().append(session_id, epoch, first_seq, *rest, **options)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Sorted(MemoryLog):
    """Reads all sessions one after the other, and not in the order of commits."""

    async def read_all(self, after_cursor: int, limit: int, *, deltas: bool = True) -> list[StoredFrame]:
        frames = await super().read_all(after_cursor, limit, deltas=deltas)
        return sorted(frames, key=lambda frame: (frame.session_id or "", frame.seq))


class Lazy(MemoryLog):
    """Queues an append when it is awaited, not when it is made."""

    def append(self, *args: Any, **options: Any) -> Any:
        return Later(lambda: MemoryLog.append(self, *args, **options))


class Later:
    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __await__(self) -> Any:
        return self._make().__await__()


class Rowless(MemoryLog):
    """Keeps frames, and none of the rows that come with them."""

    def append(self, *args: Any, changes: Changes | None = None, **options: Any) -> Any:
        return super().append(*args, **options)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Forgiving, "an append that does not continue the log is refused whole"),
        (Sorted, "all sessions are read in the order of commits"),
        (Lazy, "an append is queued at once before it is awaited"),
        (Rowless, "rows change with their frames"),
    ],
)
async def test_a_log_that_breaks_its_word_is_found(kind: type[MemoryLog], name: str):
    async def make() -> MemoryLog:
        return kind()

    cells = {cell.name: cell for cell in await check_event_log(make, timeout_s=5)}
    assert cells[name].outcome == "fail"
    assert cells[name].detail
