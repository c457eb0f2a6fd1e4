"""The values that won → the resolved configuration, its keys apart from it, and where everything is from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.tools import Record
from codesdk.minicode.config.environment import variables_of
from codesdk.minicode.config.schema import PluginsConfig, ResolvedProvider, ResolvedSdkConfig
from codesdk.minicode.types import CompatibleService, ProviderId
from codesdk.sandbox import check_hosts

PROVIDERS: tuple[ProviderId, ...] = get_args(ProviderId)
Layer = Literal["default", "global", "project", "environment", "overrides"]


class Origin(Record, frozen=True, kw_only=True):
    """Where a value is from: the layer, and in it the file, the variable or whoever set it."""

    layer: Layer
    source: str


class Value(NamedTuple):
    """A value, and where it is from."""

    value: Any
    origin: Origin


class Setting(Record, frozen=True, kw_only=True):
    """A setting as it may be shown: `value` is never a secret."""

    field: str
    value: Any
    origin: Origin


class ProviderAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a model of a provider is made with."""

    provider: ProviderId
    api_key: str | None = None
    base_url: str | None = None
    name: str | None = None

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks, so it must not show the key.
        return f"ProviderAccess({self.provider!r}, {self.base_url!r})"


class LoadedConfig:
    """The configuration of one directory."""

    def __init__(
        self,
        resolved: ResolvedSdkConfig,
        values: Mapping[str, Value],
        warnings: list[str],
        directory: Path,
    ) -> None:
        self.resolved = resolved
        self.warnings = warnings
        """What was ignored, and why, in sentences."""
        self.directory = directory
        """The working directory, with all links resolved."""
        self._values = values

    def __repr__(self) -> str:
        return f"LoadedConfig({self.directory!s})"

    @property
    def plugins(self) -> PluginsConfig:
        """What each plugin is configured with, in the order of the file. It may hold secrets."""
        return self._values["plugins"].value

    def origin(self, field: str) -> Origin | None:
        """Return where the value of a field is from, None if it has none."""
        found = self._values.get(field)
        return None if found is None else found.origin

    def settings(self) -> list[Setting]:
        """Return all values that hold, with where each is from. Secrets are left out: only that they are set is said."""
        return [
            Setting(field=field, value=_shown(field, value.value), origin=value.origin)
            for field, value in self._values.items()
        ]

    def secrets(self) -> list[str]:
        """Return the keys, to be kept out of everything that is stored or shown."""
        return [value.value for field, value in self._values.items() if field.endswith(".api_key")]

    def access(self, provider: ProviderId, service: CompatibleService | None = None) -> ProviderAccess:
        """Return what is needed to reach a provider. Raise an error that names what is missing and where to set it.

        `service` is an address that the application named, which may set any value: so it gets the key, too.
        """
        at = f"providers.{provider}"
        found = {name: self._said(f"{at}.{name}") for name in ("api_key", "base_url", "name")}
        if service is not None:
            found |= {"base_url": service.base_url, "name": service.name or found["name"]}
        if provider == "openai-compatible":
            if found["base_url"] is None:
                words = self._how(f"{at}.base_url")
                raise InvalidRequest(f"There is no base URL for {provider}. {words}")
        elif found["api_key"] is None:
            words = self._how(f"{at}.api_key")
            raise Forbidden(f"There is no key for {provider}. {words}", code="AUTH_REQUIRED")
        return ProviderAccess(provider=provider, **found)

    def model_for(self, provider: ProviderId) -> str:
        """Return the model to use with a provider where none is named."""
        if provider == self.resolved.provider and self.resolved.model is not None:
            return self.resolved.model
        listed = self.resolved.catalog[provider]
        if not listed:
            words = self._how("model")
            raise InvalidRequest(f"There is no model for {provider}. {words}")
        return listed[0]

    def _said(self, field: str) -> Any:
        found = self._values.get(field)
        return None if found is None else found.value

    def _how(self, field: str) -> str:
        names = " or ".join(variables_of(field))
        return f"Set {names}, or {field} in {Path(self.resolved.paths.config) / 'config.json'}."


def resolve(values: dict[str, Value], warnings: list[str], directory: Path) -> LoadedConfig:
    """Return the configuration. Raise `InvalidRequest` for values that do not go together."""
    _choose(values)
    if values["sandbox.backend"].value == "oci" and "sandbox.image" not in values:
        source = values["sandbox.backend"].origin.source
        raise InvalidRequest(f"{source}: sandbox.image is missing; an oci sandbox needs an image.")
    try:
        check_hosts(values["sandbox.hosts"].value)
    except InvalidRequest as error:
        source = values["sandbox.hosts"].origin.source
        raise InvalidRequest(f"{source}: sandbox.hosts: {error.message}") from None
    said = {field: value.value for field, value in values.items()}
    providers = {provider: _provider(values, provider) for provider in PROVIDERS}
    nested: dict[str, Any] = {
        "provider": said["provider"],
        "model": said.get("model"),
        "catalog": {provider: said[f"catalog.{provider}"] for provider in PROVIDERS},
        "providers": msgspec.to_builtins(providers),
        "plugins": list(said["plugins"]),
    }
    for section in ("tools", "hooks", "paths", "agent", "sandbox"):
        nested[section] = {
            field.partition(".")[2]: value for field, value in said.items() if field.startswith(f"{section}.")
        }
    return LoadedConfig(msgspec.convert(nested, ResolvedSdkConfig), values, warnings, directory)


def _choose(values: dict[str, Value]) -> None:
    """Choose the provider and the model that nobody named: the first with a key or an address, and its first model."""
    if "provider" not in values:
        values["provider"] = Value(PROVIDERS[0], Origin(layer="default", source="default"))
        for provider in PROVIDERS:
            field = "base_url" if provider == "openai-compatible" else "api_key"
            found = values.get(f"providers.{provider}.{field}")
            if found is not None:
                source = f"the first with its {field} set, by {found.origin.source}"
                values["provider"] = Value(provider, Origin(layer="default", source=source))
                break
    listed = values[f"catalog.{values['provider'].value}"]
    if "model" not in values and listed.value:
        source = f"the first of catalog.{values['provider'].value}"
        values["model"] = Value(listed.value[0], Origin(layer=listed.origin.layer, source=source))


def _provider(values: Mapping[str, Value], provider: ProviderId) -> ResolvedProvider:
    at = f"providers.{provider}"
    found = {name: values.get(f"{at}.{name}") for name in ("api_key", "base_url", "name")}
    key = found["api_key"]
    return ResolvedProvider(
        base_url=None if found["base_url"] is None else found["base_url"].value,
        name=None if found["name"] is None else found["name"].value,
        key_from=None if key is None else key.origin.source,
    )


def _shown(field: str, value: Any) -> Any:
    if field.endswith(".api_key"):
        return "(set)"
    return list(value) if field == "plugins" else value
