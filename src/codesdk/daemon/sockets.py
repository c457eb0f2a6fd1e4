"""WebSockets of the daemon: an upgrade that was let in → whoever serves its path, watched for as long as it lasts.

The daemon does not know what is spoken there. It checks who comes, as for any request; counts each message as one;
and hangs up when the token is revoked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from codesdk.contract.actions import Action, Caller
from codesdk.sdk import CodeSDK
from codesdk.serving import Message, Receive, Send

NOT_WELCOME = 1008
"""The code of RFC 6455 for a connection that breaks a rule of ours."""


class Entrance(NamedTuple):
    """What whoever serves a WebSocket is given."""

    sdk: CodeSDK
    caller: Caller
    before: Callable[[Action[Any]], Awaitable[None]]
    """To be called before an action: it may have to wait, or be refused, as it would be over HTTP."""
    query: Mapping[str, list[str]]


Upgrade = Callable[[Entrance, Receive, Send], Awaitable[None]]
"""Serves a WebSocket, from accepting it to its end. Must raise errors of the contract only before it accepts."""


async def refuse(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """Answer an upgrade with an HTTP response."""
    await send({"type": "websocket.http.response.start", "status": status, "headers": [*headers]})
    await send({"type": "websocket.http.response.body", "body": body})


async def watch(
    serve: Callable[[Receive, Send], Awaitable[None]],
    receive: Receive,
    send: Send,
    *,
    welcome: Callable[[], bool],
    pace: Callable[[], float],
    heartbeat_s: float,
) -> None:
    """Serve until either side hangs up, or the caller is no longer `welcome`. `pace` says how long to wait now."""

    async def receiving() -> Message:
        message = await receive()
        if message["type"] != "websocket.receive":
            return message
        if wait_s := pace():
            await asyncio.sleep(wait_s)
        if welcome():
            return message
        await send({"type": "websocket.close", "code": NOT_WELCOME})
        return {"type": "websocket.disconnect", "code": NOT_WELCOME}

    async def check() -> None:
        while welcome():  # noqa: ASYNC110 - tokens are in a file, and nobody says when it changes
            await asyncio.sleep(heartbeat_s)
        with suppress(OSError, RuntimeError):  # it may be gone already
            await send({"type": "websocket.close", "code": NOT_WELCOME})

    checking = asyncio.create_task(check())
    try:
        await serve(receiving, send)
    finally:
        checking.cancel()
        with suppress(asyncio.CancelledError):
            await checking
