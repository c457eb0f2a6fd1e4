"""The real gemini with an account of its own, beside the gateway: what arrives, what is renewed, and what goes wrong with it."""

import asyncio
import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.logins.google import EMAIL, MODEL
from tests.runtimes.logins.provider import Accounts, holds_token
from tests.runtimes.logins.rig import Person, Rig, log_of, payloads, run

from codesdk import CodeSDKError
from codesdk.contract.access import LoginPrompt
from codesdk.contract.entry import MARK
from codesdk.contract.settings import Budget, Budgets
from codesdk.gateway.wires.exchange import Call, TextChunk
from codesdk.runtimes.gemini import ENTRY, login
from codesdk.runtimes.gemini.adapter import GeminiRuntime
from codesdk.runtimes.program.finding import Program
from codesdk.runtimes.program.logins import mark_refused

HELLO = "Hello from the account."
TOKEN = "POST oauth2.googleapis.com/token"
HOSTS = {"oauth2.googleapis.com", "www.googleapis.com", "cloudcode-pa.googleapis.com"}
NATIVE = (*ENTRY.own_tools, *ENTRY.other_tools)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, "gemini")


def renewals(provider: Accounts) -> int:
    """Return how often the provider was asked to renew a login."""
    return provider.routes().count(TOKEN)


def asked_of(provider: Accounts) -> list[dict[str, Any]]:
    """Return the requests to the model."""
    return [json.loads(each.body)["request"] for each in provider.asked if each.route == MODEL]


