"""The runtimes `acp:NAME`, agents of the Agent Client Protocol known by one row of data each, and `acp`, for any other.

`ENTRIES` is what others know of them.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from codesdk.contract.access import PROVIDER_OF
from codesdk.contract.capabilities import McpTransport
from codesdk.contract.entry import McpClient, RuntimeEntry
from codesdk.contract.options import RuntimeOptions
from codesdk.runtimes.acp.known import KNOWN
from codesdk.runtimes.acp.row import AgentRow, Known

PREFIX = "acp:"
DOCS = "runtimes/acp.md"


class AcpOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to an agent."""

    system_prompt: Annotated[str, Meta(description="Takes the place of CodeSDK's short instruction.")] = ""


class CommandOptions(AcpOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` must say of an agent that is in no row."""

    command: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            description="The program, by its absolute path, and what comes before the row's arguments.",
        ),
    ]
    row: Annotated[AgentRow, Meta(description="Its row, as this page describes them.")]

    @property
    def mcp_transports(self) -> tuple[McpTransport, ...]:
        return self.row.transports


ROWS: Mapping[str, Known] = {known.row.name: known for known in KNOWN}
"""The agents that ship, by name."""


def entry_of_row(known: Known) -> RuntimeEntry:
    """Return what others know of an agent."""
    row = known.row
    return RuntimeEntry(
        name=f"{PREFIX}{row.name}" if known.program else NAME,
        adapter="codesdk.runtimes.acp.adapter:make_runtime",
        builds_on=known.builds_on,
        arguments={"agent": row.name},
        docs=DOCS,
        program=known.program,
        wires=(row.wire,),
        provider=_PROVIDERS[PROVIDER_OF[row.wire]],
        options=AcpOptions if known.program else CommandOptions,
        mcp=McpClient() if row.call_id_key is None else McpClient(call_id_key=row.call_id_key),
        naming=row.naming,
        side=row.side,
        appends=row.appends,
        tells_breaks=row.tells_breaks,
        instructions=known.instructions,
        state_folder="home",
        own_tools=known.own_tools,
        other_tools=known.other_tools,
    )


_PROVIDERS = {"anthropic": "anthropic", "openai": "openai", "gemini": "gcp.gemini"}
NAME = "acp"
ENTRY = RuntimeEntry(
    name=NAME,
    adapter="codesdk.runtimes.acp.command:CommandRuntime",
    docs=DOCS,
    options=CommandOptions,
    state_folder="home",
)
"""The runtime whose sessions bring the command that starts their agent."""
ENTRIES = (ENTRY, *(entry_of_row(known) for known in KNOWN))
