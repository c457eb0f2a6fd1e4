"""The real claude with an account of its own, beside the gateway: what arrives, what is renewed, and what goes wrong with it."""

import asyncio
import gzip
import io
import json
from pathlib import Path

import pytest
from tests.runtimes.logins.provider import Accounts, holds_token
from tests.runtimes.logins.rig import Rig, log_of, payloads, run

from codesdk import CodeSDKError
from codesdk.contract.settings import Budget, Budgets
from codesdk.runtimes.claude import login

MODEL = "POST api.anthropic.com/v1/messages"
TOKEN = "POST platform.claude.com/v1/oauth/token"
HOSTS = {"api.anthropic.com", "platform.claude.com"}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, "claude")


async def test_it_talks_to_its_provider_by_itself_the_log_says_so_and_no_token_is_left_anywhere(
    rig: Rig, provider: Accounts, caplog: pytest.LogCaptureFixture
):
    provider.write_claude(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        assert await run(session) == "Hello from the account."
        events = await log_of(sdk, session)
        bundle = io.BytesIO()
        await sdk.write_bundle(session.id, bundle)
        assert list(rig.data.rglob(".credentials.json")) == [rig.file]
        assert rig.leaked() == []
        sources = payloads(events, "model.input")[0].implicit_sources_ref
        _, told = await sdk.archive.read_artifact(sources.artifact_id)
    [asked] = [each for each in provider.asked if each.route == MODEL]
    assert asked.headers["authorization"] == f"Bearer {provider.access}"
    assert "x-api-key" not in asked.headers
    assert provider.names <= HOSTS
    assert {inputs.capture for inputs in payloads(events, "model.input")} == {"compiled"}
    assert b"beside the gateway" in told
    [used] = payloads(events, "usage.reported")
    assert (used.source, used.input, used.output, used.cost_usd) == ("runtime", 11, 7, None)
    notice = next(each for each in payloads(events, "runtime.notice") if each.kind == "login")
    assert notice.details == {"account": "claude.ai (max)", "traffic": "beside", "input_capture": "compiled"}
    assert rig.leaked() == []
    assert not holds_token(gzip.decompress(bundle.getvalue()))
    assert not holds_token(caplog.text.encode())


async def test_three_sessions_that_renew_one_login_at_once_all_go_on_and_the_provider_is_asked_once(
    rig: Rig, provider: Accounts
):
    provider.write_claude(rig.login, expired=True)
    async with rig.open() as sdk:
        sessions = [await rig.session(sdk) for _ in range(3)]
        assert await asyncio.gather(*map(run, sessions)) == ["Hello from the account."] * 3
        assert provider.routes(TOKEN) == [TOKEN]
        kept = json.loads(rig.file.read_text())["claudeAiOauth"]
        assert (kept["accessToken"], kept["refreshToken"]) == (provider.access, provider.refresh)
        assert list(rig.data.rglob(".credentials.json")) == [rig.file]
    assert rig.leaked() == []


async def test_a_login_that_is_not_renewed_any_more_has_to_be_made_again(rig: Rig, provider: Accounts):
    provider.write_claude(rig.login, expired=True)
    provider.renewing = "invalid_grant"
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        for _ in range(2):
            with pytest.raises(CodeSDKError, match="codesdk login claude") as failure:
                await run(session)
            assert failure.value.code == "AUTH_REQUIRED"
    assert provider.routes(MODEL) == []


async def test_a_renewal_that_hangs_ends_within_our_deadline(
    rig: Rig, provider: Accounts, monkeypatch: pytest.MonkeyPatch
):
    provider.write_claude(rig.login, expired=True)
    provider.renewing = "hangs"
    monkeypatch.setattr(login, "RENEW_S", 3.0)
    async with rig.open() as sdk:
        with pytest.raises(CodeSDKError, match="was not renewed within 3 s") as failure:
            await run(await rig.session(sdk))
    assert (failure.value.code, failure.value.retryable) == ("AUTH_FAILED", True)
    assert provider.routes(MODEL) == []


async def test_a_renewal_that_fails_for_now_can_be_tried_again(rig: Rig, provider: Accounts):
    provider.write_claude(rig.login, expired=True)
    provider.renewing = "down"
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        with pytest.raises(CodeSDKError, match="could not be asked to renew it") as failure:
            await run(session)
        assert (failure.value.code, failure.value.retryable) == ("AUTH_FAILED", True)
        assert TOKEN in provider.routes()
        assert provider.routes(MODEL) == []
        provider.renewing = "rotates"
        assert await run(session) == "Hello from the account."
    assert rig.leaked() == []


async def test_a_login_that_the_provider_refuses_is_said_to_be_the_login(rig: Rig, provider: Accounts):
    provider.write_claude(rig.login)
    provider.accepts, provider.renewing = False, "invalid_grant"
    async with rig.open() as sdk:
        with pytest.raises(CodeSDKError, match="log in again: codesdk login claude") as failure:
            await run(await rig.session(sdk))
    assert failure.value.code in ("AUTH_FAILED", "AUTH_REQUIRED")
    assert rig.leaked() == []


@pytest.mark.parametrize("on", [True, False])
async def test_without_a_login_or_with_logins_off_nothing_is_started_and_the_error_says_what_to_do(
    rig: Rig, provider: Accounts, on: bool
):
    if not on:
        provider.write_claude(rig.login)
    async with rig.open(logins=("claude",) if on else ()) as sdk:
        with pytest.raises(CodeSDKError) as failure:
            await run(await rig.session(sdk))
    assert failure.value.code == "AUTH_REQUIRED"
    assert ("codesdk login claude" in failure.value.message) is on
    assert "ANTHROPIC_API_KEY" in failure.value.message
    assert provider.asked == []


async def test_a_budget_counts_what_it_reports(rig: Rig, provider: Accounts):
    provider.write_claude(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk, budgets=Budgets(session=Budget(tokens=10)))
        assert await run(session) == "Hello from the account."
        with pytest.raises(CodeSDKError) as failure:
            await run(session)
        assert failure.value.code == "BUDGET_EXCEEDED"
    assert provider.routes(MODEL) == [MODEL]


async def test_a_cost_budget_cannot_be_kept_beside_the_gateway(rig: Rig, provider: Accounts):
    provider.write_claude(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk, budgets=Budgets(session=Budget(cost_usd=1.0)))
        with pytest.raises(CodeSDKError, match="Limit tokens or requests instead") as failure:
            await run(session)
    assert failure.value.code == "BUDGET_EXCEEDED"
    assert provider.asked == []


async def test_the_command_shows_an_address_takes_the_code_of_the_page_and_claude_makes_the_login(
    rig: Rig, provider: Accounts
):
    code, out, err = await rig.codesdk("login", "claude", typed="code-of-the-page#state")
    assert (code, err) == (0, "")
    _, address, done, _ = out.split("\n")
    assert address.startswith("  https://claude.com/cai/oauth/authorize?")
    assert done == "Logged in to claude-agent-sdk as claude.ai."
    assert provider.codes == ["code-of-the-page"]
    assert [each.name for each in rig.login.iterdir()] == [".credentials.json"]
    assert rig.leaked() == []
