"""What all listeners share: how connections are accepted, and the HTTP server of daemon, gateway and MCP host."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.serving.accepting import (
        COUNTS as COUNTS,
        Acceptor as Acceptor,
        Limits as Limits,
        Seat as Seat,
        as_streams as as_streams,
        capacity as capacity,
    )
    from codesdk.serving.addresses import bind_socket as bind_socket, socket_path as socket_path
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

__getattr__, __dir__ = open_door(__name__, __file__)
