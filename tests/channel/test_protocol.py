import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.channel.requirements import shows

from codesdk.channel import (
    MARKER,
    PolicyAbort,
    PolicyDecision,
    PolicyPing,
    ToolProgress,
    ToolRequest,
    ToolResult,
    encode,
    read_command,
    read_event,
)
from codesdk.channel.protocol import ParseError, moment_of

REQUEST: dict[str, Any] = {
    "v": 1,
    "type": "tool.request",
    "ts": "2025-12-26T22:11:03-05:00",
    "id": "t-001",
    "tool": "fs.read",
    "action": "read",
    "args": {"path": "README.md"},
    "requires_policy": True,
}


def line(value: Any, marked: bool = False) -> bytes:
    return (MARKER if marked else b"") + json.dumps(value).encode() + b"\n"


@shows("1.1-events", "4.1-requires", "5.3-parsed")
@pytest.mark.parametrize("marked", [True, False])
def test_the_request_of_the_document_is_read(marked: bool):
    event, error = read_event(line(REQUEST, marked))
    assert error is None
    assert event == ToolRequest(
        v=1,
        ts=REQUEST["ts"],
        id="t-001",
        tool="fs.read",
        action="read",
        args={"path": "README.md"},
        requires_policy=True,
    )


def test_results_and_progress_are_read():
    assert read_event(line({"v": 1, "type": "tool.result", "ts": 1, "id": "a", "ok": False, "error": "no"}))[
        0
    ] == (ToolResult(v=1, ts=1, id="a", ok=False, error="no"))
    progress = {"v": 1, "type": "tool.progress", "ts": 1, "id": "a", "stage": "copy", "percent": 40}
    assert read_event(line(progress))[0] == ToolProgress(v=1, ts=1, id="a", stage="copy", percent=40)


@shows("3.1-envelope", "3.1-run-id", "3.1-trace", "3.1-nonce", "3.1-commands", "3.2-rule")
def test_the_commands_of_the_document_are_read_and_written():
    decision = (
        b'{"v":1,"type":"policy.decision","ts":"2025-12-26T22:15:01-05:00","run_id":"r-123","id":"t-002",'
        b'"decision":"deny","reason":"shell execution denied by default","rule_id":"deny.shell.exec"}'
    )
    ping = (
        b'{"v":1,"type":"policy.ping","ts":"2025-12-26T22:14:50-05:00","run_id":"r-123","id":"ping-1",'
        b'"capabilities":["policy.decision.v1"],"timeout_ms":300000}'
    )
    abort = (
        b'{"v":1,"type":"policy.abort","ts":"2025-12-26T22:20:00-05:00","run_id":"r-123","id":"abort-1",'
        b'"reason":"user cancelled approval","code":"user_cancel"}'
    )
    for text, kind in ((decision, PolicyDecision), (ping, PolicyPing), (abort, PolicyAbort)):
        command = read_command(text)
        assert isinstance(command, kind)
        assert json.loads(encode(command)) == json.loads(text)
        assert command.run_id == "r-123"
    more = msgspec.json.encode({**json.loads(decision), "nonce": "n", "trace": {"span": 1}})
    command = read_command(more)
    assert command is not None
    assert (command.nonce, command.trace) == ("n", {"span": 1})


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"type":"policy.decision"}', b"\xff", b"[" * 100_000])
def test_what_is_no_command_is_none(text: bytes):
    assert read_command(text) is None


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"v":1}',
        b'{"type":"tool.request"}',
        b"{not json",
        b'{"v":1,"type":"log","msg":"x"}',
        b"\xff{",
    ],
)
def test_json_of_the_programs_own_is_ordinary_output(text: bytes):
    assert read_event(text + b"\n") == (None, None)


@shows("8.2-missing")
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"id": None}, "invalid_field"),
        ({"id": ""}, "invalid_field"),
        ({"id": "x" * 300}, "invalid_field"),
        ({"id": ...}, "missing_field"),
        ({"tool": ...}, "missing_field"),
        ({"requires_policy": ...}, "missing_field"),
        ({"ts": ...}, "missing_field"),
        ({"args": []}, "invalid_field"),
        ({"requires_policy": "yes"}, "invalid_field"),
        ({"v": 2}, "version"),
        ({"v": True}, "version"),
    ],
)
def test_an_event_that_is_not_as_it_should_be_is_an_error_that_says_why(change: dict[str, Any], kind: str):
    given_ = {name: value for name, value in {**REQUEST, **change}.items() if value is not ...}
    event, error = read_event(line(given_))
    assert event is None
    assert isinstance(error, ParseError)
    assert error.kind == kind
    known = isinstance(given_.get("id"), str) and 0 < len(given_["id"]) <= 256
    assert error.waits == (given_["id"] if known else None)


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[]", b"nothing", b"{}", b'{"v":1,"type":"log"}'])
def test_a_marked_line_that_is_no_event_is_an_error(text: bytes):
    event, error = read_event(MARKER + text + b"\n")
    assert (event, error is None) == (None, False)


@pytest.mark.parametrize(
    ("action", "kind"), [("read", "read"), ("net", "net"), ("delete", "exec"), ("", "exec")]
)
def test_an_action_that_nobody_knows_counts_as_exec(action: str, kind: str):
    event, _ = read_event(line({**REQUEST, "action": action}))
    assert isinstance(event, ToolRequest)
    assert event.kind == kind


@given(st.binary(max_size=200))
def test_whatever_a_program_prints_is_read_without_raising(data: bytes):
    for text in (data, b"{" + data, MARKER + data):
        event, error = read_event(text)
        assert event is None or error is None


@shows("3.1-ts")
def test_times_are_text_or_milliseconds():
    assert moment_of("1970-01-01T00:00:02+00:00") == 2.0
    assert moment_of("1970-01-01T00:00:02Z") == 2.0
    assert moment_of(2000) == 2.0
    assert moment_of("yesterday") is None
