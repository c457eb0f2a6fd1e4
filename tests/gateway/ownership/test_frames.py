"""Events as the bytes that they came in: joined they are the stream again, wherever it was cut."""

from hypothesis import example, given, strategies as st
from tests.gateway.ownership.rig import cut

from codesdk.gateway.ownership.frames import Frames, data_of, plain, write_event
from codesdk.gateway.wires.sse import EventReader

pieces = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"\r",
        b"data: a",
        b"data:b",
        b"data",
        b"event: x",
        b": c",
        b"x",
        b"\xef\xbb\xbf",
        b"data: ",
    ]
)
streams = st.lists(pieces, max_size=30).map(b"".join)


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    frames = Frames()
    found = [event for chunk in cut(data, sizes) for event in frames.feed(chunk)]
    return [*found, *filter(None, [frames.rest()])]


@given(streams, st.lists(st.integers(1, 9), max_size=4))
@example(b"data: a\r\n\r\n", [9])
@example(b"\r\r\n\r", [1])
def test_events_are_the_same_wherever_they_are_cut(data: bytes, sizes: list[int]):
    whole = split(data, [])
    assert split(data, sizes) == whole
    joined = b"".join(whole)
    assert joined == data or plain(data).replace(b"\r\n", b"\n") == joined.replace(b"\r\n", b"\n")


@given(streams)
def test_the_data_is_what_any_reader_of_events_finds(data: bytes):
    """Where the two differ in what ends a line, `\\r` alone ends none for the other."""
    text = data.replace(b"\r", b"").replace(b"\xef\xbb\xbf", b"")
    lines = [data_of(event) for event in split(text + b"\n\n", [])]
    assert [b"\n".join(found) for found in lines if found] == EventReader().feed(text + b"\n\n")


@given(st.binary().filter(lambda data: not {10, 13} & {*data}), st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_what_is_written_is_read(data: bytes, like: bytes):
    for name in ("", "x"):
        event = write_event(name, data, like)
        assert event.endswith(like)
        assert data_of(event) == [data]
        assert Frames().feed(event) == [event]


def test_data_behind_a_blank_is_found_although_strict_readers_skip_it():
    assert data_of(b"event: x\n data: 1\r\n\tdata:2\n\n") == [b"1", b"2"]
    assert data_of(b'{"x": 1}\r\nx\n\n') == [b'{"x": 1}']


def test_an_event_that_is_too_large_is_left_out_and_the_next_one_is_not():
    for sizes in ([], [1], [7]):
        frames = Frames(20)
        data = b"data: 1\n\ndata: " + b"x" * 30 + b"\n\ndata: 2\n\n"
        found = [event for chunk in cut(data, sizes) for event in frames.feed(chunk)]
        assert found == [b"data: 1\n\n", b"data: 2\n\n"]
