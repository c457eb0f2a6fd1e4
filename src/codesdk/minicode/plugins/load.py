"""References and their configurations → plugins in use, put together in the order of the file.

Each goes through its stages: normalize, import, factory, validate, compose; its set-up runs in between. The first one that
fails ends it, unless all problems are wanted.
"""

import copy
import inspect
import logging
import os
import re
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from codesdk import foreign
from codesdk.minicode.config.resolved import LoadedConfig
from codesdk.minicode.deadlines import OutOfTime, within
from codesdk.minicode.plugins.compose import Composition
from codesdk.minicode.plugins.references import find_factory, normalize
from codesdk.minicode.plugins.types import (
    API_VERSION,
    Action,
    Contribution,
    LoadedPlugin,
    Plugin,
    PluginContext,
    PluginError,
    Setup,
)
from codesdk.minicode.tools.define import Tool

SETUP_S = 30.0
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ACTION = re.compile(r"[a-z][a-z0-9_:-]{0,63}")


async def load_plugins(
    config: LoadedConfig,
    tools: Sequence[Tool] = (),
    *,
    sdk_version: str,
    taken_actions: Iterable[str] = (),
    problems: list[PluginError] | None = None,
) -> Composition:
    """Load all plugins of a configuration on top of the built-in tools. Raise `PluginError`.

    `taken_actions` are the names of actions that plugins cannot have. With `problems` nothing is raised: each
    error is added to that list, and the plugin left out.
    """
    composition = Composition(tools, taken_actions)
    known: dict[str, str] = {}
    for given, settings in config.plugins.items():
        try:
            reference = normalize(given)
            if reference in known:
                raise PluginError("normalize", given, f"it is there twice: {known[reference]!r} is the same")
            known[reference] = given
            await _load(reference, settings, composition, config, sdk_version)
        except PluginError as error:
            if problems is None:
                raise
            problems.append(error)
    return composition


async def _load(
    reference: str, settings: dict[str, Any], composition: Composition, config: LoadedConfig, sdk_version: str
) -> None:
    factory = find_factory(reference, _untrusted(config))
    plugin = _make(reference, factory, settings)
    composition.check_id(reference, plugin.id)  # before its set-up does anything
    context = PluginContext(
        reference=reference,
        sdk_version=sdk_version,
        global_config_dir=config.resolved.paths.config,
        cwd=str(config.directory),
        logger=logging.getLogger(f"minicode.plugins.{plugin.id}"),
    )
    contribution = await _set_up(plugin.setup, context, plugin.id)
    if problem := _flaw(contribution):
        raise PluginError("validate", reference, problem, plugin.id)
    loaded = LoadedPlugin(reference=reference, id=plugin.id, version=plugin.version)
    composition.add(loaded, cast("Contribution", contribution))


def _untrusted(config: LoadedConfig) -> list[Path]:
    """Return the directories from which nothing is imported by name: the session's, and this process's."""
    return [config.directory, Path(os.path.realpath("."))]


def _make(reference: str, factory: Any, settings: dict[str, Any]) -> Plugin:
    """Call a factory, and check what it returns."""
    if not callable(factory):
        raise PluginError("validate", reference, "its factory is not a function")
    try:
        with foreign.Contained():
            plugin: Any = factory(copy.deepcopy(settings))  # what it changes in there stays its own
    except Exception as error:
        raise PluginError("factory", reference, foreign.name_of(error)) from error
    if inspect.iscoroutine(plugin):
        plugin.close()
    if not isinstance(plugin, Plugin):
        raise PluginError(
            "validate", reference, f"its factory must return a Plugin, not {type(plugin).__name__}"
        )
    found: Any = plugin
    if not isinstance(found.id, str) or not _ID.fullmatch(found.id):
        raise PluginError(
            "validate", reference, "its id must be like my-plugin: lower case, digits, . _ and -"
        )
    if found.api_version != API_VERSION:
        words = f"it is written for version {found.api_version!r} of the plugin interface, and this is {API_VERSION}"
        raise PluginError("validate", reference, words, plugin.id)
    if found.version is not None and not isinstance(found.version, str):
        raise PluginError("validate", reference, "its version must be a text", plugin.id)
    if not callable(found.setup):
        raise PluginError("validate", reference, "its setup is not a function", plugin.id)
    return plugin


async def _set_up(setup: Setup, context: PluginContext, plugin_id: str) -> object:
    async def run() -> object:
        found = setup(context)
        return await cast("Awaitable[object]", found) if inspect.isawaitable(found) else found

    try:
        return await within(SETUP_S, run, f"The set-up of the plugin {plugin_id}")
    except OutOfTime:
        words = f"its set-up took more than {SETUP_S:g} seconds"
    except Exception as error:
        raise PluginError("run", context.reference, foreign.name_of(error), plugin_id) from error
    raise PluginError("run", context.reference, words, plugin_id)


def _flaw(found: object) -> str | None:
    """Return what is wrong with a contribution, None if nothing is."""
    if not isinstance(found, Contribution):
        return f"its set-up must return a Contribution, not {type(found).__name__}"
    parts: dict[str, Any] = {name: getattr(found, name) for name in found.__struct_fields__}
    for name, part in parts.items():
        if not isinstance(part, list | tuple):
            return f"{name} must be a list"
    if not all(isinstance(each, Tool) for each in parts["tools"]):
        return "tools must be made with define_tool"
    if not all(isinstance(each, str) and each.strip() for each in parts["instructions"]):
        return "instructions must be texts that are not empty"
    if not all(_is_async(each) for each in parts["hooks"]):
        return "hooks must be async functions"
    return next((flaw for each in parts["actions"] if (flaw := _action_flaw(each))), None)


def _action_flaw(action: object) -> str | None:
    if not isinstance(action, Action):
        return "actions must be of the type Action"
    found: Any = action
    aliases: Any = found.aliases
    if not isinstance(aliases, list | tuple):
        return f"the aliases of the action {found.id!r} must be a list"
    for name in (found.id, *cast("Sequence[Any]", aliases)):
        if not isinstance(name, str) or not _ACTION.fullmatch(name):
            return f"{name!r} cannot be the name of an action: write it like run-tests"
    if not isinstance(found.title, str) or not found.title.strip():
        return f"the action {found.id} needs a title"
    return None if _is_async(found.run) else f"what the action {found.id} runs must be an async function"


def _is_async(found: object) -> bool:
    return inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(
        getattr(found, "__call__", None)  # noqa: B004 - the method itself, to see whether it is async
    )
