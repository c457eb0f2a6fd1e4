"""Rows of the table → the flags of a command, all of them without a default: what is not given may be in the file."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from codesdk.cli.settings.kinds import NONE, accepted, click_type, is_list, is_switch, number
from codesdk.cli.settings.table import Setting
from codesdk.contract.errors import InvalidRequest

F = TypeVar("F", bound=Callable[..., Any])


def flags(settings: Sequence[Setting]) -> Callable[[F], F]:
    """Add the flags of these settings to a command, in their order."""
    rows: dict[str, list[Setting]] = {}
    for setting in settings:
        rows.setdefault(setting.flag, []).append(setting)

    def add(command: F) -> F:
        for of_flag in reversed(rows.values()):  # decorators are applied from the last to the first
            command = (_shared_flag(of_flag) if of_flag[0].member else _flag(of_flag[0]))(command)
        return command

    return add


def _flag(setting: Setting) -> Callable[[F], F]:
    switch, several = is_switch(setting.kind), is_list(setting.kind) and not setting.commas
    spelled = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}" if switch else setting.flag
    return click.option(
        spelled,
        setting.parameter,
        default=() if several else None,
        multiple=several,
        type=bool if switch else click_type(setting.kind),
        metavar=setting.metavar,
        envvar=setting.env,
        help=f"{setting.help}{_remarks(setting, several)}",
    )


def _remarks(setting: Setting, several: bool) -> str:
    shown = shown_default(setting)
    notes = [f"env: {setting.env}"] if setting.env else []
    notes += [f"default: {shown}"] if shown else []
    return f"{' Repeatable.' if several else ''}{' Separated by commas.' if setting.commas else ''}" + (
        f" [{'; '.join(notes)}]" if notes else ""
    )


def shown_default(setting: Setting) -> str:
    """Return a default as help and docs show it; empty if there is nothing to say."""
    if is_switch(setting.kind):
        return "on" if setting.default else ""
    if setting.default is None:
        return NONE if click_type(setting.kind) is not None else ""
    return (
        f"{setting.default:g}"
        if isinstance(setting.default, float)
        else str(setting.default or "") or ("0" if setting.default == 0 else "")
    )


def _shared_flag(members: Sequence[Setting]) -> Callable[[F], F]:
    first = members[0]
    names = ", ".join(str(each.member) for each in members)
    what = "A limit of every command" if first.key.startswith("commands.") else "A limit of the daemon"
    text = f"{what}, such as {first.member}={first.default:g}: {names}. Repeatable."
    return click.option(
        first.flag, first.parameter, multiple=True, type=_Pair(members), metavar=first.metavar, help=text
    )


class _Pair(click.ParamType[Any]):
    """`NAME=N`: one of several settings, and its value."""

    name = "pair"

    def __init__(self, members: Sequence[Setting]) -> None:
        self._by_name = {str(each.member): each for each in members}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name and the value, or report what is wrong."""
        name, equals, text = str(value).partition("=")
        setting = self._by_name.get(name)
        if setting is None or not equals:
            self.fail(f"{value!r} is not NAME=N with a name out of {', '.join(self._by_name)}.", param, ctx)
        try:
            return name, number(setting.kind, text)
        except ValueError as error:
            self.fail(f"{name} {error}.", param, ctx)


def given(settings: Sequence[Setting], ctx: click.Context) -> dict[str, tuple[Any, str]]:
    """Return what the command line and the environment say: by key, the value and where it is from."""
    found: dict[str, tuple[Any, str]] = {}
    for setting in settings:
        source = ctx.get_parameter_source(setting.parameter)
        if source not in (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT):
            continue
        value = ctx.params[setting.parameter]
        origin = setting.flag if source is click.core.ParameterSource.COMMANDLINE else str(setting.env)
        if setting.member is None:
            found[setting.key] = _plain(setting, value), origin
        elif setting.member in (pairs := dict(value)):
            found[setting.key] = pairs[setting.member], f"{setting.flag} {setting.member}"
    return found


def _plain(setting: Setting, value: Any) -> Any:
    if setting.commas:
        value = [each.strip() for each in str(value).split(",")]
    try:
        return accepted(setting.kind, value)
    except ValueError as error:
        raise InvalidRequest(f"{setting.flag} {error}.") from None