async def test_it_talks_to_its_provider_by_itself_the_log_says_so_and_no_token_is_left_anywhere(
    rig: Rig, provider: Accounts, caplog: pytest.LogCaptureFixture
):
    provider.write_gemini(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        assert await run(session) == HELLO
        events = await log_of(sdk, session)
        bundle = io.BytesIO()
        await sdk.write_bundle(session.id, bundle)
        links = [path for path in rig.data.rglob("oauth_creds.json") if path != rig.file]
        assert [(link.is_symlink(), link.resolve()) for link in links] == [(True, rig.file)]
        assert rig.leaked() == []
        sources = payloads(events, "model.input")[0].implicit_sources_ref
        _, told = await sdk.archive.read_artifact(sources.artifact_id)
    [asked] = [each for each in provider.asked if each.route == MODEL]
    assert asked.headers["authorization"] == f"Bearer {provider.access}"
    assert "x-goog-api-key" not in asked.headers
    assert provider.names == HOSTS
    assert {inputs.capture for inputs in payloads(events, "model.input")} == {"compiled"}
    assert b"beside the gateway" in told
    [used] = payloads(events, "usage.reported")
    assert (used.source, used.model, used.input, used.output) == ("runtime", "gemini-2.5-flash", 11, 7)
    assert used.cost_usd is None
    [notice] = [each for each in payloads(events, "runtime.notice") if each.kind == "login"]
    assert notice.details == {"account": "Google", "traffic": "beside", "input_capture": "compiled"}
    assert list(rig.data.rglob("oauth_creds.json")) == [rig.file], "its link went with gemini"
    assert rig.leaked() == []
    everything = gzip.decompress(bundle.getvalue()) + caplog.text.encode()
    assert not holds_token(everything)
    assert EMAIL.encode() not in everything
    assert (rig.file.stat().st_mode & 0o777, rig.login.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_three_sessions_that_find_one_login_expired_all_go_on_and_the_provider_renews_it_once(
    rig: Rig, provider: Accounts
):
    provider.write_gemini(rig.login, expired=True)
    async with rig.open() as sdk:
        sessions = [await rig.session(sdk) for _ in range(3)]
        assert await asyncio.gather(*map(run, sessions)) == [HELLO] * 3
        assert renewals(provider) == 1
        kept = json.loads(rig.file.read_text())
        assert (kept["access_token"], kept["refresh_token"]) == (provider.access, provider.lasting)
    assert rig.leaked() == []


async def test_three_live_sessions_renew_one_login_each_by_itself_and_all_go_on(rig: Rig, provider: Accounts):
    provider.write_gemini(rig.login, expired=True)
    provider.lifetime_s = 1  # gemini renews what ends within five minutes with every request
    async with rig.open() as sdk:
        sessions = [await rig.session(sdk) for _ in range(3)]
        for session in sessions:
            assert await run(session) == HELLO
        before = renewals(provider)
        assert await asyncio.gather(*(run(session, "Again") for session in sessions)) == [HELLO] * 3
        assert renewals(provider) >= before + 3
        assert json.loads(rig.file.read_text())["refresh_token"] == provider.lasting
    assert rig.leaked() == []


async def test_a_login_that_is_not_renewed_any_more_has_to_be_made_again(rig: Rig, provider: Accounts):
    provider.write_gemini(rig.login, expired=True)
    provider.renewing = "invalid_grant"
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        for _ in range(2):
            with pytest.raises(CodeSDKError, match="codesdk login gemini") as failure:
                await run(session)
            assert failure.value.code == "AUTH_REQUIRED"
        assert provider.routes() == [TOKEN], "it is not tried again"
        provider.write_gemini(rig.login)
        assert await run(session) == HELLO


@pytest.mark.parametrize(("renewing", "why"), [("down", "unavailable"), ("hangs", "not checked within 3 s")])
async def test_a_renewal_that_fails_or_hangs_for_now_can_be_tried_again(
    rig: Rig, provider: Accounts, monkeypatch: pytest.MonkeyPatch, renewing: Any, why: str
):
    provider.write_gemini(rig.login, expired=True)
    provider.renewing = renewing
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        with monkeypatch.context() as patched:
            if renewing == "hangs":
                patched.setattr(login, "RENEW_S", 3.0)
            with pytest.raises(CodeSDKError, match=why) as failure:
                await run(session)
        assert (failure.value.code, failure.value.retryable) == ("AUTH_FAILED", True)
        assert provider.routes(MODEL) == []
        provider.renewing = "rotates"
        assert await run(session) == HELLO


async def test_a_login_that_expired_and_has_nothing_to_be_renewed_with_counts_as_none(
    rig: Rig, provider: Accounts
):
    provider.write_gemini(rig.login, expired=True, lasting=False)
    async with rig.open() as sdk:
        with pytest.raises(CodeSDKError, match="codesdk login gemini") as failure:
            await run(await rig.session(sdk))
    assert failure.value.code == "AUTH_REQUIRED"
    assert provider.asked == []


@pytest.mark.parametrize("noticed", ["by the model", "when it is renewed"])
async def test_a_login_that_is_revoked_while_gemini_runs_fails_the_task_and_then_has_to_be_made_again(
    rig: Rig, provider: Accounts, noticed: str
):
    provider.write_gemini(rig.login, expired=True)
    provider.lifetime_s = 3599 if noticed == "by the model" else 1
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        assert await run(session) == HELLO
        provider.accepts, provider.renewing = False, "invalid_grant"
        with pytest.raises(CodeSDKError, match="log in again: codesdk login gemini") as failure:
            await run(session)
        assert failure.value.code == "AUTH_FAILED"
        with pytest.raises(CodeSDKError, match="codesdk login gemini") as failure:
            await run(session)
        assert failure.value.code == "AUTH_REQUIRED"
    assert provider.codes == []
    assert rig.leaked() == []


async def test_logged_out_between_tasks_nothing_is_asked_and_another_login_goes_on_with_the_conversation(
    rig: Rig, provider: Accounts
):
    provider.write_gemini(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        assert await run(session, "Remember the milk.") == HELLO
        shutil.rmtree(rig.login)
        asked = len(provider.asked)
        with pytest.raises(CodeSDKError, match="codesdk login gemini") as failure:
            await run(session)
        assert (failure.value.code, len(provider.asked)) == ("AUTH_REQUIRED", asked)
        provider.number += 1
        provider.write_gemini(rig.login)
        rig.file.write_text(rig.file.read_text().replace(provider.lasting, "rt-canary-of-the-account-0099"))
        assert await run(session, "What was it?") == HELLO
    latest = [each for each in provider.asked if each.route == MODEL][-1]
    assert latest.headers["authorization"] == f"Bearer {provider.access}", "the login that there was is gone"
    assert "Remember the milk." in latest.body.decode()


async def test_a_session_goes_on_with_its_login_after_a_restart(rig: Rig, provider: Accounts):
    provider.write_gemini(rig.login)
    async with rig.open() as sdk:
        session = await rig.session(sdk)
        assert await run(session, "Remember the milk.") == HELLO
    async with rig.open() as sdk:
        assert await run(await sdk.session(session.id), "What was it?") == HELLO
        await log_of(sdk, session)
    assert "Remember the milk." in json.dumps(asked_of(provider)[-1])
    assert rig.leaked() == []


async def test_what_it_is_told_is_never_sent_as_a_code_even_if_its_login_fails_after_it_was_checked(
    rig: Rig, provider: Accounts, monkeypatch: pytest.MonkeyPatch
):
    async def passed(program: Program, found: object) -> None:
        """The login was good when it was looked at."""

    provider.write_gemini(rig.login, expired=True)
    provider.renewing = "invalid_grant"
    monkeypatch.setattr(login, "_check", passed)
    async with rig.open() as sdk:
        with pytest.raises(
            CodeSDKError, match=r"could not use its account .* codesdk login gemini"
        ) as failure:
            await run(await rig.session(sdk))
    assert (failure.value.code, failure.value.retryable) == ("AUTH_FAILED", True)
    assert provider.codes == []
    assert set(provider.routes()) == {TOKEN}
    assert rig.leaked() == []


@pytest.mark.parametrize("on", [True, False])
async def test_without_a_login_or_with_logins_off_nothing_is_started_and_the_error_says_what_to_do(
    rig: Rig, provider: Accounts, on: bool
):
    if not on:
        provider.write_gemini(rig.login)
    async with rig.open(logins=("gemini",) if on else ()) as sdk:
        with pytest.raises(CodeSDKError) as failure:
            await run(await rig.session(sdk))
    assert failure.value.code == "AUTH_REQUIRED"
    assert ("codesdk login gemini" in failure.value.message) is on
    assert "GEMINI_API_KEY" in failure.value.message
    assert provider.asked == []


async def test_a_budget_counts_what_it_reports_and_a_cost_cannot_be_limited(rig: Rig, provider: Accounts):
    provider.write_gemini(rig.login)
    async with rig.open() as sdk:
        costly = await rig.session(sdk, budgets=Budgets(session=Budget(cost_usd=1.0)))
        with pytest.raises(CodeSDKError, match="Limit tokens or requests instead"):
            await run(costly)
        assert provider.asked == []
        for limit in (Budget(tokens=10), Budget(requests=1)):
            session = await rig.session(sdk, budgets=Budgets(session=limit))
            assert await run(session) == HELLO
            with pytest.raises(CodeSDKError) as failure:
                await run(session)
            assert failure.value.code == "BUDGET_EXCEEDED"
    assert provider.routes(MODEL) == [MODEL] * 2


async def test_beside_the_gateway_its_own_tools_are_neither_offered_nor_run_and_ours_are_decided_on(
    rig: Rig, provider: Accounts
):
    own = [
        Call(f"n{number}", name, dict(ENTRY.own_tools.get(name, {}))) for number, name in enumerate(NATIVE)
    ]
    read = Call("r1", "mcp_codesdk_workspace_read", {"path": "notes.txt"})
    provider.says = [[TextChunk("I try."), *own], [read]]
    (rig.workspace / "notes.txt").write_text("remember the milk\n")
    provider.write_gemini(rig.login)
    async with rig.open(allow_yolo=True) as sdk:
        session = await rig.session(sdk, permission_mode="yolo")
        assert await run(session) == HELLO
        events = await log_of(sdk, session)
    first, second, third = asked_of(provider)
    for asked in (first, second, third):
        declared = {each["name"] for tool in asked["tools"] for each in tool.get("functionDeclarations", ())}
        assert declared
        assert all(name.startswith("mcp_codesdk_") for name in declared)
        assert [sorted(tool) for tool in asked["tools"]] == [["functionDeclarations"]]
    refused = [part["functionResponse"] for part in second["contents"][-1]["parts"]]
    assert [each["name"] for each in refused] == list(NATIVE)
    assert all("not found" in each["response"]["error"] for each in refused)
    assert "remember the milk" in json.dumps(third["contents"][-1])
    assert list(rig.data.rglob(MARK)) + list(rig.workspace.rglob(MARK)) == []
    calls = payloads(events, "tool.call.completed")
    assert [(each.name, each.executed_by) for each in calls] == [("workspace.read", "codesdk")]
    opinions = [each for each in payloads(events, "tool.call.policy_evaluated") if each.source == "runtime"]
    assert [(each.result, each.rule) for each in opinions] == [("allow", "runtime:policy")]


@pytest.mark.parametrize("refused", [False, True])
async def test_the_command_shows_an_address_takes_the_code_of_the_page_and_gemini_makes_the_login(
    rig: Rig, provider: Accounts, refused: bool
):
    if refused:
        provider.write_gemini(rig.login)
        mark_refused(login.require_login(rig.env("beside")))
    code, out, err = await rig.codesdk("login", "gemini", typed="code-of-the-page")
    assert (code, err) == (0, "")
    _, address, done, _ = out.split("\n")
    assert address.startswith("  https://accounts.google.com/o/oauth2/v2/auth?")
    assert done == "Logged in to gemini-cli-core as Google."
    assert provider.codes == ["code-of-the-page"]
    kept = {each.name for each in rig.login.iterdir()} - {"refused"}
    assert kept == {"google_accounts.json", "oauth_creds.json"}
    assert rig.leaked() == []
    async with rig.open() as sdk:
        assert await run(await rig.session(sdk)) == HELLO
    assert await rig.codesdk("login", "gemini") == (0, "Logged in to gemini-cli-core as Google.\n", "")
    assert provider.codes == ["code-of-the-page"], "nobody is asked twice"


async def test_a_wrong_code_is_asked_for_once_more_and_then_there_is_no_login(rig: Rig, provider: Accounts):
    provider.takes_codes = False
    person = Person("wrong")
    outcome = await GeminiRuntime().ensure_login(rig.env("beside"), person)
    assert not outcome.logged_in
    assert "Was the code the one that the page showed?" in str(outcome.problem)
    assert "wrong" not in str(outcome.problem)
    assert provider.codes == ["wrong", "wrong"]
    assert len({prompt.url for prompt in person.prompts}) == 2
    assert list(rig.login.iterdir()) == []


async def test_a_login_that_is_given_up_leaves_nothing_behind(rig: Rig, provider: Accounts):
    asked = asyncio.Event()

    class Hesitating(Person):
        async def ask(self, prompt: LoginPrompt) -> str:
            asked.set()
            return await asyncio.Future()

    logging_in = asyncio.create_task(GeminiRuntime().ensure_login(rig.env("beside"), Hesitating()))
    await asked.wait()
    logging_in.cancel()
    await asyncio.wait([logging_in])
    assert logging_in.cancelled()
    assert list(rig.login.iterdir()) == []
    assert provider.asked == []
