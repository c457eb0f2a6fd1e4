"""One trial: clients that race, a daemon that is killed, paused, starved and lied to about the time, then the checks."""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import checks
from tests.chaos.faults import Faults
from tests.chaos.load import Load
from tests.chaos.seen import Seen
from tests.chaos.verbs import fill_workspace
from tests.chaos.victim import Victim

SEED = 71
LIVES = (0, 20, 200, 1000)
LIVES_OF_PROGRAMS = (50, 200, 500)
"""A program takes a while before it says anything."""
REPEATS = 300


async def run(tmp_path: Path, seed: int, kills: int, runtimes: tuple[str, ...], lives: Sequence[int]) -> str:
    """Put a daemon through it, then compare all that was seen with what is there. Return what was counted."""
    fill_workspace(tmp_path / "workspace")
    seen, chance = Seen(), random.Random(seed)
    load = Load(tmp_path / "workspace", chance.getrandbits(32), seen, runtimes)
    async with Victim(tmp_path) as victim:
        faults = Faults(victim, load, chance, lives)
        async with load.running(victim.data_dir):
            await faults.rounds(kills)
        await load.repeat_all(victim.data_dir, REPEATS)
        assert not seen.wrong, "\n".join(seen.wrong)
        assert await victim.end() == 0
        stored = await checks.stored_frames(victim.data_dir)
        events = checks.decoded(stored)
        compared = checks.check_streams(seen, stored)
        checks.check_decisions(seen, events)
        keys = checks.check_keys(seen, events)
        audited = checks.check_audit(victim.data_dir, events)
        await checks.check_replays(victim.data_dir)
        checks.check_with_commands(victim.data_dir)
    what = ", ".join(f"{name} {count:,}" for name, count in sorted(faults.done.items()))
    return (
        f"{what}; {len(events):,} sessions and {len(seen.deleted):,} deleted ones, {compared:,} events compared,"
        f" {seen.raced:,} answers raced, {keys:,} keys, {seen.repeated:,} repeated, {audited:,} audit records"
    )
