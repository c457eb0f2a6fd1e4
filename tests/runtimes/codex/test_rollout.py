"""What codex's own file of a thread has of a conversation."""

import json
from pathlib import Path
from typing import Any

import pytest

from codesdk.runtimes.codex.rollout import in_rollout
from codesdk.runtimes.program import unanswered
from codesdk.runtimes.program.unanswered import Sent


def said(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "response_item", "payload": {"type": "message", "role": role, "content": content}}


def sent(*texts: str, others: int = 0) -> Sent:
    return Sent(texts=texts, others=others)


def write(home: Path, *lines: dict[str, Any]) -> None:
    folder = home / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"type": "response_item", "pay'
    (folder / "rollout-2026-01-02T03-04-05-th-1.jsonl").write_text(text)


def test_a_thread_without_a_file_has_nothing(tmp_path: Path):
    assert in_rollout(tmp_path, "th-1", []) is None
    assert in_rollout(tmp_path, "*", []) is None
    assert in_rollout(tmp_path, "", []) is None


def test_what_was_told_and_never_answered_is_found_each_message_once(tmp_path: Path):
    meta = {"type": "session_meta", "payload": {"id": "th-1"}}
    call = {"type": "response_item", "payload": {"type": "function_call", "name": "x"}}
    write(
        tmp_path, meta, said("user", "Again"), said("assistant", "One."), call, said("user", "Two", "Again")
    )
    assert in_rollout(tmp_path, "th-1", []) == 1
    assert in_rollout(tmp_path, "th-1", [sent("Two"), sent("Again")]) == 3
    assert in_rollout(tmp_path, "th-1", [sent("Two"), sent("Again"), sent("Again")]) == 3
    assert in_rollout(tmp_path, "th-1", [sent("Three"), sent("Two")]) == 1
    assert in_rollout(tmp_path, "th-1", [Sent(role="tool"), sent("Two")]) == 3, "that turn has its results"


def test_images_alone_are_counted(tmp_path: Path):
    image = said("user")
    image["payload"]["content"] = [{"type": "input_image", "image_url": "data:image/png;base64,"}]
    write(tmp_path, image, said("assistant", "One."), image, said("user", "Two"))
    assert in_rollout(tmp_path, "th-1", [sent(others=1), sent("Two")]) == 3
    assert in_rollout(tmp_path, "th-1", [sent(others=1), sent(others=1)]) == 2
    assert in_rollout(tmp_path, "th-1", [sent(others=2)]) == 1


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, said("assistant", "One."), said("user", "Two"))
    [path] = tmp_path.rglob("*.jsonl")
    monkeypatch.setattr(unanswered, "MAX_COPY_BYTES", path.stat().st_size)
    assert in_rollout(tmp_path, "th-1", [sent("Two")]) == 2
    monkeypatch.setattr(unanswered, "MAX_COPY_BYTES", path.stat().st_size - 1)
    assert in_rollout(tmp_path, "th-1", [sent("Two")]) is None
