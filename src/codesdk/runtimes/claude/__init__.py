"""The runtime `claude-agent-sdk`."""
