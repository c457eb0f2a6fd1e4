"""The real codex with an account of its own, through the gateway: what arrives, what is renewed, and what goes wrong with it."""

import asyncio
import gzip
import io
import json
from pathlib import Path

import pytest
from tests.runtimes.logins.provider import Accounts, holds_token
from tests.runtimes.logins.rig import Person, Rig, log_of, payloads, run

from codesdk import CodeSDKError
from codesdk.contract.access import LoginPrompt
from codesdk.contract.settings import Budget, Budgets
from codesdk.gateway import logins
from codesdk.runtimes.codex.adapter import CodexRuntime
from codesdk.script import parse_object

MODEL = "POST chatgpt.com/backend-api/codex/responses"
TOKEN = "POST auth.openai.com/oauth/token"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, "codex")


async def test_its_requests_pass_the_gateway_with_its_own_login_and_no_token_is_left_anywhere(
    rig: Rig, provider: Accounts, caplog: pytest.LogCaptureFixture
):
    provider.write_codex(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        assert await run(session) == "Hello from the account."
        events = await log_of(sdk, session)
        bundle = io.BytesIO()
        await sdk.write_bundle(session.id, bundle)
        [link] = (rig.data / "runtimes").glob(f"*/*/{session.id}/codex/auth.json")
        assert link.is_symlink()
        assert link.resolve() == rig.file
        assert rig.leaked() == []
        await session.close("enough")
    [asked] = [each for each in provider.asked if each.route == MODEL]
    assert asked.headers["authorization"] == f"Bearer {provider.access}"
    assert asked.headers["chatgpt-account-id"] == "account-1"
    assert provider.names == {"chatgpt.com"}
    assert [inputs.capture for inputs in payloads(events, "model.input")] == ["compiled", "exact"]
    assert {used.source for used in payloads(events, "usage.reported")} == {"gateway", "runtime"}
    [notice] = [each for each in payloads(events, "runtime.notice") if each.kind == "login"]
    assert notice.details == {"account": "ChatGPT (plus)", "traffic": "through", "input_capture": "exact"}
    assert rig.leaked() == []
    assert not holds_token(gzip.decompress(bundle.getvalue()))
    assert not holds_token(caplog.text.encode())
    assert (rig.file.stat().st_mode & 0o777, rig.login.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_three_sessions_that_renew_one_login_at_once_all_go_on_and_the_provider_is_asked_once(
    rig: Rig, provider: Accounts, monkeypatch: pytest.MonkeyPatch
):
    provider.write_codex(rig.login, expired=True)
    provider.released.clear()
    came, renew = list[object](), logins.LoginUpstream.renew

    async def counted(self: logins.LoginUpstream, request: object) -> object:
        came.append(request)
        if len(came) == 3:
            provider.released.set()
        return await renew(self, request)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(logins.LoginUpstream, "renew", counted)
    monkeypatch.setattr(logins, "RENEW_S", 60.0)
    async with rig.open() as sdk:
        sessions = [await rig.session(sdk) for _ in range(3)]
        assert await asyncio.gather(*map(run, sessions)) == ["Hello from the account."] * 3
        assert provider.routes(TOKEN) == [TOKEN]
        assert json.loads(rig.file.read_text())["tokens"]["refresh_token"] == provider.refresh
        assert await run(sessions[0], "Again") == "Hello from the account."
    assert rig.leaked() == []


async def test_a_login_that_is_not_renewed_any_more_fails_the_task_and_has_to_be_made_again(
    rig: Rig, provider: Accounts
):
    provider.write_codex(rig.login, expired=True)
    provider.renewing = "invalid_grant"
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        with pytest.raises(CodeSDKError, match="log in again: codesdk login codex") as failure:
            await run(session)
        assert failure.value.code == "AUTH_FAILED"
        with pytest.raises(CodeSDKError, match="codesdk login codex") as failure:
            await run(session)
        assert failure.value.code == "AUTH_REQUIRED"
        provider.renewing = "rotates"
        provider.write_codex(rig.login)
        assert await run(session) == "Hello from the account."
        assert rig.leaked() == []


async def test_a_renewal_that_hangs_ends_within_our_deadline(
    rig: Rig, provider: Accounts, monkeypatch: pytest.MonkeyPatch
):
    provider.write_codex(rig.login, expired=True)
    provider.renewing = "hangs"
    monkeypatch.setattr(logins, "RENEW_S", 0.5)
    async with rig.open() as sdk, asyncio.timeout(18):  # by itself codex gives up after 20 s
        with pytest.raises(CodeSDKError) as failure:
            await run(await rig.session(sdk))
    assert failure.value.code in ("AUTH_FAILED", "MODEL_ERROR")
    assert rig.leaked() == []


async def test_a_renewal_that_fails_for_now_can_be_tried_again(rig: Rig, provider: Accounts):
    provider.write_codex(rig.login, expired=True)
    provider.renewing = "down"
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        with pytest.raises(CodeSDKError, match="Try again") as failure:
            await run(session)
        assert (failure.value.code, failure.value.retryable) == ("AUTH_FAILED", True)
        assert TOKEN in provider.routes()
        provider.renewing = "rotates"
        assert await run(session) == "Hello from the account."
    assert rig.leaked() == []


async def test_a_login_that_the_provider_refuses_before_it_expires_is_said_to_be_the_login(
    rig: Rig, provider: Accounts
):
    provider.write_codex(rig.login)
    provider.accepts, provider.renewing = False, "invalid_grant"
    async with rig.open() as sdk:
        with pytest.raises(CodeSDKError, match="log in again: codesdk login codex") as failure:
            await run(await rig.session(sdk))
    assert failure.value.code == "AUTH_FAILED"
    assert provider.routes(MODEL), "it was the provider that refused"
    assert rig.leaked() == []


@pytest.mark.parametrize("on", [True, False])
async def test_without_a_login_or_with_logins_off_nothing_is_started_and_the_error_says_what_to_do(
    rig: Rig, provider: Accounts, on: bool
):
    if not on:
        provider.write_codex(rig.login)
    async with rig.open(logins=("codex",) if on else ()) as sdk:
        with pytest.raises(CodeSDKError) as failure:
            await run(await rig.session(sdk))
    assert failure.value.code == "AUTH_REQUIRED"
    assert ("codesdk login codex" in failure.value.message) is on
    assert "OPENAI_API_KEY" in failure.value.message
    assert provider.asked == []


async def test_what_is_played_needs_no_login_and_uses_none(rig: Rig, provider: Accounts):
    provider.write_codex(rig.login)
    async with rig.open() as sdk:
        plays = parse_object({"turns": [{"steps": [{"text": "Played."}]}]}, "a test")
        session = await rig.session(sdk, plays=plays)
        assert await run(session) == "Played."
        assert [each for each in rig.data.rglob("auth.json") if each != rig.file] == []
    assert provider.asked == []


async def test_a_budget_counts_requests_of_an_account_one_by_one(rig: Rig, provider: Accounts):
    provider.write_codex(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk, budgets=Budgets(session=Budget(requests=1)))
        assert await run(session) == "Hello from the account."
        with pytest.raises(CodeSDKError) as failure:
            await run(session)
        assert failure.value.code == "BUDGET_EXCEEDED"
    assert provider.routes(MODEL) == [MODEL]


async def test_the_command_shows_an_address_and_a_code_and_codex_makes_the_login(
    rig: Rig, provider: Accounts
):
    code, out, err = await rig.codesdk("login", "codex")
    assert (code, err) == (0, "")
    assert out.split("\n")[1:] == [
        "  https://auth.openai.com/codex/device",
        "  code: ABCD-12345",
        "Logged in to codex-sdk as ChatGPT (plus).",
        "",
    ]
    assert provider.codes == ["code-1"]
    assert [each.name for each in rig.login.iterdir()] == ["auth.json"]
    assert rig.leaked() == []
    assert await rig.codesdk("login", "codex") == (0, "Logged in to codex-sdk as ChatGPT (plus).\n", "")
    assert provider.codes == ["code-1"], "nobody is asked twice"


async def test_a_login_that_is_given_up_leaves_nothing_behind(rig: Rig, provider: Accounts):
    provider.confirmed = False
    shown = asyncio.Event()

    class Hesitating(Person):
        async def show(self, prompt: LoginPrompt) -> None:
            shown.set()

    logging_in = asyncio.create_task(CodexRuntime().ensure_login(rig.env("through"), Hesitating()))
    await shown.wait()
    logging_in.cancel()
    await asyncio.wait([logging_in])
    assert logging_in.cancelled()
    assert list(rig.login.iterdir()) == []


async def test_a_login_that_the_provider_does_not_allow_says_why(rig: Rig, provider: Accounts):
    provider.allows_devices = False
    outcome = await CodexRuntime().ensure_login(rig.env("through"), Person())
    assert not outcome.logged_in
    assert str(outcome.problem).startswith("The program's login failed with code 1: ")
