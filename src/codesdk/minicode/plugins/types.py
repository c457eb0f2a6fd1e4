"""The words of plugins: what a plugin is, what it is told, what it contributes, and how it fails.

A module names its factory `plugin`: `plugin(config) -> Plugin`. Pure data; `load` brings plugins in, `compose` puts
their contributions together, `hooks` runs their hooks.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from logging import Logger
from typing import Any, Literal

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import Record
from codesdk.minicode.tools.define import Tool
from codesdk.minicode.types import TurnEvent

API_VERSION = 1
Stage = Literal["normalize", "import", "factory", "validate", "compose", "run"]


class PluginError(InvalidRequest):
    """A plugin cannot be used: which one, where in its life, and why."""

    def __init__(self, stage: Stage, reference: str, problem: str, plugin_id: str | None = None) -> None:
        named = f"{reference} ({plugin_id})" if plugin_id else reference
        details = {"reference": reference, "stage": stage} | ({"id": plugin_id} if plugin_id else {})
        super().__init__(f"The plugin {named} failed at the stage {stage}: {problem}.", details=details)
        self.stage: Stage = stage
        self.reference = reference
        self.plugin_id = plugin_id
        self.problem = problem


class PluginContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin is told when it is set up."""

    reference: str
    sdk_version: str
    global_config_dir: str
    cwd: str
    logger: Logger


class HookContext(msgspec.Struct, frozen=True, kw_only=True):
    """Whose turn an event is of."""

    session_id: str
    cwd: str


class ActionContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where an action is run, and what was typed after its name."""

    arguments: str
    cwd: str
    session_id: str | None = None


Hook = Callable[[TurnEvent, HookContext], Awaitable[None]]
"""Is told of every event of a turn, in order, beside the turn. An async function."""
ActionFunction = Callable[[ActionContext], Awaitable[str | None]]
"""Does something, and returns what to show."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person can do by its id or an alias, such as a slash command."""

    id: str
    title: str
    run: ActionFunction
    aliases: Sequence[str] = ()


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin adds."""

    tools: Sequence[Tool] = ()
    instructions: Sequence[str] = ()
    hooks: Sequence[Hook] = ()
    actions: Sequence[Action] = ()


Setup = Callable[[PluginContext], Contribution | Awaitable[Contribution]]


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """What a factory returns."""

    id: str
    setup: Setup
    api_version: int = API_VERSION
    version: str | None = None


PluginFactory = Callable[[Mapping[str, Any]], Plugin]


class LoadedPlugin(Record, frozen=True, kw_only=True):
    """A plugin that is in use."""

    reference: str
    id: str
    version: str | None = None
