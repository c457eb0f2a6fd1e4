"""The HTTP server that the daemon, the gateway and the MCP host share."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.serving.accepting import Acceptor as Acceptor
    from codesdk.serving.asgi import (
        Gone as Gone,
        Message as Message,
        Receive as Receive,
        Respond as Respond,
        Send as Send,
        read_body as read_body,
        until_gone as until_gone,
    )
    from codesdk.serving.server import Serving as Serving, listen as listen

__all__, __getattr__, __dir__ = open_door(__name__, __file__)
