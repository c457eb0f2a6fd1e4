"""Programs that are logged in to an account of their own: where their requests go, and which may pass besides model requests.

Such a program brings its login with every request and renews it by itself. Its model requests take the same way as
all others; what it reads about its account and what it renews are answered here, for sessions whose program has a
login and for no others. Sessions that share a login renew it at the same time, and a refresh token is good for one
use, so each is sent to the provider once, and whoever brings the same one gets the same answer.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from codesdk.contract.models import LoginKind
from codesdk.gateway.cassettes.scrub import is_login
from codesdk.gateway.outbound import outbound_headers, outbound_query
from codesdk.gateway.providers import ORIGINS, Provider
from codesdk.gateway.reply import RawRequest, Reply, Reset, close_body, refuse
from codesdk.gateway.upstream import Upstream
from codesdk.gateway.wires.exchange import Fault, Wire
from codesdk.gateway.wires.formats import codec_for

RENEW_S = 10.0
"""How long a program waits for its renewed login. Codex gives up after twenty seconds, without saying why."""
FLIGHT_S = 60.0
"""How long a renewal may take that nobody waits for any more. Its answer must not be lost: the old token is used up."""
MAX_TOKENS_BYTES = 256 * 1024
KEPT_RENEWALS = 256
SAME_S = 30.0
"""How long a refresh token that stays good has the same answer. One that is used up has it as long as it is kept."""
_TOKENS = ("access_token", "refresh_token", "id_token")


class LoginProvider(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of account: the addresses of its provider, and what a logged-in program may ask there."""

    wire: Wire
    origin: str
    prefix: str
    """What comes before the path of a model request."""
    asks: frozenset[str]
    """Those paths, as the format has them everywhere."""
    reads: re.Pattern[str]
    """The paths that it may read besides: what the account is and what it may use."""
    token_origin: str
    token_path: str


LOGIN_PROVIDERS: Mapping[LoginKind, LoginProvider] = {
    "chatgpt": LoginProvider(
        wire="responses",
        origin="https://chatgpt.com",
        prefix="/backend-api/codex",
        asks=frozenset({"/responses", "/models"}),
        reads=re.compile(r"/backend-api/wham/(?:accounts/check|config/bundle|settings/user|usage)"),
        token_origin="https://auth.openai.com",
        token_path="/oauth/token",
    ),
}


class LoginUpstream:
    """The provider of one kind of account, shared by all sessions with such a login. Close it when done."""

    def __init__(self, provider: LoginProvider, *, renew_s: float | None = None) -> None:
        self.provider = provider
        # Whatever a request is taken for, a login never goes to another provider than its own.
        base = Provider(origin=provider.origin + provider.prefix)
        self.models = Upstream(dict.fromkeys(ORIGINS, base))
        """Answers model requests, with the login that each brings."""
        self._renewals = _Renewals(self._send_token, RENEW_S if renew_s is None else renew_s)

    async def read(self, request: RawRequest) -> Reply:
        """Pass on a question about the account."""
        return await self._send(self.provider.origin, request)

    async def renew(self, request: RawRequest) -> Reply:
        """Renew a login. Each refresh token is sent once."""
        return await self._renewals.renew(request)

    async def close(self) -> None:
        """Give up renewals that are under way, and close all connections."""
        await self._renewals.close()
        await self.models.close()

    async def _send_token(self, request: RawRequest) -> Reply:
        return await self._send(self.provider.token_origin, request)

    async def _send(self, origin: str, request: RawRequest) -> Reply:
        codec, query = codec_for(self.provider.wire), outbound_query(request)
        url = origin + request.path + (f"?{query}" if query else "")
        return await self.models.pass_on(codec, request, url, outbound_headers(request, codec.wire, None))


class LoginRequests:
    """What one session's program may ask besides models. `learn` is told the tokens that pass: they are secrets."""

    def __init__(self, upstream: LoginUpstream, learn: Callable[[Sequence[str]], None]) -> None:
        self._upstream = upstream
        self._learn = learn

    async def answer(self, request: RawRequest) -> Reply | None:
        """Answer a request that is about the account. None for any other."""
        provider = self._upstream.provider
        if request.method == "GET" and provider.reads.fullmatch(request.path):
            return await self._upstream.read(request)
        if request.method == "POST" and request.path == provider.token_path:
            self._learn(_tokens_in(request.body))
            reply = await self._upstream.renew(request)
            if isinstance(reply.body, bytes):
                self._learn(_tokens_in(reply.body))
            return reply
        return None

    def plain(self, request: RawRequest) -> RawRequest | None:
        """Return a request for a model under the path that its format has everywhere; None if it must not pass."""
        provider = self._upstream.provider
        path = request.path.removeprefix(provider.prefix)
        if path == request.path or path not in provider.asks:
            return None
        return msgspec.structs.replace(request, path=path)


