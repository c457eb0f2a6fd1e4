"""What is around a probed agent: a model that an experiment scripts, and an MCP server with a few tools. Both only watch.

Nothing is taken out of its requests and nothing is denied, unlike in a session: this is to find out what it does.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import ToolClass, ToolSpec
from codesdk.gateway import (
    Ask,
    AskResult,
    AskText,
    Call,
    Codec,
    Finish,
    Gateway,
    Part,
    RawRequest,
    ReasoningChunk,
    Reply,
    TextChunk,
)
from codesdk.runtimes import as_dict
from codesdk.testing.probe.declared import declared
from codesdk.testing.probe.seen import Asked, Called, Made, Observation
from codesdk.tools import McpHost, wire_name

TOOLS: dict[str, ToolClass] = {
    "probe.read": "read_only",
    "probe.write": "write",
    "probe.remove": "dangerous",
}
"""Agents treat them differently, by the hints that go with each class."""
OWN = tuple(map(wire_name, TOOLS))
_SHOWN = 2_000
HOLD_S = 3.0
"""How long a call is held to see whether another one comes beside it."""


class Answer(msgspec.Struct, kw_only=True):
    """What the model answers."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[Made] = ()
    stalls: bool = False
    """Whether it never ends."""


Play = Callable[[Asked], Answer]
"""A request of the conversation → the model's answer."""


def say(text: str) -> Play:
    """Return a model that says one thing."""
    return lambda asked: Answer(text=text)


class World:
    """The model and the tools. `seen` is what the current experiment saw; `turn` begins the next one."""

    def __init__(self, gateway: Gateway, host: McpHost) -> None:
        self._gateway = gateway
        self._host = host
        self.seen = Observation()
        self.past = [self.seen]
        """What each turn saw, so far."""
        self.words = ""
        self.play: Play = say("OK")
        self.wanted: tuple[str, ...] = ()
        self.listed = asyncio.Event()
        self.asked = asyncio.Event()
        self.holds = False
        self._second = asyncio.Event()
        self._running: set[asyncio.Future[ToolReply]] = set()
        self._marks: dict[str, str] = {}
        self._plain = False
        self.tokens: set[str] = set()

    def turn(self, words: str, play: Play, wanted: tuple[str, ...] = (), *, holds: bool = False) -> None:
        """Begin another experiment: what the user says, what the model does, and what is looked for in its requests."""
        self.seen = Observation()
        self.past.append(self.seen)
        self.words, self.play, self.wanted, self.holds = words, play, wanted, holds
        self.asked.clear()
        self._second.clear()

    def judged(self, asked: Asked) -> Asked:
        """Return whether a request is the conversation's. Titles end with our words, too, so plain ones go first."""
        self._plain = self._plain or (asked.main and not asked.wrapped)
        return msgspec.structs.replace(asked, main=asked.main and not (asked.wrapped and self._plain))

    def address(self, name: str) -> str:
        """Return a new address of the model, whose requests are marked with a name."""
        return self._noted(self._gateway.admit(_Model(self, name)))

    async def tool_address(self) -> str:
        """Return a new address of the MCP server."""
        self.listed.clear()
        return self._noted(await self._host.admit("probe", self, heard=self._hear))

    def _noted(self, url: str) -> str:
        self.tokens.update(part for part in url.split("/") if len(part) >= 24)
        return url

    # --- our MCP server: `ToolCalls` -----------------------------------------------------------------------

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        """Return the tools. Whoever reads them is noted."""
        self.seen.listed += 1
        self.listed.set()
        path = {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
            "required": ["path"],
        }
        return [
            ToolSpec(name=name, description=f"Stands for {name}.", input_schema=path, tool_class=kind)
            for name, kind in TOOLS.items()
        ]

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        """Note a call and answer it, at once or when another one has come beside it."""
        self.seen.called.append(
            Called(
                name=wire_name(name),
                arguments=as_dict(arguments),
                marks=self._marks,
                beside=len(self._running),
            )
        )
        if len(self.seen.called) > 1:
            self._second.set()
        held: asyncio.Future[ToolReply] = asyncio.ensure_future(self._reply())
        self._running.add(held)
        held.add_done_callback(self._running.discard)
        return held

    async def _reply(self) -> ToolReply:
        if self.holds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_S):
                    await self._second.wait()
        return ToolReply(result="The number is 4711.", is_error=False)

    def _hear(self, name: str, marks: Mapping[str, str]) -> None:
        self._marks = dict(marks)


