"""Defaults, the user's file, the project's file, the environment and overrides → the configuration that holds.

Later layers win, field by field; of every value it is kept where it is from. What a project's file may say is in
`trust`. Any invalid layer is one error, which names the source and the field.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from codesdk.contract.errors import InvalidRequest
from codesdk.minicode.config import environment, files
from codesdk.minicode.config.resolved import LoadedConfig, Origin, Value, resolve
from codesdk.minicode.config.schema import PluginConfigSchema, SdkConfig, SdkConfigSchema, Section
from codesdk.minicode.config.trust import admit

OVERRIDES = "config_overrides"
_PATHS = ("paths.config", "paths.sessions", "paths.artifacts")


def load_config(
    cwd: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """Return the configuration for a directory. Raise `InvalidRequest`. `env` is `os.environ` unless given."""
    directory = Path(cwd or ".").resolve()
    if not directory.is_dir():
        raise InvalidRequest(f"{directory}: there is no such directory. Name one that is there as cwd.")
    from_env = _environment(os.environ if env is None else env, directory)
    given = _overrides(overrides or {}, directory)
    merge = _Merge(directory, _config_dir(given, from_env))
    merge.add_global()
    merge.add_project()
    merge.add(from_env)
    merge.add(given)
    return resolve(merge.values, merge.warnings, directory)


class _Merge:
    """The layers, added one after the other."""

    def __init__(self, directory: Path, config_dir: Path) -> None:
        self._directory = directory
        self._config_dir = config_dir
        self.values: dict[str, Value] = _defaults(config_dir)
        self.warnings: list[str] = []

    def add(self, layer: Mapping[str, Value]) -> None:
        """Let a layer win over those before it."""
        provider = layer.get("provider")
        if provider is not None and "model" not in layer:
            before = self.values.get("provider")
            # A model belongs to its provider: the one that was set for another is not asked for here.
            if before is not None and before.value != provider.value:
                self.values.pop("model", None)
        self.values.update(layer)

    def add_global(self) -> None:
        """Add the user's file."""
        path = self._config_dir / files.NAME
        said, readable = files.read_global(path)
        if said is None:
            return
        leaves = _checked(said, str(path))
        if "paths.config" in leaves:
            raise InvalidRequest(
                f"{path}: paths.config cannot be set in this file, because it says where this file is. Set MINICODE_CONFIG_DIR."
            )
        if readable and any(field.endswith(".api_key") for field in leaves):
            self.warnings.append(
                f"{path}: others on this machine can read the key in it. Run chmod 600, or set the key in the environment."
            )
        self.add(_placed(leaves, Origin(layer="global", source=str(path)), self._config_dir))

    def add_project(self) -> None:
        """Add the project's file, as far as it may say something."""
        path = self._directory / files.PROJECT
        if path.resolve() == (self._config_dir / files.NAME).resolve():
            return  # the working directory is where the user's own file lies
        said = files.read_project(self._directory)
        if said is None:
            return
        origin = Origin(layer="project", source=str(path))
        layer: dict[str, Value] = {}
        holds = {field: value.value for field, value in self.values.items()}
        for admitted in admit(_checked(said, str(path)), holds):
            if admitted.refusal is not None:
                words = f"{path}: {admitted.field} is ignored: {admitted.refusal}."
                self.warnings.append(f"{words} Set it in {self._config_dir / files.NAME}.")
                continue
            before = self.values[admitted.field].origin.source if admitted.added else None
            source = origin if before is None else Origin(layer="project", source=f"{path}, after {before}")
            layer[admitted.field] = Value(admitted.value, source)
        self.add(layer)


def _defaults(config_dir: Path) -> dict[str, Value]:
    from platformdirs import user_data_path  # only here, where it is used

    origin = Origin(layer="default", source="default")
    found = {field: Value(value, origin) for field, value in _leaves_of(SdkConfig()).items()}
    data = user_data_path("minicode", appauthor=False)
    found["paths.config"] = Value(str(config_dir), origin)
    found["paths.sessions"] = Value(str(data / "sessions"), origin)
    found["paths.artifacts"] = Value(str(data / "artifacts"), origin)
    return found


def _leaves_of(section: Section, above: str = "") -> dict[str, Any]:
    """Return the fields of a section and of those below it, except for those that have no value."""
    found: dict[str, Any] = {}
    names = zip(section.__struct_fields__, section.__struct_encode_fields__, strict=True)
    for name, written in names:
        value = getattr(section, name)
        if isinstance(value, Section):
            found |= _leaves_of(value, f"{above}{written}.")
        elif value is not None:
            found[f"{above}{written}"] = value
    return found


def _checked(said: dict[str, Any], source: str) -> dict[str, Any]:
    """Return what a layer says, by field. Null is as good as nothing."""
    plugins = said.get("plugins")
    if isinstance(plugins, dict):
        for reference, config in cast("dict[str, Any]", plugins).items():
            PluginConfigSchema.parse(config, f"{source}: plugins[{json.dumps(reference)}]")
    SdkConfigSchema.parse(said, source)
    return _said(said, SdkConfig())


def _said(said: Mapping[str, Any], shape: Section, above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = dict(zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True))
    for written, value in said.items():
        below = getattr(shape, names[written])
        if isinstance(below, Section):
            found |= _said(value, below, f"{above}{written}.")
        elif value is not None:
            found[f"{above}{written}"] = value
    return found


def _environment(env: Mapping[str, str], directory: Path) -> dict[str, Value]:
    layer: dict[str, Value] = {}
    for name, field, value in environment.read(env):
        nested: Any = value
        for part in reversed(field.split(".")):
            nested = {part: nested}
        leaves = _checked(nested, name)
        layer |= _placed(leaves, Origin(layer="environment", source=name), directory)
    return layer


def _overrides(overrides: Mapping[str, Any], directory: Path) -> dict[str, Value]:
    leaves = _checked(_plain(overrides), OVERRIDES)
    if "plugins" in leaves:
        raise InvalidRequest(f"{OVERRIDES}: plugins can only be set in the global {files.NAME}.")
    return _placed(leaves, Origin(layer="overrides", source=OVERRIDES), directory)


def _plain(value: Any) -> Any:
    """Return what an application gave with paths as text, and mappings and tuples as JSON would have them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast("list[Any]", value)]
    return str(value) if isinstance(value, Path) else value


def _placed(leaves: Mapping[str, Any], origin: Origin, directory: Path) -> dict[str, Value]:
    """Return a layer with its paths as whole ones."""
    return {
        field: Value(_whole(value, directory) if field in _PATHS else value, origin)
        for field, value in leaves.items()
    }


def _whole(path: str, directory: Path) -> str:
    try:
        return str(directory / Path(path).expanduser())
    except RuntimeError:  # a user that does not exist
        return str(directory / path)


def _config_dir(*layers: Mapping[str, Value]) -> Path:
    for layer in layers:
        if (found := layer.get("paths.config")) is not None:
            return Path(found.value)
    from platformdirs import user_config_path

    return user_config_path("minicode", appauthor=False)
