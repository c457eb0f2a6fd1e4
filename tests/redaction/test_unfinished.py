"""Where a secret begins that the end of a text cuts off: found in linear work, and the same as by a plain expression."""

import re

import pytest
from hypothesis import example, given, strategies as st
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.redaction import Redactor
from codesdk.redaction.patterns import find_unfinished

EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
PLAIN = re.compile(
    rf"""
    {EDGE}(?:
        (?:sk-|gh[pousr]_|github_pat_|glpat-|csdk_|A[KS]IA|AIza|xox[abeoprs]-)[A-Za-z0-9_-]*
      | eyJ[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*){{0,2}}
    )\Z
  | (?:(?<=[Bb]earer\ )|(?<=BEARER\ ))[A-Za-z0-9._~+/=-]*\Z
  | (?<=://)[^\s/"']{{0,1200}}\Z
  | -----BEGIN\ [A-Z0-9 ]{{0,30}}
    (?:-{{0,4}}|PRIVATE\ KEY-----(?![\s\S]*PRIVATE\ KEY-----)[\s\S]*)\Z
    """,
    re.VERBOSE,
)
"""What is meant. It looks from every beginning to the end of the text, which is why it is not used."""
PIECES = st.sampled_from(
    ["sk-", "ghp_", "AKIA", "eyJ", ".", "..", "Bearer ", "://", "a", "A1", "_", "-", " ", "!", "\\n", "/", "@",
     "-----BEGIN ", "RSA ", "PRIVATE KEY-----", "-----END ", "xoxb-", "AIza", "\n", "~", "é"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(0, 8))
@example("eyJa.b.c.", 0)
@example("sk-a.", 0)
def test_it_is_found_where_the_plain_expression_finds_it(text: str, start: int):
    start = min(start, len(text))
    plain = PLAIN.search(text, start)
    # The first characters of a head also count; they are in no plain expression here.
    found = min(find_unfinished(text, start, suspected=True), find_unfinished(text, start, suspected=False))
    begun = find_unfinished(text, start, suspected=False)
    assert found == min(begun, len(text) if plain is None else plain.start())


HEADS = ["sk-", "-sk-a", "-eyJ", "-eyJaaaaaaaaa", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "Bearer ", "://a:", "-ghp_", " AIza", "-xoxb-", "AKIA"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("end", ["", "!", "."])
def test_a_text_full_of_beginnings_is_searched_for_secrets_in_linear_work(head: str, end: str):
    text = head * (60_000 // len(head)) + end
    redactor = Redactor(["supersecretvalue"])
    stream = redactor.stream()
    with hang_guard():
        whole = redactor.text(text)
        parts = [stream.feed(text[at : at + 1_000]) for at in range(0, len(text), 1_000)]
    if len(whole) == len(text):  # without a secret in it, nothing may get lost
        assert "".join(parts) + stream.flush() == text
