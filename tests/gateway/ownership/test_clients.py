"""Rewritten answers, judged by the official clients: what they hear, and what they send back."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.gateway.clients import Heard, converse
from tests.gateway.judge import judge
from tests.gateway.ownership.agents import check_order, results_follow
from tests.gateway.ownership.rig import (
    CODE,
    MARK,
    NAMESPACE,
    PREFIX,
    WIRES,
    finish,
    make_plan,
    parse,
    play,
    play_whole,
)

from codesdk.contract.models import Tokens, Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.wires.exchange import (
    Ask,
    AskCall,
    AskResult,
    Call,
    Codec,
    Part,
    ReasoningChunk,
    TextChunk,
)
from codesdk.gateway.wires.formats import codec_for

TOKENS = Tokens(input=10, output=3, cache_read=5, reasoning=2)
STEPS: list[list[Part]] = [
    finish(
        [ReasoningChunk("First."), TextChunk("Let me look."), Call("c1", "Bash", {"command": "ls -la /"})],
        TOKENS,
    ),
    finish([ReasoningChunk("Again."), Call("c2", "exec", {}), Call("c3", "shell", {"a": "b" * 50})], TOKENS),
    finish([TextChunk("So."), Call("c4", "workspace_read", {"path": "x"}), Call("c5", "Bash", {})], TOKENS),
]
ENDS: dict[Wire, tuple[str, str]] = {
    "anthropic": ("tool_use", "end_turn"),
    "responses": ("completed", "completed"),
    "chat": ("tool_calls", "stop"),
    "gemini": ("STOP", "STOP"),
}
NAMES = [(PREFIX, "mcp__codesdk__workspace_read"), (ToolNaming(), "workspace_read")]


class _Rewritten:
    """An encoder that writes what the acts made of an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def start(self) -> bytes:
        return self._data

    def feed(self, part: Part) -> bytes:
        return b""


def rewriting(
    wire: Wire, steps: Sequence[Sequence[Part]], naming: ToolNaming
) -> tuple[Codec, dict[str, Any]]:
    """A codec whose answers are rewritten, and all that was denied in them."""
    denied: dict[str, Any] = {}

    def encoder(ask: Ask, answer_id: str) -> Any:
        played = play(wire, steps, plan=make_plan(naming), sizes=[37], sse=ask.sse)
        denied.update(played.denied)
        return _Rewritten(played.data)

    def whole(ask: Ask, answer_id: str, parts: Any) -> bytes:
        played = play_whole(wire, steps, plan=make_plan(naming))
        denied.update(played.denied)
        return played.data

    return msgspec.structs.replace(codec_for(wire), encoder=encoder, whole=whole), denied


@pytest.mark.parametrize("naming", [PREFIX, NAMESPACE, ToolNaming()], ids=["prefix", "namespace", "plain"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_the_client_hears_one_answer_with_our_call_and_marks(
    wire: Wire, streaming: bool, naming: ToolNaming
):
    codec, denied = rewriting(wire, STEPS, naming)
    async with judge(codec, STEPS[0]) as url:
        turn = await converse(url, wire, streaming=streaming)
        flat = "mcp__codesdk__workspace_read"
        name = (
            "workspace_read"
            if naming is not PREFIX and (wire == "responses" or naming is not NAMESPACE)
            else flat
        )
        assert turn.heard == Heard(
            text=f"Let me look.{MARK.format(0)}{MARK.format(1)}{MARK.format(2)}So.{MARK.format(3)}",
            reasoning="First.Again.",
            calls=((name, {"path": "x"}),),
            stop=ENDS[wire][0],
            tokens=(45, 15, 60),
        )
        await converse(url, wire, streaming=streaming, messages=turn.follow_up(["the file"]))
    check_sent_back(wire, url.asks[1].body, naming, denied, streaming)


def check_sent_back(
    wire: Wire, body: dict[str, Any], naming: ToolNaming, denied: dict[str, Any], streaming: bool
) -> None:
    """What the client sends back becomes what the model said and was told."""
    plan = make_plan(naming, denied=denied)
    ask = parse(wire, acts_for(wire).request(body, plan), stream=streaming)
    check_order(ask)
    results_follow(ask)
    blocks = [block for message in ask.messages for block in message.blocks]
    calls = [part for step in STEPS for part in step if isinstance(part, Call)]
    assert {b.id: b for b in blocks if isinstance(b, AskCall)} == {
        c.id: AskCall(c.id, c.name, c.input) for c in calls
    }
    assert {b.id: b.text for b in blocks if isinstance(b, AskResult)} == {
        c.id: "the file" if c.name == "workspace_read" else f"{c.name} is not available." for c in calls
    }
    assert ask.tools == ["workspace_read", "workspace_write"]


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_without_a_call_that_is_left_ends_the_turn(wire: Wire, streaming: bool):
    codec, _ = rewriting(wire, STEPS[:1], PREFIX)
    async with judge(codec, STEPS[0]) as url:
        heard = (await converse(url, wire, streaming=streaming)).heard
    assert heard == Heard(
        text=f"Let me look.{MARK.format(0)}", reasoning="First.", stop=ENDS[wire][1], tokens=(15, 5, 20)
    )


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
async def test_an_agent_that_only_runs_code_gets_our_call_as_code(wire: Wire, streaming: bool):
    codec, denied = rewriting(wire, STEPS, CODE)
    async with judge(codec, STEPS[0]) as url:
        turn = await converse(url, wire, streaming=streaming)
        code = 'async function main(){ return await tools.mcp_codesdk.workspace_read({"path":"x"}); }'
        assert turn.heard.calls == (("run_typescript", {"code": code}),)
        assert turn.heard.stop == ENDS[wire][0]
        await converse(url, wire, streaming=streaming, messages=turn.follow_up(["the file"]))
    check_sent_back(wire, url.asks[1].body, CODE, denied, streaming)
