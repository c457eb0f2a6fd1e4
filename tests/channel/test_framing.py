import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from tests.channel.requirements import shows

from codesdk.channel.framing import Candidate, Framing, Overlong, Piece
from codesdk.channel.json_prefix import ObjectPrefix
from codesdk.channel.protocol import MARKER, read_event

EVENT = b'{"v":1,"type":"tool.result","ts":1,"id":"a","ok":true}'
LINES = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b"{", b"{}", b"@", b"@@MEM", MARKER, MARKER + EVENT, EVENT, b"", b"plain", b"\r", b"\xff"]
        ),
    ),
    max_size=12,
)


def through(framing: Framing, chunks: list[bytes]) -> list[Piece]:
    pieces = [piece for chunk in chunks for piece in framing.feed(chunk)]
    return pieces + framing.end()


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(
        piece.line if isinstance(piece, Candidate) else piece
        for piece in pieces
        if not isinstance(piece, Overlong)
    )


def telling(pieces: list[Piece]) -> list[Piece]:
    """Return the events, and what wants to be one. Other lines are offered whole or passed on, as they come."""
    return [
        piece
        for piece in pieces
        if isinstance(piece, Overlong)
        or (isinstance(piece, Candidate) and read_event(piece.line) != (None, None))
    ]


@shows("5.3-ordinary")
@given(LINES, st.lists(st.integers(0, 200), max_size=8), st.integers(20, 60))
def test_no_byte_is_lost_added_or_moved_however_the_output_is_cut(
    lines: list[bytes], cuts: list[int], limit: int
):
    data = b"\n".join(lines)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in pairwise(places)]
    framing = Framing(limit)
    pieces = through(framing, chunks)
    assert joined(pieces) == data
    assert all(len(piece.line) <= limit for piece in pieces if isinstance(piece, Candidate))
    # However it is cut, the same lines are events.
    assert telling(pieces) == telling(through(Framing(limit), [data]))


@given(LINES)
def test_every_line_that_begins_like_an_event_is_offered_whole(lines: list[bytes]):
    data = b"\n".join(lines) + b"\n"
    wanted = [line + b"\n" for line in data.split(b"\n")[:-1] if line.startswith((b"{", MARKER))]
    offered = [piece.line for piece in through(Framing(), [data]) if isinstance(piece, Candidate)]
    assert [line for line in offered if line.startswith((b"{", MARKER))] == wanted


@pytest.mark.parametrize(
    "text",
    [
        *(b"Name: ", b"@ home", b"@@ diff", b"50% ", b"\x1b[2K{"),
        *(b"{y/n} ", b'{"y": no', b"{} ", b'{"v": 1} > ', b'{"v":1,"type":"log"}', b"{'a'", b"{,", b'{"a"}'),
    ],
)
def test_a_prompt_without_an_end_of_line_leaves_at_once(text: bytes):
    framing = Framing()
    assert framing.feed(text) == [text]
    assert framing.held == 0


def test_bytes_are_held_only_while_their_line_may_be_an_event():
    framing = Framing()
    assert framing.feed(b"@@MEM_TOOL") == []
    assert framing.held == 10
    assert framing.feed(b"BOX\n") == [Candidate(b"@@MEM_TOOLBOX\n")]
    assert framing.feed(b"@@MEM_TOOL") == []
    assert framing.feed(b"BOX") == [b"@@MEM_TOOLBOX"]
    assert framing.held == 0


def test_an_event_without_its_end_of_line_waits_for_it():
    framing = Framing()
    assert framing.feed(EVENT) == []
    assert framing.feed(b" \r") == []
    assert framing.feed(b"\n") == [Candidate(EVENT + b" \r\n")]
    assert framing.feed(EVENT) == []
    assert framing.feed(b" x") == [EVENT + b" x"]


def test_every_line_is_looked_at_from_its_own_beginning():
    framing = Framing()
    assert framing.feed(b'{"a":[') == []
    assert framing.feed(b'1]}\n{"b"') == [Candidate(b'{"a":[1]}\n')]
    assert framing.feed(b"]") == [b'{"b"]']


def test_every_byte_of_a_line_that_comes_in_pieces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    looked: list[bytes] = []

    class Noting(ObjectPrefix):
        def feed(self, data: bytes) -> bool:
            looked.append(data)
            return super().feed(data)

    monkeypatch.setattr("codesdk.channel.framing.ObjectPrefix", Noting)
    framing, line = Framing(), json.dumps({"a": "x" * 2000, "b": [1.5] * 200}).encode()
    for place in range(len(line) - 1):
        assert framing.feed(line[place : place + 1]) == []
    assert b"".join(looked) == line[:-1]
    looked.clear()
    assert framing.feed(b"}\n" + line + b"\n") == [Candidate(line + b"\n")] * 2
    assert looked == []  # a line that is whole in its chunk is not looked at


@pytest.mark.slow
def test_a_line_that_is_too_long_for_an_event_passes_through_and_never_piles_up():
    framing = Framing(limit=1000)
    most = 0
    data = b"{" + b"x" * 10_000_000 + b"\nplain\n"
    passed = b""
    for place in range(0, len(data), 700):
        for piece in framing.feed(data[place : place + 700]):
            assert isinstance(piece, bytes)
            passed += piece
        most = max(most, framing.held)
    assert passed == data
    assert most <= 1000


def test_a_marked_line_that_is_too_long_is_remarked():
    line = MARKER + json.dumps({"v": 1, "pad": "x" * 500}).encode() + b"\n"
    assert through(Framing(limit=100), [line[:50], line[50:]]) == [Overlong(), line]
    assert through(Framing(limit=100), [line]) == [Overlong(), line]
