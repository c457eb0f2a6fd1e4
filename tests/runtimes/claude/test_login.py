"""How an expired login of claude's is renewed before tasks, with its program played. The real one: `tests/runtimes/logins`."""

import asyncio
import json
from pathlib import Path

import pytest

from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import Isolation, RuntimeEnv
from codesdk.runtimes.claude import ENTRY, login
from codesdk.runtimes.claude.login import FILE, Renewals
from codesdk.runtimes.program.logins import folder_of


class Claude:
    """Renews a login when it looks at it for the nth time; 0 for never. Knows how many looked at once."""

    def __init__(self, env: RuntimeEnv, renews_at: int = 1) -> None:
        folder = folder_of(ENTRY, env)
        assert folder is not None
        folder.mkdir(parents=True)
        self.file = folder / FILE
        self.renews_at = renews_at
        self.looks = self.looking = self.most = 0
        self.write("old", 1000)

    def write(self, token: str, expires: int) -> None:
        kept = {"accessToken": token, "refreshToken": f"{token} refresh", "expiresAt": expires}
        self.file.write_text(json.dumps({"claudeAiOauth": kept}))

    async def look(self, program: str, folder: Path) -> None:
        assert (program, folder) == ("claude", self.file.parent)
        self.looks += 1
        self.looking += 1
        self.most = max(self.most, self.looking)
        for _ in range(10):  # the others have time to come, if nothing holds them
            await asyncio.sleep(0)
        if self.looks == self.renews_at:
            self.write("new", 4_000_000_000_000)
        self.looking -= 1


@pytest.fixture
def env(tmp_path: Path) -> RuntimeEnv:
    isolation = Isolation(level="namespaced", mode="subprocess")
    return RuntimeEnv(
        cwd=str(tmp_path), env={}, credential_namespace="x", isolation=isolation, state_dir=str(tmp_path)
    )


@pytest.fixture
def claude(env: RuntimeEnv, monkeypatch: pytest.MonkeyPatch) -> Claude:
    played = Claude(env)
    monkeypatch.setattr(login, "_look", played.look)
    return played


async def test_sessions_that_find_a_login_expired_have_it_renewed_once(env: RuntimeEnv, claude: Claude):
    renewals = Renewals()
    found = await asyncio.gather(*(renewals.renewed("claude", env) for _ in range(5)))
    assert [each.secrets for each in found] == [("new", "new refresh")] * 5
    assert (claude.looks, claude.most) == (1, 1)


async def test_claude_looks_once_more_if_another_process_was_renewing_it(env: RuntimeEnv, claude: Claude):
    claude.renews_at = 2
    assert (await Renewals().renewed("claude", env)).secrets == ("new", "new refresh")
    assert claude.looks == 2


async def test_it_does_not_look_for_ever(env: RuntimeEnv, claude: Claude):
    claude.renews_at = 0
    with pytest.raises(TaskFailure, match="could not be asked to renew it") as failure:
        await Renewals().renewed("claude", env)
    assert (failure.value.code, failure.value.retryable, claude.looks) == ("AUTH_FAILED", True, 2)


async def test_whoever_waits_for_another_s_renewal_waits_no_longer_than_for_its_own(
    env: RuntimeEnv, claude: Claude, monkeypatch: pytest.MonkeyPatch
):
    looks: list[Path] = []

    async def hangs(_: str, folder: Path) -> None:
        looks.append(folder)
        await asyncio.Event().wait()

    monkeypatch.setattr(login, "_look", hangs)
    monkeypatch.setattr(login, "RENEW_S", 0.2)
    renewals = Renewals()
    async with asyncio.timeout(5):
        found = await asyncio.gather(
            *(renewals.renewed("claude", env) for _ in range(3)), return_exceptions=True
        )
    assert ["was not renewed within 0.2 s" in str(each) for each in found] == [True] * 3
    assert len(looks) <= 3
