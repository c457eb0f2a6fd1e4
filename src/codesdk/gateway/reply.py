"""What comes in and what goes out: a request as it came, an answer at once or as it comes."""

from collections.abc import AsyncIterator

import msgspec

from codesdk.gateway.wires.exchange import Codec, Fault

SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
JSON = {"content-type": "application/json"}


class Reset(Exception):
    """The connection is to break off here, in the middle of an answer."""


class RawRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came, its path without prefix and token. Shows nothing that may be secret."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes
    spelled: str = ""
    """The path as it was sent, where that is not the plain one: with escapes of its own."""

    def __repr__(self) -> str:
        return f"RawRequest({self.method}, {len(self.body)} bytes)"


class Reply(msgspec.Struct, kw_only=True):
    """An answer on its way. A `body` that is iterated is sent chunk by chunk; it may raise `Reset`.

    One that holds something (a connection) must let it go in `aclose`, also if it was never iterated: an async
    generator does not, so it is a class.
    """

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes]

    def __repr__(self) -> str:
        return f"Reply({self.status})"


def refuse(codec: Codec, fault: Fault) -> Reply:
    """Return a fault as the provider would say it."""
    headers, body = codec.error(fault)
    if fault.retry_after_s is not None and "retry-after" not in headers:
        headers = headers | {"retry-after": f"{fault.retry_after_s:.3f}".rstrip("0").rstrip(".")}
    return Reply(status=fault.status, headers=JSON | headers, body=body)
