"""A provider's model at the real wire: the gateway plays a script, and what it is asked is kept."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from codesdk.contract.messages import Message, ToolResult, user
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Ask, Codec
from codesdk.minicode.models import PROVIDERS, ModelSettings, OpenModel, open_model
from codesdk.minicode.types import ModelItem, ModelMessage, ModelRequest, ProviderId, ToolDefinition
from codesdk.script import parse_object

READ = ToolDefinition(
    name="workspace.read",
    description="Read a file.",
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
ALL: tuple[ProviderId, ...] = tuple(PROVIDERS)
PIXEL = b"\x89PNG\r\n\x1a\n-not-really-a-pixel"


async def read_pixel(artifact_id: str) -> bytes:
    return PIXEL if artifact_id == "pixel" else b"The captain's parrot."


@dataclass
class Asked:
    """A gateway's backend that keeps what it is asked. `change` rewrites the bytes of answers."""

    inner: ScriptedModel
    bodies: list[Any] = field(default_factory=list)
    requests: list[RawRequest] = field(default_factory=list)
    change: tuple[bytes, bytes] | None = None

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        return await self.inner.list_models(codec, request)

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        self.bodies.append(ask.body)
        self.requests.append(request)
        reply = await self.inner.answer(codec, ask, request)
        if self.change is not None and not isinstance(reply.body, bytes):
            reply.body = _changed(reply.body, *self.change)
        return reply


async def _changed(body: AsyncIterator[bytes], old: bytes, new: bytes) -> AsyncIterator[bytes]:
    async for chunk in body:
        yield chunk.replace(old, new, 1)


@dataclass
class Wire:
    """A model and the provider that it asks."""

    model: OpenModel
    asked: Asked
    messages: list[Message]

    async def ask(
        self,
        results: Sequence[str] = (),
        instructions: str = "Be brief.",
        tools: Sequence[ToolDefinition] = (READ,),
    ) -> list[ModelItem]:
        """Ask once, and go on with the conversation: with results for the calls of the answer, or with another word."""
        number = len(self.asked.bodies)
        request = ModelRequest(
            instructions=instructions, messages=self.messages, tools=list(tools), message_id=f"m{number}"
        )
        items = [item async for item in self.model.stream(request)]
        last = items[-1]
        assert isinstance(last, ModelMessage)
        told = [
            ToolResult(tool_call_id=call.id, result=result, is_error=result.startswith("ERROR"))
            for call, result in zip(last.calls, results, strict=True)
        ]
        following = Message(role="tool", content=[*told]) if told else user("And now?")
        self.messages = [*self.messages, last.message, following]
        return items


@asynccontextmanager
async def wire(
    provider: ProviderId, *turns: dict[str, Any], change: tuple[bytes, bytes] | None = None, **settings: Any
) -> AsyncIterator[Wire]:
    """Open a model of a provider that plays these turns."""
    script = parse_object({"turns": list(turns)}, "a test")
    async with Gateway() as gateway:
        asked = Asked(ScriptedModel(script), change=change)
        url = gateway.admit(asked) + PROVIDERS[provider].path
        given = {"model": PROVIDERS[provider].models[0], "key": "not-a-key", "base_url": url, "direct": True}
        model = await open_model(ModelSettings(provider=provider, **(given | settings)), read_pixel)
        try:
            yield Wire(model, asked, [user("Hi")])
        finally:
            await model.aclose()


def call(path: str) -> dict[str, Any]:
    return {"call": {"tool": "workspace.read", "input": {"path": path}}}
