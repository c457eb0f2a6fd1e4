"""The runtime `codex-sdk`."""
