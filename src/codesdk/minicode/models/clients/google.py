"""Google."""

import warnings
from ssl import SSLContext
from typing import Any

import httpx2
from pydantic_ai.models import Model

from codesdk.minicode.models.settings import ModelSettings

with warnings.catch_warnings():
    # Google's client has escapes that its first compilation warns of: nothing that a user of ours could mend.
    warnings.simplefilter("ignore")
    from google.genai import Client
    from google.genai.types import HttpOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider


def make(
    settings: ModelSettings, http: httpx2.AsyncClient, certificates: SSLContext
) -> tuple[Model, dict[str, Any]]:
    """Return a model, and what its requests ask for."""
    client = _client(settings, http, certificates)
    model = GoogleModel(settings.model, provider=GoogleProvider(client=client))
    # The clients of the others were made so that they ask once; a copy of this one would read the environment.
    asks: dict[str, Any] = {"max_retries": 0}
    if settings.effort is None and model.profile.get("supports_thinking"):
        asks["google_thinking_config"] = {"include_thoughts": True}
    return model, asks


def _client(settings: ModelSettings, http: httpx2.AsyncClient, certificates: SSLContext) -> Client:
    options = HttpOptions(
        base_url=settings.address,
        httpx_async_client=http,
        timeout=int(settings.silence_s * 1000),
        # It makes a client without asyncio as well, and readies itself for websockets: each would read all certificates.
        client_args={"verify": certificates},
        async_client_args={"ssl": certificates},
    )
    return Client(vertexai=False, api_key=settings.key, http_options=options)
