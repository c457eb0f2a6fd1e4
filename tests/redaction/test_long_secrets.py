"""Long secrets: found in every spelling, in linear work."""

from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st
from tests.redaction.test_redaction import MARKER, in_pieces, streamed
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.redaction import Redactor
from codesdk.redaction.bounds import MAX_SECRET_CHARS, MAX_SECRETS

LONG = "".join(f"{number:x}/Zü " for number in range(1, 120)) + "end"


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


def in_hex(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


SPELLINGS = [LONG, escaped(LONG), in_hex(LONG), quote(LONG), escaped(LONG[:40]) + LONG[40:], LONG[:40] + escaped(LONG[40:])]  # fmt: skip


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("size", [3, 1_000])
def test_a_long_secret_is_removed_whole_in_any_spelling(spelled: str, size: int):
    redactor = Redactor([LONG])
    text = f"is {spelled} and {spelled}."
    assert redactor.text(text) == f"is {MARKER} and {MARKER}."
    assert (
        streamed(redactor, in_pieces(text, list(range(0, len(text), size)))) == f"is {MARKER} and {MARKER}."
    )
    assert redactor.data(b"\xff" + text.encode()) == b"\xff" + f"is {MARKER} and {MARKER}.".encode()
    assert redactor.finds(b"\xff" + text.encode())


@given(st.integers(1, len(LONG)), st.lists(st.integers(0, 3_000), max_size=8))
def test_of_an_escaped_long_secret_that_is_cut_off_no_more_than_its_beginning_stays(
    size: int, cuts: list[int]
):
    redactor = Redactor([LONG])
    text = f"is {escaped(LONG[:size])}! and more"
    redacted = redactor.text(text)
    assert redacted == (f"is {MARKER}! and more" if size >= 32 else text)
    assert streamed(redactor, in_pieces(text, cuts)) == redacted


def test_the_longest_secret_is_removed_from_a_stream_in_its_longest_spelling():
    secret = "".join(chr(33 + number % 90) for number in range(MAX_SECRET_CHARS))
    text = escaped(secret)
    pieces = [text[at : at + 4_000] for at in range(0, len(text), 4_000)]
    assert streamed(Redactor([secret]), pieces) == MARKER


SAME = "a" * MAX_SECRET_CHARS
NEARLY = ("a" * (MAX_SECRET_CHARS - 1) + "b") * 20


@pytest.mark.parametrize("before", ["", "\\u0041", "%61", "\\", "%"])
@pytest.mark.parametrize("after", ["", SAME])
def test_a_secret_that_repeats_itself_is_looked_for_in_linear_work(before: str, after: str):
    redactor = Redactor([SAME])
    text = before + NEARLY + after
    expected = redactor.text(text)
    with hang_guard():
        assert redactor.data(b"\xff" + text.encode())[1:].decode() == expected
        assert streamed(redactor, [text[at : at + 5_000] for at in range(0, len(text), 5_000)]) == expected
    if not before.startswith(("\\u", "%6")):
        assert expected == before + NEARLY + (MARKER if after else "")


def test_many_secrets_that_begin_alike_are_looked_for_in_linear_work():
    redactor = Redactor([f"{'a' * 200}{number:03}" for number in range(MAX_SECRETS)])
    text = "a" * 100_000 + "\\u0062%62"
    with hang_guard():
        assert streamed(
            redactor, [text[at : at + 10_000] for at in range(0, len(text), 10_000)]
        ) == redactor.text(text)
