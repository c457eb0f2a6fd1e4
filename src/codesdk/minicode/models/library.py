"""A model of pydantic-ai, made by one of `clients`, and a `Model` around it that asks once for each call.

Its own retries, and those of the clients below it, are off: whoever asks sees every attempt.
"""

from collections.abc import AsyncGenerator
from ssl import SSLContext
from types import ModuleType
from typing import Any

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import InstructionPart, ModelResponse
from pydantic_ai.models import ModelRequestParameters

from codesdk import prices
from codesdk.contract.models import Tokens
from codesdk.minicode.models.answer import message_of, piece_of, tokens_of
from codesdk.minicode.models.errors import WebPage, broken_off, error_of, filtered
from codesdk.minicode.models.request import Writer
from codesdk.minicode.models.settings import ModelSettings, ReadArtifact
from codesdk.minicode.types import FinishReason, ModelItem, ModelMessage, ModelRequest, Usage
from codesdk.tools import by_wire_name

CONNECT_S = 20.0
_ENDS: dict[str, FinishReason] = {"length": "length", "content_filter": "content_filter"}
"""All other ends of an answer without calls are a `stop`. Whether it has calls, its parts say."""


class LibraryModel:
    """A model behind pydantic-ai. Implements `OpenModel`."""

    def __init__(
        self,
        settings: ModelSettings,
        read_artifact: ReadArtifact,
        client: ModuleType,
        certificates: SSLContext,
    ) -> None:
        self._settings = settings
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(settings.silence_s, connect=CONNECT_S),
            trust_env=not settings.direct,
            follow_redirects=False,
            event_hooks={"response": [_refuse_page]},
            verify=certificates,
        )
        self._model, asks = client.make(settings, self._http, certificates)
        self._asks: Any = _asks(settings) | asks
        tells_errors = settings.provider in ("anthropic", "google")  # others have no field for it
        self._writer = Writer(settings.origin, self._model.system, read_artifact, tells_errors=tells_errors)

    @property
    def name(self) -> str:
        return self._settings.model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelItem, None]:
        """Ask, and yield what comes."""
        try:
            messages = await self._writer.messages(request.messages)
            tools = self._writer.tools(request.tools)
            given = [InstructionPart(content=request.instructions)] if request.instructions else []
            parameters = ModelRequestParameters(function_tools=tools, instruction_parts=given)
            async with model_request_stream(
                self._model, messages, model_settings=self._asks, model_request_parameters=parameters
            ) as answer:
                async for event in answer:
                    piece = piece_of(event, request.message_id)
                    if piece is not None:
                        yield piece
                response = answer.get()
        except Exception as error:
            raise error_of(error, self._settings) from error
        yield self._whole(response, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _whole(self, response: ModelResponse, request: ModelRequest) -> ModelMessage:
        reason = response.finish_reason
        if reason is None or response.state != "complete":
            raise broken_off(self._settings)
        names = by_wire_name(tool.name for tool in request.tools)
        message, calls = message_of(response, request.message_id, self._settings.origin, names)
        if reason == "content_filter" and not message.content:
            raise filtered(self._settings, str((response.provider_details or {}).get("refusal") or ""))
        model, tokens = response.model_name or self.name, tokens_of(response)
        return ModelMessage(
            message=message,
            calls=calls,
            finish_reason="tool_calls" if calls else _ENDS.get(reason, "stop"),
            usage=self._usage(model, tokens),
            model=model,
        )

    def _usage(self, model: str, tokens: Tokens) -> Usage:
        return Usage(
            input=tokens.input,
            output=tokens.output,
            cache_read=tokens.cache_read,
            cache_write=tokens.cache_write,
            reasoning=tokens.reasoning,
            cost_usd=prices.price_at(self._settings.family.wire, self._settings.base_url, model, tokens),
        )


async def _refuse_page(response: httpx2.Response) -> None:
    """Raise if an answer is a web page: a client would find nothing in it, and take it for an empty answer."""
    if response.headers.get("content-type", "").startswith("text/html"):
        raise WebPage(response.status_code)


def _asks(settings: ModelSettings) -> dict[str, Any]:
    """Return what requests to every kind of provider ask for."""
    asks: dict[str, Any] = {"timeout": settings.silence_s}
    if settings.max_output_tokens is not None:
        asks["max_tokens"] = settings.max_output_tokens
    if settings.effort is not None:
        asks["thinking"] = False if settings.effort == "off" else settings.effort
    return asks
