"""All built-in tools in one registry: those on files, and `user.ask`. They are loaded when the first is asked for."""

from collections.abc import Sequence
from functools import cache

from codesdk.tools.registry import Tool, ToolRegistry


def builtin_registry() -> ToolRegistry:
    """Return a new registry with the built-in tools. Applications may add their own."""
    return ToolRegistry(_tools)


@cache
def _tools() -> Sequence[Tool]:
    # Here, because a daemon starts long before its first session needs a tool.
    from codesdk.tools.ask import ask_tool
    from codesdk.tools.patch.tool import patch_tools
    from codesdk.tools.workspace.file_tools import workspace_tools
    from codesdk.tools.workspace.search_tools import finding_tools

    return [*workspace_tools(), *finding_tools(), *patch_tools(), ask_tool()]
