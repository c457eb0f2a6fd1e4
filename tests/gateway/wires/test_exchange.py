"""What the wire formats share: chunks of an answer that become one."""

import pytest
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.gateway.wires import anthropic, chat, gemini
from codesdk.gateway.wires.exchange import (
    Ask,
    Call,
    Codec,
    Finish,
    Part,
    ReasoningChunk,
    TextChunk,
    joined,
)


def test_consecutive_chunks_of_one_kind_become_one_and_empty_ones_are_left_out():
    call, end = Call("c1", "read_file", {}), Finish("tool_use")
    parts: list[Part] = [
        ReasoningChunk(""),
        TextChunk("a"),
        ReasoningChunk(""),
        TextChunk("b"),
        ReasoningChunk("c"),
        ReasoningChunk("d"),
        TextChunk("e"),
        call,
        call,
        TextChunk(""),
        TextChunk("f"),
        end,
    ]
    assert list(joined(parts)) == [
        TextChunk("ab"),
        ReasoningChunk("cd"),
        TextChunk("e"),
        call,
        call,
        TextChunk("f"),
        end,
    ]


@pytest.mark.parametrize("codec", [anthropic.CODEC, chat.CODEC, gemini.CODEC], ids=lambda codec: codec.wire)
@pytest.mark.parametrize("kind", [TextChunk, ReasoningChunk])
def test_an_unstreamed_answer_in_many_pieces_is_written_in_linear_work(
    codec: Codec, kind: type[TextChunk | ReasoningChunk]
):
    ask = Ask(wire=codec.wire, kind="generate", model="m", stream=False, messages=[], tools=[], body={})
    piece = kind("x" * 100)
    with hang_guard():
        answer = codec.whole(ask, "a", [*[piece] * 400_000, Finish("end_turn")])
    assert b"x" * 40_000_000 in answer
