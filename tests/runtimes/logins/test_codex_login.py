"""The real codex with an account of its own, through the gateway: what arrives, renewal, and what goes wrong with it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.logins.provider import Accounts, accounts

from codesdk import CodeSDK
from codesdk.runtimes import entries, login_folder


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with alone():
        yield
        assert tried_outside() == 0


@pytest.fixture
async def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Accounts]:
    async with accounts(tmp_path / "provider", monkeypatch) as world:
        yield world


async def test_first(tmp_path: Path, provider: Accounts):
    data = tmp_path / "data"
    folder = login_folder(str(data / "runtimes"), "local", entries()["codex-sdk"])
    provider.write_codex(folder)
    (tmp_path / "ws").mkdir()
    async with CodeSDK.open(data, logins=("codex",)) as sdk:
        session = await sdk.create_session(runtime="codex", workspace=tmp_path / "ws")
        task = await session.start("Hi")
        async for event in task.events():
            print(event.type, event.payload)
        result = await task.result()
        print(result)
    for asked in provider.asked:
        print(asked.route, asked.headers, asked.body[:200])
    print(provider.names)
    assert 0
