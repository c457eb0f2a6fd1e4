"""An ASGI application → an HTTP server on this loop that leaves the process's signals alone. Loads uvicorn.

Shared by everything reached over HTTP: the gateway, the MCP host and the daemon. Connections come from
`accepting`; a request that does not arrive in time is answered 408, and its connection closed.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Generator
from typing import Any, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from codesdk.contract.api import Problem
from codesdk.serving.accepting import COUNTS, Acceptor, Limits, Seat
from codesdk.serving.asgi import Message, Receive, Respond, Send

MAX_HEAD_BYTES = 64 * 1024
_TOO_LONG = "The headers are too long."
QUIET_S = 120
"""How long a peer may be silent before the kernel asks whether it is still there: streams stay open for hours."""


PING_S = 20.0
"""How often a WebSocket is asked whether it is still there, and how long it may take to answer."""


@functools.cache
def _socket_class() -> Any:
    """Return the protocol of WebSockets. Loaded when the first one comes: many servers never see one."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class Socket(WebSocketsSansIOProtocol):
        """Gives its place among the connections back when it is lost."""

        def __init__(self, seat: Seat, **parts: Any) -> None:
            super().__init__(**parts)
            self._seat = seat

        def connection_lost(self, exc: Exception | None) -> None:
            self._seat.leave()
            super().connection_lost(exc)

    return Socket


def _make_socket(seat: Seat, **parts: Any) -> Any:
    """Return what serves a connection that became a WebSocket. uvicorn takes any callable for the class."""
    return _socket_class()(seat, **parts)


def _answer_in_full(status: str, code: str, detail: str, *headers: str) -> bytes:
    """Return a whole response with a problem, for a connection that is closed after it."""
    number, _, title = status.partition(" ")
    problem = Problem(
        type=f"urn:codesdk:error:{code}",
        title=title,
        status=int(number),
        detail=detail,
        code=code,
        retryable=True,
    )
    body = msgspec.json.encode(problem)
    lines = [
        f"HTTP/1.1 {status}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "connection: close",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


_REFUSAL = _answer_in_full(
    "503 Service Unavailable",
    "OVERLOADED",
    "There are too many connections. Try again in 5 s.",
    "retry-after: 5",
)
_TOO_SLOW = _answer_in_full(
    "408 Request Timeout", "TIMEOUT", "The request did not arrive in time. Send it again, without pauses."
)


def listen(address: Any, family: int = socket.AF_INET) -> socket.socket:
    """Return a listening socket."""
    # The protocol is named because asyncio turns off Nagle's delay (40 ms) only for such sockets.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit both: a client that vanished without a word must not stay for ever.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
        listener.bind(address)
        listener.listen(4096)
    except OSError:
        listener.close()
        raise
    return listener


class Serving:
    """An application served until `end`, which gives running requests `grace_s` to finish."""

    def __init__(
        self,
        app: Respond,
        listener: socket.socket,
        *,
        grace_s: int = 1,
        limits: Limits | None = None,
        max_frame_bytes: int | None = None,
    ) -> None:
        """With `max_frame_bytes`, the application is also given WebSockets, whose messages may have that many bytes."""
        limits = limits or Limits()
        self._app = app
        self._kinds = ("http",) if max_frame_bytes is None else ("http", "websocket")
        self._requests: set[asyncio.Task[Any]] = set()
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http=HttpToolsProtocol,
            ws="none" if max_frame_bytes is None else cast("Any", _make_socket),
            ws_max_size=max_frame_bytes or 0,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=cast("int", limits.idle_s),
            timeout_graceful_shutdown=grace_s,
        )
        config.load()  # here, where a failure reaches the caller: in the task, nobody would hear of it
        self._server = _Server(config, limits)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def end(self) -> None:
        """Stop taking requests; return when the server and all requests have ended."""
        self._server.end()
        await self._task
        if self._requests:  # cancelled by the server when it ended, but not finished yet
            await asyncio.wait(self._requests)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] not in self._kinds or task is None:
            return
        self._requests.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._requests.discard(task)


class _Server(uvicorn.Server):
    """Leaves signals to the process, accepts by our limits, and waits for an event where uvicorn polls."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept ourselves: uvicorn's server takes every connection there is, down to the last descriptor."""
        acceptors = [Acceptor(each, self._connection, self._limits, _REFUSAL) for each in sockets or ()]
        self.servers = cast("list[asyncio.Server]", acceptors)
        self.started = True

    def _connection(self, seat: Seat) -> "_Connection":
        return _Connection(
            seat, self._limits, config=self.config, server_state=self.server_state, app_state={}
        )

    async def main_loop(self) -> None:
        await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """Closes connections whose requests do not arrive: headers too long or too late, bodies too slow.

    uvicorn has no limit of its own for these: it collects headers until they end, and waits. A timer runs
    only while a part of a request is missing; a response may take as long as it likes.
    """

    _head_bytes = 0  # of this request, as far as it has arrived, at the end of each read but the first
    _named_bytes = 0  # of its path and its headers, as far as they have been read
    _body_bytes = 0
    _in_head = True
    _in_body = False
    _timer: asyncio.TimerHandle | None = None
    _upgraded = False

    def __init__(self, seat: Seat, limits: Limits, **parts: Any) -> None:
        super().__init__(**parts)
        self._seat = seat
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._seat.transport = transport
        self._expect_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._seat.leave()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes, self._named_bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)  # and what is around them
        super().on_header(name, value)

    def _count_head(self, size: int) -> None:
        """Count what one read may bring whole. Raising ends the parser, and uvicorn answers with 400."""
        self._named_bytes += size
        if self._named_bytes > MAX_HEAD_BYTES:
            raise ValueError(_TOO_LONG)

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(_TOO_LONG if self._named_bytes > MAX_HEAD_BYTES else msg)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head, self._in_body = False, True
        self._seat.work()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_head, self._in_body, self._head_bytes = True, False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and not self._in_body and not self.pipeline:
            self._seat.wait()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(_TOO_LONG)
            return
        if self._upgraded:  # from here on the bytes are those of a WebSocket, which has its own pings
            return
        if self._timer is None and (self._in_body or self._waits_for_request):
            self._expect_rest()

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        self._stop_timer()
        self._seat.work()
        # uvicorn makes the next protocol itself, and tells only that one when the connection is lost.
        self.ws_protocol_class = cast("Any", functools.partial(self.ws_protocol_class, self._seat))
        super().handle_websocket_upgrade()

    @property
    def _waits_for_request(self) -> bool:
        """Whether no request is being answered, and uvicorn's own timer for that does not run."""
        answered = not self.cycle or self.cycle.response_complete
        return answered and self.timeout_keep_alive_task is None

    def _expect_rest(self) -> None:
        if self.transport.is_closing():
            return
        self._body_bytes = 0
        if not self._in_body:
            self._seat.wait()
        wait_s = self._limits.body_s if self._in_body else self._limits.head_s
        self._timer = self.loop.call_later(wait_s, self._check_rest)

    def _check_rest(self) -> None:
        self._timer = None
        enough = self._limits.body_s * self._limits.body_bytes_per_s
        if self._in_body and (self._body_bytes >= enough or self.flow.read_paused):
            self._expect_rest()  # fast enough, or waiting for us
            return
        COUNTS.timed_out += 1
        if not self.cycle or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(_TOO_SLOW)
            self.transport.close()
        else:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
