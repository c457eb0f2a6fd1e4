"""Which of the messages that nobody answered a program was told."""

import os
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Code, Message, Text, ToolResult
from codesdk.runtimes.claude.input import content_of
from codesdk.runtimes.codex.input import turn_input
from codesdk.runtimes.program import unanswered
from codesdk.runtimes.program.unanswered import Sent, count_told, own_lines, sent_of


async def read(artifact_id: str) -> bytes:
    if artifact_id == "image":
        raise AssertionError("an image is only counted")
    return b"bytes of " + artifact_id.encode()


def said(*blocks: Any) -> Message:
    return Message(role="user", content=list(blocks))


IMAGE = ArtifactBlock(artifact_id="image", content_type="image/png")
FILE = ArtifactBlock(artifact_id="b", content_type="text/plain", name="b.txt")
CODE = Code(code="x = 1", language="python")


async def test_a_message_is_looked_for_as_it_was_sent():
    result = Message(role="tool", content=[ToolResult(tool_call_id="c", result="r")])
    messages = [said(Text(text="Look."), CODE, IMAGE), result, said(FILE), said(), said(IMAGE)]
    found = await sent_of(messages, content_of, read)
    assert found == [
        Sent(texts=("Look.", "```python\nx = 1\n```"), others=1),
        Sent(role="tool"),
        Sent(texts=("b.txt:\nbytes of b",)),
        Sent(),
        Sent(others=1),
    ]


async def test_one_that_the_program_cannot_be_sent_was_not_and_nothing_after_it():
    found = await sent_of([said(CODE), said(FILE), said(CODE)], turn_input, read)
    assert found == [Sent(texts=("```python\nx = 1\n```",))]
    with pytest.raises(InvalidRequest):
        await turn_input([said(FILE)], read)


@pytest.mark.parametrize(
    ("since", "texts", "others", "count"),
    [
        ([Sent(texts=("a", "b"))], ["b", "a"], 0, 1),
        ([Sent(texts=("a", "a"))], ["a"], 0, 0),
        ([Sent(texts=("a",)), Sent(texts=("a",))], ["a"], 0, 1),
        ([Sent(texts=("go",))], ["go on"], 0, 0),
        ([Sent(texts=("a",), others=1)], ["a"], 0, 1),
        ([Sent(texts=("a",), others=1), Sent(others=1)], ["a"], 1, 1),
        ([Sent(others=2), Sent(others=1)], [], 2, 1),
        ([Sent(), Sent(role="tool"), Sent(texts=("a",))], ["a"], 0, 3),
    ],
)
def test_each_part_counts_once(since: list[Sent], texts: list[str], others: int, count: int):
    assert count_told(since, texts, others) == count


def test_a_copy_is_read_in_lines_and_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "copy.jsonl"
    path.write_bytes(b"one\rstill one\ntwo")
    lines = own_lines(path)
    assert lines is not None
    assert list(lines) == [b"one\rstill one\n", b"two"]
    monkeypatch.setattr(unanswered, "MAX_COPY_BYTES", 17)
    growing = own_lines(path)
    path.write_bytes(b"one\n" * 1_000)
    assert growing is not None
    assert len(b"".join(growing)) == 17, "it grew meanwhile"
    assert own_lines(path) is None


def test_what_is_no_file_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        assert own_lines(path) is None
