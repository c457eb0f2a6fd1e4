"""What a type checker makes of events: right code passes, a wrong payload field is an error on its own line."""

import json
import subprocess
import sys
from pathlib import Path

RIGHT = """
from codesdk.contract import events as ev


def by_type(event: ev.Event) -> str:
    if event.type == "session.closed":
        return event.payload.reason
    if event.type == "task.failed":
        return event.payload.error.code
    return event.type


def by_class(event: ev.Event) -> str:
    match event:
        case ev.OutputDeltaEvent(payload=payload):
            return payload.delta
        case ev.TaskStoppedEvent():
            return event.payload.reason
        case ev.UnknownEvent():
            return str(event.payload)
        case _:
            return event.trace.session_id


def by_payload(event: ev.Event) -> int:
    return event.payload.duration_ms if isinstance(event.payload, ev.ToolCallCompleted) else 0
"""
WRONG = """
from codesdk.contract import events as ev


def by_type(event: ev.Event) -> str:
    if event.type == "session.closed":
        return event.payload.raeson  # wrong
    return ""


def by_class(event: ev.Event) -> int:
    match event:
        case ev.OutputDeltaEvent(payload=payload):
            return payload.delta  # wrong
        case ev.TaskStoppedEvent():
            return event.payload.error  # wrong
        case _:
            return event.payload.seq  # wrong


def misspelt(event: ev.Event) -> bool:
    return event.type == "session.clsoed"  # wrong
"""


def errors(path: Path) -> set[int]:
    """Return the lines in which pyright, in its strict mode, finds an error."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return {problem["range"]["start"]["line"] + 1 for problem in found["generalDiagnostics"]}


def test_the_type_and_the_class_of_an_event_both_tell_its_payload(tmp_path: Path):
    path = tmp_path / "right.py"
    path.write_text("# pyright: strict\n" + RIGHT)
    assert errors(path) == set()


def test_a_field_that_the_payload_does_not_have_and_a_type_that_does_not_exist_are_errors(tmp_path: Path):
    path = tmp_path / "wrong.py"
    path.write_text("# pyright: strict\n" + WRONG)
    lines = path.read_text().splitlines()
    assert errors(path) == {number for number, line in enumerate(lines, 1) if "# wrong" in line}
