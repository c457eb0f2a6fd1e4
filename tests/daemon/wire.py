"""Bytes to a daemon and back, past any HTTP library: for requests that no library would send."""

import socket
from typing import NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


def exchange(url: str, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes, and return everything that comes until the daemon hangs up."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as link:
        received = b""
        try:
            link.sendall(data)
            if half_close:
                link.shutdown(socket.SHUT_WR)
            while chunk := link.recv(65536):
                received += chunk
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hung up in the middle of what we had to say
        return received


def request(
    url: str,
    line: str,
    *headers: str,
    body: bytes = b"",
    host: str | None = "localhost",
) -> Reply:
    """Send one request as written and return the answer."""
    lines = [line, *([f"Host: {host}"] if host is not None else []), "Connection: close", *headers]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return replies(exchange(url, head + body))[0]


def replies(data: bytes) -> list[Reply]:
    """Return the answers in what came back. Each must say how long it is."""
    found: list[Reply] = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers["content-length"])
        found.append(Reply(int(first.split(" ")[1]), headers, rest[:size]))
        data = rest[size:]
    return found
