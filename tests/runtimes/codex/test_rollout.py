"""What codex's own file of a thread has of a conversation."""

import json
from pathlib import Path
from typing import Any

from codesdk.contract.messages import Message, Text, user
from codesdk.runtimes.codex.rollout import in_rollout

ANSWER = Message(role="assistant", message_id="t.0", content=[Text(text="One.")])


def said(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "response_item", "payload": {"type": "message", "role": role, "content": content}}


def write(home: Path, *lines: dict[str, Any]) -> None:
    folder = home / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"type": "response_item", "pay'
    (folder / "rollout-2026-01-02T03-04-05-th-1.jsonl").write_text(text)


def test_a_thread_without_a_file_has_nothing(tmp_path: Path):
    assert in_rollout(tmp_path, "th-1", [ANSWER]) is None
    assert in_rollout(tmp_path, "*", [ANSWER]) is None
    assert in_rollout(tmp_path, "", [ANSWER]) is None


def test_what_was_told_and_never_answered_is_found_each_message_once(tmp_path: Path):
    meta = {"type": "session_meta", "payload": {"id": "th-1"}}
    call = {"type": "response_item", "payload": {"type": "function_call", "name": "x"}}
    write(
        tmp_path, meta, said("user", "Again"), said("assistant", "One."), call, said("user", "Two", "Again")
    )
    assert in_rollout(tmp_path, "th-1", [ANSWER]) == 1
    assert in_rollout(tmp_path, "th-1", [ANSWER, user("Two"), user("Again")]) == 3
    assert in_rollout(tmp_path, "th-1", [ANSWER, user("Two"), user("Again"), user("Again")]) == 3
    assert in_rollout(tmp_path, "th-1", [ANSWER, user("Three"), user("Two")]) == 1
