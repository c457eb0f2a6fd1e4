"""Secrets leave text, values, bytes and streams, wherever they are and however they arrive."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from codesdk.contract.errors import InvalidRequest
from codesdk.redaction.redactor import Redactor

MARKER = "[redacted]"
KEYS = [
    "sk-ant-api03-abcdefghijklmnop0123",
    "sk-proj-0123456789abcdefghij",
    "ghp_" + "a1" * 18,
    "github_pat_11ABCDEFG0abcdefghij_klmnop",
    "glpat-abcdefghij0123456789",
    "AKIAABCDEFGHIJKLMNOP",
    "AIza" + "B" * 35,
    "xoxb-123456789012-abcdefgh",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    f"eyJ{'0eXAiOiJK' * 48}.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA75\nq+/=\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\\nMIIEowIBAAKCAQEA75\\n-----END PRIVATE KEY-----",
]

# Few letters, so that secrets overlap each other, the text and the marker.
letters = st.text(alphabet='ab[]red\n"\\é', min_size=0, max_size=12)


def accepted(secret: str) -> bool:
    try:
        Redactor([secret])
    except InvalidRequest:
        return False
    return True


secrets = st.lists(letters.filter(accepted), min_size=1, max_size=4)


@st.composite
def texts_with(draw: st.DrawFn, words: list[str]) -> str:
    pieces = st.one_of(
        st.sampled_from(words), letters, st.sampled_from([MARKER, *words]).map(lambda w: w[:-1])
    )
    return "".join(draw(st.lists(pieces, max_size=8)))


def in_pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def streamed(redactor: Redactor, pieces: list[str]) -> str:
    stream = redactor.stream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.flush()])


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("frame", ["{}", "key={}", "use '{}' here", '{{"a": "{}"}}', "line\\n{}", "({})"])
def test_what_looks_like_a_key_is_replaced_whole(key: str, frame: str):
    assert Redactor().text(frame.format(key)) == frame.format(MARKER)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("size", [1, 2, 5, 17])
def test_a_key_that_arrives_in_pieces_is_replaced_whole(key: str, size: int):
    text = f"use {key} now, and {key}"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert streamed(Redactor(), pieces) == f"use {MARKER} now, and {MARKER}"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Authorization: Bearer abcdef0123456789abcd", "Authorization: Bearer [redacted]"),
        ("authorization: bearer abcdef0123456789abcd\n", "authorization: bearer [redacted]\n"),
        ("postgres://app:hunter2@db:5432/x", "postgres://app:[redacted]@db:5432/x"),
        ("redis://:p@ss[1]@cache/0", "redis://:[redacted]@cache/0"),
    ],
)
def test_only_the_secret_part_of_a_header_or_url_goes(text: str, redacted: str):
    assert Redactor().text(text) == redacted
    assert [streamed(Redactor(), in_pieces(text, list(range(0, 99, step)))) for step in (1, 3, 7)] == [
        redacted
    ] * 3


@pytest.mark.parametrize(
    "text",
    [
        "a task-0123456789abcdefghijkl is no key",
        "pip install sk-learn-and-some-other-things",
        "the bearer of bad news",
        "see https://example.org:8080/a@b and ssh://git@example.org/x",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "SIAM, AKIAK, eyJ, sk-, ghp_ and xoxb- alone",
    ],
)
def test_what_is_no_secret_stays_the_same_object(text: str):
    redactor = Redactor(["hunter2secret"])
    assert redactor.text(text) is text
    assert streamed(redactor, list(text)) == text


@given(st.data(), secrets)
def test_no_known_secret_is_left_and_redacting_again_changes_nothing(data: st.DataObject, words: list[str]):
    redactor = Redactor(words)
    text = data.draw(texts_with(words))
    redacted = redactor.text(text)
    assert redactor.text(redacted) == redacted
    for word in words:
        assert word not in redacted.replace(MARKER, "\0")
        assert word in MARKER or word not in redacted


@given(st.data(), secrets)
def test_in_any_pieces_a_stream_gives_what_the_whole_text_gives(data: st.DataObject, words: list[str]):
    redactor = Redactor(words)
    text = data.draw(texts_with(words))
    pieces = in_pieces(text, data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    assert streamed(redactor, pieces) == redactor.text(text)


@given(st.text(min_size=4).filter(accepted), st.text(max_size=20), st.text(max_size=20))
def test_any_known_secret_is_found_also_inside_json(secret: str, before: str, after: str):
    redactor = Redactor([secret])
    try:
        quoted = [msgspec.json.encode(before + secret + after).decode(), json.dumps(before + secret + after)]
    except UnicodeEncodeError:
        return
    for text in (before + secret + after, *quoted):
        assert MARKER in redactor.text(text)


@given(st.data())
def test_redacting_text_around_keys_again_changes_nothing_and_a_stream_gives_the_same(data: st.DataObject):
    words = [*KEYS, "x", "7", " ", "Bearer ", "http://u:", "@", "secret-x", "-----BEGIN PRIVATE KEY-----"]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=8)))
    redactor = Redactor(["secret-x"])
    once = redactor.text(text)
    assert redactor.text(once) == once
    pieces = in_pieces(text, data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    assert streamed(redactor, pieces) == once


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("size", [1, 2, 5, 17, 1_000])
def test_a_key_that_only_a_removed_secret_uncovers_is_replaced_in_a_stream_too(key: str, size: int):
    redactor = Redactor(["hunter22"])
    text = f"is hunter22{key} now"  # behind a letter or a digit, nothing is shaped like a key
    assert redactor.text(text) == f"is {MARKER}{MARKER} now"
    assert streamed(redactor, in_pieces(text, list(range(0, len(text), size)))) == redactor.text(text)


def test_a_secret_with_a_run_of_backslashes_is_found_in_a_text_that_is_shorter_than_it():
    redactor = Redactor(["\\\\\\\\share"])
    for text in ("\\share", "\\\\share"):
        assert redactor.text(text) == MARKER
        assert redactor.text(f"is {text} now") == f"is {MARKER} now"
        assert streamed(redactor, list(text)) == MARKER


def test_a_stream_holds_back_no_more_than_it_must():
    stream = Redactor(["hunter2secret"]).stream()
    assert [stream.feed(piece) for piece in ["a hun", "ter", "2x the", " end s"]] == [
        "a ",
        "",
        "hunter2x the",
        " end ",
    ]
    assert stream.flush() == "s"


@pytest.mark.parametrize("head", ["sk-1", "eyJhbGciOiJI.abcdefghi.", "-----BEGIN PRIVATE KEY-----\n"])
@pytest.mark.slow
def test_a_stream_does_not_hold_an_endless_key_and_does_not_let_its_end_out(head: str):
    stream = Redactor().stream()
    out = stream.feed("key " + head)
    out += "".join(stream.feed("0123456789abcdef") for _ in range(2000))
    assert len(stream._held) < 9000
    out += stream.feed("tail") + stream.feed("!") + stream.flush()
    assert out == "key [redacted]!"


def test_values_are_walked_with_their_keys_and_kept_when_nothing_changes():
    redactor = Redactor(["hunter2"])
    clean: dict[str, Any] = {"a": [1, None, {"b": "c"}], "d": 1.5}
    assert redactor.value(clean) is clean
    dirty = {"a": [1, "is hunter2"], "hunter2": {"x": ("hunter2", True)}, "same": clean}
    redacted = redactor.value(dirty)
    assert redacted == {"a": [1, "is [redacted]"], MARKER: {"x": [MARKER, True]}, "same": clean}
    assert redacted["same"] is clean
    assert dirty["a"] == [1, "is hunter2"]


@pytest.mark.slow
def test_a_value_nested_too_deeply_is_refused():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidRequest, match="nested"):
        Redactor().value(value)
    while value:  # take it apart by hand: the interpreter would recurse
        value = value.pop()


def test_bytes_are_redacted_as_text_or_by_known_values():
    redactor = Redactor(["hünter2"])
    clean = b"nothing here \xff"
    assert redactor.data(clean) is clean
    assert redactor.data("a hünter2 sk-ant-api03-abcdefghijklmnop0123".encode()) == b"a [redacted] [redacted]"
    assert redactor.data(b"\xff\xfe" + "hünter2".encode() + b"\x00") == b"\xff\xfe[redacted]\x00"
    assert Redactor().data(b"\xff") == b"\xff"


def test_a_secret_is_found_in_bytes_of_any_kind_and_what_is_redacted_holds_none():
    redactor = Redactor(["hunter22", "sécret", "redacted"])
    key = b"ghp_0123456789abcdefghij"
    for data in (b"\xff\0hunter22\0", "ein sécret".encode(), b"\xff\0" + key + b"\0", b"http://me:pass@host"):
        assert redactor.finds(data)
        clean = redactor.data(data.replace(b"\xff", b""))
        assert b"[redacted]" in clean
        assert not redactor.finds(clean)
        assert not redactor.finds(b"\xff" + clean)
    assert not Redactor().finds(b"\xff\0 nothing of that kind")


def test_many_secrets_are_found_too():
    words = [f"secret-number-{n:04}" for n in range(200)]
    redactor = Redactor(words)
    assert redactor.text(" ".join(words)) == " ".join([MARKER] * 200)
    assert redactor.text("nothing") == "nothing"


def test_a_secret_that_is_part_of_the_marker_leaves_the_marker_alone():
    redactor = Redactor(["acted", "hunter2"])
    assert redactor.text("hunter2 reacted to [redacted]") == "[redacted] re[redacted] to [redacted]"


@pytest.mark.parametrize("secret", ["", "abc", " abc\n", "abcd\ud800", "acted]", "ab[redacted]cd", "abc[red"])
def test_a_secret_that_would_match_everywhere_or_in_the_marker_is_refused(secret: str):
    with pytest.raises(InvalidRequest) as caught:
        Redactor([secret])
    assert "must have" in caught.value.message or secret not in caught.value.message.replace(MARKER, "")


def test_a_secret_read_with_its_line_end_is_found_without_it():
    assert Redactor(["hunter2\n"]).text("is hunter2.") == "is [redacted]."


# --- spellings ---------------------------------------------------------------------------------------

SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def ways(character: str) -> list[str]:
    """Return how a character may be written inside a JSON string."""
    units = character.encode("utf-16-be")
    codes = [f"{int.from_bytes(units[at : at + 2], 'big'):04x}" for at in range(0, len(units), 2)]
    found = ["".join(f"\\u{code}" for code in codes), "".join(f"\\u{code.upper()}" for code in codes)]
    if character in SHORT:
        found.append(SHORT[character])
    if character not in '"\\' and ord(character) >= 0x20:
        found.append(character)
    return found


@st.composite
def spelled(draw: st.DrawFn, secret: str) -> str:
    """Draw one of the many ways to write a text inside a JSON string."""
    return "".join(draw(st.sampled_from(ways(character))) for character in secret)


known_texts = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=4, max_size=12),
    letters,
    st.text("aZ/\\\"\n'é😀", min_size=4),
).filter(accepted)


@given(st.data(), known_texts)
def test_a_known_secret_is_found_in_any_spelling_and_quoted_again(data: st.DataObject, secret: str):
    redactor = Redactor([secret])
    inner = f'{{"a":"{data.draw(spelled(secret.strip()))}"}}'
    assert secret.strip() in json.loads(inner)["a"]
    quoted = [
        inner,
        json.dumps(inner),
        msgspec.json.encode([inner]).decode(),
        json.dumps([json.dumps(inner)]),
    ]
    text = data.draw(st.sampled_from(quoted))
    redacted = redactor.text(text)
    assert MARKER in redacted
    assert redactor.text(redacted) == redacted
    assert redactor.finds(text.encode())
    pieces = in_pieces(text, data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    assert streamed(redactor, pieces) == redacted


def test_a_secret_with_slashes_and_quotes_leaves_the_text_around_its_escapes_alone():
    redactor = Redactor(['pa/ss"word'])
    assert redactor.text(r'{"a":"x pa\/ss\"word y"}') == '{"a":"x [redacted] y"}'
    assert redactor.text(r'{"a":"x p\u0061\/s\u0073\u0022word y"}') == '{"a":"x [redacted] y"}'
    assert redactor.text(r'"{\"a\":\"x pa\\/ss\\\"word y\"}"') == r'"{\"a\":\"x [redacted] y\"}"'


def test_a_text_of_backslashes_takes_no_longer_than_any_other():
    redactor = Redactor(["\\\\ab\\\\", '"quoted"', "hunter22"])
    text = "\\" * 200_000
    assert redactor.text(text) == text
    assert streamed(redactor, [text[:90_000], text[90_000:]]) == text
