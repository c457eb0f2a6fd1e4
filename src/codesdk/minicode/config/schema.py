"""What can be configured, as structs and as public JSON Schemas: a value from anywhere → a checked one, or one error.

`SdkConfig` is what a file or an application may say, all of it optional. `ResolvedSdkConfig` is what then holds; it has
no secret in it, so it can be printed, logged and sent. `load` makes the one of the other.
"""

import difflib
import re
from typing import Annotated, Any, Generic, Literal, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import Record
from codesdk.contract.validation import explain
from codesdk.minicode.models import PROVIDERS
from codesdk.minicode.types import ProviderId

MAX_KEY_CHARS = 4096
SandboxBackend = Literal["host", "bubblewrap", "oci"]
PluginReference = str
PluginConfig = dict[str, Any]
PluginsConfig = dict[PluginReference, PluginConfig]
# It may become a part of an address, and a project's file may name it: so it cannot lead elsewhere.
ModelName = Annotated[str, Meta(pattern=r"^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._:/@+-]*$", max_length=200)]
Milliseconds = Annotated[int, Meta(ge=10, le=86_400_000)]
T = TypeVar("T")


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parent of all parts of a configuration. Every field has a default, so that any part of it can be left out."""


class Provider(Section, frozen=True, kw_only=True):
    """How a provider is reached."""

    api_key: Annotated[str, Meta(description="The key. Better in the environment than in a file.")] | None = (
        None
    )
    base_url: (
        Annotated[str, Meta(description="Where requests go, instead of to the provider's own address.")]
        | None
    ) = None

    def __post_init__(self) -> None:
        if self.api_key is not None and not _is_key(self.api_key):
            raise ValueError(
                f"api_key is not a key: one has 1 to {MAX_KEY_CHARS} printable ASCII characters and no spaces"
            )
        if self.base_url is not None:
            _require_url(self.base_url)


class CompatibleProvider(Provider, frozen=True, kw_only=True):
    """A server that speaks Chat Completions."""

    name: Annotated[str, Meta(max_length=100, description="What it is called, for people.")] | None = None


class Providers(Section, frozen=True, kw_only=True):
    """How each provider is reached."""

    openai: Provider = Provider()
    anthropic: Provider = Provider()
    google: Provider = Provider()
    openai_compatible: CompatibleProvider = msgspec.field(
        default=CompatibleProvider(), name="openai-compatible"
    )


def _models(provider: ProviderId) -> Any:
    """Return the field with the models that are known of a provider: none, if whose they are is not known either."""
    family = PROVIDERS[provider]
    known = family.models if family.url is not None else ()
    return msgspec.field(default_factory=lambda: list(known), name=provider)


class Catalog(Section, frozen=True, kw_only=True):
    """The models of each provider to choose from. The first one is taken where none is named."""

    openai: list[ModelName] = _models("openai")
    anthropic: list[ModelName] = _models("anthropic")
    google: list[ModelName] = _models("google")
    openai_compatible: list[ModelName] = _models("openai-compatible")


class ToolLimits(Section, frozen=True, kw_only=True):
    """What tools may take."""

    timeout_ms: Annotated[
        Milliseconds, Meta(description="How long a call may take that does not say otherwise.")
    ] = 120_000
    max_timeout_ms: Annotated[
        Milliseconds, Meta(description="The longest time that a call of bash may ask for.")
    ] = 600_000
    max_output_bytes: Annotated[
        int, Meta(ge=1_000, le=1 << 30, description="A command that writes more is stopped.")
    ] = 16 * 1024 * 1024
    max_shown_chars: Annotated[
        int,
        Meta(
            ge=1_000,
            le=1_000_000,
            description="What a model gets of an output. All of a longer one becomes an artifact.",
        ),
    ] = 30_000


class HookLimits(Section, frozen=True, kw_only=True):
    """How long the hooks of plugins may take, and what happens then."""

    timeout_ms: Annotated[
        Milliseconds, Meta(description="How long a hook may take for one event. Then it is cancelled.")
    ] = 1_500
    off_after: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="After so many timeouts in a row a hook is off for the rest of the turn.",
        ),
    ] = 3


class Paths(Section, frozen=True, kw_only=True):
    """Directories. In a file, relative ones begin where the file is, elsewhere in the working directory."""

    config: Annotated[str, Meta(min_length=1, description="Where the global config.json is.")] | None = None
    sessions: Annotated[str, Meta(min_length=1)] | None = None
    artifacts: Annotated[str, Meta(min_length=1)] | None = None


class AgentDefaults(Section, frozen=True, kw_only=True):
    """What an agent is given unless the application says otherwise."""

    max_steps: Annotated[
        int, Meta(ge=1, le=10_000, description="How often a model is asked in one turn.")
    ] = 100
    instructions: Annotated[str, Meta(max_length=200_000)] | None = None


class SandboxSettings(Section, frozen=True, kw_only=True):
    """Where `bash` runs: on the host, unless something else is said."""

    backend: SandboxBackend = "host"
    image: Annotated[str, Meta(min_length=1, description="The image of an oci sandbox.")] | None = None
    hosts: Annotated[list[str], Meta(description="What commands in a sandbox may reach.")] = []


class SdkConfig(Section, frozen=True, kw_only=True):
    """A configuration as a file or an application says it."""

    provider: ProviderId | None = None
    model: ModelName | None = None
    catalog: Catalog = Catalog()
    providers: Providers = Providers()
    plugins: PluginsConfig = {}
    tools: ToolLimits = ToolLimits()
    hooks: HookLimits = HookLimits()
    paths: Paths = Paths()
    agent: AgentDefaults = AgentDefaults()
    sandbox: SandboxSettings = SandboxSettings()


class ResolvedProvider(Record, frozen=True, kw_only=True):
    """How a provider is reached, and where its key is from. Never the key."""

    base_url: str | None = None
    name: str | None = None
    key_from: str | None = None


class ResolvedPaths(Record, frozen=True, kw_only=True):
    """Directories, as whole paths."""

    config: str
    sessions: str
    artifacts: str


class ResolvedSdkConfig(Record, frozen=True, kw_only=True):
    """The configuration that holds. No secret is in it: neither keys nor what plugins are configured with."""

    provider: ProviderId
    model: str | None = None
    """None if none is named and the provider has none to choose from."""
    catalog: dict[ProviderId, list[str]]
    providers: dict[ProviderId, ResolvedProvider]
    plugins: list[PluginReference]
    tools: ToolLimits
    hooks: HookLimits
    paths: ResolvedPaths
    agent: AgentDefaults
    sandbox: SandboxSettings


class Schema(Generic[T]):
    """A public schema: as JSON Schema, and as a check whose one error names the field."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema (2020-12)."""
        return msgspec.json.schema(self._kind)

    def parse(self, value: Any, source: str = "The value") -> T:
        """Return a value, checked. Raise `InvalidRequest`, which names the source and the field."""
        try:
            return cast("T", msgspec.convert(value, self._kind))
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"{source}: {_words(error, self._kind)}") from None
        except RecursionError:
            raise InvalidRequest(f"{source}: it is nested too deeply.") from None


