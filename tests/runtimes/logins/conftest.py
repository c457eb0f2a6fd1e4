"""Every test here has a network of its own, in which the providers' names lead to `Accounts`, no key, and browsers that are not."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.logins.browsers import Browsers, search
from tests.runtimes.logins.provider import Accounts, accounts

from codesdk.processes import SEARCH_PATH


@pytest.fixture
def browsers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browsers]:
    """What any program of the test would open a browser with, this process and those of the command line alike."""
    found = Browsers(tmp_path / "browsers")
    monkeypatch.setenv("TEST_SEARCH_PATH", found.search_path)
    search(found.search_path)
    yield found
    search(SEARCH_PATH)


@pytest.fixture(autouse=True)
def _no_browser(_offline: None, browsers: Browsers) -> Iterator[None]:
    yield
    assert browsers.opened() == []


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


@pytest.fixture
async def provider(
    _offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Accounts]:
    async with accounts(tmp_path / "provider", monkeypatch) as world:
        yield world
