"""The operator's `codesdk.toml` → the values in it, each checked. Every error names the file and the field.

The file is named with --config, or is in the operator's own directory for configuration. It is never looked for in the
working directory or in a workspace: what lies there may be written by an agent, and these settings loosen things.
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from codesdk.cli.settings.kinds import accepted, is_list
from codesdk.cli.settings.table import POLICY, Setting
from codesdk.contract.errors import InvalidRequest

NAME = "codesdk.toml"
SECTION = "daemon"
MAX_BYTES = 1_000_000


def find(named: str | None) -> Path | None:
    """Return the file to read: the named one, or that of the operator if it is there."""
    if named is not None:
        return Path(named)
    place = own_directory() / NAME
    return place if place.exists() else None


def own_directory() -> Path:
    """Return the operator's directory for configuration. Without platformdirs, which takes longer to load than this file to read."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # A relative one would depend on where we are, which may be a workspace.
    if given.is_absolute():
        return given / "codesdk"
    usual = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return Path.home() / usual / "codesdk"


def read(path: Path, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the values of a file by the keys of their settings. Raise `InvalidRequest` for anything else in it."""
    known = {setting.key: setting for setting in settings}
    found: dict[str, Any] = {}
    for key, value in _leaves(path, _parse(path), known):
        setting = known[key]
        try:
            found[key] = _placed(setting, accepted(setting.kind, value), path.absolute().parent)
        except ValueError as error:
            raise InvalidRequest(f"{path}: {SECTION}.{key} {error}.") from None
    return found


def _parse(path: Path) -> dict[str, Any]:
    """Return the section of a file, as TOML has it."""
    try:
        with path.open("rb") as file:
            # A file that anybody may write would let anybody set what is allowed.
            if stat.S_IMODE(path.stat().st_mode) & stat.S_IWOTH:
                raise InvalidRequest(
                    f"{path}: everybody on this machine may write to it. Run chmod o-w, and look at what is in it."
                )
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{path}: the configuration cannot be read ({error.strerror}).") from None
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"{path}: a configuration may have at most {MAX_BYTES:,} bytes.")
    import tomllib  # a daemon without a file does not need it

    try:
        parsed = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path}: this is not TOML: {str(error) or 'nested too deeply'}.") from None
    for name, value in parsed.items():
        if name != SECTION or not isinstance(value, dict):
            raise InvalidRequest(f"{path}: {name} is not a section.{_advice(name, [SECTION])}")
    return cast("dict[str, Any]", parsed.get(SECTION, {}))


def _leaves(
    path: Path, table: Mapping[str, Any], known: Mapping[str, Setting], above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the settings in a table and in those below it."""
    for name, value in table.items():
        key = f"{above}{name}"
        if key in known:
            yield key, value
        elif isinstance(value, dict) and any(each.startswith(f"{key}.") for each in known):
            yield from _leaves(path, cast("dict[str, Any]", value), known, f"{key}.")
        else:
            groups = {each.rpartition(".")[0] for each in known} - {""}
            names = [f"{SECTION}.{each}" for each in (*known, *sorted(groups))]
            advice = _advice(f"{SECTION}.{key}", names)
            raise InvalidRequest(f"{path}: {SECTION}.{key} is not a setting.{advice}")


def _advice(name: str, names: Sequence[str]) -> str:
    """Return what may have been meant by a name, or where the names are."""
    import difflib

    near = difflib.get_close_matches(name, names, 1, 0.7)
    # A key may also be right and in the wrong table.
    last = name.rpartition(".")[2]
    same = [each for each in names if each.rpartition(".")[2] == last]
    found = [*same, *near]
    return f" Did you mean {found[0]}?" if found else " docs/configuration.md lists what there is."


def _placed(setting: Setting, value: Any, directory: Path) -> Any:
    """Return paths of the file as whole ones: the daemon may be started anywhere."""
    if not setting.is_path or value is None or (setting is POLICY and _is_preset(value)):
        return value
    if is_list(setting.kind):
        return tuple(str(directory / each) for each in value)
    return str(directory / value)


def _is_preset(name: str) -> bool:
    from codesdk.policy import PRESET_PREFIX, PRESETS

    return name in PRESETS or name.startswith(PRESET_PREFIX)
