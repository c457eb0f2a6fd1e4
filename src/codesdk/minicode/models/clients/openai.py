"""OpenAI, and services that speak Chat Completions as it does."""

from ssl import SSLContext
from typing import Any

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from codesdk.minicode.models.settings import ModelSettings

NO_KEY = "no-key-needed"
"""What is sent to a service that needs no key: its client insists on one."""


def make(
    settings: ModelSettings, http: httpx2.AsyncClient, certificates: SSLContext
) -> tuple[Model, dict[str, Any]]:
    """Return a model, and what its requests ask for."""
    client = _client(settings, http)
    if settings.provider == "openai-compatible":
        provider = OpenAICompatibleProvider(settings.service or "openai-compatible", openai_client=client)
        # Else a stream that was cut off would pass for a whole answer.
        whole = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
        return OpenAIChatModel(settings.model, provider=provider, profile=whole), {}
    model = OpenAIResponsesModel(settings.model, provider=OpenAIProvider(openai_client=client))
    asks: dict[str, Any] = {"openai_store": False}  # nothing is kept at the provider
    if model.profile.get("openai_supports_reasoning"):
        asks["openai_reasoning_summary"] = "auto"
    return model, asks


def _client(settings: ModelSettings, http: httpx2.AsyncClient) -> AsyncOpenAI:
    client = AsyncOpenAI(
        api_key=settings.key or NO_KEY, base_url=settings.address, http_client=http, max_retries=0
    )
    # Of the environment's account, which need not be the one of this key, let alone of another service.
    client.organization = client.project = None
    return client
