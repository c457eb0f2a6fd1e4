"""Long secrets: found in every spelling, in linear work."""

import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

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


def quoted(text: str, levels: int) -> str:
    for _ in range(levels - 1):
        text = json.dumps(text)[1:-1]
    return text


def in_urls(text: str, levels: int) -> str:
    for _ in range(levels):
        text = quote(text)
    return text


@pytest.mark.parametrize("secret", ["a-key-0193", "ключ-0193", "鍵鍵鍵鍵-0193", "🔑🔒🔑🔒-0193"])
@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_a_secret_that_is_quoted_again_and_again_is_removed_from_a_stream(secret: str, size: int):
    redactor = Redactor([secret])
    units = (secret.encode("utf-16-be")[at : at + 2].hex() for at in range(0, 99, 2))
    every = "".join(f"\\u{unit}" for unit in units if unit)
    for levels in range(1, 7):
        for spelled in (quoted(every, levels), in_urls(secret, levels)):
            text = f"is {spelled}!"
            expected = f"is {MARKER}!"
            assert redactor.text(text) == expected
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            assert streamed(redactor, pieces) == expected


@pytest.mark.parametrize("secret", ["ba abba+ a", "+ +  + x", "one+two three one two+X"])
def test_a_plus_stands_for_itself_and_for_a_space(secret: str):
    assert Redactor(["ba abba+ a"]).text("+b%2Bba+abba+abba%2B+a.") == f"+b%2Bba+ab{MARKER}."
    for before in ("", secret[:3], secret[:-1], "a+b+ ", "%20+"):
        spelled = f"{quote_plus(before)}{quote_plus(secret)}."
        assert Redactor([secret]).text(spelled).endswith(f"{MARKER}.")
        assert streamed(Redactor([secret]), list(spelled)) == Redactor([secret]).text(spelled)


@pytest.mark.parametrize("secret", ["\\x78\\8888aa7", "\\u0075-secret-0193", "%41%42-secret-0193"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_secret_that_begins_like_an_escape_is_removed_from_a_stream(secret: str, size: int):
    redactor = Redactor([secret])
    for spelled in (secret, escaped(secret), in_hex(secret), quote(secret), json.dumps(secret)[1:-1]):
        text = f"is {spelled} and"
        assert MARKER in redactor.text(text)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert streamed(redactor, pieces) == redactor.text(text)


@pytest.mark.parametrize(
    "prose", ["-----BEGIN PRIVATE KEY-----` is how such a file begins. " + "And then it goes on. " * 2_000, "sk-1" + "abcd-" * 8_000]
)  # fmt: skip
def test_a_long_secret_does_not_hold_up_what_only_looks_like_another_one(prose: str):
    redactor = Redactor([LONG * 2, *(f"small-secret-{number:03}" for number in range(20))])
    stream, fed = redactor.stream(), 0
    with hang_guard():
        while not stream.feed(prose[fed : fed + 4]):
            fed += 4
    assert fed < 9_000


def test_a_long_hold_is_searched_as_often_as_its_length_needs(monkeypatch: pytest.MonkeyPatch):
    secret = "".join(chr(33 + number % 90) for number in range(MAX_SECRET_CHARS))
    text = escaped(secret)[:-3]
    searched: list[int] = []
    find = Redactor.find_cut

    def find_cut(self: Redactor, text: str, start: int, suspected: bool) -> int:
        searched.append(len(text))
        return find(self, text, start, suspected)

    monkeypatch.setattr(Redactor, "find_cut", find_cut)
    stream = Redactor([secret]).stream()
    for at in range(0, len(text), 100):
        assert stream.feed(text[at : at + 100]) == ""
    assert stream.feed("!" * len(text)) + stream.flush() == text + "!" * len(text)
    assert sum(searched) < 20 * len(text)
