"""What applications under the server share: the types of ASGI, a request's body, a client that leaves."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Respond = Callable[[Message, Receive, Send], Awaitable[None]]
"""An application, or a response that writes itself."""


class Gone(Exception):
    """The client hung up before its request was complete."""


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """Return a request's body, or None if it is longer than `limit`. Raise `Gone` if the client leaves."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:  # a client may send without a content-length, so count what arrives
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def until_gone(receive: Receive) -> None:
    """Wait until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
