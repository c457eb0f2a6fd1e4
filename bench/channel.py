"""The stdio policy channel: what a program's output costs on its way through, held against `cat`, and what a decision takes.

Output goes from `cat FILE` through the arbiter into a pipe that another `cat` empties; the same with nothing between
them. A decision is timed by the program that waits for it: by a judge that says yes at once, which is the channel alone,
and by a session of CodeSDK in the mode auto, whose decision is stored before it is given.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.measure import median, scratch
from bench.table import Report
from codesdk import CodeSDK
from codesdk.channel import (
    Arbiter,
    ArbiterLimits,
    Decided,
    Descriptor,
    Launch,
    ProcessRunner,
    ToolRequest,
    ToolResult,
    WrappedProgram,
)
from codesdk.contract.capabilities import OF_WRAPPED
from codesdk.contract.settings import SessionSettings
from codesdk.runtimes import offered

LINE = b"some words that a program prints while it works, with a number: 0123456789\n"
JSON_LINE = json.dumps({"level": "info", "msg": "a line of a log that is JSON", "n": 1}).encode() + b"\n"
ASKS = """
import json, os, sys, time
times = []
for n in range(int(sys.argv[1])):
    line = json.dumps({"v": 1, "type": "tool.request", "ts": 1, "id": f"t{n}", "tool": "fs.read", "action": "read",
                       "args": {"path": f"f{n}"}, "requires_policy": True}) + "\\n"
    began = time.perf_counter()
    os.write(1, line.encode())
    while True:
        command = json.loads(sys.stdin.readline())
        if command["type"] == "policy.decision":
            break
    times.append(time.perf_counter() - began)
    assert command["decision"] == "allow", command
    os.write(1, json.dumps({"v": 1, "type": "tool.result", "ts": 1, "id": f"t{n}", "ok": True}).encode() + b"\\n")
times = sorted(times[len(times) // 10:])
with open(sys.argv[2], "w") as file:
    json.dump([times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000], file)
"""


class Yes:
    """A judge that says yes at once."""

    async def decide(self, request: ToolRequest) -> Decided:
        return Decided(allow=True, reason="yes")

    async def watch(self, request: ToolRequest) -> None: ...

    async def end(self, request: ToolRequest, result: ToolResult | None, *, watched: bool) -> None: ...

    async def note(self, kind: str, words: str, details: dict[str, Any]) -> None: ...


async def run(report: Report, quick: bool) -> None:
    megabytes, rounds, calls = (16, 2, 50) if quick else (512, 5, 2_000)
    with scratch() as folder:
        for name, line in (("text", LINE), ("lines of JSON", JSON_LINE)):
            file = folder / "output"
            share = megabytes if line is LINE else max(4, megabytes // 8)
            file.write_bytes(line * (share * 1_000_000 // len(line)))
            report.progress(f"{share} MB of {name} through the arbiter and through cat, in turn")
            ours, cats = [], []
            for _ in range(rounds):
                cats.append(share / await asyncio.to_thread(_through_cat, file))
                ours.append(share / await _through_arbiter(file))
            report.line(f"passed through, {name}", median(ours), "MB/s", against=("cat", median(cats)))
        report.progress(f"{calls} decisions, each waited for")
        alone = await _asked_alone(folder, calls)
        stored = await _asked_of_a_session(folder, calls)
        report.line("a decision, the channel alone, p50", alone[0], "ms")
        report.line("a decision of a session, stored, p50", stored[0], "ms", against=("alone", alone[0]))
        report.line("a decision of a session, stored, p99", stored[1], "ms")


def _through_cat(file: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["sh", "-c", 'cat "$0" | cat | cat > /dev/null', str(file)], check=True)
    return time.perf_counter() - began


async def _through_arbiter(file: Path) -> float:
    began = time.perf_counter()
    sink = await asyncio.to_thread(subprocess.Popen, ["sh", "-c", "cat > /dev/null"], stdin=subprocess.PIPE)
    assert sink.stdin is not None
    limits = ArbiterLimits()
    arbiter = Arbiter(ProcessRunner(Descriptor(sink.stdin.fileno()), Descriptor(2), limits), Yes(), limits)
    await arbiter.start_session(Launch(argv=["cat", str(file)]))
    outcome = await arbiter.serve()
    assert outcome.exit_code == 0
    sink.stdin.close()
    await asyncio.to_thread(sink.wait)
    return time.perf_counter() - began


async def _asked_alone(folder: Path, calls: int) -> list[float]:
    limits, out = ArbiterLimits(), folder / "alone.json"
    arbiter = Arbiter(ProcessRunner(Descriptor(1), Descriptor(2), limits), Yes(), limits)
    await arbiter.start_session(Launch(argv=[sys.executable, "-S", "-c", ASKS, str(calls), str(out)]))
    assert (await arbiter.serve()).exit_code == 0
    return json.loads(out.read_text())


async def _asked_of_a_session(folder: Path, calls: int) -> list[float]:
    limits, out, data = ArbiterLimits(), folder / "stored.json", folder / "data"
    launch = Launch(argv=[sys.executable, "-S", "-c", ASKS, str(calls), str(out)])
    program = WrappedProgram(launch, ProcessRunner(Descriptor(1), Descriptor(2), limits), limits)
    async with CodeSDK.open(data) as sdk, offered(program, data) as channel:
        session = await sdk.create_session(
            runtime="wrapped",
            workspace=os.fspath(folder),
            permission_mode="auto",
            native_tools=list(OF_WRAPPED.native_tools),
            settings=SessionSettings(runtime_config={"channel": channel}),
        )
        await (await session.start("ask")).result()
        assert (await program.outcome).exit_code == 0
    return json.loads(out.read_text())
