"""The switches of the codex program that are off, whoever drives it: its own server, or a bridge to another protocol."""

OFF = (
    "shell_tool",
    "unified_exec",
    "view_image",
    "multi_agent",
    "multi_agent_v2",
    "goals",
    "image_generation",
    "apps",
    "plugins",
    "remote_plugin",
    "tool_suggest",
    "skill_search",
    "sleep_tool",
    "hooks",
    "memories",
    "shell_snapshot",
    "code_mode",
    "code_mode_only",
    "code_mode_host",
    "default_mode_request_user_input",
    "unbounded_connection_retries",
)
"""The last one is not a tool: a lost gateway must be an error."""
