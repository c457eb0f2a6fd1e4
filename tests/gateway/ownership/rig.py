"""Answers of a model in steps, played through the acts of a format as the gateway does it.

`Plays` makes answers with our own encoders, cuts them anywhere, and gives what an agent and the model get to see.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codesdk.contract.models import Wire
from codesdk.contract.ownership import CodeNaming, ToolNaming
from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import AnswerActs, DeniedCall, Plan
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.wires.exchange import Ask, Call, Finish, Part, Seen
from codesdk.gateway.wires.formats import codec_for

WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat", "gemini")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = {
    name: ToolSpec(
        name=name.replace("_", ".", 1),
        description=f"Ours: {name}.",
        input_schema=SCHEMA,
        tool_class="read_only",
    )
    for name in ("workspace_read", "workspace_write")
}
PREFIX = ToolNaming(prefix="mcp__codesdk__")
NAMESPACE = ToolNaming(namespace="mcp__codesdk")
CODE = ToolNaming(
    code=CodeNaming(
        tool="run_typescript",
        argument="code",
        template="async function main(){ return await tools.mcp_codesdk.{name}({input}); }",
    )
)
PATHS: dict[Wire, tuple[str, str]] = {
    "anthropic": ("/v1/messages", ""),
    "responses": ("/v1/responses", ""),
    "chat": ("/v1/chat/completions", ""),
    "gemini": ("/v1beta/models/m:streamGenerateContent", "alt=sse"),
}
WHOLE_PATHS = PATHS | {"gemini": ("/v1beta/models/m:generateContent", "")}
MARK = "⟦codesdk:{}⟧"


def make_plan(
    naming: ToolNaming | None = PREFIX,
    *,
    natives: Iterable[str] = (),
    denied: Mapping[str, DeniedCall] | None = None,
    tools: Mapping[str, ToolSpec] = TOOLS,
    first: int = 0,
) -> Plan:
    numbers = itertools.count(first)
    return Plan(
        tools=tools,
        naming=naming,
        natives=frozenset(natives),
        denied=denied or {},
        new_mark=lambda: MARK.format(next(numbers)),
        reason_for=lambda name: f"{name} is not available.",
    )


def question(wire: Wire, *, stream: bool = True, **more: Any) -> dict[str, Any]:
    """The smallest request of a format."""
    if wire == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], **more}
    said = [{"role": "user", "content": "Hi"}]
    key = "input" if wire == "responses" else "messages"
    body = {"model": "m", "stream": stream, key: said, **more}
    if wire == "anthropic":
        body["max_tokens"] = 100
    if wire == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    return body


def parse(wire: Wire, body: dict[str, Any], *, stream: bool = True, sse: bool = True) -> Ask:
    """Parse a request with our own codec, which refuses what a provider would."""
    path, query = PATHS[wire] if stream else WHOLE_PATHS[wire]
    route = codec_for(wire).route("POST", path, query if sse else "")
    assert route is not None
    return codec_for(wire).parse(route, body)


def encode(wire: Wire, ask: Ask, parts: Sequence[Part], number: int = 0) -> bytes:
    """A streamed answer of the model."""
    encoder = codec_for(wire).encoder(ask, f"a{number}")
    return encoder.start() + b"".join(encoder.feed(part) for part in parts)


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The same bytes in pieces of these sizes, again and again."""
    pieces: list[bytes] = []
    at = 0
    for size in itertools.cycle(sizes or [len(data) or 1]):
        if at >= len(data):
            break
        pieces.append(data[at : at + size])
        at += size
    return pieces


def decode(wire: Wire, data: bytes) -> Seen:
    decoder = codec_for(wire).decoder()
    decoder.feed(data)
    return decoder.result()


def decode_whole(wire: Wire, data: bytes) -> Seen:
    decoder = codec_for(wire).decoder()
    decoder.whole(data)
    return decoder.result()


@dataclass
class Played:
    """What came of an answer: the bytes that the agent got, and all that was denied, by mark."""

    data: bytes
    acts: AnswerActs
    denied: dict[str, DeniedCall] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The requests that the model got."""


def play(
    wire: Wire,
    steps: Sequence[Sequence[Part]],
    *,
    plan: Plan | None = None,
    sizes: Sequence[int] = (),
    sse: bool = True,
    body: dict[str, Any] | None = None,
) -> Played:
    """Play a streamed answer of one or more steps."""
    plan = plan or make_plan()
    acts = acts_for(wire)
    sent = acts.request(body or question(wire), plan)
    answer = acts.answer(plan, sent)
    played = Played(b"", answer, asked=[sent])
    for number, parts in enumerate(steps):
        if number:
            sent = acts.again(sent, answer)
            played.asked.append(sent)
            answer.next_step()
        encoded = encode(wire, parse(wire, sent, sse=sse), parts, number)
        for chunk in cut(encoded, sizes):
            played.data += answer.feed(chunk)
        played.denied |= {call.mark: call for call in answer.denied}
    played.data += answer.end()
    return played


def play_whole(wire: Wire, steps: Sequence[Sequence[Part]], *, plan: Plan | None = None) -> Played:
    """Play an unstreamed answer of one or more steps."""
    plan = plan or make_plan()
    acts = acts_for(wire)
    sent = acts.request(question(wire, stream=False), plan)
    answer = acts.answer(plan, sent)
    played = Played(b"", answer, asked=[sent])
    for number, parts in enumerate(steps):
        if number:
            sent = acts.again(sent, answer)
            played.asked.append(sent)
            answer.next_step()
        ask = parse(wire, sent, stream=False)
        played.data = answer.whole(codec_for(wire).whole(ask, f"a{number}", parts))
        played.denied |= {call.mark: call for call in answer.denied}
    return played


def finish(parts: Iterable[Part], tokens: Any = None) -> list[Part]:
    """Parts with the end that a model would give them."""
    given = list(parts)
    reason = "tool_use" if any(isinstance(part, Call) for part in given) else "end_turn"
    return [*given, Finish(reason, tokens=tokens)]
