"""Long secrets: found in every spelling, in linear work."""

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st
from tests.redaction.test_redaction import MARKER, in_pieces, streamed
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.redaction import Redactor
from codesdk.redaction.bounds import MAX_SECRET_CHARS

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


@given(st.integers(1, len(LONG) - 1), st.lists(st.integers(0, 3_000), max_size=8), st.booleans())
def test_a_long_secret_is_found_behind_its_own_beginning(size: int, cuts: list[int], plain: bool):
    redactor = Redactor([LONG])
    begun = LONG[:size] if plain else escaped(LONG[:size])
    text = f"is {begun}{escaped(LONG)}!"
    assert redactor.text(text) == f"is {begun}{MARKER}!"
    assert streamed(redactor, in_pieces(text, cuts)) == redactor.text(text)


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
    redactor = Redactor([f"{'a' * 200}{number:03}" for number in range(16)])
    text = "a" * 100_000 + "\\u0062%62"
    with hang_guard():
        assert streamed(
            redactor, [text[at : at + 10_000] for at in range(0, len(text), 10_000)]
        ) == redactor.text(text)


TANGLED = [
    "A" * 40 + "%25" + "B" * 40,
    "A" * 40 + "%252525" + "B" * 40 + "%2",
    "see https://host/%2525/%20/zz0123456789abcdef012345678 and more of it",
    "C:\\users\\u0075\\x78\\x86" * 4,
    "A" * 33 + "\\\\u0075\\" + "B" * 20,
]


@pytest.mark.parametrize("secret", TANGLED)
@pytest.mark.parametrize("spell", [quote, in_hex, escaped, lambda text: quote(quote(text)), lambda text: json.dumps(json.dumps(text))[3:-3]])  # fmt: skip
def test_a_long_secret_that_reads_like_an_escape_itself_is_removed_whole(
    secret: str, spell: Callable[[str], str]
):
    redactor = Redactor([secret])
    text = f"is {spell(secret)}, as said"
    assert redactor.text(text) == f"is {MARKER}, as said"
    for size in (1, 2, 7):
        assert streamed(redactor, in_pieces(text, list(range(0, len(text), size)))) == redactor.text(text)


ALIKE = [f"{'a' * 245}{number:03}" for number in range(16)]


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        ([SAME], ("a" * (MAX_SECRET_CHARS - 1) + "\\u0062%62") * 8),
        (["a" * 4_000 + "b" + "a" * 4_000], ("a" * 3_000 + "\\u0061%61" + "a" * 3_000) * 8),
        ([f"abcd{number:04}" for number in range(64)], "abcd0007 " * 20_000 + " ".join(f"abcd{number:04}" for number in range(64))),
        ([], "://u:" + ("a" * 989 + "@") * 1_000),
        ([], "eyJ-" * 50_000),
        ([], ("eyJ-" * 70 + ".") * 1_000 + "a" * 100_000),
    ],
)  # fmt: skip
def test_texts_made_to_be_compared_again_and_again_are_searched_once(secrets: list[str], text: str):
    redactor = Redactor(secrets)
    with hang_guard():
        redactor.text(text)
        streamed(redactor, [text[at : at + 5_000] for at in range(0, len(text), 5_000)])


def test_what_may_be_a_beginning_of_many_secrets_is_followed_so_far_and_no_further():
    stream = Redactor(ALIKE).stream()
    with hang_guard():
        out = [stream.feed(piece) for piece in [("a" * 2_000 + "\\%"), *"a" * 100, "b"]]
    assert "".join(out) + stream.flush() == "a" * 2_000 + "\\%" + "a" * 100 + "b"
