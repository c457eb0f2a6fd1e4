"""Server-sent events: the same events however the bytes are cut, and never more memory than allowed."""

from itertools import pairwise

from hypothesis import given, strategies as st

from codesdk.gateway.wires.sse import EventReader, frame

_DATA = st.binary(max_size=40).map(lambda data: data.replace(b"\r", b""))
_NAMES = st.sampled_from(["", "message_start", "response.output_text.delta", "é"])
_EVENTS = st.lists(st.tuples(_NAMES, _DATA), max_size=6)


def _read(data: bytes, cuts: list[int] | None = None, max_bytes: int = 1000) -> list[bytes]:
    reader = EventReader(max_bytes)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    return [event for start, end in pairwise(edges) for event in reader.feed(data[start:end])]


@given(_EVENTS, st.lists(st.integers(min_value=0, max_value=10_000), max_size=12))
def test_what_was_framed_is_read_back_wherever_the_chunks_are_cut(
    events: list[tuple[str, bytes]], cuts: list[int]
):
    assert _read(b"".join(frame(name, data) for name, data in events), cuts) == [data for _, data in events]


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0, max_value=10_000), max_size=8))
def test_any_bytes_give_the_same_events_in_one_chunk_as_in_many(data: bytes, cuts: list[int]):
    assert _read(data, cuts, max_bytes=50) == _read(data, max_bytes=50)


def test_a_frame_without_a_name_has_no_event_line():
    assert frame("", b"[DONE]") == b"data: [DONE]\n\n"
    assert frame("ping", b'{"a":1}') == b'event: ping\ndata: {"a":1}\n\n'
    assert frame("", b"a\nb") == b"data: a\ndata: b\n\n"


def test_lines_may_end_as_windows_ends_them_and_the_space_may_be_missing():
    assert _read(b"event:ping\r\ndata:{}\r\n\r\ndata: 2\r\n\r\n") == [b"{}", b"2"]


def test_comments_ids_and_unknown_fields_are_passed_over():
    assert _read(b": keep-alive\n\nid: 7\nretry: 10\ncolour: red\ndata: x\n\n") == [b"x"]


def test_several_data_lines_are_one_text():
    assert _read(b"data: a\ndata\ndata: b\n\n") == [b"a\n\nb"]


def test_a_byte_order_mark_is_not_part_of_the_first_field():
    assert _read(b"\xef\xbb\xbfdata: x\n\n", [1, 2]) == [b"x"]


def test_only_newlines_end_lines_not_the_other_separators_of_unicode():
    data = "a\u2028b\x0bc\x85d".encode()
    assert _read(frame("", data)) == [data]


def test_a_name_without_data_is_no_event():
    assert _read(b"event: lost\n\ndata: x\n\n") == [b"x"]


def test_an_event_that_the_end_cuts_off_is_not_given():
    assert _read(b"data: x\n\ndata: half") == [b"x"]


def test_an_event_over_the_limit_is_dropped_and_the_next_one_is_read():
    reader = EventReader(max_bytes=20)
    large = frame("", b"x" * 50) + frame("big", b"\n".join([b"12345"] * 5))
    events = [event for byte in large + frame("", b"small") for event in reader.feed(bytes([byte]))]
    assert events == [b"small"]


def test_an_endless_line_takes_no_memory_beyond_the_limit():
    reader = EventReader(max_bytes=1000)
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
    assert len(reader._line) <= 1000


def test_comments_do_not_fill_an_event_however_many_come():
    reader = EventReader(max_bytes=50)
    assert reader.feed(b"data: x\n" + b": keep-alive\n" * 1000 + b"\n") == [b"x"]
