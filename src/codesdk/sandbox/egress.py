"""The network of a sandbox: an HTTP proxy in the parent that lets connections to allowed hosts through.

Names are resolved only here, private addresses are refused whatever their name, and the connection goes to
the address that was checked. Ports 80 and 443 only. What a tunnel carries cannot be seen, so a host that
fronts for others (domain fronting) reaches those too: allow hosts, not clouds.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.descriptors import descriptor_limit, descriptor_marks
from codesdk.sandbox.bubblewrap.netns import PROXY_PORT
from codesdk.sending import send, write

PORTS = frozenset({80, 443})
_MAX_HEAD = 16 * 1024
_HEAD_S = 30.0
_CONNECT_S = 20.0
_CHUNK = 1 << 16
_PORT_DIGITS = 5
_MAX_NAMED = 100
_AT_ONCE = 16  # accepted before others get their turn on the loop
_RETRY_S = 1.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Internet(NamedTuple):
    """Resolves names and opens connections."""

    resolve: Callable[[str, int], Awaitable[Sequence[str]]]
    connect: Callable[[str, int], Awaitable[Streams]]


class EgressLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one command may transfer, in both directions together."""

    connections: int = 64
    bytes: int = 2 * 1024**3


class Refused(Exception):
    """A request that is not let through: the response's status, and why."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Target(NamedTuple):
    """What a request asks for. `rest` must be sent first."""

    host: str
    port: int
    tunnel: bool
    rest: bytes


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


INTERNET = Internet(_resolve, asyncio.open_connection)


def proxy_environment() -> dict[str, str]:
    """Return the variables that point programs to the proxy."""
    url = f"http://127.0.0.1:{PROXY_PORT}"
    values = {"http_proxy": url, "https_proxy": url, "no_proxy": "localhost,127.0.0.1,::1"}
    return values | {name.upper(): value for name, value in values.items()}


def check_hosts(hosts: Sequence[str]) -> None:
    """Raise `InvalidRequest` unless these are host names; `*.` may stand before two labels or more."""
    if isinstance(hosts, str):  # a sequence of its letters, which are host names each
        raise InvalidRequest(f'Hosts are given as a list: ["{hosts[:200]}"], not "{hosts[:200]}".')
    for host in hosts:
        labels = _plain(host.removeprefix("*.")).split(".")
        fine = all(
            label and label.isascii() and label.replace("-", "").replace("_", "").isalnum()
            for label in labels
        )
        if not fine or (host.startswith("*.") and len(labels) < 2):
            raise InvalidRequest(f'"{host[:200]}" cannot be allowed: give a host name, or *. and a domain.')


class EgressProxy:
    """Serves one command. Give it a socket that listens in the sandbox's network."""

    def __init__(
        self, hosts: Sequence[str], internet: Internet = INTERNET, limits: EgressLimits | None = None
    ) -> None:
        self._hosts = [_plain(host) for host in hosts]
        self._internet = internet
        self._limits = limits or EgressLimits()
        self._open: set[asyncio.Task[None]] = set()
        self._untaken: set[socket.socket] = set()
        """Accepted, and their task has not begun: one that is cancelled before closes nothing."""
        self._listener: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._passed = 0
        self.refused: dict[str, None] = {}
        """The hosts that were asked for and not reached, in order."""

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def serve(self, listener: socket.socket) -> None:
        """Start to accept connections."""
        listener.setblocking(False)
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    async def close(self) -> None:
        """End all connections and the server."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener is not None and self._listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        for connection in self._untaken:
            connection.close()

    def _accept(self) -> None:
        """Take the connections that wait. One without a place is closed before anything of it is read."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or no memory left: who waits in the kernel's queue costs us none
                loop.remove_reader(self._listener)
                self._pause = loop.call_later(_RETRY_S, loop.add_reader, self._listener, self._accept)
                return
            connection.setblocking(False)
            # The kernel gives the lowest free number, so a high one means that all below it are taken.
            crowded_from, _reserved_from = descriptor_marks(descriptor_limit())
            if len(self._open) >= self._limits.connections or connection.fileno() >= crowded_from:
                _turn_away(connection)
                continue
            # Counted from here on, not from when its task begins.
            self._untaken.add(connection)
            task = loop.create_task(self._serve(connection))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _serve(self, connection: socket.socket) -> None:
        self._untaken.discard(connection)
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_HEAD)
        except (OSError, asyncio.CancelledError):  # it is gone already, or the command ended
            connection.close()
            return
        await self._converse(reader, writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the other side closed, or the command ended
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                target = await _read_target(reader)
            there = await self._reach(target)
        except Refused as refusal:
            await _refuse(writer, refusal)
            return
        try:
            if target.tunnel:
                write(writer, b"HTTP/1.1 200 Connection established\r\n\r\n")
            write(there[1], target.rest)
            await asyncio.gather(self._pipe(reader, there[1]), self._pipe(there[0], writer))
        finally:
            there[1].close()

    async def _reach(self, target: Target) -> Streams:
        """Connect to a host if it may be reached, at the address that was checked."""
        try:
            return await self._connect(target)
        except Refused:
            if len(self.refused) < _MAX_NAMED:
                self.refused[target.host[:253]] = None
            raise

    async def _connect(self, target: Target) -> Streams:
        if not self._allows(target.host):
            raise Refused("403 Forbidden", "the host is not on the allow list")
        if target.port not in PORTS:
            raise Refused("403 Forbidden", "only ports 80 and 443 can be reached")
        try:
            async with asyncio.timeout(_CONNECT_S):
                addresses = await self._internet.resolve(target.host, target.port)
                # All of them must be public: the name may be made to lead to any of them.
                if not addresses or not all(is_public(address) for address in addresses):
                    raise Refused("403 Forbidden", "the name leads to a private address")
                return await self._internet.connect(addresses[0], target.port)
        except (OSError, TimeoutError, ValueError):  # ValueError: a name that no resolver is asked for
            raise Refused("502 Bad Gateway", "the host cannot be reached") from None

    def _allows(self, host: str) -> bool:
        return any(
            host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed
            for allowed in self._hosts
        )

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            self._passed += len(data)
            if self._passed > self._limits.bytes:
                raise ConnectionAbortedError("the command has moved as much as it may")
            await send(sink, data)
        with contextlib.suppress(OSError, RuntimeError):
            if sink.can_write_eof():
                sink.write_eof()


async def _read_target(reader: asyncio.StreamReader) -> Target:
    """Read the head of a request: CONNECT host:port, or a method with a whole URL."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        method, where, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    except asyncio.LimitOverrunError:
        raise ConnectionAbortedError("the head of the request is too long") from None
    except (asyncio.IncompleteReadError, ValueError):
        raise Refused("400 Bad Request", "this is a proxy for HTTP") from None
    if method == "CONNECT":
        host, port = _split(where, 443)
        return Target(host, port, tunnel=True, rest=b"")
    if not where.startswith("http://"):
        raise Refused("400 Bad Request", "this is a proxy: give the whole URL")
    place, slash, path = where.removeprefix("http://").partition("/")
    host, port = _split(place, 80)
    fields = [line for line in head.split(b"\r\n")[1:-2] if not _is_about_the_hop(line)]
    lines = [f"{method} {slash or '/'}{path} {version}".encode(), *fields, b"Connection: close", b"", b""]
    return Target(host, port, tunnel=False, rest=b"\r\n".join(lines))


def _is_about_the_hop(line: bytes) -> bool:
    name = line.partition(b":")[0].strip().lower()
    return name in (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive")


def _split(place: str, default: int) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(default)
    if not host or not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS) or "@" in host:
        raise Refused("400 Bad Request", "that is no host and port")
    return _plain(host.strip("[]")), int(port)


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def is_public(text: str) -> bool:
    """Return whether an address is a public one, also if it is wrapped in another one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None and not is_public(str(inner)):
            return False
        if address.ipv4_mapped is not None:
            return True
        if address not in _GIVEN_OUT and address not in _NAT64:
            return False
    return address.is_global and not address.is_multicast


_GIVEN_OUT = ipaddress.IPv6Network("2000::/3")
"""The IPv6 range that is assigned to the public. `is_global` accepts some of the rest as well."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def _refuse(writer: asyncio.StreamWriter, refusal: Refused) -> None:
    await send(writer, _refusal(refusal))


def _turn_away(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.send(_refusal(Refused("503 Service Unavailable", "too many connections at once")))
        connection.recv(_CHUNK)  # what is left unread would reset the connection and lose the refusal


def _refusal(refusal: Refused) -> bytes:
    body = f"Not let through: {refusal.reason}.\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        f"X-Proxy-Error: {refusal.reason}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
