"""The process boundary: a burst of events from the scripted runtime in this process, and the same one over the adapter protocol.

Each way stores the same events, in turn, so the ratio is what the boundary costs: encoding, two pipes, credit, decoding.
Then a program that is no runtime of ours, over the Agent Client Protocol, through two daemons (`forwarding`).
"""

import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.forwarding import run_forwarding
from bench.measure import cost, in_rounds, median, scratch, timed_ms
from bench.rig import burst, rig, small_turn, workspace_of
from bench.table import Report
from codesdk import CodeSDK, Session
from codesdk.runtimes.external.runtime import HostedRuntime
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import Script, dump

ROUNDS = 5
_SERVED = """
import sys
from codesdk.adapter import serve
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import load_script
serve(ScriptedRuntime(load_script(sys.argv[1])))
"""


def hosted(script: Script, folder: Path) -> HostedRuntime:
    """Return the scripted runtime in processes of its own, with a script to play."""
    path = folder / "script.json"
    path.write_text(json.dumps(dump(script)))
    return HostedRuntime(ScriptedRuntime(script), [sys.executable, "-c", _SERVED, str(path)], {})


async def run(report: Report, quick: bool) -> None:
    count = 2_000 if quick else 50_000
    with scratch() as path:
        async with _both(path, burst(count)) as (here, there):
            await _events(report, here, there, count, 2 if quick else ROUNDS)
    with scratch() as path:
        async with _both(path, small_turn()) as (here, there):
            await _turns(report, here, there, 20 if quick else 200)
    await run_forwarding(report, quick)


@asynccontextmanager
async def _both(path: Path, script: Script) -> AsyncGenerator[tuple[Session, Session]]:
    """Open one SDK for each way, on directories of their own, with a session that has had its first task."""
    (path / "here").mkdir()
    (path / "there").mkdir()
    async with (
        rig(path / "here", ScriptedRuntime(script)) as here,
        rig(path / "there", hosted(script, path / "there")) as there,
    ):
        made = [await _session(sdk, path / name) for sdk, name in ((here, "here"), (there, "there"))]
        for session in made:
            await (await session.start("Go on")).result()
        yield made[0], made[1]


async def _session(sdk: CodeSDK, path: Path) -> Session:
    return await sdk.create_session(runtime="scripted", workspace=workspace_of(path), permission_mode="yolo")


async def _events(report: Report, here: Session, there: Session, count: int, rounds: int) -> None:
    report.progress(f"{count:,} events each way, {rounds} times in turn")
    wall: dict[str, list[float]] = {"here": [], "there": []}
    cpu: dict[str, list[float]] = {"here": [], "there": []}
    for _ in range(rounds):
        for name, session in (("here", here), ("there", there)):
            with cost() as spent:
                await (await session.start("Go on")).result()
            wall[name].append(spent.wall_s / count * 1e6)
            cpu[name].append(spent.cpu_s / count * 1e6)
    inside, outside = median(wall["here"]), median(wall["there"])
    report.line(
        "an event, runtime in process", inside, "µs", note=f"{median(cpu['here']):.1f} µs of processor time"
    )
    report.line(
        "an event over the adapter protocol",
        outside,
        "µs",
        against=("in process", inside),
        note=f"{median(cpu['there']):.1f} µs of processor time in the engine's process",
    )


async def _turns(report: Report, here: Session, there: Session, turns: int) -> None:
    report.progress(f"{turns} short tasks each way")
    times: dict[str, list[float]] = {"here": [], "there": []}
    for _ in range(turns):
        for name, session in (("here", here), ("there", there)):
            times[name].append(await timed_ms(lambda session=session: _task(session)))
    inside = in_rounds(times["here"], 0.5)
    report.line("a short task in process, p50", inside, "ms")
    report.line(
        "over the adapter protocol, p50", in_rounds(times["there"], 0.5), "ms", against=("in process", inside)
    )
    started = time.perf_counter()
    await there.close()
    report.progress(f"closing took {(time.perf_counter() - started) * 1000:.0f} ms")


async def _task(session: Session) -> None:
    await (await session.start("Go on")).result()
