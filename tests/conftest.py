"""Shared by all tests: one async backend, how hard hypothesis looks, and what each test needs.

What a test needs is found by `tests.needs`; `make check` leaves out what needs something.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from tests.counts import COUNTS
from tests.needs import needs_of

# "ci" tries the same examples on every run, so that a red gate means a change and not luck.
# "dev" looks at new ones each time. Neither has a deadline: a busy machine is not a bug.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, where Ctrl-C is ignored: what tests start must still heed it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where `make setup` puts the programs of runtimes, unless whoever runs the tests has them elsewhere.
os.environ.setdefault("CODESDK_PROGRAMS", str(Path(__file__).parents[1] / ".programs"))

settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, max_examples=COUNTS.examples
)
settings.register_profile("dev", deadline=None, print_blob=True, max_examples=COUNTS.examples)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only loop that the package supports."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def own_configuration(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the person who runs the tests has configured is not what is tested."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function):
            for marker in needs_of(item):
                item.add_marker(marker)
