"""No room on the disk: what cannot be stored is refused, the daemon stays, and goes on when there is room again."""

import resource
from pathlib import Path
from typing import Any

from tests.daemon.rig import TERMINAL, daemon

FULL = 1
"""No file may grow beyond this many bytes. Those that are larger can be read, and not be added to."""
ASKS = {
    "turns": [
        {"steps": [{"call": {"tool": "workspace.write", "input": {"path": "made.txt", "content": "x"}}}]},
        {"steps": [{"text": "Done."}]},
    ]
}


def a_session(workspace: Path) -> Any:
    return {"runtime": "scripted", "workspace": str(workspace)}


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_full_disk_fails_what_is_written_and_nothing_else(tmp_path: Path):
    with Path("/dev/null").open("wb") as nowhere, daemon(tmp_path / "data", stderr=nowhere) as running:
        done = running.session()
        running.run(done)
        before = running.get(f"/v1/sessions/{done}/events")
        session = running.session(ASKS)
        task = running.post(f"/v1/sessions/{session}/tasks", {"message": "Go."})["task_id"]
        types: list[str] = []
        for event in running.stream(session):
            types.append(event["type"])
            if types[-1] == "approval.requested":
                _, most = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (FULL, most))
                call = event["payload"]["tool_call_id"]
                answer = running.http.post(f"/v1/sessions/{session}/calls/{call}/approve", json={})
                assert code_of(answer) == (507, "STORAGE_FAILED")
        assert types[-1] == "approval.requested"  # the stream ended; nothing was shown that is not stored
        assert code_of(running.http.post(f"/v1/sessions/{done}/tasks", json={"message": "Go."})) == (
            507,
            "STORAGE_FAILED",
        )
        assert running.http.get("/v1/health").status_code == 200
        unready = running.http.get("/v1/ready")
        assert code_of(unready) == (503, "STORAGE_FAILED")
        assert "until there is room" in unready.json()["detail"]
        assert str(tmp_path) not in unready.text  # anyone may ask
        listed = running.get("/v1/sessions")
        assert code_of(running.http.post("/v1/sessions", json=a_session(tmp_path))) == (507, "STORAGE_FAILED")
        assert running.get("/v1/sessions") == listed
        assert running.get(f"/v1/sessions/{done}/events") == before
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert running.get("/v1/ready")["ready"] is True  # by itself
        running.run(done, "Again.")
        events = running.get(f"/v1/sessions/{session}/events", limit=1000)["events"]
        assert events[len(types) - 1]["type"] == "approval.requested"
        running.post(f"/v1/sessions/{session}/fork")
        row = running.get(f"/v1/tasks/{task}")
        events = running.get(f"/v1/sessions/{session}/events", limit=1000)["events"]
        (end,) = [event for event in events if event["type"] in TERMINAL]
        assert (row["state"], end["type"], end["payload"]["error"]["code"]) == (
            "failed",
            "task.failed",
            "STORAGE_FAILED",
        )  # as it was closed, later
        for one in (done, session):
            assert running.get(f"/v1/sessions/{one}/verify")["findings"] == []
