"""Owning tools on the wire: what the acts cost for each event of a stream and for each request, in every format.

Against passing the bytes unchanged while they are read on the side, as the gateway does with every answer.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.measure import cost, median
from bench.table import Report, ratio_at_most
from codesdk.contract.models import Tokens, Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import Plan
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.wires.exchange import Ask, Call, Finish, Part, TextChunk
from codesdk.gateway.wires.formats import codec_for

WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat", "gemini")
MOST = 1.5
"""For text, which is most of all events, the acts may cost at most half as much again as reading it does."""
_CHUNK = 1400  # about what one packet of a network holds
_TEXT = "some words of a model, "


class _Case(NamedTuple):
    name: str
    parts: Sequence[Part]


async def run(report: Report, quick: bool) -> None:
    deltas = 50 if quick else 1000
    text: list[Part] = [TextChunk(_TEXT) for _ in range(deltas)]
    end = Finish("tool_use", tokens=Tokens(input=1, output=1))
    calls = deltas // 20
    cases = [
        _Case("text", [*text, Finish("end_turn", tokens=Tokens(input=1, output=1))]),
        _Case("calls of ours, renamed", [*_calls("workspace_read", calls), end]),
        _Case("calls that are denied", [*_calls("Bash", calls), end]),
    ]
    for wire in WIRES:
        report.progress(f"{wire}: microseconds of processor time for each event")
        for case in cases:
            _measure(report, wire, case)
        _requests(report, wire, 20 if quick else 200)


def _measure(report: Report, wire: Wire, case: _Case) -> None:
    body = _body(wire, 1)
    ask = _ask(wire, body)
    data = _encoded(wire, ask, case.parts)
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    events = data.count(b"data: ")
    plan = _plan()

    def owned() -> None:
        answer = acts_for(wire).answer(plan, body)
        for chunk in chunks:
            answer.feed(chunk)
        answer.end()

    def read() -> None:
        decoder = codec_for(wire).decoder()
        for chunk in chunks:
            decoder.feed(chunk)

    report.line(
        f"{wire}: {case.name}",
        _micros(owned, events),
        "µs/event",
        against=("reading it", _micros(read, events)),
        goal=ratio_at_most(MOST) if case.name == "text" else None,
        note=f"{events} events of {len(data) // events} bytes",
    )


def _requests(report: Report, wire: Wire, turns: int) -> None:
    body, plan = _body(wire, turns), _plan()
    acts = acts_for(wire)
    report.line(
        f"{wire}: a request of {turns} turns",
        _micros(lambda: acts.request(body, plan), 1),
        "µs",
        against=("parsing it", _micros(lambda: _ask(wire, body), 1)),
    )


def _micros(work: Callable[[], object], count: int, rounds: int = 7) -> float:
    """Return the processor time of one of `count` things in the median round."""
    found: list[float] = []
    for _ in range(rounds):
        with cost() as spent:
            work()
        found.append(spent.cpu_s / count * 1e6)
    return median(found)


def _plan() -> Plan:
    spec = ToolSpec(
        name="workspace.read", description="Reads.", input_schema={"type": "object"}, tool_class="read_only"
    )
    numbers = itertools.count()
    return Plan(
        tools={"workspace_read": spec},
        naming=ToolNaming(prefix="mcp__codesdk__"),
        natives=frozenset(),
        denied={},
        new_mark=lambda: f"[[codesdk:{next(numbers)}]]",
        reason_for=lambda name: "There is no such tool.",
    )


def _calls(name: str, count: int) -> list[Part]:
    return [Call(f"call_{n}", name, {"path": "src/codesdk/gateway/ownership/acts.py"}) for n in range(count)]


def _encoded(wire: Wire, ask: Ask, parts: Sequence[Part]) -> bytes:
    encoder = codec_for(wire).encoder(ask, "bench")
    return encoder.start() + b"".join(encoder.feed(part) for part in parts)


def _ask(wire: Wire, body: dict[str, Any]) -> Ask:
    path = {
        "anthropic": "/v1/messages",
        "responses": "/v1/responses",
        "chat": "/v1/chat/completions",
        "gemini": "/v1beta/models/m:streamGenerateContent",
    }[wire]
    route = codec_for(wire).route("POST", path, "alt=sse")
    assert route is not None
    return codec_for(wire).parse(route, body)


def _body(wire: Wire, turns: int) -> dict[str, Any]:
    """A request of a conversation with that many turns."""
    said = "A message of the user, and an answer to it. " * 5
    if wire == "gemini":
        contents = [
            {"role": role, "parts": [{"text": said}]} for _ in range(turns) for role in ("user", "model")
        ]
        return {"contents": contents}
    key = "input" if wire == "responses" else "messages"
    messages = [{"role": role, "content": said} for _ in range(turns) for role in ("user", "assistant")]
    return {"model": "m", "max_tokens": 1, "stream": True, key: messages}
