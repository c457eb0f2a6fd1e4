"""Everything at once: clients that race, and a daemon that is killed, paused, starved and lied to about the time."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.chaos import checks
from tests.chaos.faults import Faults
from tests.chaos.load import Load
from tests.chaos.seen import Seen
from tests.chaos.twin import NAME as TWIN
from tests.chaos.verbs import fill_workspace
from tests.chaos.victim import Victim
from tests.counts import COUNTS
from tests.runtimes.alone import alone, left_behind, tried_outside

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SEED = 71
LIVES = (0, 20, 200, 1000)
LIVES_OF_PROGRAMS = (50, 200, 500)
"""A program takes a while before it says anything."""
REPEATS = 300


async def run(
    tmp_path: Path, seed: int, kills: int, runtimes: tuple[str, ...], lives: Sequence[int] = LIVES
) -> None:
    """Put a daemon through it, then compare all that was seen with what is there."""
    fill_workspace(tmp_path / "workspace")
    seen, chance = Seen(), random.Random(seed)
    load = Load(tmp_path / "workspace", chance.getrandbits(32), seen, runtimes)
    async with Victim(tmp_path) as victim:
        faults = Faults(victim, load, chance, lives)
        async with load.running(victim.data_dir):
            await faults.rounds(kills)
        await load.repeat_all(victim.data_dir, REPEATS)
        assert await victim.end() == 0
        assert not seen.wrong, "\n".join(seen.wrong)
        stored = await checks.stored_frames(victim.data_dir)
        events = checks.decoded(stored)
        compared = checks.check_streams(seen, stored)
        checks.check_decisions(seen, events)
        keys = checks.check_keys(seen, events)
        audited = checks.check_audit(victim.data_dir, events)
        await checks.check_replays(victim.data_dir)
        checks.check_with_commands(victim.data_dir)
    print(
        f"{dict(faults.done)}; {len(events)} sessions and {len(seen.deleted)} deleted ones; {compared} events compared,"
    )
    print(
        f"{seen.compared} of them seen by two; {seen.raced} answers raced; {keys} keys, {seen.repeated} repeated;"
    )
    print(f"{audited} audit records; tasks {dict(seen.ends)}; refusals {dict(seen.refusals)}")


async def test_nothing_that_a_client_saw_or_was_told_is_lost(tmp_path: Path):
    await run(tmp_path, SEED, COUNTS.fault_kills, ("scripted", TWIN))


async def test_the_same_holds_with_a_real_program(tmp_path: Path):
    with alone():
        runtimes = ("codex-sdk", "scripted")
        await run(tmp_path, SEED, COUNTS.program_kills, runtimes, LIVES_OF_PROGRAMS)
        assert tried_outside() == 0
    assert left_behind(tmp_path) == []
