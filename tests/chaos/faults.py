"""What happens to a daemon between two kills, drawn by chance, and how it must come out of it: at work."""

import asyncio
import random
import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from tests.chaos.load import Load
from tests.chaos.seen import Seen
from tests.chaos.victim import Victim

FULL = 1
"""No file may grow beyond this many bytes."""
DAY_S = 86_400
JUMPS_S = (3600, -3600, 3 * DAY_S, -40 * DAY_S, 3650 * DAY_S, 0, 0)
MEMORY_BYTES = 4 * 1024 * 1024
LASTS_S = 0.7
"""The longest that a fault lasts, if the clients notice nothing."""
LIFE_S = 5.0
"""The longest that a life lasts, if clients see less."""
RECOVERS_S = 60.0
EVENTS = 30
"""What clients must see again when a fault is over."""


class Faults:
    """Puts a daemon through kills and what comes between them. `lives` are how many events its clients see in one."""

    def __init__(self, victim: Victim, load: Load, chance: random.Random, lives: Sequence[int]) -> None:
        self._lives = lives
        self._victim = victim
        self._load = load
        self._seen: Seen = load.seen
        self._chance = chance
        self.done: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "pause": self._pause,
            "full disk": self._fill_disk,
            "clock": self._jump,
            "descriptors": self._starve_files,
            "memory": self._starve_memory,
        }

    async def rounds(self, kills: int) -> None:
        """Kill it so often, with another fault before each kill."""
        for number in range(kills):
            await self._one([*self._kinds][number % len(self._kinds)])
            await self._seen.more(self._chance.choice(self._lives), LIFE_S)
            await self._kill()

    async def _one(self, kind: str) -> None:
        """Let a fault come and go. Then the daemon must be at work again, unless its memory was gone."""
        self.done[kind] += 1
        await self._kinds[kind]()
        if (
            kind == "memory"
        ):  # no Python program can promise to go on; what is stored must be right all the same
            self.done["ended by itself"] += self._victim.gone
            await self._kill()
        elif self._victim.gone:
            self._seen.wrong.append(f"the daemon ended by itself: {kind}")
        elif not await self._seen.more(EVENTS, RECOVERS_S):
            self._seen.wrong.append(f"nothing happened any more after: {kind}")

    async def _kill(self) -> None:
        """End a life at any moment, sometimes as early as during the recovery from the last kill."""
        await self._victim.kill()
        # Only now: what was asked while the fault lasted may be refused a moment after it.
        self._seen.tolerated = frozenset()
        self.done["kill"] += 1
        if self._chance.random() < 0.2:
            await self._victim.spawn()
            await asyncio.sleep(self._chance.random())
            await self._victim.kill()
            self.done["kill at start"] += 1
        await self._victim.start()
        self._load.restarted()

    async def _pause(self) -> None:
        with self._victim.paused():
            await asyncio.sleep(self._chance.uniform(0.05, LASTS_S))

    async def _fill_disk(self) -> None:
        self._seen.tolerated = frozenset({"STORAGE_FAILED"})
        with self._victim.limited(resource.RLIMIT_FSIZE, FULL):
            await self._seen.more(1000, LASTS_S)

    async def _jump(self) -> None:
        self._victim.set_clock(self._chance.choice(JUMPS_S))

    async def _starve_files(self) -> None:
        self._seen.tolerated = frozenset({"STORAGE_FAILED"})
        with self._victim.limited(
            resource.RLIMIT_NOFILE, self._victim.open_files() + self._chance.randrange(3)
        ):
            await self._seen.more(1000, LASTS_S)

    async def _starve_memory(self) -> None:
        self._seen.tolerated = frozenset({"STORAGE_FAILED", "INTERNAL"})
        room = self._chance.randrange(MEMORY_BYTES)
        with self._victim.limited(resource.RLIMIT_AS, self._victim.address_space() + room):
            await self._seen.more(1000, LASTS_S)
