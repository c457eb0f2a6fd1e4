"""What a session is equipped with and its log does not hold: a script or a recording, MCP servers.

Implements `Equipper` for an engine of this process: checked first, then given to the gateway and to the session.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from codesdk.contract.actions import Equipment
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import Attached, ToolRunner
from codesdk.contract.validation import read_as
from codesdk.engine import Archive
from codesdk.gateway import GatewayService

if TYPE_CHECKING:
    from codesdk.gateway import Source
    from codesdk.tools import McpServer


class SessionEquipper:
    """Makes equipment ready for the sessions of one engine."""

    def __init__(self, gateway: GatewayService, tools: ToolRunner, archive: Archive) -> None:
        self._gateway = gateway
        self._tools = tools
        self._archive = archive

    async def prepare(self, equipment: Equipment, *, principal: str) -> "PreparedEquipment":
        """Check equipment before anything is written. Raise `InvalidRequest` if it cannot be used."""
        # Imports are below, where they are needed: few sessions play something or have servers.
        settings: dict[str, Any] = {}
        plays: Source | None = None
        if equipment.script is not None and equipment.recording is not None:
            raise InvalidRequest("A session plays one thing: give it a script or a recording, not both.")
        if equipment.recording is not None:
            from codesdk.gateway import session_cassette

            archive = self._archive.as_principal(principal)
            await archive.session(equipment.recording)
            plays = await session_cassette(archive, equipment.recording)
            settings["gateway"] = "replay"
        elif equipment.script is not None:
            from codesdk.script import parse_object

            # In a thread: a client gives it, with up to a million values.
            plays = await asyncio.to_thread(parse_object, equipment.script, "script")
            settings["gateway"] = "scripted"
        servers = _servers(equipment)
        if servers:
            settings["mcp_servers"] = sorted(servers)
        return PreparedEquipment(self._gateway, self._tools, plays, servers, settings)


class PreparedEquipment(msgspec.Struct, frozen=True, eq=False):
    """Equipment that was checked and can be given to a session."""

    gateway: GatewayService
    tools: ToolRunner
    plays: "Source | None"
    servers: "Mapping[str, McpServer]"
    settings: Mapping[str, Any]

    @property
    def secrets(self) -> Sequence[str]:
        """What the servers are reached with."""
        if not self.servers:
            return ()
        from codesdk.tools import secrets_of

        return secrets_of(self.servers)

    async def attach(self, session_id: str, *, turn: int | None = None) -> Attached | None:
        """Give it to a session. Return the tools of its servers with all others, and what ends the servers.

        With a `turn`, the session had it before, and its script goes on there.
        """
        attached = await self._start_servers()  # first: they may fail
        # In the same process the gateway itself knows how far it has played.
        if self.plays is not None and (turn is None or not self.gateway.plays(session_id)):
            self.gateway.choose(session_id, self._begun(self.plays, turn or 0))
        return attached

    async def _start_servers(self) -> Attached | None:
        if not self.servers:
            return None
        from codesdk.tools import AttachedTools

        tools = AttachedTools(self.servers, self.tools)
        await tools.start()
        return Attached(tools, tools.close, tools.left_out)

    def _begun(self, plays: "Source", turn: int) -> "Source":
        """Return a script that was played up to a turn; a recording finds its place by the requests."""
        if not turn or isinstance(plays, Sequence):
            return plays
        from codesdk.gateway import ScriptedModel
        from codesdk.script import Script

        return ScriptedModel(plays, turn) if isinstance(plays, Script) else plays


def _servers(equipment: Equipment) -> "Mapping[str, McpServer]":
    if not equipment.mcp_servers:
        return {}
    from codesdk.tools import McpServer, check_servers

    servers = read_as(dict[str, McpServer], equipment.mcp_servers, "mcp_servers")
    check_servers(servers)
    return servers
