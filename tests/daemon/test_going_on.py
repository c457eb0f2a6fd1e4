"""A daemon that is told to end, or is killed, while a session waits for a person: the next one goes on with it."""

import signal
from pathlib import Path

import pytest
from tests.daemon.rig import TERMINAL, daemon, waiting

ASKS = {
    "turns": [
        {"steps": [{"call": {"tool": "user.ask", "input": {"question": "Which?", "options": ["a", "b"]}}}]},
        {"steps": [{"text": "Fine."}]},
    ]
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_answer_that_comes_after_the_restart_sets_the_session_going(
    tmp_path: Path, number: signal.Signals
):
    with daemon(tmp_path / "data", "--grace", "0") as first:
        session = first.session(ASKS, settings={"on_interrupt": "resume", "stop_grace_s": 0.2})
        asked = waiting(first, session)
        assert (asked["kind"], asked["text"], asked["state"]) == ("question", "Which?", "waiting")
        first.stop(number)
    with daemon(tmp_path / "data") as second:
        (kept,) = second.get(f"/v1/sessions/{session}/approvals")["approvals"]
        assert (kept["approval_id"], kept["state"]) == (asked["approval_id"], "carried")
        assert second.get(f"/v1/sessions/{session}")["goes_on"] is True
        second.post(f"/v1/sessions/{session}/questions/{kept['approval_id']}/answer", {"text": "b"})
        events = []
        for event in second.stream(session):
            events.append(event)
            if event["type"] == "task.completed":
                break
        ends = [
            event["payload"].get("error", {}).get("code") for event in events if event["type"] in TERMINAL
        ]
        assert ends == ["INTERRUPTED", None]
        recovered = [event["payload"]["cause"] for event in events if event["type"] == "session.recovered"]
        assert recovered == ["SHUTDOWN" if number == signal.SIGTERM else "INTERRUPTED"]
        (again,) = [
            e["payload"]["resumes"]
            for e in events
            if e["type"] == "task.started" and "resumes" in e["payload"]
        ]
        assert (again["by"], again["attempt"]) == ({"kind": "engine"}, 1)
        told = [
            event["payload"]["result_preview"] for event in events if event["type"] == "tool.call.completed"
        ]
        assert told == ["b"]
