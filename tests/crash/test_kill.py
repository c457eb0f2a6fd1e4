"""A process killed at any moment loses nothing that anyone has seen, and what it left open is closed."""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.counts import COUNTS
from tests.crash.checks import ALL, Promises, check_after_recovery, check_before_recovery

from codesdk import CodeSDK
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WORKER = str(Path(__file__).with_name("worker.py"))
KILLS = 10
"""With each seed."""

TALK = """
loop: true
turns:
  - steps: [{reasoning: hm}, {burst: {count: 30}}, {text: [a, b, c]}]
    usage: {input: 3, output: 4, cost_usd: 0.1}
  - steps: [{burst: {count: 70, size: 40}}, {retract: again}, {text: done}]
  - steps: [{text: "x"}]
"""

TOOLS = """
loop: true
turns:
  - steps:
      - text: [look, ing]
      - call: {tool: workspace.read, input: {path: small.txt}}
      - call: {tool: workspace.read, input: {path: large.txt}}
      - call: {tool: workspace.read, input: {path: missing.txt}}
      - call: {tool: workspace.edit, input: {path: small.txt, old: one, new: two}}
  - steps:
      - call: {tool: workspace.edit, input: {path: small.txt, old: two, new: one}}
      - burst: {count: 20}
      - call: {tool: no.such.tool}
      - call: {tool: task.answer, input: {n: 1}}
    usage: {input: 30, output: 40}
  - steps: [{burst: {count: 40}}, {text: done}]
"""

STEERED = """
loop: true
turns:
  - steps: [{text: [hello, steer me]}, {await_steer: true}, {burst: {count: 25}}]
  - steps: [{burst: {count: 10}}, {text: [hm, stop me]}, {stall: stopped}]
  - steps:
      - {text: [both, steer me]}
      - {await_steer: true}
      - {call: {tool: workspace.edit, input: {path: small.txt, old: one, new: one}}}
      - {text: [" ", stop me]}
  - steps: [{events_after_stop: 3}, {text: stop me}, {stall: stopped}]
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    (path / "talk.yaml").write_text(TALK)
    (path / "tools.yaml").write_text(TOOLS)
    (path / "steered.yaml").write_text(STEERED)
    (path / "small.txt").write_text("one\n")
    (path / "large.txt").write_text("".join(f"line {n}\n" for n in range(500)))
    return path


async def run_and_kill(path: Path, workspace: Path, seed: int, lines: int, promises: Promises) -> None:
    """Let the worker live until it has reported so many lines; then kill it and take what else it said."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        WORKER,
        str(path),
        str(workspace),
        str(seed),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    try:
        for _ in range(lines):
            line = await child.stdout.readline()
            assert line, "the worker ended by itself"
            promises.take(line.decode().removesuffix("\n"))
    finally:
        child.kill()
        rest, _ = await child.communicate()
    *whole, _ = rest.decode().split("\n")
    for line in whole:
        promises.take(line)


def draw_lines(chance: random.Random) -> int:
    """Choose when to kill: at start-up, while the last crash is recovered, or at work."""
    return chance.choice([chance.randrange(4), chance.randrange(4, 40), *(chance.randrange(40, 1500),) * 3])


@pytest.mark.parametrize("seed", COUNTS.kill_seeds)
async def test_a_killed_process_loses_nothing_that_was_seen(seed: int, tmp_path: Path, workspace: Path):
    chance = random.Random(seed)
    path, promises = tmp_path / "data", Promises()
    for kill in range(KILLS):
        await run_and_kill(path, workspace, chance.getrandbits(32), draw_lines(chance), promises)
        if not (path / "codesdk.db").exists():
            continue
        # The next process recovers on a copy; the worker itself meets the directory as it was left.
        copy = tmp_path / f"copy{kill}"
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("control.sock"))
        if promises.kinds["open"]:  # a kill may come before the tables are there
            before = await check_before_recovery(copy, promises)
            await check_after_recovery(copy, promises, before)
        else:  # nothing was said yet: perhaps there is not even a table to read, but a writer must be able to begin
            async with CodeSDK.open(copy):
                pass
        shutil.rmtree(copy)
    print(promises.kinds)
    async with CodeSDK.open(path) as sdk:
        for row in await sdk.sessions(limit=ALL):
            assert await verify_session(sdk.archive.log, sdk.archive.blobs, row.session_id) == []
            events, differences = await replay_session(sdk.archive.log, sdk.archive.blobs, row.session_id)
            assert (events > 0, differences) == (True, [])
