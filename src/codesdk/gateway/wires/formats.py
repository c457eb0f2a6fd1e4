"""The path of a request → its wire format and codec. Each codec is loaded when first needed."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import get_args

from codesdk.gateway.wires.exchange import Codec, Route, Wire

_FAMILIES: tuple[tuple[str, Wire], ...] = (
    ("/messages", "anthropic"),
    ("/responses", "responses"),
    ("/v1beta", "gemini"),
    # Only Gemini has a colon in its paths: `models/m:generateContent`.
    (":", "gemini"),
)
_SIGNS: tuple[tuple[Wire, tuple[str, ...], tuple[str, ...]], ...] = (
    ("anthropic", ("anthropic-", "x-api-key"), ("claude", "anthropic")),
    ("gemini", ("x-goog-",), ("gemini", "google-genai")),
    ("chat", ("openai-",), ("openai", "codex")),
)
"""How to recognize a provider's clients: by header prefixes, and by words in the user agent."""
_LISTINGS: dict[Wire, re.Pattern[str]] = {
    "anthropic": re.compile(r"/v1/models(?:/[^/]+)?"),
    "gemini": re.compile(r"/v1(?:beta|alpha)?/models(?:/[^/]+)?"),
    "chat": re.compile(r"(?:/v1)?/models(?:/[^/]+)?"),
}
"""What agents read besides asking models: which there are. Nothing else of a provider's API is passed on."""


@cache
def codec_for(wire: Wire) -> Codec:
    """Return the codec of a format."""
    codec: Codec = import_module(f"codesdk.gateway.wires.{wire}").CODEC
    return codec


def find_route(method: str, path: str, query: str) -> tuple[Codec, Route] | None:
    """Return the codec and the route of a path, or None if it belongs to no format."""
    for wire in get_args(Wire):
        codec = codec_for(wire)
        route = codec.route(method, path, query)
        if route is not None:
            return codec, route
    return None


def find_listing(method: str, path: str, headers: Iterable[tuple[str, str]]) -> Codec | None:
    """Return the codec of the provider whose models are asked for, or None if it is not such a request."""
    wire = find_provider(path, headers)
    allowed = None if wire is None else _LISTINGS.get(wire)
    if wire is None or allowed is None or method != "GET" or allowed.fullmatch(path) is None:
        return None
    return codec_for(wire)


def guess_codec(path: str, headers: Iterable[tuple[str, str]] = ()) -> Codec:
    """Return the codec whose errors the sender of a request is most likely to understand."""
    for sign, wire in _FAMILIES:
        if sign in path:
            return codec_for(wire)
    return codec_for(find_provider(path, headers) or "chat")


def find_provider(path: str, headers: Iterable[tuple[str, str]]) -> Wire | None:
    """Return the provider of a request of no format; None if unclear: its login must not reach another."""
    named = {name.lower(): value.lower() for name, value in headers}
    agent = named.get("user-agent", "")
    for wire, prefixes, words in _SIGNS:
        if any(name.startswith(prefixes) for name in named) or any(word in agent for word in words):
            return wire
    for sign, wire in _FAMILIES:
        if sign in path:
            return wire
    return "chat" if path.startswith("/v1/") else None
