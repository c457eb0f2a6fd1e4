"""An agent on stdin and stdout, or on a WebSocket of the daemon."""

import secrets
from collections.abc import Mapping

from codesdk.acp_agent.agent import EditorAgent
from codesdk.acp_agent.channel import SocketChannel, open_stdio
from codesdk.acp_agent.place import Offer, Place
from codesdk.runtimes import resolve
from codesdk.serving import Receive, Send


async def serve_stdio(place: Place, offer: Offer) -> None:
    """Serve the editor that started this process, until it closes our stdin."""
    await EditorAgent(await open_stdio(), place, offer).run()


async def serve_websocket(place: Place, query: Mapping[str, list[str]], receive: Receive, send: Send) -> None:
    """Accept a WebSocket and serve the editor behind it, until one side closes it.

    `?runtime=NAME&model=NAME` choose as the options of `codesdk acp` do, and can be given several times. Raise `InvalidRequest`, before
    it is accepted, for a runtime that there is not.
    """
    names = tuple(resolve(name) for name in query.get("runtime", []))
    # Named by the draft of ACP's remote transport, for logs on both sides.
    connection = (b"acp-connection-id", secrets.token_hex(16).encode())
    await send({"type": "websocket.accept", "headers": [connection]})
    offer = Offer(runtimes=names, models=tuple(query.get("model", [])))
    await EditorAgent(SocketChannel(receive, send), place, offer).run()
