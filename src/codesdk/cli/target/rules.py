"""What an operator allows on the command line, which only counts where this process runs the sessions."""

from collections.abc import Collection

import click

from codesdk.cli.settings.resolved import Resolved, resolve
from codesdk.cli.settings.table import OPENING
from codesdk.cli.target.place import Runner
from codesdk.contract.errors import InvalidRequest

_RULES = frozenset(setting.parameter for setting in OPENING)
"""The options by which an operator allows things to this process."""


def own_rules() -> Resolved:
    """Return what the command line and the environment allow to this process."""
    return resolve(OPENING, click.get_current_context())


def typed_options(names: Collection[str]) -> list[str]:
    """Return those of these options that are on the command line of the command that is being run."""
    ctx = click.get_current_context()
    sources = {
        param.opts[0]: ctx.get_parameter_source(param.name or "")
        for param in ctx.command.params
        if param.name in names
    }
    return [option for option, source in sources.items() if source is click.core.ParameterSource.COMMANDLINE]


def refuse_rules(who: Runner) -> None:
    """Raise `InvalidRequest` if rules were typed. Those in the environment are for no command in particular."""
    if typed := typed_options(_RULES):
        runs, advice = (
            ("A daemon runs these sessions", "start codesdkd with it")
            if who == "daemon"
            else ("Another process runs these sessions", "give it to that process")
        )
        raise InvalidRequest(f"{runs}, by its own rules. {typed[0]} would have no effect here: {advice}.")
