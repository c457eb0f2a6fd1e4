"""Anthropic."""

from ssl import SSLContext
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from codesdk.minicode.models.settings import ModelSettings


def make(
    settings: ModelSettings, http: httpx2.AsyncClient, certificates: SSLContext
) -> tuple[Model, dict[str, Any]]:
    """Return a model, and what its requests ask for: that the conversation is cached."""
    client = AsyncAnthropic(api_key=settings.key, base_url=settings.address, http_client=http, max_retries=0)
    return AnthropicModel(settings.model, provider=AnthropicProvider(anthropic_client=client)), {
        "cache": True
    }
