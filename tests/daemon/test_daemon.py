"""The daemon from outside: it starts, works, and ends in good order."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.bundle.unpacked import Unpacked
from tests.daemon.rig import daemon

from codesdk.bundle import read_bundle
from codesdk.contract.canonical import hash_json
from codesdk.local.directory import find_daemon

POLICY = """
[[rules]]
id = "no-exec"
result = "deny"
tool = "workspace.exec"
reason = "Not here."
match = [{ tool = "workspace.exec" }]
"""


def test_a_session_works_over_http_and_its_log_holds(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        task = running.run(session, "Say hello.")
        row = running.get(f"/v1/tasks/{task}")
        events = running.get(f"/v1/sessions/{session}/events")["events"]
        assert (row["state"], row["ended_seq"]) == ("completed", events[-1]["seq"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert running.get(f"/v1/sessions/{session}/verify") == {
            "ok": True,
            "events": len(events),
            "findings": [],
        }
        assert running.stop() == 0


def test_a_stream_goes_on_behind_the_last_event_that_a_client_has_seen(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        path = f"/v1/sessions/{session}/events"
        with running.http.stream(
            "GET", path, headers={"accept": "text/event-stream", "last-event-id": "3"}
        ) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("id: "))
            assert next(lines) == "id: 4"


def test_the_local_command_line_finds_a_daemon_through_the_lock_file(tmp_path: Path):
    with daemon(tmp_path / "data", "--require-token") as running:
        found = find_daemon(tmp_path / "data")
        assert found is not None
        url, token = found
        assert url == running.url
        assert running.http.get("/v1/whoami").status_code == 401
        answer = running.http.get("/v1/whoami", headers={"authorization": f"Bearer {token}"})
        assert answer.json() == {"principal": "local", "scopes": ["read", "run", "approve", "admin"]}
        running.stop()
    assert find_daemon(tmp_path / "data") is None


def test_a_task_that_runs_when_the_daemon_ends_is_stopped_with_its_last_event(tmp_path: Path):
    forever = {"turns": [{"steps": [{"text": "Begin"}, {"delay_s": 600}]}]}
    with daemon(tmp_path / "data", "--grace", "0") as running:
        session = running.session(forever)
        running.post(f"/v1/sessions/{session}/tasks", {"message": "Go."})
        types: list[str] = []
        for event in running.stream(session):
            types.append(event["type"])
            if event["type"] == "model.output.delta":
                running.process.send_signal(signal.SIGTERM)
        assert types[-1] == "task.stopped"
        assert running.process.wait(60) == 0


def test_a_daemon_that_is_told_to_end_as_soon_as_it_says_where_it_is_ends_in_good_order(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        assert running.stop() == 0


ON_DEMAND = {
    *("mcp", "yaml", "docker", "httpx2", "pydantic", "starlette", "rich", "codesdk.script"),
    # An editor's WebSocket, spans, a file of settings or rules, the names of other machines.
    *(
        "websockets",
        "uvicorn.protocols.websockets",
        "opentelemetry",
        "codesdk.observe.traces",
        "importlib.metadata",
    ),
    *("tomllib", "platformdirs", "codesdk.policy.load", "codesdk.policy.rules", "unicodedata", "shlex"),
    # A session: its runtime, its workspace, its tools, its commands.
    *(
        "codesdk.tools.patch",
        "codesdk.tools.workspace",
        "codesdk.runtimes.acp",
        "codesdk.runtimes.codex",
        "codesdk.runtimes.program.pinned",
        "codesdk.minicode",
    ),
    *("ctypes", "difflib", "codesdk.sandbox.egress", "codesdk.sandbox.bubblewrap", "click.shell_completion"),
}


def test_a_daemon_at_rest_has_loaded_nothing_that_only_some_sessions_need(tmp_path: Path):
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from codesdk.cli.codesdkd import main; main()"
    )
    command = [sys.executable, "-c", code, "--data-dir", str(tmp_path), "--port", "0", "--log-level", "error"]
    # Coverage, if it is measured, loads some of these itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert "url" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, loaded = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "codesdk.daemon.server" in loaded.split()
    assert ON_DEMAND & set(loaded.split()) == set()


def test_the_description_of_the_api_names_every_operation(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        document = running.get("/openapi.json")
    names = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(names) == len(set(names)) > 30
    assert document["openapi"] == "3.1.0"
    json.dumps(document)


def test_figures_for_prometheus_are_counted_over_all_sessions(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        running.run(running.session())
        text = running.http.get("/v1/metrics").text
    assert 'codesdk_tasks_finished_total{runtime="scripted",status="completed"} 1.0' in text.splitlines()
    assert "codesdk_active_sessions 1.0" in text.splitlines()


def test_a_support_bundle_comes_over_http_and_is_whole(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(POLICY)
    options = ("--policy", str(tmp_path / "policy.toml"), "--tasks-per-minute", "90")
    with daemon(tmp_path / "data", *options) as running:
        session = running.session()
        running.run(session)
        answer = running.http.get(f"/v1/sessions/{session}/support-bundle")
        assert answer.headers["content-type"] == "application/gzip"
    (tmp_path / "bundle.tar.gz").write_bytes(answer.content)
    opened = read_bundle(tmp_path / "bundle.tar.gz")
    assert (opened.manifest.session_id, opened.problems) == (session, [])
    bundle = Unpacked(answer.content)
    health, config = bundle.json("health.json"), bundle.json("config.json")
    process = {"status": "ok", "ready": True, "problems": [], "draining": False}
    assert {name: health["process"][name] for name in process} == process
    assert health["data_dir"]["disk_free_bytes"] > 0
    assert [sandbox["backend"] for sandbox in health["sandboxes"]] == ["bubblewrap", "host"]
    assert [rule["id"] for rule in config["policy"]["rules"]] == ["no-exec"]
    assert config["policy"]["rules_hash"] == hash_json(config["policy"]["rules"])
    assert (config["launch"]["tasks_per_minute"], config["launch"]["limits"]["max_queue"]) == (90, 64)
    assert str(tmp_path / "data") not in f"{health} {config['launch']}"


def test_an_operator_has_old_sessions_removed(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        running.post(f"/v1/sessions/{session}/close")
        tried = running.post("/v1/gc", {"max_age_days": 0, "dry_run": True})
        assert [removed["session_id"] for removed in tried["sessions"]] == [session]
        assert running.http.get(f"/v1/sessions/{session}").status_code == 200
        running.post("/v1/gc", {"max_age_days": 0})
        assert running.http.get(f"/v1/sessions/{session}").status_code == 404


def test_a_daemon_that_keeps_little_removes_the_rest_when_it_starts(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        running.stop()
    with daemon(tmp_path / "data", "--keep-bytes", "1") as running:
        while running.http.get(f"/v1/sessions/{session}").status_code != 404:
            pass
