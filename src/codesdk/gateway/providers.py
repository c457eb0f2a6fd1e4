"""Where model requests of each format go, and the keys that the gateway adds."""

import os
from collections.abc import Mapping

import msgspec

from codesdk.gateway.wires.exchange import Wire

ORIGINS: dict[Wire, str] = {
    "anthropic": "https://api.anthropic.com",
    "responses": "https://api.openai.com",
    "chat": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
KEY_NAMES: dict[Wire, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "responses": "OPENAI_API_KEY",
    "chat": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""The environment variables with the keys."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests of a format go, and the key to add, if CodeSDK has one."""

    origin: str
    key: str | None = None

    def __repr__(self) -> str:
        # A repr ends up in logs and tracebacks, so it must not show the key.
        return f"Provider(origin={self.origin!r}, key={'None' if self.key is None else '[redacted]'})"


def providers_from(environment: Mapping[str, str] = os.environ) -> dict[Wire, Provider]:
    """Return the real providers, with their keys from the environment."""
    return {
        wire: Provider(origin=origin, key=environment.get(KEY_NAMES[wire], "").strip() or None)
        for wire, origin in ORIGINS.items()
    }
