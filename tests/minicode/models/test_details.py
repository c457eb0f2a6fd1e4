"""What a provider wants back: kept on a message, given back to the same provider, and to nobody else."""

import msgspec
import pytest

from codesdk.contract.messages import ContentBlock, Opaque, Reasoning, Text, ToolUse
from codesdk.minicode.models.details import MAX_BYTES, Note, notes_of, with_notes

THOUGHT = Reasoning(text="Let me think.")
SAID = Text(text="I will read.")
CALL = ToolUse(tool_call_id="c1", name="read", input={})
NOTES = [
    Note(kind="reasoning", signature="s1"),
    Note(kind="text"),
    Note(kind="call", details={"thought": "s2"}),
]


def stored(content: list[ContentBlock]) -> list[ContentBlock]:
    """Return blocks as they come back from a log."""
    return msgspec.json.decode(msgspec.json.encode(content), type=list[ContentBlock])


def test_they_come_back_as_they_were():
    kept = stored(with_notes("anthropic", [THOUGHT, SAID, CALL], NOTES))
    blocks, notes = notes_of("anthropic", kept)
    assert notes == NOTES
    assert [block.text for block in blocks if isinstance(block, Reasoning)] == ["Let me think."]
    assert blocks[1:] == [SAID, CALL]


def test_without_a_thought_they_have_a_block_of_their_own_which_is_not_given_back():
    kept = stored(with_notes("google", [CALL], NOTES[2:]))
    assert [type(block) for block in kept] == [Reasoning, ToolUse]
    assert notes_of("google", kept) == ([CALL], NOTES[2:])


def test_another_provider_gets_neither_notes_nor_thoughts():
    kept = with_notes("anthropic", [THOUGHT, SAID, CALL], NOTES)
    assert notes_of("openai", kept) == ([SAID, CALL], None)


def test_a_thought_that_nobody_signed_is_given_to_nobody():
    assert with_notes("google", [THOUGHT, SAID], [Note(kind="reasoning"), Note(kind="text")]) == [
        THOUGHT,
        SAID,
    ]
    assert notes_of("google", [THOUGHT, SAID]) == ([SAID], None)


def test_words_may_be_redacted_a_signed_thought_may_not():
    kept = with_notes("anthropic", [THOUGHT, SAID, CALL], NOTES)
    first = kept[0]
    assert isinstance(first, Reasoning)
    redacted = Text(text="I will [redacted].")
    assert notes_of("anthropic", [first, redacted, CALL]) == ([first, redacted, CALL], NOTES)
    changed = msgspec.structs.replace(first, text="Let me [redacted].")
    assert notes_of("anthropic", [changed, SAID, CALL]) == ([SAID, CALL], None)


def test_a_block_that_is_gone_takes_the_notes_with_it():
    kept = with_notes("anthropic", [THOUGHT, SAID, CALL], NOTES)
    assert notes_of("anthropic", [kept[0], kept[2]]) == ([CALL], None)


@pytest.mark.parametrize(
    "data", [None, 7, "x", {}, {"origin": "anthropic"}, {"origin": "anthropic", "notes": 1}]
)
def test_details_of_any_other_shape_do_not_count(data: object):
    odd = Reasoning(text="Hm.", details=Opaque(runtime="minicode", data=data))
    assert notes_of("anthropic", [odd, SAID]) == ([SAID], None)


def test_those_of_another_runtime_do_not_count():
    kept = with_notes("anthropic", [THOUGHT], NOTES[:1])
    first = kept[0]
    assert isinstance(first, Reasoning)
    assert first.details is not None
    other = msgspec.structs.replace(
        first, details=msgspec.structs.replace(first.details, runtime="external:x")
    )
    assert notes_of("anthropic", [other]) == ([], None)


def test_too_much_to_keep_is_not_kept():
    huge = [Note(kind="reasoning", signature="x" * MAX_BYTES)]
    assert with_notes("openai", [THOUGHT], huge) == [THOUGHT]
