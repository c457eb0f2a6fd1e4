"""Which model is asked, where it is and with which key; and what each kind of provider is called. Loads nothing heavy."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from codesdk import prices
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.models import Wire
from codesdk.minicode.types import ProviderId

Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
"""How long a model thinks before it answers, in the words of those that can be told."""
ReadArtifact = Callable[[str], Awaitable[bytes]]
"""Returns the bytes of an attachment by its id."""


_WINDOW_TOKENS = 128_000
"""The window of a model of which nothing is known."""
_WINDOW_SHARE = 0.8
"""How much of a window is filled. The rest is for the answer, and for what the estimate misses."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a kind of provider before it is asked anything."""

    wire: Wire
    """The format of its requests."""
    url: str | None = None
    """Its own address. Given to its client in any case, which would look for another one in the environment."""
    path: str
    """What its client expects at the end of an address, before what the client adds itself."""
    models: tuple[str, ...]
    """Models of it to choose from, the one first that is asked if none is named."""
    library: str
    """The library of its client, beside the one that all of them need."""
    client: str
    """Our module that loads it."""
    key_variable: str


_OPENAI_MODELS = ("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna")
_CLIENTS = "codesdk.minicode.models.clients"
PROVIDERS: Mapping[ProviderId, Family] = {
    "openai": Family(
        wire="responses",
        url="https://api.openai.com/v1",
        path="/v1",
        models=_OPENAI_MODELS,
        library="openai",
        client=f"{_CLIENTS}.openai",
        key_variable="OPENAI_API_KEY",
    ),
    "anthropic": Family(
        wire="anthropic",
        url="https://api.anthropic.com",
        path="",
        models=("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5"),
        library="anthropic",
        client=f"{_CLIENTS}.anthropic",
        key_variable="ANTHROPIC_API_KEY",
    ),
    "google": Family(
        wire="gemini",
        url="https://generativelanguage.googleapis.com",
        path="",
        models=("gemini-3.8-flash", "gemini-3.1-pro-preview", "gemini-3.5-flash-lite"),
        library="google.genai",
        client=f"{_CLIENTS}.google",
        key_variable="GEMINI_API_KEY",
    ),
    "openai-compatible": Family(
        wire="chat",
        path="/v1",
        models=_OPENAI_MODELS,  # of OpenAI, where the gateway leads if there is no service of one's own
        library="openai",
        client=f"{_CLIENTS}.openai",
        key_variable="OPENAI_COMPATIBLE_API_KEY",
    ),
}


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model, where it is, and how it is asked."""

    provider: ProviderId
    model: str
    key: str | None = None
    base_url: str | None = None
    """None: the provider's own address. An openai-compatible one has none."""
    service: str = ""
    """What an openai-compatible service is called, if several are used: thoughts go back only to the same one."""
    effort: Effort | None = None
    """None: as long as it does by itself."""
    max_output_tokens: int | None = None
    silence_s: float = 600.0
    """How long a provider may say nothing before its answer counts as broken off."""
    direct: bool = False
    """Whether requests go past the proxies that the environment names, as those to this machine do."""
    key_advice: str = ""
    """What to do if the key is missing or refused; by default, the variable and the field to set."""

    @property
    def family(self) -> Family:
        """What is known of its provider."""
        return PROVIDERS[self.provider]

    @property
    def address(self) -> str | None:
        """Where its requests go."""
        return self.base_url or self.family.url

    @property
    def context_tokens(self) -> int:
        """How much it is sent at most, if nobody says otherwise. The price table has to be there."""
        return int((prices.window_of(self.family.wire, self.model) or _WINDOW_TOKENS) * _WINDOW_SHARE)

    @property
    def origin(self) -> str:
        """Whose thoughts can be given back to it: those of the same provider and service."""
        return f"{self.provider}:{self.service}" if self.service else self.provider

    @property
    def how_to_get_a_key(self) -> str:
        """What to do if the key is missing or refused."""
        return self.key_advice or (
            f"Set {self.family.key_variable}, or providers.{self.provider}.api_key in the configuration."
        )

    @property
    def url_field(self) -> str:
        """Where its address is in a configuration."""
        return f"providers.{self.provider}.base_url"

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks, so it must not show the key.
        return f"ModelSettings({self.provider}, {self.model}, {self.base_url})"


def check_settings(settings: ModelSettings) -> None:
    """Raise if no request could be made: an error that names the variable and the field that are missing."""
    if not settings.model.strip():
        raise InvalidRequest(f"No model of {settings.provider} is named. Set model in the configuration.")
    if settings.provider == "openai-compatible":
        if not settings.base_url:
            raise InvalidRequest(
                "There is no address for openai-compatible. Set OPENAI_COMPATIBLE_BASE_URL, or"
                f" {settings.url_field} in the configuration."
            )
    elif not settings.key:  # a service of one's own may need none
        raise CodeSDKError(
            f"There is no key for {settings.provider}. {settings.how_to_get_a_key}", code="AUTH_REQUIRED"
        )
    url = settings.base_url
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidRequest(
            f"The address {url[:200]!r} of {settings.provider} does not begin with http:// or https://. Correct"
            f" {settings.url_field}."
        )
