"""The tools of minicode: how one is made, the four built-in ones, and the executor that runs them directly."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.minicode.tools.builtin import (
        builtin_tools as builtin_tools,
        find_workspace as find_workspace,
        open_tool_sandbox as open_tool_sandbox,
    )
    from codesdk.minicode.tools.define import (
        Tool as Tool,
        ToolContext as ToolContext,
        define_tool as define_tool,
    )
    from codesdk.minicode.tools.executor import DirectExecutor as DirectExecutor

__getattr__, __dir__ = open_door(__name__, __file__)
