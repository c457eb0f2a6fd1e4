"""`codesdk minicode`: the configuration that holds in a directory, where it is from, its plugins, and stored sessions."""

import json
from pathlib import Path

import click

from codesdk import __version__
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.view.out import write_json, write_line, write_mark
from codesdk.minicode.config import LoadedConfig, load_config
from codesdk.minicode.plugins import Composition, PluginError, load_plugins
from codesdk.minicode.storage import FsSessionRepository

_cwd = click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="The directory to look at. [default: the current one]",
)


@click.group()
def minicode() -> None:
    """Look at what minicode, the agent that needs only a key, works with."""


@minicode.command()
@_cwd
@click.option(
    "--origins", is_flag=True, help="Show where each value comes from: a file, a variable, or the default."
)
@json_option("Print the configuration as one JSON object.")
def config(cwd: str, origins: bool, as_json: bool) -> int:
    """Show the configuration that is in force in a directory. Keys are never shown, only whether they are set.

    Later ones win: defaults, the global config.json, .minicode/config.json of the project, environment variables.
    """
    loaded = load_config(cwd)
    if as_json:
        write_json(
            {
                "config": loaded.resolved,
                "warnings": loaded.warnings,
                **({"origins": {each.field: each.origin for each in loaded.settings()}} if origins else {}),
            }
        )
        return OK
    _warn(loaded)
    for each in sorted(loaded.settings(), key=lambda each: each.field):
        source = each.origin.source
        layer = "" if source in (each.origin.layer, "config_overrides") else f"{each.origin.layer}: "
        where = f"  # {layer}{source}" if origins else ""
        write_line(f"{each.field} = {json.dumps(each.value, ensure_ascii=False)}{where}")
    return OK


@minicode.command()
@_cwd
@json_option("Print one plugin per line as JSON; one that failed has an error.")
def plugins(cwd: str, as_json: bool) -> int:
    """Load the plugins of the global config.json and list them. Exits 1 if one cannot be used."""
    loaded = load_config(cwd)
    problems: list[PluginError] = []
    composed = run_async(load_plugins(loaded, sdk_version=__version__, problems=problems))
    if as_json:
        for plugin in composed.plugins:
            write_json(plugin)
        for problem in problems:
            write_json({"reference": problem.reference, "id": problem.plugin_id, "error": problem.info()})
    else:
        _warn(loaded)
        _list_plugins(loaded, composed, problems)
    return FAILED if problems else OK


def _list_plugins(loaded: LoadedConfig, composed: Composition, problems: list[PluginError]) -> None:
    if not composed.plugins and not problems:
        write_line(
            f"There are no plugins. They are named in {Path(loaded.resolved.paths.config) / 'config.json'}."
        )
    for plugin in composed.plugins:
        version = f" {plugin.version}" if plugin.version else ""
        write_mark(True, f"{plugin.id}{version}  {plugin.reference}")
    if composed.tools:
        write_line(f"tools: {', '.join(tool.name for tool in composed.tools)}")
    if composed.actions:
        write_line(f"actions: {', '.join(action.id for action in composed.actions)}")
    for problem in problems:
        write_mark(False, problem.message)


@minicode.command()
@_cwd
@json_option("Print one session per line as JSON; a file that cannot be used has a problem.")
def sessions(cwd: str, as_json: bool) -> int:
    """List the stored sessions, the last one used first. Exits 1 if a file is damaged."""
    loaded = load_config(cwd)
    found, damaged = run_async(FsSessionRepository(Path(loaded.resolved.paths.sessions)).survey())
    for each in found:
        if as_json:
            write_json(each)
        else:
            write_line(f"{each.id}  {each.provider}/{each.model}  {each.cwd}")
    for each in damaged:
        if as_json:
            write_json(each)
        else:
            write_mark(False, each.problem)
    if not found and not damaged and not as_json:
        write_line(f"There are no sessions in {loaded.resolved.paths.sessions}.")
    return FAILED if damaged else OK


def _warn(loaded: LoadedConfig) -> None:
    for warning in loaded.warnings:
        write_line(f"warning: {warning}", err=True)
