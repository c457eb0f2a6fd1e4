"""A daemon with executables as runtimes, which only its operator names, and with its own ones hosted as processes."""

import sys
from pathlib import Path

import pytest
from tests.daemon.rig import daemon, problem
from tests.runtimes.external.adapters import LIAR

from codesdk.testing.processes import command_line


@pytest.fixture
def command(tmp_path: Path) -> str:
    program = tmp_path / "liar.py"
    program.write_text(LIAR)
    return f"{sys.executable} {program} {{}}"


def test_sessions_use_what_the_operator_named_and_nothing_else(tmp_path: Path, command: str):
    named = ("--external", f"good={command}", "--external", "broken=/no/such/program")
    with daemon(tmp_path / "data", *named) as running:
        listed = {one["name"]: one for one in running.get("/v1/runtimes")["runtimes"]}
        assert "external:good" in listed
        assert "external:broken" not in listed
        assert listed["external:good"]["capabilities"]["recommended_isolation_mode"] == "subprocess"
        assert running.get("/v1/runtimes/external%3Agood/auth")["available"]["ok"]
        assert "/no/such/program" in running.get("/v1/runtimes/external:broken/auth")["available"]["problem"]
        body = {"runtime": "external:good", "workspace": str(tmp_path)}
        session = running.post("/v1/sessions", body)["session_id"]
        task = running.run(session)
        ends = list(running.get(f"/v1/sessions/{session}/events")["events"])
        assert [event["type"] for event in ends if event["trace"].get("task_id") == task][
            -1
        ] == "task.completed"
        other = running.http.post("/v1/sessions", json=body | {"runtime": "external:other"})
        assert problem(other) == (400, "INVALID_REQUEST")


def test_an_operator_may_leave_one_out(tmp_path: Path, command: str):
    with daemon(tmp_path / "data", "--external", f"good={command}", "--runtimes", "scripted") as running:
        assert [one["name"] for one in running.get("/v1/runtimes")["runtimes"]] == ["scripted"]
        body = {"runtime": "external:good", "workspace": str(tmp_path)}
        assert problem(running.http.post("/v1/sessions", json=body)) == (403, "FORBIDDEN")


def test_built_in_runtimes_run_as_processes_of_their_own(tmp_path: Path):
    with daemon(tmp_path / "data", "--hosting", "subprocess") as running:
        session = running.session()
        running.run(session)
        [created, *_] = running.get(f"/v1/sessions/{session}/events")["events"]
        assert created["payload"]["isolation"]["mode"] == "subprocess"
        children = (
            Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
        )
        hosts = [command_line(child) for child in children]
        assert any(b"codesdk.adapter\0scripted" in host for host in hosts)
