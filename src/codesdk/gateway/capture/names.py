"""CodeSDK's tool names and what a runtime calls them in a request.

Providers allow only letters, digits, `_` and `-`, so `workspace.read` is `workspace_read` on
the wire; runtimes put the name of the MCP server before it, each in its own way.
"""

from collections.abc import Iterable


def wire_name(tool: str, offered: Iterable[str]) -> str | None:
    """Return what a request calls a tool of CodeSDK, or None if it does not offer it."""
    plain = tool.replace(".", "_")
    names = list(offered)
    for name in names:
        if name in (tool, plain):
            return name
    for name in names:
        if name.endswith((f"_{plain}", f".{plain}", f"-{plain}", f".{tool}", f"_{tool}")):
            return name
    return None


def own_names(wanted: Iterable[str], offered: Iterable[str]) -> set[str]:
    """Return those of the wanted CodeSDK names that a request offers, in some spelling."""
    names = list(offered)
    return {tool for tool in wanted if wire_name(tool, names) is not None}
