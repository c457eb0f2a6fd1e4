"""Known secrets in base64, hexadecimal, URLs and JSON inside JSON leave texts, bytes and streams as well."""

import base64
import json
import math
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, strategies as st
from tests.redaction.test_redaction import MARKER, accepted, in_pieces, streamed

from codesdk.redaction.encodings import SHORTEST_ENCODED
from codesdk.redaction.redactor import Redactor

SECRET = "pa?ss/wörd>~ 100%&more"
cuts = st.lists(st.integers(0, 200), max_size=12)
around = st.binary(max_size=20)
known = (
    st.one_of(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40),
        st.text(st.characters(codec="utf-8"), min_size=8, max_size=16),
        st.text("abé%2+ /?~", min_size=8, max_size=16),
    )
    .map(str.strip)
    .filter(lambda secret: len(secret.encode()) >= SHORTEST_ENCODED and accepted(secret))
)


def check(redactor: Redactor, text: str, places: list[int]) -> str:
    """Redact a text whole, in pieces and as bytes; return the result, which is always the same."""
    redacted = redactor.text(text)
    assert MARKER in redacted
    assert redactor.finds(text.encode())
    assert not redactor.finds(redacted.encode())
    assert streamed(redactor, in_pieces(text, places)) == redacted
    assert streamed(redactor, list(text)) == redacted
    assert redactor.data(text.encode()) == redacted.encode()
    return redacted


@given(known, around, around, st.booleans(), st.booleans(), cuts)
def test_base64_is_caught_wherever_the_secret_begins(
    secret: str, before: bytes, after: bytes, for_urls: bool, padded: bool, places: list[int]
):
    encode = base64.urlsafe_b64encode if for_urls else base64.b64encode
    code = encode(before + secret.encode() + after).decode()
    redacted = check(Redactor([secret]), code if padded else code.rstrip("="), places)
    kept = redacted.replace(MARKER, "")
    # Only characters that carry bits of the neighbours stay.
    assert len(kept.rstrip("=")) <= math.ceil(len(before) * 8 / 6) + math.ceil(len(after) * 8 / 6) + 1


def test_a_password_in_a_basic_header_is_caught():
    for user in ("a", "an", "ann"):
        header = "Authorization: Basic " + base64.b64encode(f"{user}:hunter2-and-more".encode()).decode()
        redacted = check(Redactor(["hunter2-and-more"]), header, [25, 30])
        assert redacted.startswith("Authorization: Basic ")
        code = redacted.removeprefix("Authorization: Basic ").partition(MARKER)[0]
        assert b"hunter" not in base64.b64decode(code[: len(code) // 4 * 4])


@given(known, st.text("xyz09 ", max_size=10), st.booleans(), cuts)
def test_hexadecimal_digits_of_either_case_are_caught(
    secret: str, beside: str, upper: bool, places: list[int]
):
    assume(secret not in beside)
    code = secret.encode().hex()
    redacted = check(Redactor([secret]), beside + (code.upper() if upper else code) + beside, places)
    assert redacted == f"{beside}{MARKER}{beside}"


@st.composite
def in_a_url(draw: st.DrawFn, secret: str) -> str:
    """Draw one of the many ways to write a text in a URL."""

    def ways(character: str) -> list[str]:
        full = "".join(f"%{byte:02X}" for byte in character.encode())
        return [character, full, full.lower(), quote(full, safe="")]

    return "".join(draw(st.sampled_from(ways(character))) for character in secret)


@given(st.data(), known, st.sampled_from(["", "key=", "%", "%2", "%41", "http%3A//h/?k="]), cuts)
def test_escapes_of_urls_are_caught_in_any_mixture(
    data: st.DataObject, secret: str, before: str, places: list[int]
):
    check(Redactor([secret]), before + data.draw(in_a_url(secret)) + "&b=1", places)


@pytest.mark.parametrize(
    "text",
    [quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), quote(quote(SECRET)), quote(SECRET).lower()],
)
def test_a_secret_is_caught_as_libraries_put_it_into_urls(text: str):
    assert check(Redactor([SECRET]), f"GET /?a={text}&b=1", [5, 12, 20]) == f"GET /?a={MARKER}&b=1"


def test_a_space_that_became_a_plus_is_caught_without_any_other_escape():
    assert check(Redactor(["two words"]), "a=two+words&b", [4, 6]) == f"a={MARKER}&b"


@given(known, st.integers(1, 3), cuts)
def test_json_inside_json_is_caught(secret: str, depth: int, places: list[int]):
    text: str = json.dumps({"a": secret})
    for _ in range(depth):
        text = json.dumps([text])
    check(Redactor([secret]), text, places)


def test_a_short_secret_is_not_looked_for_in_encodings():
    redactor = Redactor(["hunter2"])
    for text in (base64.b64encode(b"hunter2").decode(), b"hunter2".hex()):
        assert redactor.text(text) is text
    assert redactor.text("hunter%32") == MARKER


def test_other_encodings_are_not_caught():
    redactor = Redactor(["hunter2&more"])
    for text in ("HUNTER2&MORE", "hunter2&amp;more", "erom&2retnuh", "68:75:6e:74:65:72:32:26:6d:6f:72:65"):
        assert redactor.text(text) is text


def test_a_stream_holds_back_the_beginning_of_an_encoded_secret_and_no_more():
    code = base64.b64encode(b"hunter2-and-more").decode()
    stream = Redactor(["hunter2-and-more"]).stream()
    assert [stream.feed(piece) for piece in ["Basic ", code[:7], "!", code[:5], code[5:]]] == [
        "Basic ",
        "",
        f"{code[:7]}!",
        "",
        f"{MARKER}{code[-3:]}",
    ]
    assert stream.flush() == ""


def test_many_secrets_are_caught_encoded():
    secrets = [f"secret-number-{number}" for number in range(100)]
    redactor = Redactor(secrets)
    for secret in secrets:
        check(redactor, f"x {base64.b64encode(secret.encode()).decode()} y", [5, 9])


def test_a_text_of_escapes_takes_no_longer_than_any_other():
    redactor = Redactor(["%%%%ab%%%%", "2525252525", "hunter22"])
    text = "%25" * 60_000
    redactor.text(text)
    streamed(redactor, [text[:90_000], text[90_000:]])
