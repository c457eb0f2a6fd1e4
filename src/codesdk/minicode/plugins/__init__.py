"""Plugins: for their authors, the words to write one with; for minicode, how they are loaded and run."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.minicode.plugins.compose import Composition as Composition, PluginHook as PluginHook
    from codesdk.minicode.plugins.hooks import TurnHooks as TurnHooks
    from codesdk.minicode.plugins.load import load_plugins as load_plugins
    from codesdk.minicode.plugins.types import (
        Action as Action,
        ActionContext as ActionContext,
        Contribution as Contribution,
        HookContext as HookContext,
        LoadedPlugin as LoadedPlugin,
        Plugin as Plugin,
        PluginContext as PluginContext,
        PluginError as PluginError,
    )
    from codesdk.minicode.tools.define import (
        Tool as Tool,
        ToolContext as ToolContext,
        define_tool as define_tool,
    )
    from codesdk.minicode.types import ToolOutput as ToolOutput

__getattr__, __dir__ = open_door(__name__, __file__)
