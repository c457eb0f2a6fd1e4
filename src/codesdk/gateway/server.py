"""The gateway's HTTP server: the token in a request's path selects the session, whose backend answers.

The path is `/g/TOKEN/` followed by the provider's own path. A raw ASGI application on loopback, in the
engine's process or on its own. Knows no format and no model.
"""

import asyncio
import hashlib
import logging
import re
import secrets
import traceback
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.gateway.outbound import plain_query
from codesdk.gateway.reply import RawRequest, Reply, Reset, close_body, refuse
from codesdk.gateway.wires.exchange import Ask, Codec, Fault
from codesdk.gateway.wires.formats import find_listing, find_route, guess_codec
from codesdk.serving import Gone, Message, Receive, Send, Serving, listen, read_body, until_gone

MAX_BODY_BYTES = 64 * 1024 * 1024
PREFIX = "/g/"
_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@!$&'()*+,;=-]+)*")
_ESCAPED_SLASH = re.compile(rb"%(?:2f|5c)", re.IGNORECASE)
_log = logging.getLogger(__name__)


class Backend(Protocol):
    """Answers the requests of one session."""

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Answer a model request."""
        ...

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        """Answer a request for the provider's models, or return None for "not found"."""
        ...


class Aside(Protocol):
    """Answers what a logged-in program asks about its account, and says what a model request's own path is."""

    async def answer(self, request: RawRequest) -> Reply | None:
        """Answer a request that is about the account. None for any other."""
        ...

    def plain(self, request: RawRequest) -> RawRequest | None:
        """Return a model request under the path that its format has everywhere; None if it must not pass."""
        ...


class Gateway:
    """Sessions by token, and the server in front of them. Use it as an async context manager."""

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._host = host
        self._port = port
        self._max_body_bytes = max_body_bytes
        self._sessions: dict[bytes, tuple[Backend, Aside | None]] = {}
        self._serving: Serving | None = None
        self.refused = 0  # requests without a valid token

    async def __aenter__(self) -> "Gateway":
        listener = listen((self._host, self._port))
        self._port = listener.getsockname()[1]
        self._serving = Serving(self._handle, listener)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._serving is not None:
            await self._serving.end()

    @property
    def url(self) -> str:
        """The server's address, without a token."""
        return f"http://{self._host}:{self._port}"

    def admit(self, backend: Backend, token: str | None = None, aside: Aside | None = None) -> str:
        """Serve a session; with `aside` one whose program is logged in. Return the base URL for its runtime."""
        token = token or secrets.token_urlsafe(24)
        self._sessions[_key(token)] = backend, aside
        return f"{self.url}{PREFIX}{token}"

    def dismiss(self, base_url: str) -> None:
        """Revoke a session's token."""
        self._sessions.pop(_key(base_url.rpartition("/")[2]), None)

    async def _handle(self, scope: Message, receive: Receive, send: Send) -> None:
        path = str(scope["path"])
        token, slash, rest = path.removeprefix(PREFIX).partition("/")
        rest = slash + rest
        session = self._sessions.get(_key(token)) if path.startswith(PREFIX) else None
        if session is None:
            self.refused += 1
            # Refused before its body is read, and in a shape that the client can show to its user.
            await _send_reply(_unknown_token(rest), send)
            return
        if not _is_plain(rest, scope["raw_path"]):
            await _send_reply(_not_plain(rest), send)
            return
        try:
            body = await read_body(receive, self._max_body_bytes)
        except Gone:
            return
        if body is None:
            limit = f"{self._max_body_bytes:,} bytes"
            await _send_reply(refuse(guess_codec(rest), _too_large(limit)), send)
        elif has_too_many_values(body):
            limit = f"{MOST_VALUES:,} JSON values"
            await _send_reply(refuse(guess_codec(rest), _too_large(limit)), send)
        else:
            await _while_wanted(_serve(*session, _raw(scope, rest, body), send), receive)


