"""Requests to a daemon → answers as structs, or the contract's exceptions.

A request that fails because the daemon is away, restarts or asks to wait is retried for a while, under the
same idempotency key: whether the daemon had already acted makes no difference.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import quote

import msgspec

from codesdk.client.address import Find
from codesdk.contract.actions import new_key
from codesdk.contract.api import Problem
from codesdk.contract.errors import Busy, CodeSDKError, ErrorCode, ErrorInfo, from_info
from codesdk.contract.sender import Sender

if TYPE_CHECKING:
    import httpx2

PATIENCE_S = 30.0
"""How long a request is retried before its failure reaches the caller."""
CONNECT_S = 5.0
ANSWER_S = 60.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LATER: frozenset[str] = frozenset({"RATE_LIMITED", "OVERLOADED"})
"""Refusals after which the same request may succeed in a moment."""
_AWAY = frozenset({502, 503, 504})
_CODES: frozenset[str] = frozenset(get_args(ErrorCode))

T = TypeVar("T")


class Unreachable(Busy):
    """The daemon does not answer."""


def pause_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row: longer each time, and partly random."""
    # Random, so that the clients of a daemon that restarts do not all come back at the same moment.
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 16))
    return longest * (0.5 + random.random() / 2)


class DaemonConnection:
    """One daemon, reached over HTTP."""

    def __init__(self, find: Find, *, patience_s: float = PATIENCE_S) -> None:
        self._find = find
        self._patience_s = patience_s
        self._address = find()
        self._client: httpx2.AsyncClient | None = None
        self._asking: set[asyncio.Task[httpx2.Response]] = set()
        self.closed = asyncio.Event()

    @property
    def url(self) -> str:
        """Where the daemon is."""
        return self._address.url

    async def close(self) -> None:
        """Hang up. Streams end, and pending requests fail."""
        self.closed.set()
        for asking in self._asking:
            asking.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def look_again(self) -> bool:
        """Look up the address and the token again. Return whether they have changed."""
        try:
            found = self._find()
        except CodeSDKError:
            return False
        changed = found != self._address
        self._address = found
        return changed

    async def get(
        self,
        path: str,
        kind: type[T],
        *,
        patience_s: float | None = None,
        answer_s: float = ANSWER_S,
        **query: Any,
    ) -> T:
        """Return what is at a path."""
        answer = await self._send("GET", path, query=query, patience_s=patience_s, answer_s=answer_s)
        return _decoded(answer.content, kind)

    async def post(
        self, path: str, body: object, kind: type[T], *, key: str | None = None, sender: Sender | None = None
    ) -> T:
        """Post a body, to be acted on once."""
        data = msgspec.json.encode(body)
        return await self.upload(path, data, "application/json", kind, key=key, sender=sender)

    async def upload(
        self,
        path: str,
        data: bytes,
        content_type: str,
        kind: type[T],
        *,
        key: str | None = None,
        sender: Sender | None = None,
        **query: Any,
    ) -> T:
        """Post bytes, to be acted on once."""
        headers = {"content-type": content_type, "idempotency-key": key or new_key(), **_names(sender)}
        answer = await self._send("POST", path, content=data, headers=headers, query=query)
        return _decoded(answer.content, kind)

    async def download(self, path: str, headers: Mapping[str, str]) -> bytes:
        """Return bytes."""
        return (await self._send("GET", path, headers=headers)).content

    async def delete(
        self, path: str, *, key: str | None = None, sender: Sender | None = None, **query: Any
    ) -> None:
        """Remove something. Not found counts as success if an earlier try may have removed it."""
        keyed = {"idempotency-key": key} if key else {}
        await self._send("DELETE", path, headers={**keyed, **_names(sender)}, query=query)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        patience_s: float | None = None,
        answer_s: float = ANSWER_S,
    ) -> "httpx2.Response":
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._patience_s if patience_s is None else patience_s)
        failures, lost = 0, False  # lost: a try got no answer, so the daemon may have acted
        while True:
            answer, failure = await self._try(
                method, path, answer_s, content=content, headers=headers, params=_given(query)
            )
            if failure is None or (lost and method == "DELETE" and failure.code == "NOT_FOUND"):
                assert answer is not None, "no failure means an answer"
                return answer
            lost = lost or answer is None
            wait_s = self._wait_s(answer, failure, failures)
            if wait_s is None or loop.time() + wait_s > until:
                raise failure
            failures += 1
            await asyncio.sleep(wait_s)

    async def _try(
        self, method: str, path: str, answer_s: float, *, headers: Mapping[str, str] | None, **parts: Any
    ) -> "tuple[httpx2.Response | None, CodeSDKError | None]":
        import httpx2

        try:
            # Made for each try: the daemon may have moved, and have another token.
            request = self.http.build_request(
                method,
                self.url + path,
                headers=self.headers(headers),
                timeout=httpx2.Timeout(answer_s, connect=CONNECT_S),
                **parts,
            )
            answer = await self.ask(request)
        except httpx2.TransportError as error:
            return None, self.unreachable(error)
        return answer, None if answer.is_success else failure_of(answer.status_code, answer.content)

    async def ask(self, request: "httpx2.Request", *, stream: bool = False) -> "httpx2.Response":
        """Send a request. Raise if the client is closed before it is answered.

        Each request is a task that `close` can cancel: a connection in the making would otherwise stay open.
        """
        if self.closed.is_set():
            raise closed_here()
        asking = asyncio.create_task(self.http.send(request, stream=stream))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        current = asyncio.current_task()
        assert current is not None, "only tasks ask"
        before = current.cancelling()
        try:
            answer = await asking
        except asyncio.CancelledError:
            if self.closed.is_set() and not current.cancelling():
                raise closed_here() from None
            raise
        if current.cancelling() > before:  # the HTTP library has swallowed the cancellation
            await answer.aclose()
            raise asyncio.CancelledError
        return answer

    def _wait_s(self, answer: "httpx2.Response | None", failure: CodeSDKError, failures: int) -> float | None:
        """Return how long to wait before the next try, or None if another try is useless."""
        if self.closed.is_set():
            return None
        if answer is None:
            return 0.0 if self.look_again() else pause_s(failures)
        if answer.status_code == 401:  # a daemon that was restarted has another token
            return 0.0 if self.look_again() else None
        # A gateway status without a problem document comes from a proxy: the daemon behind it is away.
        if failure.code in LATER or (answer.status_code in _AWAY and failure.code == "INTERNAL"):
            return max(retry_after_s(answer.headers), pause_s(failures))
        return None

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers of a request."""
        known = {} if self._address.token is None else {"authorization": f"Bearer {self._address.token}"}
        return known | dict(more or {})

    def unreachable(self, error: Exception) -> Unreachable:
        """Return the error for a daemon that does not answer."""
        why = type(error).__name__
        return Unreachable(
            f"The daemon at {self.url} cannot be reached ({why}). Is it running, and is this its address?",
            details={"url": self.url},
        )

    @property
    def http(self) -> "httpx2.AsyncClient":
        """The HTTP client, made when it is first used."""
        if self._client is None:
            import httpx2

            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=45),
                follow_redirects=False,
                trust_env=False,  # no proxy or login from the environment: the token is for the daemon alone
                # Certificates take long to read, and plain HTTP has none.
                verify=self.url.startswith("https"),
            )
        return self._client


def closed_here() -> CodeSDKError:
    """Return the error for a client that was closed while it waited."""
    return CodeSDKError("This client was closed.", code="INTERRUPTED", retryable=True)


def failure_of(status: int, body: bytes) -> CodeSDKError:
    """Return the exception that an answer stands for, even if it is not the daemon's own."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except ValueError:
        words = f"This is not the address of a CodeSDK daemon, or a proxy before it failed (HTTP {status})."
        return CodeSDKError(words, details={"status": status})
    code: Any = problem.code if problem.code in _CODES else "INTERNAL"
    return from_info(
        ErrorInfo(
            code=code,
            message=problem.detail,
            retryable=problem.retryable,
            runtime=problem.runtime,
            details=problem.details,
        )
    )


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return how long the daemon asks a client to wait."""
    given = headers.get("retry-after", "")
    return min(float(given), PATIENCE_S) if given.isascii() and given.isdigit() else 0.0


def _names(sender: Sender | None) -> dict[str, str]:
    """Return what a request says of itself as headers. The daemon puts the token's label before the client's name."""
    if sender is None:
        return {}
    # A name may have any printable characters, a header only some.
    client = None if sender.client_id is None else quote(sender.client_id, safe=" ")
    said = {"x-request-id": sender.request_id, "traceparent": sender.traceparent, "x-client-id": client}
    return {name: value for name, value in said.items() if value is not None}


def _given(query: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (query or {}).items() if value is not None}


def _decoded(data: bytes, kind: type[T]) -> T:
    if kind is type(None):
        return None  # pyright: ignore[reportReturnType] - nothing is what was asked for
    try:
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise CodeSDKError(f"The daemon's answer cannot be read: {error}. Is it the same release?") from error
