"""What the gateway's server and backends exchange: a raw request, and an answer, complete or streamed."""

from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec

from codesdk.gateway.wires.exchange import Codec, Fault

SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
JSON = {"content-type": "application/json"}
BodyEnd = Literal["complete", "reset", "abandoned"]


class Reset(Exception):
    """The connection breaks here, in the middle of an answer."""


class RawRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its path without prefix and token and with nothing to decode, its query reduced to what is known.

    Its repr shows nothing that may be secret.
    """

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes
    """What is sent."""
    own: bytes | None = None
    """What the agent asked, if that is not what is sent."""
    step: int = 0
    """How often the model was asked before for the same answer to the agent."""
    aside: bool = False
    """Whether its agent's marks say that it is not part of the conversation."""

    def __repr__(self) -> str:
        return f"RawRequest({self.method}, {len(self.body)} bytes)"


class Reply(msgspec.Struct, kw_only=True):
    """An answer. A `body` that is an iterator is sent chunk by chunk; it may raise `Reset`.

    A body that holds a resource (a connection) must release it in `aclose`, even if it was never iterated.
    An async generator does not do that, so such bodies are classes.
    """

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes]
    request_id: str | None = None
    """The request's id in the log, if it has one."""

    @property
    def is_good(self) -> bool:
        """Whether it is an answer, and no error."""
        return self.status < 400

    def __repr__(self) -> str:
        return f"Reply({self.status})"


class Watched:
    """A body that shows its chunks as they pass, and then how it ended, once.

    It is abandoned if it is closed before its end. The inner body is released first.
    """

    def __init__(
        self, inner: AsyncIterator[bytes], take: Callable[[bytes], None], end: Callable[[BodyEnd], None]
    ) -> None:
        self._inner = inner
        self._take = take
        self._end: Callable[[BodyEnd], None] | None = end

    def __aiter__(self) -> "Watched":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._inner)
        except StopAsyncIteration:
            self._report("complete")
            raise
        except Reset:
            self._report("reset")
            raise
        self._take(chunk)
        return chunk

    async def aclose(self) -> None:
        try:
            await close_body(self._inner)
        finally:
            self._report("abandoned")

    def _report(self, ending: BodyEnd) -> None:
        end, self._end = self._end, None  # `aclose` follows every ending; only the first one counts
        if end is not None:
            end(ending)


async def close_body(body: bytes | AsyncIterator[bytes]) -> None:
    """Release what a body holds, if it holds anything."""
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()


def refuse(codec: Codec, fault: Fault) -> Reply:
    """Return a fault as the provider's own error."""
    headers, body = codec.error(fault)
    # Some codecs say it in the provider's own way; all clients understand the plain header.
    if fault.retry_after is not None:
        headers = {"retry-after": fault.retry_after} | headers
    return Reply(status=fault.status, headers=JSON | headers, body=body)
