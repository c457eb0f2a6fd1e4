"""Where model requests of each format go, and the key that the gateway adds: the principal's own, or the operator's."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from codesdk.contract.access import (
    COMPATIBLE_KEY,
    COMPATIBLE_URL,
    KEY_VARIABLES,
    PROVIDER_OF,
    ProviderKeys,
    ProviderName,
)
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.models import ModelAccess, Payer
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
    """What stands before the path of a request."""
    replaces: str = ""
    """The beginning of a path that `origin` already has."""
    stranger: bool = False
    """Whether another service answers there than the format's own provider, whose keys and prices are not its."""
    key: str | None = None
    key_label: str = "the operator's key"
    """Which key it is, for people."""
    withheld: bool = False
    """Whether there is a key that this payer may not use."""

    def address(self, path: str) -> str:
        """Return where a request goes, given its path."""
        return self.origin + path.removeprefix(self.replaces)

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks, so it must not show the key.
        return f"Provider(origin={self.origin!r}, key={'None' if self.key is None else '[redacted]'})"


def providers_from(environment: Mapping[str, str] = os.environ) -> dict[Wire, Provider]:
    """Return the real providers, with their keys from the environment, and the operator's own for chat completions.

    Raise `InvalidRequest` if the address of that one is not valid.
    """
    found: dict[Wire, Provider] = {
        wire: _provider(wire, origin, environment) for wire, origin in ORIGINS.items()
    }
    compatible = _compatible(environment)
    if compatible is not None:
        found["chat"] = compatible
    return found


def _compatible(environment: Mapping[str, str]) -> Provider | None:
    """Return the operator's own service, if one is named. It gets no key but its own."""
    url = environment.get(COMPATIBLE_URL, "").strip().rstrip("/")
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequest(
            f"{COMPATIBLE_URL} is not the address of a service, such as http://127.0.0.1:11434/v1. Correct it."
        )
    key = environment.get(COMPATIBLE_KEY, "").strip()
    label = f"the key in {COMPATIBLE_KEY}"
    return Provider(origin=url, replaces="/v1", stranger=True, key=key or None, key_label=label)


def _provider(wire: Wire, origin: str, environment: Mapping[str, str]) -> Provider:
    variable = KEY_NAMES[wire]
    key = environment.get(variable, "").strip()
    return (
        Provider(origin=origin, key=key, key_label=f"the key in {variable}")
        if key
        else Provider(origin=origin)
    )


def lacks_key(wire: Wire, provider: Provider) -> bool:
    """Return whether requests need a key and there is none.

    A provider's own address needs one; whoever names another address knows whether that does.
    """
    return provider.key is None and (provider.withheld or provider.origin == ORIGINS[wire])


def access_with(providers: Mapping[Wire, Provider]) -> dict[Wire, ModelAccess]:
    """Return how requests of each format would be answered; formats that lack a key are left out."""
    found: dict[Wire, ModelAccess] = {}
    for wire, provider in providers.items():
        if provider.key is not None:
            found[wire] = ModelAccess(kind="key", label=provider.key_label)
        elif not lacks_key(wire, provider):
            found[wire] = ModelAccess(kind="open", label=f"{provider.origin}, without a key")
    return found


class Accounts:
    """The operator's providers and the principals' own keys → a provider as one payer may use it."""

    def __init__(
        self, providers: Mapping[Wire, Provider] | None = None, keys: ProviderKeys | None = None
    ) -> None:
        self._providers: dict[Wire, Provider] = {
            wire: Provider(origin=origin) for wire, origin in ORIGINS.items()
        }
        self._providers.update(providers or {})
        self._keys = keys

    def provider(self, payer: Payer, wire: Wire) -> Provider:
        """Return where a payer's requests go, with the key that pays for them, looked up now."""
        return self._as_paid(wire, payer, self._keys_of(payer))

    def access(self, payer: Payer) -> dict[Wire, ModelAccess]:
        """Return how a payer's requests of each format would be answered; formats that lack a key are left out."""
        keys = self._keys_of(payer)
        return access_with({wire: self._as_paid(wire, payer, keys) for wire in self._providers})

    def _keys_of(self, payer: Payer) -> Mapping[ProviderName, str]:
        return {} if self._keys is None else self._keys.of(payer.principal)

    def _as_paid(self, wire: Wire, payer: Payer, keys: Mapping[ProviderName, str]) -> Provider:
        provider, own = self._providers[wire], keys.get(PROVIDER_OF[wire])
        if own is not None and not provider.stranger:
            label = f"the {PROVIDER_OF[wire]} key of {payer.principal}"
            return msgspec.structs.replace(provider, key=own, key_label=label)
        if provider.key is None or payer.operator:
            return provider
        return msgspec.structs.replace(provider, key=None, withheld=True)
