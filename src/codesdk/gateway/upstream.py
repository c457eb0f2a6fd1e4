"""Forwards requests to the real provider: adds the key, and passes chunks on as they arrive.

The runtime holds only the gateway's token. If CodeSDK has a key for the provider, it replaces whatever the
runtime sent; if not, the runtime's own login passes unchanged. Without either, a request to a provider's
own address is refused here instead of being sent.
"""

import copy
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from codesdk import tls
from codesdk.contract.models import Payer
from codesdk.gateway.outbound import brings_login, outbound_headers, outbound_query
from codesdk.gateway.providers import KEY_NAMES, Accounts, Provider, lacks_key
from codesdk.gateway.reply import RawRequest, Reply, Reset, refuse
from codesdk.gateway.wires.exchange import Ask, AskOther, Codec, Fault, Wire
from codesdk.gateway.wires.fields import stored_at
from codesdk.redaction import MARKER, Redactor

CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 600.0
MAX_ERROR_BYTES = 1024 * 1024
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=45)
"""A connection is kept while a tool runs: another handshake with the provider takes longer than all of our work.

Only a few are kept, because the library checks each of them twice in every request, which takes 15 µs or
more.
"""
# What belongs to one connection, and what the server sets itself on ours.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_REFERENCE = [AskOther("item_reference")]
OPERATOR = Payer(principal="local", operator=True)
FindProvider = Callable[[Wire], Provider]
"""Returns where requests of a format go, with the key that pays for them."""
_is_passing = ContextVar("is_passing", default=False)


class Upstream:
    """The real providers. One per session, or shared; close it when done."""

    def __init__(
        self, providers: Mapping[Wire, Provider] | None = None, *, read_timeout_s: float = READ_TIMEOUT_S
    ) -> None:
        # Refuses a key that is too short to be one now, not when an error is to be shown without it.
        Redactor([given.key for given in (providers or {}).values() if given.key])
        self._find: FindProvider = partial(Accounts(providers).provider, OPERATOR)
        timeout = httpx2.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S)
        for name in ("httpx2", "httpcore2.http11"):
            logging.getLogger(name).addFilter(_may_be_logged)
        self._client = httpx2.AsyncClient(
            # A redirect could lead the key to another host, so none is followed.
            timeout=timeout,
            limits=_LIMITS,
            follow_redirects=False,
            cookies=_no_cookies(),
            verify=tls.shared(),
        )

    def with_keys(self, find: "FindProvider") -> "Upstream":
        """Return the same connections for a payer: `find` is asked for each request, since keys may change."""
        other = copy.copy(self)
        other._find = find
        return other

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def lacks(self, wire: Wire, request: RawRequest) -> str | None:
        """Return the name of the key that is missing: neither we nor the request have one.

        None if there is a login.
        """
        if not lacks_key(wire, self._find(wire)) or brings_login(request):
            return None
        return KEY_NAMES[wire]

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Forward a model request and return its answer, unchanged except for the login."""
        # Only here: what refers to a call that we denied has become that call by now.
        place = next((told.place for told in ask.messages if told.blocks == _REFERENCE), None)
        if place is not None:
            return refuse(codec, Fault(status=400, kind="invalid", message=stored_at(place)))
        return await self._forward(codec, request)

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply:
        """Forward a request for the provider's models."""
        return await self._forward(codec, request)

    async def _forward(self, codec: Codec, request: RawRequest) -> Reply:
        provider = self._find(codec.wire)
        if lacks_key(codec.wire, provider) and not brings_login(request):
            message = f"There is no key for this provider; set {KEY_NAMES[codec.wire]}."
            return refuse(codec, Fault(status=401, kind="authentication", message=message))
        query = outbound_query(request)
        # The very path that was routed: the server lets none through that could be read in two ways.
        url = provider.address(request.path) + (f"?{query}" if query else "")
        headers = outbound_headers(request, codec.wire, provider.key)
        return await self.pass_on(codec, request, url, headers, provider.key)

    async def pass_on(
        self,
        codec: Codec,
        request: RawRequest,
        url: str,
        headers: list[tuple[str, str]],
        key: str | None = None,
    ) -> Reply:
        """Send a request to an address. `key` is the one that was put into its headers, if any."""
        sent = self._client.build_request(request.method, url, headers=headers, content=request.body)
        passing = _is_passing.set(True)
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx2.TimeoutException:
            message = "The provider did not answer in time."
            return refuse(codec, Fault(status=504, kind="unavailable", message=message))
        except httpx2.HTTPError as error:
            message = f"The provider cannot be reached ({type(error).__name__})."
            return refuse(codec, Fault(status=502, kind="unavailable", message=message))
        finally:
            _is_passing.reset(passing)
        told = _answer_headers(answer, key)
        body = _Chunks(answer)
        # Only an error may quote the key; an answer is passed on as it streams.
        if answer.status_code < 400 or key is None:
            return Reply(status=answer.status_code, headers=told, body=body)
        text = await _error_text(body, Redactor([key]))
        return Reply(status=answer.status_code, headers=told, body=text)


class _Chunks:
    """An answer's chunks as they arrive. `aclose` releases the connection, even if iteration never began."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._answer = answer
        self._bytes = answer.aiter_bytes()

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._bytes)
        except httpx2.HTTPError:
            raise Reset from None

    async def aclose(self) -> None:
        try:
            await self._bytes.aclose()
        finally:
            await self._answer.aclose()


async def _error_text(body: _Chunks, redactor: Redactor) -> bytes:
    """Return an error's body without the key we added: some providers quote it, and runtimes show it."""
    data = b""
    try:
        async for chunk in body:
            data += chunk
            if len(data) > MAX_ERROR_BYTES:
                break
    except Reset:
        pass  # what arrived of an error is better than nothing
    finally:
        await body.aclose()
    return redactor.data(data[:MAX_ERROR_BYTES])


def _answer_headers(answer: httpx2.Response, key: str | None) -> dict[str, str]:
    """Return the headers of an answer, without the key we added."""
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
    if key is None:
        return headers
    return {name: value.replace(key, MARKER) for name, value in headers.items()}


def _no_cookies() -> CookieJar:
    """Return a jar that accepts no cookies: those of one session must not reach the next."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


def _may_be_logged(record: logging.LogRecord) -> bool:
    """Keep addresses and headers of forwarded requests out of the HTTP library's log: they may hold a key."""
    if not _is_passing.get():
        return True
    return record.name != "httpx2" and "receive_response_headers.complete" not in str(record.msg)
