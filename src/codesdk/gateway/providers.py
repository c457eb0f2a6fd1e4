"""Where model requests of each format go, and the keys that the gateway adds."""

import os
from collections.abc import Mapping

import msgspec

from codesdk.contract.access import KEY_VARIABLES, PROVIDER_OF, ModelAccess
from codesdk.gateway.wires.exchange import Wire

ORIGINS: dict[Wire, str] = {
    "anthropic": "https://api.anthropic.com",
    "responses": "https://api.openai.com",
    "chat": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
KEY_NAMES: dict[Wire, str] = {wire: KEY_VARIABLES[PROVIDER_OF[wire]] for wire in ORIGINS}
"""The environment variables with the keys."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests of a format go, and the key to add, if CodeSDK has one."""

    origin: str
    key: str | None = None
    key_label: str = "the operator's key"
    """Which key it is, for people."""

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks, so it must not show the key.
        return f"Provider(origin={self.origin!r}, key={'None' if self.key is None else '[redacted]'})"


def providers_from(environment: Mapping[str, str] = os.environ) -> dict[Wire, Provider]:
    """Return the real providers, with their keys from the environment."""
    return {wire: _provider(wire, origin, environment) for wire, origin in ORIGINS.items()}


def _provider(wire: Wire, origin: str, environment: Mapping[str, str]) -> Provider:
    variable = KEY_NAMES[wire]
    key = environment.get(variable, "").strip()
    return (
        Provider(origin=origin, key=key, key_label=f"the key in {variable}")
        if key
        else Provider(origin=origin)
    )


def access_with(providers: Mapping[Wire, Provider]) -> dict[Wire, ModelAccess]:
    """Return how requests of each format would be answered; formats that lack a key are left out."""
    found: dict[Wire, ModelAccess] = {}
    for wire, provider in providers.items():
        if provider.key is not None:
            found[wire] = ModelAccess(kind="key", label=provider.key_label)
        elif provider.origin != ORIGINS[wire]:  # whoever names another address knows whether it needs a key
            found[wire] = ModelAccess(kind="open", label=f"{provider.origin}, without a key")
    return found
