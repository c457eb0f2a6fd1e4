"""A loop whose time jumps to the next timer when nothing else is to be done: no test waits, and none is by chance."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

TICK_S = 0.001


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time passes a little with every turn, so that endless work meets its deadlines, and at once when all wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.errors: list[str] = []
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        self.now_s += TICK_S
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now_s = max(self.now_s, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]

    def _note(self, loop: Any, context: dict[str, Any]) -> None:
        self.errors.append(f"{context['message']}: {context.get('exception')!r}")


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on such a loop. Errors that nobody was told of, and tasks left behind, count as failures."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, JumpingLoop)

        async def main() -> None:
            await work
            for _ in range(5):  # what was cancelled last has its turn
                await asyncio.sleep(0)
            gc.collect()  # errors that nobody has looked at are reported when they are let go
            here = asyncio.current_task()
            left = [task.get_coro() for task in asyncio.all_tasks() if task is not here]
            assert left == [], left

        runner.run(main())
        assert loop.errors == []
