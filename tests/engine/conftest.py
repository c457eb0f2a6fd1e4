"""A world for each test of the engine; whatever a test did there, its sessions must verify and replay."""

from collections.abc import Iterator

import pytest
from tests.engine.world import World, world


@pytest.fixture
def w() -> Iterator[World]:
    with world() as made:
        yield made
        made.check_all()
