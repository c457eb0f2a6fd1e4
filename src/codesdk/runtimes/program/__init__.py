"""What runtimes that drive a program have in common: how it is found and started, its folders, pipes and frames."""

from codesdk.contract.capabilities import Capabilities

PROGRAM_CAPABILITIES = Capabilities(
    input_capture="exact",
    auth_model="api_key",
    tool_execution_model="external_mcp",
    state_model="local_disk",
    resume_model="native",
    mcp_support="client_only",
    mcp_transports=["http"],
    supported_isolation_modes=["subprocess"],
    recommended_isolation_mode="subprocess",
)
"""A program whose model is the gateway and whose tools come over MCP. An adapter states what differs."""
