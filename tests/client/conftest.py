from collections.abc import Iterator

import pytest
from tests.daemon.rig import Daemon, daemon


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for the tests of a module; each makes its own sessions."""
    home = tmp_path_factory.mktemp("daemon")
    with daemon(home / "data") as started:
        yield started
