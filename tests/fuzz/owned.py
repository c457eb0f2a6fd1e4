"""Hostile answers and requests through the acts that own tools: nothing raises, and no call but ours gets through.

What came out is read by the format's own decoder, after a reader of JSON that accepts what an agent's may accept.
"""

import json
import re
from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec

from codesdk.contract.models import Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.ownership.values import write_json
from codesdk.gateway.wires.exchange import Seen
from codesdk.gateway.wires.formats import codec_for

PREFIX = "mcp__codesdk__"
_NAMES = ("workspace_read", "read_file", "get_weather")
_LINES = re.compile(rb"\r\n|\n|\r")
_HALVES = re.compile("[\ud800-\udfff]")
_ITEMS: dict[Wire, dict[str, Any]] = {
    "anthropic": {"type": "tool_use", "id": "d1", "name": "Bash", "input": {}},
    "responses": {"type": "function_call", "id": "fc_d", "call_id": "d1", "name": "Bash", "arguments": "{}"},
    "chat": {"id": "d1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}},
    "gemini": {"functionCall": {"id": "d1", "name": "Bash", "args": {}}},
}


def _plan(denied: Mapping[str, DeniedCall] | None = None) -> Plan:
    numbers = count()
    schema = {"type": "object"}
    return Plan(
        tools={
            name: ToolSpec(
                name=name.replace("_", ".", 1), description="", input_schema=schema, tool_class="read_only"
            )
            for name in _NAMES
        },
        naming=ToolNaming(prefix=PREFIX),
        natives=frozenset(),
        denied=denied or {},
        new_mark=lambda: f"<mark {next(numbers)}>",
        reason_for=lambda name: "no",
    )


def stream(wire: Wire, data: bytes, pieces: list[bytes]) -> None:
    """The same comes out wherever the stream is cut, also as the second step; only our calls are in it."""
    whole, cut = (acts_for(wire).answer(_plan(), {}) for _ in range(2))
    out = whole.feed(data)
    asked = acts_for(wire).again({}, whole)
    write_json(asked)
    whole.next_step()
    out += whole.feed(data) + whole.end()
    others = b"".join(map(cut.feed, pieces))
    cut.next_step()
    others += b"".join(map(cut.feed, pieces)) + cut.end()
    assert out == others
    decoder = codec_for(wire).decoder()
    decoder.feed(_strict_lines(out))
    _check(decoder.result())


def whole(wire: Wire, data: bytes) -> None:
    answer = acts_for(wire).answer(_plan(), {})
    for _ in range(2):
        out = answer.whole(data)
        decoder = codec_for(wire).decoder()
        decoder.whole(_strict(out))
        _check(decoder.result())
        write_json(acts_for(wire).again({}, answer))
        answer.next_step()


def request(wire: Wire, path: str, data: bytes) -> None:
    """What our own codec accepts it accepts afterwards, with none but our tools in it."""
    body = msgspec.json.decode(data)
    if not isinstance(body, dict):
        return
    denied = {
        mark: DeniedCall(
            mark=mark, name="Bash", input={}, model_call_id="d1", item=_ITEMS[wire], reason="no", step=step
        )
        for step, mark in enumerate(("the", "a", "Hello"))
    }
    sent = acts_for(wire).request(body, _plan(denied))
    write_json(sent)
    codec = codec_for(wire)
    route = codec.route("POST", path, "")
    assert route is not None
    try:
        codec.parse(route, body)
    except ValueError:
        return
    assert list(codec.parse(route, sent).tools) == list(_NAMES)


def _check(seen: Seen) -> None:
    assert not [call for call in seen.calls if not call.name.startswith(PREFIX)]


def _strict_lines(data: bytes) -> bytes:
    """Return the same events, with the data of each line as any reader would understand it."""
    if data.lstrip()[:1] in (b"[", b"{"):
        return _strict(data)
    lines = _LINES.split(data)
    return b"".join(b"data: " + _strict(line[5:]) + b"\n\n" for line in lines if line.startswith(b"data:"))


def _strict(data: bytes) -> bytes:
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False, parse_int=float)
        return _HALVES.sub("?", json.dumps(value, ensure_ascii=False)).replace("NaN", "null").encode()
    except (ValueError, RecursionError):
        return data
