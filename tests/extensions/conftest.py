"""Extensions in a directory of their own, and what they noted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.extensions import probe
from tests.extensions.rig import Extensions

from codesdk.extensions.worker import Hosting


@pytest.fixture
def hosting(request: pytest.FixtureRequest) -> Hosting:
    """Where extensions run. `rig.both` has a test run for each."""
    return getattr(request, "param", "in_process")


@pytest.fixture
def ext(tmp_path: Path, hosting: Hosting) -> Extensions:
    return Extensions(tmp_path / "extensions", hosting)


@pytest.fixture
def seen(ext: Extensions) -> Iterator[Sequence[Any]]:
    probe.SEEN.clear()
    yield probe.SEEN if ext.hosting == "in_process" else probe.Written(ext.notes)
    probe.SEEN.clear()
