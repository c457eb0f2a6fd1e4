"""The audit of a daemon: each of its four categories, each caller's own part, and a chain that holds."""

import resource
from pathlib import Path

from tests.daemon.rig import TERMINAL, Daemon, daemon

from codesdk.local.tokens import TokenFile

ROOM_BYTES = 100_000


def answer_first(running: Daemon, session: str, decision: str, **headers: str) -> None:
    """Answer the first question of a session, then wait for the end of its task."""
    for event in running.stream(session):
        if event["type"] == "approval.requested":
            call = event["payload"]["tool_call_id"]
            body = {"reason": "looked at it"}
            running.post(f"/v1/sessions/{session}/calls/{call}/{decision}", body, **headers)
        if event["type"] in TERMINAL:
            return


def records(running: Daemon, category: str) -> list[tuple[str, str]]:
    page = running.get("/v1/audit", category=category, limit=1000)
    return [(record["action"], record["outcome"]) for record in page["records"]]


def test_each_category_is_recorded_and_the_chain_holds(tmp_path: Path):
    (tmp_path / "note.txt").write_text("a note")
    reads = {
        "turns": [
            {"steps": [{"call": {"tool": "workspace.read", "input": {"path": "note.txt"}}}]},
            {"steps": [{"fail": {"code": "RATE_LIMITED", "message": "Slow down.", "retryable": True}}]},
        ]
    }
    flood = {"turns": [{"steps": [{"text": "x" * 200_000}]}]}
    with daemon(tmp_path / "data") as running:
        session = running.session(reads)
        running.post(f"/v1/sessions/{session}/tasks", {"message": "Read it."})
        answer_first(running, session, "approve")
        full = running.session(flood)
        largest = max(path.stat().st_size for path in running.data_dir.iterdir())
        _, most = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (largest + ROOM_BYTES, most))
        refused = running.http.post(f"/v1/sessions/{full}/tasks", json={"message": "Fill the disk."})
        assert (refused.status_code, refused.json()["code"]) == (507, "STORAGE_FAILED")
        requests = records(running, "request")
        assert [name for name, outcome in requests if outcome == "ok"].count("http") >= 4
        assert {"session.create", "task.start"} <= {name for name, _ in requests}
        assert {name for name, _ in records(running, "tool")} == {"tool.start", "tool.end"}
        assert records(running, "runtime")
        assert records(running, "storage")
        checked = running.get("/v1/audit/check")
        assert checked["findings"] == []


def test_a_caller_sees_its_own_records_and_an_operator_those_of_everybody(tmp_path: Path):
    tokens = TokenFile(tmp_path / "data")
    ann, _ = tokens.add("ann", ["run", "read"])
    bob, _ = tokens.add("bob", ["run", "read"])
    boss, _ = tokens.add("boss", ["admin"])
    with daemon(tmp_path / "data") as running:
        for token in (ann, bob):
            running.http.headers["authorization"] = f"Bearer {token}"
            running.session()
        own = running.get("/v1/audit")["records"]
        assert {record["who"]["principal"] for record in own} == {"bob"}
        assert running.http.get("/v1/audit?everybody=true").status_code == 403
        running.http.headers["authorization"] = f"Bearer {boss}"
        everything = running.get("/v1/audit", everybody=True)["records"]
        assert {"ann", "bob"} <= {record["who"]["principal"] for record in everything}


def test_a_refused_request_is_recorded_without_the_token_that_was_tried(tmp_path: Path):
    boss, _ = TokenFile(tmp_path / "data").add("boss", ["admin"])
    with daemon(tmp_path / "data") as running:
        wrong = "csdk_" + "w" * 40
        assert (
            running.http.get("/v1/sessions", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
        )
        running.http.headers["authorization"] = f"Bearer {boss}"
        refused = [
            record
            for record in running.get("/v1/audit", everybody=True)["records"]
            if record["outcome"] == "refused"
        ]
        assert [record["what"]["status"] for record in refused] == [401]
        running.stop()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert wrong.encode() not in stored