class _Renewals:
    """Renews logins, each refresh token once."""

    def __init__(self, send: Callable[[RawRequest], Awaitable[Reply]], wait_s: float) -> None:
        self._send = send
        self._wait_s = wait_s
        self._flights: dict[bytes, asyncio.Task[Reply]] = {}
        self._began: dict[bytes, float] = {}
        self._renewed: OrderedDict[bytes, _Renewed] = OrderedDict()

    async def renew(self, request: RawRequest) -> Reply:
        """Return the answer to a refresh token: the one that is known, or the provider's."""
        asked = _decode(request.body)
        token = asked.get("refresh_token")
        # Nothing else that a token endpoint does may be done from here: no other grant, no revocation.
        if asked.get("grant_type") != "refresh_token" or not isinstance(token, str) or not token:
            return _failed(400, "Only a refresh token can be exchanged here.")
        key = _digest(token)
        known = self._newest(key)
        if known is not None:
            return known
        flight = self._flights.get(key)
        if flight is None:
            self._began[key] = asyncio.get_running_loop().time()
            flight = self._flights[key] = asyncio.create_task(self._fly(key, request))
            flight.add_done_callback(lambda _: self._landed(key))
        # From its beginning: a program asks again and again, and must not wait that long each time. Whoever gives up leaves
        # the others, and the answer, alone.
        left = self._began[key] + self._wait_s - asyncio.get_running_loop().time()
        await asyncio.wait([flight], timeout=max(0.0, left))
        return flight.result() if flight.done() else _failed(504, "The login was not renewed in time.")

    async def close(self) -> None:
        """Give up what is under way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        if flights:
            await asyncio.wait(flights)

    def _landed(self, key: bytes) -> None:
        del self._flights[key], self._began[key]

    async def _fly(self, key: bytes, request: RawRequest) -> Reply:
        try:
            async with asyncio.timeout(FLIGHT_S):
                reply = await self._send(request)
                body = await _whole(reply)
        except TimeoutError:
            return _failed(504, "The login was not renewed in time.")
        except asyncio.CancelledError:
            return _failed(503, "The gateway is closing.")
        kind = reply.headers.get("content-type", "application/json")
        whole = Reply(status=reply.status, headers={"content-type": kind}, body=body)
        told = _decode(body)
        if reply.status == 200 and "access_token" in told:
            token = told.get("refresh_token")
            following = _digest(token) if isinstance(token, str) else key
            self._renewed[key] = _Renewed(whole, following, asyncio.get_running_loop().time())
            while len(self._renewed) > KEPT_RENEWALS:
                self._renewed.popitem(last=False)
        return whole

    def _newest(self, key: bytes) -> Reply | None:
        """Return the answer to a token, or to the one that came in its place: one that was used since is worth nothing."""
        found = None
        for _ in range(KEPT_RENEWALS):  # a provider could lead in a circle
            renewed = self._renewed.get(key)
            if renewed is None:
                break
            if renewed.following == key:
                recent = asyncio.get_running_loop().time() - renewed.at < SAME_S
                return renewed.reply if recent else found
            found, key = renewed.reply, renewed.following
        return found


class _Renewed(NamedTuple):
    """The answer to a refresh token, and the one that it brought: the same, if tokens are not used up here."""

    reply: Reply
    following: bytes
    at: float


async def _whole(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    data = b""
    try:
        async for chunk in reply.body:
            data += chunk
            if len(data) > MAX_TOKENS_BYTES:
                return b"{}"
    except Reset:
        return b"{}"
    finally:
        await close_body(reply.body)
    return data


def _tokens_in(body: bytes) -> list[str]:
    found = _decode(body)
    return [value for name in _TOKENS if isinstance(value := found.get(name), str) and is_login(value)]


def _decode(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}


def _failed(status: int, message: str) -> Reply:
    return refuse(codec_for("responses"), Fault(status=status, kind="unavailable", message=message))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
