"""Nothing that a client saw or was told is lost, whatever happens to the daemon: with a real program."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chaos.trial import LIVES_OF_PROGRAMS, SEED, run
from tests.counts import COUNTS
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.soak import FIGURES

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_the_same_holds_with_codex_and_no_process_of_it_is_left(
    tmp_path: Path, record_property: Callable[[str, object], None]
):
    runtimes = ("codex-sdk", "scripted-twin")
    with alone():
        record_property(FIGURES, await run(tmp_path, SEED, COUNTS.program_kills, runtimes, LIVES_OF_PROGRAMS))
        assert tried_outside() == 0
    assert left_behind(tmp_path) == []
