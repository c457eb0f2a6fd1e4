"""What a logged-in program may ask through the gateway: its model, its account, and a renewal of its login, once for each token."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.gateway.peers import Peer, body_of, peer, say, send_raw

from codesdk.gateway.logins import LOGIN_PROVIDERS, LoginRequests, LoginUpstream
from codesdk.gateway.server import Gateway

pytestmark = pytest.mark.slow

ACCESS = "access-token-of-the-program"
LOGIN = (f"authorization: Bearer {ACCESS}", "chatgpt-account-id: account-1", "user-agent: codex/0.163.0")
FIRST = "refresh-token-number-1"


class World:
    """A provider, a gateway, and one session whose program is logged in."""

    def __init__(self, provider: Peer, upstream: LoginUpstream, url: str, learned: list[str]) -> None:
        self.provider, self.upstream, self.url, self.learned = provider, upstream, url, learned

    @property
    def asked(self) -> list[str]:
        """The first lines of what the provider was asked."""
        return [asked.split(b" HTTP/1.1\r\n")[0].decode() for asked in self.provider.asked]

    async def renew(self, token: str = FIRST, **fields: Any) -> tuple[int, Any]:
        """Return what the token endpoint answers."""
        form = {"client_id": "c", "grant_type": "refresh_token", "refresh_token": token} | fields
        answer = await send_raw(f"{self.url}/oauth/token", *LOGIN[2:], body=json.dumps(form).encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(body)


@asynccontextmanager
async def world(handler: Any, *, renew_s: float = 5.0) -> AsyncIterator[World]:
    async with peer(handler) as provider, Gateway() as gateway:
        chatgpt = LOGIN_PROVIDERS["chatgpt"]
        here = msgspec.structs.replace(chatgpt, origin=provider.url, token_origin=provider.url)
        upstream, learned = LoginUpstream(here, renew_s=renew_s), list[str]()
        url = gateway.admit(upstream.models, aside=LoginRequests(upstream, learned.extend))
        try:
            yield World(provider, upstream, url, learned)
        finally:
            await upstream.close()


def tokens(number: int) -> dict[str, str]:
    kinds = ("access", "refresh", "id")
    return {f"{kind}_token": f"{kind}-token-number-{number}" for kind in kinds}


def numbered(release: asyncio.Event | None = None) -> Callable[[asyncio.StreamWriter], Any]:
    """Return a token endpoint whose answers have numbers: the first gives the second tokens."""
    count = 1

    async def handle(writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        answer = say(
            json.dumps(tokens(count)).encode(), 200, "content-type: application/json", "connection: close"
        )
        if release is not None:
            await release.wait()
        await answer(writer)

    return handle


# --- what passes --------------------------------------------------------------------------------------------


async def test_a_model_request_goes_to_the_accounts_own_address_with_the_programs_login():
    async with world(say(b"{}")) as here:
        body = json.dumps(body_of("responses")).encode()
        answer = await send_raw(f"{here.url}/backend-api/codex/responses", *LOGIN, body=body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    (asked,) = here.provider.asked
    assert asked.startswith(b"POST /backend-api/codex/responses HTTP/1.1\r\n")
    assert all(line.encode() in asked for line in LOGIN)


@pytest.mark.parametrize(
    "path",
    [
        "/backend-api/codex/models?client_version=0.163.0",
        "/backend-api/wham/accounts/check",
        "/backend-api/wham/config/bundle",
        "/backend-api/wham/settings/user",
        "/backend-api/wham/usage",
    ],
)
async def test_what_a_program_reads_of_its_account_passes_with_its_login(path: str):
    async with world(say(b'{"own": 1}')) as here:
        answer = await send_raw(here.url + path, *LOGIN, method="GET")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'{"own": 1}' in answer
    assert here.asked == [f"GET {path}"]
    assert LOGIN[0].encode() in here.provider.asked[0]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses"),
        ("POST", "/responses"),
        ("POST", "/v1/messages"),
        ("POST", "/backend-api/codex/v1/messages"),
        ("GET", "/backend-api/codex/responses"),
        ("POST", "/backend-api/codex/responses/resp_1/cancel"),
        ("POST", "/backend-api/wham/usage"),
        ("DELETE", "/backend-api/wham/accounts/check"),
        ("GET", "/backend-api/wham/tasks/list"),
        ("GET", "/backend-api/conversations"),
        ("GET", "/backend-api/wham/usage/x"),
        ("GET", "/oauth/token"),
        ("POST", "/oauth/revoke"),
        ("POST", "/oauth/authorize"),
        ("GET", "/v1/models"),
    ],
)
@pytest.mark.slow
async def test_nothing_else_passes(method: str, path: str):
    async with world(say(b"{}")) as here:
        body = json.dumps(body_of("responses")).encode()
        answer = await send_raw(here.url + path, *LOGIN, method=method, body=body)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"is not a route of this gateway" in answer
    assert here.provider.asked == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/backend-api/codex/responses"),
        ("GET", "/backend-api/wham/usage"),
        ("POST", "/oauth/token"),
    ],
)
async def test_a_session_with_a_key_has_none_of_these_routes(method: str, path: str):
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream("key-of-the-operator-0123456789")
        answer = await send_raw(gateway.admit(upstream) + path, *LOGIN, method=method, body=b"{}")
        await upstream.close()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert provider.asked == []


# --- renewal ------------------------------------------------------------------------------------------------


async def test_many_programs_that_renew_one_login_at_once_get_the_same_new_one_and_the_provider_is_asked_once():
    release = asyncio.Event()
    async with world(numbered(release)) as here:
        renewing = [asyncio.create_task(here.renew()) for _ in range(3)]
        while len(here.learned) < 3:  # noqa: ASYNC110 - each has reached the gateway with its token
            await asyncio.sleep(0)
        release.set()
        assert [await each for each in renewing] == [(200, tokens(2))] * 3
        assert await here.renew() == (200, tokens(2)), "one that comes later as well"
        assert here.asked == ["POST /oauth/token"]
    assert set(here.learned) == {FIRST, *tokens(2).values()}


async def test_a_program_that_slept_through_two_renewals_gets_the_newest_login():
    async with world(numbered()) as here:
        assert await here.renew() == (200, tokens(2))
        assert await here.renew(tokens(2)["refresh_token"]) == (200, tokens(3))
        assert await here.renew() == (200, tokens(3))
        assert len(here.asked) == 2


async def test_a_token_that_stays_good_has_the_same_answer_only_for_a_while(monkeypatch: pytest.MonkeyPatch):
    same = json.dumps({"access_token": "a" * 20, "refresh_token": FIRST}).encode()
    async with world(say(same, 200, "connection: close")) as here:
        assert await here.renew() == await here.renew() == (200, json.loads(same))
        assert len(here.asked) == 1
        monkeypatch.setattr("codesdk.gateway.logins.SAME_S", 0.0)
        assert await here.renew() == (200, json.loads(same))
        assert len(here.asked) == 2


async def test_a_renewal_is_not_lost_if_whoever_asked_for_it_is_gone():
    release = asyncio.Event()
    async with world(numbered(release)) as here:
        gone = asyncio.create_task(here.renew())
        while not here.provider.asked:  # noqa: ASYNC110 - it is under way
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        release.set()
        assert await here.renew() == (200, tokens(2))
        assert len(here.asked) == 1


async def test_a_renewal_that_hangs_is_given_up_and_its_late_answer_is_kept():
    release = asyncio.Event()
    async with world(numbered(release), renew_s=0.05) as here:
        status, body = await here.renew()
        assert (status, body["error"]["message"]) == (504, "The login was not renewed in time.")
        release.set()
        while (answer := await here.renew())[0] == 504:
            pass
        assert answer == (200, tokens(2))
        assert len(here.asked) == 1


async def test_a_refusal_is_passed_on_and_not_kept():
    refusal = b'{"error": {"code": "refresh_token_reused"}}'
    async with world(say(refusal, 401, "connection: close")) as here:
        for _ in range(2):
            assert await here.renew() == (401, json.loads(refusal))
        assert len(here.asked) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"grant_type": "authorization_code", "code": "c"}',
        b'{"grant_type": "refresh_token"}',
        b'{"grant_type": "refresh_token", "refresh_token": 1}',
        b"[" * 5000,
    ],
)
async def test_nothing_but_a_refresh_token_can_be_exchanged(body: bytes):
    async with world(say(b"{}")) as here:
        answer = await send_raw(f"{here.url}/oauth/token", body=body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert here.provider.asked == []


async def test_closing_ends_renewals_that_are_under_way():
    async with world(numbered(asyncio.Event())) as here:
        waiting = asyncio.create_task(here.renew())
        while not here.provider.asked:  # noqa: ASYNC110 - it is under way
            await asyncio.sleep(0)
        await here.upstream.close()
        assert (await waiting)[0] == 503
