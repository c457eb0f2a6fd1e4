"""Owned tools: the registry, the built-in tools, ours over MCP (`mcp`), attached ones (`mcp_client`)."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.tools.answer import (
        AnswerTools as AnswerTools,
        OutputSchema as OutputSchema,
        is_strict as is_strict,
        listed_tools as listed_tools,
    )
    from codesdk.tools.builtin import builtin_registry as builtin_registry
    from codesdk.tools.command import run_command as run_command
    from codesdk.tools.exec import exec_tool as exec_tool
    from codesdk.tools.fetch import fetch_tool as fetch_tool
    from codesdk.tools.json_input import schema_check as schema_check
    from codesdk.tools.mcp.directory import DirectoryTools as DirectoryTools
    from codesdk.tools.mcp.host import PROGRESS_S as PROGRESS_S, McpHost as McpHost
    from codesdk.tools.mcp.memory import in_memory as in_memory
    from codesdk.tools.mcp.stdio import bridge_stdio as bridge_stdio, serve_stdio as serve_stdio
    from codesdk.tools.mcp_client.attached import AttachedTools as AttachedTools
    from codesdk.tools.mcp_client.servers import (
        HttpServer as HttpServer,
        McpServer as McpServer,
        StdioServer as StdioServer,
        check_servers as check_servers,
        secrets_of as secrets_of,
    )
    from codesdk.tools.names import (
        EXEC as EXEC,
        NAMESPACE as NAMESPACE,
        PREFIX as PREFIX,
        SERVER as SERVER,
        by_wire_name as by_wire_name,
        offered_as as offered_as,
        wire_name as wire_name,
    )
    from codesdk.tools.options import (
        ExecOptions as ExecOptions,
        FetchOptions as FetchOptions,
        offered_tools as offered_tools,
    )
    from codesdk.tools.registry import (
        Tool as Tool,
        ToolContext as ToolContext,
        ToolError as ToolError,
        ToolRegistry as ToolRegistry,
    )
    from codesdk.tools.schema import explain as explain, input_schema as input_schema
    from codesdk.tools.workspace.file_tools import (
        edit_file as edit_file,
        read_file as read_file,
        workspace_tools as workspace_tools,
        write_file as write_file,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
