"""Real programs that misbehave, each against the arbiter: how it ends, and that nothing ran that was not allowed."""

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.channel import programs
from tests.channel.judges import Judge
from tests.channel.requirements import shows
from tests.counts import COUNTS

from codesdk.channel import (
    Arbiter,
    ArbiterLimits,
    Decided,
    Launch,
    Outcome,
    ProcessRunner,
    ToolRequest,
    ToolResult,
)
from codesdk.channel.commands import Commands
from codesdk.channel.outcome import Abort
from codesdk.channel.runner import ParseFailed, ToolSeen
from codesdk.contract.errors import TaskFailure

LIMITS = ArbiterLimits(grace_s=0.3, probe_s=0.1, write_s=0.5)


class Kept:
    """A sink that keeps what passes through, and may be slow."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, data: bytes) -> None:
        self.data += data


class Ran(NamedTuple):
    outcome: Outcome
    judge: Judge
    out: bytes
    err: bytes
    executed: list[str]


def gone(pid: int) -> None:
    """Wait until a process has ended. Its parent is gone, so somebody else may take a while to reap it."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            assert select.select([handle], [], [], 20)[0], "it lives"
        finally:
            os.close(handle)


def command(name: str, folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-S", programs.__file__, name, str(folder / "ran"), *more]


async def run(name: str, folder: Path, *more: str, limits: ArbiterLimits = LIMITS, **options: Any) -> Ran:
    judge, out, err = Judge(), Kept(), Kept()
    arbiter = Arbiter(ProcessRunner(out, err, limits), judge, limits, **options)
    await arbiter.start_session(Launch(argv=command(name, folder, *more), cwd=str(folder)))
    outcome = await asyncio.wait_for(arbiter.serve(), 60)
    file = folder / "ran"
    executed = file.read_text().splitlines() if file.exists() else []
    return Ran(outcome, judge, bytes(out.data), bytes(err.data), executed)


@shows("2.1-stdout", "2.1-stderr", "2.1-stdin", "5.3-flush", "5.1-two-readers", "5.3-stderr")
async def test_a_good_program_is_decided_and_its_output_passes(tmp_path: Path):
    ran = await run("good", tmp_path)
    assert (ran.out, ran.err) == (b"before\nafter\n", b"a word on stderr\n")
    assert (ran.executed, ran.judge.asked) == (["ok.read"], ["a", "b"])
    assert (ran.outcome.exit_code, ran.outcome.abort, ran.outcome.controlled) == (7, None, True)


class Opened(Kept):
    """A sink that says when something has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = asyncio.Event()

    async def write(self, data: bytes) -> None:
        await super().write(data)
        self.passed.set()


@shows("1.2-passthrough")
async def test_what_a_program_prints_while_its_call_waits_is_seen_meanwhile(tmp_path: Path):
    judge, out = Judge(), Opened()
    arbiter = Arbiter(ProcessRunner(out, Kept(), LIMITS), judge, LIMITS)
    await arbiter.start_session(Launch(argv=command("talks_while_it_waits", tmp_path), cwd=str(tmp_path)))
    serving = asyncio.create_task(arbiter.serve())
    await asyncio.wait_for(asyncio.gather(judge.waiting.wait(), out.passed.wait()), 60)
    assert (bytes(out.data), judge.withdrawn, serving.done()) == (b"{still} here? ", [], False)
    arbiter.abort("user_cancel", "seen enough")
    assert (await asyncio.wait_for(serving, 60)).exit_code == 130


@shows("5.2-session", "5.2-start", "5.2-control", "5.2-events")
async def test_a_session_has_a_status_a_queue_of_commands_and_a_stream_of_events(tmp_path: Path):
    """Without an arbiter: whoever has the session alone decides with it, and ends it."""
    sinks = Kept(), Kept()
    session = await ProcessRunner(*sinks, LIMITS).start_session(
        Launch(argv=command("speaks_badly", tmp_path), cwd=str(tmp_path))
    )
    try:
        seen = [await asyncio.wait_for(session.events.get(), 60) for _ in range(2)]
        bad, asked = seen
        assert isinstance(bad, ParseFailed)
        assert (bad.stream, bad.error.kind, bad.line) == ("stderr", "json", f"{programs.MARKER}{{nonsense\n")
        assert isinstance(asked, ToolSeen)
        assert isinstance(asked.event, ToolRequest)
        commands = Commands("run-1", LIMITS)
        await session.control.put(commands.decision(asked.event.id, Decided(allow=True, reason="fine")))
        answered = await asyncio.wait_for(session.events.get(), 60)
        assert isinstance(answered, ToolSeen)
        assert isinstance(answered.event, ToolResult)
        assert (answered.event.id, answered.event.ok) == ("a", True)
        await session.control.put(commands.abort(Abort(code="user_cancel", reason="enough")))
        assert await asyncio.wait_for(session.status, 60) == 3
    finally:
        session.send_signal(signal.SIGKILL)
        await session.close()
    assert bytes(sinks[1].data) == bad.line.encode()


class Ending(NamedTuple):
    """How a program that misbehaves ends."""

    exit_code: int
    abort: str | None = None
    executed: tuple[str, ...] = ()
    controlled: bool = True
    tally: Mapping[str, int] = MappingProxyType({})


MATRIX = {
    "flood": Ending(0, executed=("ok.read",), tally={"allowed": 1, "denied": 1}),
    "flood_of_requests": Ending(0, tally={"requests": 3000, "denied": 3000}),
    "partial_lines": Ending(0, executed=("ok",), tally={"allowed": 1, "parse_errors": 1}),
    "invalid_utf8": Ending(0, tally={"parse_errors": 1, "denied": 1}),
    "long_lines": Ending(0, tally={"parse_errors": 1, "denied": 1}),
    "closes_stdin": Ending(40, "fatal_error"),
    "exits_while_pending": Ending(4, tally={"denied": 1}),
    "ignores_denial": Ending(40, "policy_violation", tally={"ignored_denials": 1}),
    "duplicate_ids": Ending(0, executed=("ok",), tally={"requests": 1, "ignored": 3}),
    "unknown_ids": Ending(0, tally={"ignored": 1, "denied": 1}),
    "does_not_wait": Ending(0, controlled=False, tally={"watched": 1}),
    "lies_about_waiting": Ending(0, controlled=False, tally={"unasked": 1, "denied": 1}),
    "broken_requests": Ending(40, "fatal_error", tally={"parse_errors": 101}),
    "never_reads": Ending(40, "fatal_error"),
    "outputs_closed": Ending(40, "fatal_error"),
}


@pytest.mark.parametrize("name", MATRIX)
async def test_a_program_that_misbehaves_ends_as_it_should(name: str, tmp_path: Path):
    expected = MATRIX[name]
    ran = await run(name, tmp_path)
    outcome = ran.outcome
    abort = None if outcome.abort is None else outcome.abort.code
    assert (outcome.exit_code, abort, tuple(ran.executed), outcome.controlled) == expected[:4]
    if name != "broken_requests":
        assert {field: getattr(outcome.tally, field) for field in expected.tally} == expected.tally
    else:
        assert outcome.tally.parse_errors >= expected.tally["parse_errors"]


async def test_output_passes_byte_for_byte_however_odd(tmp_path: Path):
    assert (await run("long_lines", tmp_path)).out == (
        b"x" * 10_000_000
        + b'\n{"v":1,"type":"tool.request","pad":"'
        + b"y" * 10_000_000
        + b'"}\n@@MEM_TOOL_EVENT@@ '
        + b"z" * 10_000_000
        + b"\n"
    )
    odd = await run("invalid_utf8", tmp_path)
    assert odd.out == b'\xff\xfe\x00 raw \x80\n@@MEM_TOOL_EVENT@@ {"v":1,"type":"tool.request","id":"\xff"}\n'
    assert odd.err == b'{"v":1,"type":"\xc3\x28"}\n'
    assert (await run("partial_lines", tmp_path)).out == b'@@MEM_TOOL_EVENT@@ {"v":1,"type":"tool.req'


async def test_an_abort_ends_what_the_program_started(tmp_path: Path):
    ran = await run("leaves_a_child", tmp_path)
    assert ran.outcome.exit_code == 40
    (line,) = ran.executed
    pid = int(line.removeprefix("pid "))
    gone(pid)


@shows("5.1-one-writer")
async def test_many_requests_are_each_decided_once(tmp_path: Path):
    count = COUNTS.channel_requests
    ran = await run("many", tmp_path, str(count))
    assert ran.out == f"allowed {count}\n".encode()
    assert (ran.outcome.tally.requests, ran.outcome.tally.allowed) == (count, count)
    assert (len(ran.judge.asked), len(ran.judge.ended), ran.outcome.tally.ignored) == (count, count, 0)


@pytest.mark.parametrize("argv", [["no-such-program-here"], ["/"], ["/etc/hostname"], ["a\0b"]])
async def test_a_program_that_cannot_be_started_says_why(argv: list[str]):
    arbiter = Arbiter(ProcessRunner(Kept(), Kept(), LIMITS), Judge(), LIMITS)
    with pytest.raises(TaskFailure, match="cannot be started") as caught:
        await arbiter.start_session(Launch(argv=argv))
    assert caught.value.code == "RUNTIME_UNAVAILABLE"


async def test_a_program_that_died_of_a_signal_has_the_code_of_a_shell(tmp_path: Path):
    arbiter = Arbiter(ProcessRunner(Kept(), Kept(), LIMITS), Judge(), LIMITS)
    await arbiter.start_session(Launch(argv=["sh", "-c", "kill -9 $$"]))
    assert (await arbiter.serve()).exit_code == 128 + signal.SIGKILL


async def test_nothing_waits_beside_a_program_that_has_ended(tmp_path: Path):
    before = children()
    await run("good", tmp_path)
    assert children() == before


def children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
