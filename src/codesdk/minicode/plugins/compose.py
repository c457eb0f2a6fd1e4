"""Contributions of plugins, one after the other → everything together. Two of a name are an error: nothing is overridden."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from codesdk import foreign
from codesdk.contract.errors import NotFound
from codesdk.minicode.plugins.types import (
    Action,
    ActionContext,
    Contribution,
    Hook,
    LoadedPlugin,
    PluginError,
)
from codesdk.minicode.tools.define import Tool


class PluginHook(msgspec.Struct, frozen=True):
    """A hook, and whose it is."""

    plugin: LoadedPlugin
    function: Hook


class _OwnedAction(NamedTuple):
    plugin: LoadedPlugin
    action: Action


class Composition:
    """Built-in tools first, then what plugins add, in their order."""

    def __init__(self, tools: Sequence[Tool] = (), taken_actions: Iterable[str] = ()) -> None:
        self.plugins: list[LoadedPlugin] = []
        self.tools: list[Tool] = list(tools)
        self.instructions: list[str] = []
        self.hooks: list[PluginHook] = []
        self.actions: list[Action] = []
        # By name, whose it is; None for what minicode has by itself.
        self._tool_of: dict[str, LoadedPlugin | None] = {tool.name: None for tool in tools}
        self._action_of: dict[str, _OwnedAction | None] = dict.fromkeys(taken_actions)

    def check_id(self, reference: str, plugin_id: str) -> None:
        """Raise `PluginError` if another plugin has this id."""
        for plugin in self.plugins:
            if plugin.id == plugin_id:
                words = f"the plugin {plugin.reference} has the same id"
                raise PluginError("compose", reference, words, plugin_id)

    def add(self, plugin: LoadedPlugin, added: Contribution) -> None:
        """Add all that a plugin contributes, or raise `PluginError` and add nothing."""
        self.check_id(plugin.reference, plugin.id)
        tool_of, action_of = dict(self._tool_of), dict(self._action_of)
        for tool in added.tools:
            if tool.name in tool_of:
                raise _taken(plugin, f"the tool {tool.name}", tool_of[tool.name])
            tool_of[tool.name] = plugin
        for action in added.actions:
            for name in (action.id, *action.aliases):
                if name in action_of:
                    owner = action_of[name]
                    raise _taken(
                        plugin, f"the action or alias {name}", None if owner is None else owner.plugin
                    )
                action_of[name] = _OwnedAction(plugin, action)
        self._tool_of, self._action_of = tool_of, action_of
        self.plugins.append(plugin)
        self.tools += added.tools
        self.instructions += added.instructions
        self.hooks += [PluginHook(plugin, hook) for hook in added.hooks]
        self.actions += added.actions

    async def run_action(self, name: str, context: ActionContext) -> str | None:
        """Run an action by its id or an alias. Raise `NotFound`, or `PluginError` for whatever it raises."""
        owned = self._action_of.get(name)
        if owned is None:
            raise NotFound(f"There is no action {name[:100]!r} of a plugin.")
        plugin, action = owned
        try:
            found: object = await foreign.call(action.run, context)
        except Exception as error:
            raise PluginError("run", plugin.reference, foreign.name_of(error), plugin.id) from error
        return None if found is None else str(found)


def _taken(plugin: LoadedPlugin, what: str, owner: LoadedPlugin | None) -> PluginError:
    whose = "minicode's own" if owner is None else f"the plugin {owner.id}'s"
    return PluginError("compose", plugin.reference, f"{what} is {whose} already", plugin.id)