class _Model:
    """Answers the requests to one address."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._count = 0

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        """Answer nothing."""
        return None

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Note a request and answer it: as the experiment says, or with a word if it is not the conversation's."""
        if ask.kind == "count_tokens":
            return Reply(status=200, headers=_JSON, body=codec.count(10))
        self._count += 1
        world = self._world
        asked = world.judged(noted(ask, request, self._name, world.words, world.wanted))
        world.seen.asked.append(asked)
        world.asked.set()
        answer = world.play(asked) if asked.main else Answer(text="OK")
        world.seen.made.extend(answer.calls)
        world.seen.said += answer.text
        return _reply(codec, ask, f"probe{self._name}{self._count}", answer)


def noted(ask: Ask, request: RawRequest, address: str, words: str, wanted: tuple[str, ...]) -> Asked:
    """Return what is kept of a request.

    It may be the conversation's if it has tools and the user's last text ends with ours. If something follows ours, as it
    does in a title or a review, too, it must offer tools of ours.
    """
    users = _texts(ask, "user")
    last = users[-1].strip() if users else ""
    tools = tuple(declared(ask.wire, ask.body))
    before, found, rest = last.rpartition(words) if words else ("", "", "")
    held = bool(found) and (not rest or any(tool.name.endswith(OWN) for tool in tools))
    body = request.body.decode("utf-8", "replace")
    return Asked(
        wire=ask.wire,
        path=request.path,
        model=ask.model,
        address=address,
        tools=tools,
        system="\n".join(_texts(ask, "system"))[:_SHOWN],
        user=users[-1][-_SHOWN:] if users else "",
        main=held and bool(ask.tools),
        wrapped=held and bool(before or rest),
        rest=rest if held else "",
        results=tuple(
            block.text[:_SHOWN] for m in ask.messages for block in m.blocks if isinstance(block, AskResult)
        ),
        held=tuple(word for word in wanted if word in body),
    )


def _texts(ask: Ask, role: str) -> list[str]:
    return [
        block.text
        for message in ask.messages
        if message.role == role
        for block in message.blocks
        if isinstance(block, AskText)
    ]


_JSON = {"content-type": "application/json"}
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def _reply(codec: Codec, ask: Ask, answer_id: str, answer: Answer) -> Reply:
    ask = _spelling(ask, answer.calls)
    parts: list[Part] = []
    if answer.reasoning:
        parts.append(ReasoningChunk(answer.reasoning))
    if answer.text:
        parts.append(TextChunk(answer.text))
    parts += [Call(call.id, call.joined, call.input) for call in answer.calls]
    end = Finish(stop_reason="tool_use" if answer.calls else "end_turn")
    if not ask.stream:
        return Reply(status=200, headers=_JSON, body=codec.whole(ask, answer_id, [*parts, end]))

    async def stream() -> AsyncIterator[bytes]:
        encoder = codec.encoder(ask, answer_id)
        yield encoder.start()
        for part in parts:
            yield encoder.feed(part)
        if answer.stalls:
            await asyncio.sleep(3600)
        yield encoder.feed(end)

    return Reply(status=200, headers=_SSE if ask.sse else _JSON, body=stream())


def _spelling(ask: Ask, calls: Sequence[Made]) -> Ask:
    """Return a request that offers the namespaces of these calls, by which its format writes them."""
    groups = [
        {"type": "namespace", "name": call.namespace, "tools": [{"type": "function", "name": call.name}]}
        for call in calls
        if call.namespace is not None
    ]
    if not groups:
        return ask
    return msgspec.structs.replace(ask, body={**ask.body, "tools": [*(ask.body.get("tools") or []), *groups]})
