"""Settings → a model that can be asked. The libraries behind it are slow to import, so that happens on first use, in a thread."""

import asyncio
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from ssl import SSLContext
from types import ModuleType
from typing import Protocol

from codesdk import prices, tls
from codesdk.contract.errors import CodeSDKError
from codesdk.minicode.models.settings import PROVIDERS, ModelSettings, ReadArtifact, check_settings
from codesdk.minicode.types import Model, ProviderId

LIBRARY = "pydantic_ai"
"""What all kinds of providers need. Each needs the library of its client as well."""
INSTALL = "pip install 'codesdk[minicode]'"
_MODEL = "codesdk.minicode.models.library"


class OpenModel(Model, Protocol):
    """A model with connections of its own."""

    async def aclose(self) -> None:
        """Close its connections. Must not raise."""
        ...


async def open_model(settings: ModelSettings, read_artifact: ReadArtifact) -> OpenModel:
    """Return a model. Close it when done. Raise `CodeSDKError` if something is missing, naming what."""
    check_settings(settings)
    try:
        library, client = await asyncio.to_thread(_load, settings.family.client)
    except ImportError as error:
        missing = what_is_missing([settings.provider]) or f"{error.name or 'a library'} cannot be loaded."
        raise CodeSDKError(
            f"minicode cannot ask {settings.provider}: {missing} Install it with: {INSTALL}",
            code="RUNTIME_UNAVAILABLE",
        ) from error
    await prices.ready()
    model: OpenModel = library.LibraryModel(settings, read_artifact, client, await _certificates(settings))
    return model


def what_is_missing(providers: Iterable[ProviderId]) -> str | None:
    """Return which libraries are missing, and what for, in sentences; None if none is. Loads nothing."""
    if not _is_there(LIBRARY):
        return f"{LIBRARY} is not installed."
    needing: dict[str, list[ProviderId]] = {}
    for provider in providers:
        needing.setdefault(PROVIDERS[provider].library, []).append(provider)
    sentences = [
        f"{library}, which {' and '.join(those)} {'need' if len(those) > 1 else 'needs'}, is not installed."
        for library, those in needing.items()
        if not _is_there(library)
    ]
    return " ".join(sentences) or None


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # not even the package that it is a part of
        return False


def _load(client: str) -> tuple[ModuleType, ModuleType]:
    return import_module(_MODEL), import_module(client)


async def _certificates(settings: ModelSettings) -> SSLContext:
    secure = (settings.address or "").startswith("https:")
    return await asyncio.to_thread(tls.shared) if secure else tls.trusting_nobody()
