"""Bytes into lines."""

import asyncio

from hypothesis import given, strategies as st

from codesdk.contract.json_values import MOST_VALUES
from codesdk.runtimes.program.framing import LineSplitter, TooLong, read_lines

PIECES = st.lists(st.binary(max_size=8) | st.just(b"\n") | st.just("\u2028\r\x0b".encode()), max_size=20)


@given(PIECES)
def test_lines_are_those_of_the_whole_however_it_is_cut(pieces: list[bytes]):
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    rest = splitter.rest()
    assert b"\n".join([*lines, rest or b""]) == b"".join(pieces)  # type: ignore[list-item]


@given(PIECES, st.integers(1, 10))
def test_a_line_over_the_limit_is_dropped_alone(pieces: list[bytes], limit: int):
    splitter = LineSplitter(limit)
    got = [line for piece in pieces for line in splitter.feed(piece)]
    whole = b"".join(pieces).split(b"\n")[:-1]
    assert got == [
        line if len(line) <= limit else TooLong(len(line), line[:200], str(limit)) for line in whole
    ]


def test_a_line_with_too_many_values_is_dropped_alone():
    crowded = b"[" + b"[]," * MOST_VALUES + b"[]]"
    text = b'"' + b"[]," * MOST_VALUES + b'"'
    assert LineSplitter().feed(b"one\n" + crowded + b"\n" + text + b"\n") == [
        b"one",
        TooLong(len(crowded), crowded[:200], "1,000,000 values"),
        text,
    ]


async def test_a_stream_yields_its_unfinished_last_line():
    stream = asyncio.StreamReader()
    stream.feed_data(b"one\n\ntwo")
    stream.feed_eof()
    assert [line async for line in read_lines(stream)] == [b"one", b"", b"two"]