ProviderIdSchema = Schema[ProviderId](ProviderId)
ModelNameSchema = Schema[str](ModelName)
PluginConfigSchema = Schema[PluginConfig](PluginConfig)
PluginsConfigSchema = Schema[PluginsConfig](PluginsConfig)
SdkConfigSchema = Schema[SdkConfig](SdkConfig)
ResolvedSdkConfigSchema = Schema[ResolvedSdkConfig](ResolvedSdkConfig)

_UNKNOWN = re.compile(r"(?:(?P<where>.*): )?object contains unknown field `(?P<name>.*)`", re.DOTALL)


def _words(error: msgspec.ValidationError, kind: Any) -> str:
    words = explain(error, kind)
    found = _UNKNOWN.fullmatch(words)
    if found is None:
        return f"{words}."
    where, name = found["where"], found["name"]
    near = difflib.get_close_matches(name, _names(SdkConfig), 1)
    meant = f" Did you mean {near[0]}?" if near else " docs/minicode.md lists what there is."
    return f"{f'{where}.' if where else ''}{name} is not a setting.{meant}"


def _names(kind: Any) -> list[str]:
    """Return the names of all settings, whichever section they are in."""
    found: list[str] = []
    for field in msgspec.structs.fields(kind):
        found.append(field.encode_name)
        if isinstance(field.type, type) and issubclass(field.type, Section):
            found += _names(field.type)
    return found


def _is_key(key: str) -> bool:
    return 1 <= len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable() and " " not in key


def _require_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise ValueError("base_url must be an address like https://models.example.com/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("base_url must hold no user and no password; a key has its own field, api_key")
    if parts.query or parts.fragment:
        raise ValueError("base_url must end with its path: no ? and no #")
