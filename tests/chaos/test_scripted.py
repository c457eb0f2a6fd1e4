"""Nothing that a client saw or was told is lost, whatever happens to the daemon: with the scripted runtime."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chaos.trial import LIVES, SEED, run
from tests.chaos.twin import NAME as TWIN
from tests.counts import COUNTS
from tests.soak import FIGURES

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_nothing_that_a_client_saw_or_was_told_is_lost(
    tmp_path: Path, record_property: Callable[[str, object], None]
):
    record_property(FIGURES, await run(tmp_path, SEED, COUNTS.fault_kills, ("scripted", TWIN), LIVES))
