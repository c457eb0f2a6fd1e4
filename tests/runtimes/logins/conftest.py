"""Every test here has a network of its own, in which the providers' names lead to `Accounts`, and no key."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.logins.provider import Accounts, accounts


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
