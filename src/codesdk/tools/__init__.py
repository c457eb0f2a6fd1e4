"""Owned tools: the registry, and the built-in tools on the workspace."""

from codesdk.tools.registry import Tool, ToolContext, ToolError, ToolRegistry
from codesdk.tools.workspace import builtin_registry, workspace_tools

__all__ = ["Tool", "ToolContext", "ToolError", "ToolRegistry", "builtin_registry", "workspace_tools"]
