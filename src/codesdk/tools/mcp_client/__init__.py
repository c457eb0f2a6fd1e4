"""The tools of other MCP servers, attached to a session."""
