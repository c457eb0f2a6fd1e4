"""CodeSDK as an agent for editors: the Agent Client Protocol (ACP) in front of any `SessionService`.

`peer` is JSON-RPC over a `channel` (lines of stdio, frames of a WebSocket), `agent` answers an editor's requests,
`attachment` shows it one session: events become updates (`updates`), approvals become its questions (`asking`).
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.acp_agent.channel import MAX_FRAME_BYTES as MAX_FRAME_BYTES
    from codesdk.acp_agent.place import (
        Client as Client,
        EnginePlace as EnginePlace,
        HttpPlace as HttpPlace,
        Offer as Offer,
        Place as Place,
        SharedPlace as SharedPlace,
    )
    from codesdk.acp_agent.serving import (
        serve_stdio as serve_stdio,
        serve_websocket as serve_websocket,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
