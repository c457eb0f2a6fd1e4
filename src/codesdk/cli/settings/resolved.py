"""Flags, variables, the file and defaults → the value of each setting in effect, and where it is from.

What is typed wins over the environment, that over the file, the file over the default. A list is replaced as a whole.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from codesdk.cli.settings import file
from codesdk.cli.settings.flags import given
from codesdk.cli.settings.kinds import NONE
from codesdk.cli.settings.table import Setting
from codesdk.contract.errors import CodeSDKError, InvalidRequest

T = TypeVar("T")
DEFAULT = "default"


class Value(NamedTuple):
    """What a setting is, and where that was said."""

    value: Any
    origin: str


class Resolved:
    """The settings in effect."""

    def __init__(
        self, settings: Sequence[Setting], values: dict[str, Value], path: Path | None = None
    ) -> None:
        self.path = path
        """The file that was read."""
        self._settings = {setting.key: setting for setting in settings}
        self._values = values

    def __getitem__(self, key: str) -> Any:
        """Return the value of a setting."""
        return self._values[key].value

    def changed(self, key: str) -> bool:
        """Return whether a setting is other than by default."""
        return self[key] != self._settings[key].default

    def members(self, key: str) -> dict[str, Any]:
        """Return the settings below a key, by the rest of their names."""
        return {
            each.removeprefix(f"{key}."): self[each] for each in self._values if each.startswith(f"{key}.")
        }

    def name(self, key: str) -> str:
        """Return a setting as whoever set it knows it: the flag, the variable, or the file and the key."""
        origin = self._values[key].origin
        if origin == DEFAULT:
            return self._settings[key].flag
        return f"{origin}: {file.SECTION}.{key}" if self.path and origin == str(self.path) else origin

    def use(self, key: str, make: Callable[[Any], T]) -> T:
        """Return what is made of a value. An error names where the value was set."""
        try:
            return make(self[key])
        except CodeSDKError as error:
            raise InvalidRequest(f"{self.name(key)}: {error.message}") from None

    def lines(self) -> Iterator[str]:
        """Yield all settings as a file that would say the same, with where each is from."""
        yield f"[{file.SECTION}]"
        for key, (value, origin) in self._values.items():
            nothing = value is None and origin == DEFAULT
            shown = NONE if nothing else _toml(value)
            yield f"{'# ' if nothing else ''}{key} = {shown}  # {origin}"


def resolve(settings: Sequence[Setting], ctx: click.Context, path: Path | None = None) -> Resolved:
    """Return the settings in effect for a command, with those of a file if one is named."""
    said = {} if path is None else file.read(path, settings)
    typed = given(settings, ctx)
    values: dict[str, Value] = {}
    for setting in settings:
        if setting.key in typed:
            values[setting.key] = Value(*typed[setting.key])
        elif setting.key in said:
            values[setting.key] = Value(said[setting.key], str(path))
        else:
            values[setting.key] = Value(setting.default, DEFAULT)
    return Resolved(settings, values, path)


def _toml(value: Any) -> str:
    if value is None:
        return json.dumps(NONE)
    # JSON's texts, numbers, booleans and lists of these are TOML, too.
    return json.dumps(value, ensure_ascii=False)