async def _while_wanted(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Do the work; if the client hangs up, cancel it at once, which also releases its upstream connection."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.wait([working, leaving])  # returns once the upstream is released
    error = None if working.cancelled() else working.exception()
    if error is not None:
        if not isinstance(error, Reset):
            _report(error)
        raise Reset  # makes the server close the connection without a proper end


async def _serve(backend: Backend, aside: Aside | None, request: RawRequest, send: Send) -> None:
    try:
        reply = None if aside is None else await aside.answer(request)
        if reply is None:
            plain = request if aside is None else aside.plain(request)
            reply = _not_found(request) if plain is None else await _answer(backend, plain)
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like a dead provider
        _report(error)
        message = f"The gateway failed to handle this request ({type(error).__name__})."
        reply = refuse(guess_codec(request.path), Fault(status=500, kind="server", message=message))
    await _send_reply(reply, send)


def _report(error: BaseException) -> None:
    """Log a bug of ours, without message and values: they may hold secrets."""
    place = "".join(traceback.format_tb(error.__traceback__))
    _log.error("A model request failed with %s:\n%s", type(error).__name__, place)


async def _answer(backend: Backend, request: RawRequest) -> Reply:
    """Parse the request and pass it to the backend; refuse an unreadable one in the provider's shape."""
    found = find_route(request.method, request.path, request.query)
    if found is None:
        listing = find_listing(request.method, request.path, request.headers)
        reply = None if listing is None else await backend.list_models(listing, request)
        return reply or _not_found(request)
    codec, route = found
    try:
        body = msgspec.json.decode(request.body, type=dict[str, Any])
        ask = codec.parse(route, body)
    except (ValueError, RecursionError) as error:
        return _unreadable(codec, error)
    try:
        return await backend.answer(codec, ask, request)
    except (
        InvalidRequest,
        RecursionError,
    ) as error:  # what C decodes can be too deep for who walks through it
        return _unreadable(codec, error)


def _unreadable(codec: Codec, error: Exception) -> Reply:
    message = f"The request cannot be read: {error}"
    return refuse(codec, Fault(status=400, kind="invalid", message=message))


async def _send_reply(reply: Reply, send: Send) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in reply.headers.items()]
    body = reply.body
    if isinstance(body, bytes):
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    else:
        await _pour(reply.status, headers, body, send)


async def _pour(
    status: int, headers: list[tuple[bytes, bytes]], body: AsyncIterator[bytes], send: Send
) -> None:
    """Send chunks as they arrive. Close the body whatever happens, so that the upstream is released."""
    try:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        async for chunk in body:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await close_body(body)


def _raw(scope: Message, path: str, body: bytes) -> RawRequest:
    return RawRequest(
        method=scope["method"],
        path=path,
        query=plain_query(scope["query_string"].decode("latin-1")),
        headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        body=body,
    )


def _is_plain(path: str, sent: bytes) -> bool:
    """Return whether every reader takes a path for the same: no escaped or doubled slashes, no dots to resolve."""
    return _PLAIN.fullmatch(path) is not None and _ESCAPED_SLASH.search(sent) is None


def _not_found(request: RawRequest) -> Reply:
    message = (
        f"{request.method} {request.path} is not a route of this gateway: it passes on model requests, token counts"
        " and lists of models."
    )
    fault = Fault(status=404, kind="not_found", message=message)
    return refuse(guess_codec(request.path, request.headers), fault)


def _not_plain(path: str) -> Reply:
    message = (
        "The path has empty or dot segments, escaped slashes or characters that no route has, so it is not passed on."
        " Check the base URL: it must not end with a slash."
    )
    return refuse(guess_codec(path), Fault(status=404, kind="not_found", message=message))


def _unknown_token(path: str) -> Reply:
    message = (
        "There is no session behind this address. The token in the path is missing, wrong or no longer valid."
    )
    return refuse(guess_codec(path), Fault(status=401, kind="authentication", message=message))


def _too_large(limit: str) -> Fault:
    message = f"The request is too large; at most {limit} are accepted."
    return Fault(status=413, kind="too_large", message=message)


def _key(token: str) -> bytes:
    """Return a token's digest. Looking up digests leaks nothing about tokens through timing."""
    return hashlib.sha256(token.encode()).digest()
