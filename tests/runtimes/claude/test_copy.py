"""Whether claude's own file of a conversation has all that was said: it is written behind what claude says."""

import json
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.messages import Message, Reasoning, Text, ToolUse
from codesdk.runtimes.claude.copy import in_copy
from codesdk.runtimes.program import unanswered
from codesdk.runtimes.program.unanswered import Sent

ANSWER = Message(
    role="assistant",
    message_id="msg_2",
    content=[Reasoning(text="Hm."), Text(text="Two."), Text(text="And \u00e4 half.")],
)


def told(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}


def answered(number: str, **block: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": number, "role": "assistant", "content": [block]}}


WRITTEN = [
    {"type": "queue-operation", "operation": "enqueue"},
    told("First"),
    answered("msg_1", type="text", text="One."),
    {"type": "user", "message": {"role": "user", "content": "plain"}},
    told("Second"),
    answered("msg_2", type="thinking", thinking="Hm."),
    answered("msg_2", type="text", text="Two."),
    answered("msg_2", type="text", text="And \u00e4 half."),
]


def sent(*texts: str, others: int = 0) -> Sent:
    return Sent(texts=texts, others=others)


def write(config: Path, lines: list[Any]) -> None:
    folder = config / "projects" / "-a-workspace"
    folder.mkdir(parents=True)
    (folder / "c1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_copy_that_has_the_last_answer_is_one(tmp_path: Path):
    write(tmp_path, WRITTEN)
    assert in_copy(tmp_path, "c1", ANSWER, []) == 1
    assert in_copy(tmp_path, "c2", ANSWER, []) is None


@pytest.mark.parametrize("count", range(len(WRITTEN)))
def test_a_copy_that_lacks_any_of_its_end_is_none(tmp_path: Path, count: int):
    write(tmp_path, WRITTEN[:count])
    assert in_copy(tmp_path, "c1", ANSWER, []) is None


def test_a_line_that_was_cut_off_is_not_there(tmp_path: Path):
    write(tmp_path, WRITTEN)
    [path] = tmp_path.rglob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-10])
    assert in_copy(tmp_path, "c1", ANSWER, []) is None


def test_without_an_answer_to_look_for_there_is_no_copy_to_trust(tmp_path: Path):
    assert in_copy(tmp_path, "c1", ANSWER, []) is None
    write(tmp_path, WRITTEN)
    nameless = Message(role="assistant", content=[Text(text="Two.")])
    assert in_copy(tmp_path, "c1", nameless, []) is None
    use = ToolUse(tool_call_id="c", name="t", input={})
    called = Message(role="assistant", message_id="msg_2", content=[Text(text="Two."), use])
    assert in_copy(tmp_path, "c1", called, []) is None
    assert in_copy(tmp_path, "c1", ANSWER, [Sent(role="tool")]) is None


def test_what_was_told_and_never_answered_is_found_each_message_once(tmp_path: Path):
    write(tmp_path, [*WRITTEN, told("Third"), told("Again")])
    since = [sent("Third"), sent("Again"), sent("Again"), sent("Fifth")]
    assert in_copy(tmp_path, "c1", ANSWER, since) == 3
    assert in_copy(tmp_path, "c1", ANSWER, [sent("Second")]) == 1


def test_images_and_documents_alone_are_counted_and_results_of_tools_say_nothing(tmp_path: Path):
    blocks = [{"type": "image", "source": {}}, {"type": "document", "source": {}}, {"type": "tool_result"}]
    write(tmp_path, [*WRITTEN, {"type": "user", "message": {"role": "user", "content": blocks}}])
    assert in_copy(tmp_path, "c1", ANSWER, [sent(others=1), sent(others=1), sent(others=1)]) == 3
    assert in_copy(tmp_path, "c1", ANSWER, [sent("None")]) == 1


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, WRITTEN)
    [path] = tmp_path.rglob("*.jsonl")
    monkeypatch.setattr(unanswered, "MAX_COPY_BYTES", path.stat().st_size)
    assert in_copy(tmp_path, "c1", ANSWER, []) == 1
    monkeypatch.setattr(unanswered, "MAX_COPY_BYTES", path.stat().st_size - 1)
    assert in_copy(tmp_path, "c1", ANSWER, []) is None
