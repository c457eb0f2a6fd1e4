"""A daemon's file of settings has effect: fetching, limits of the engine, hosts of commands; and a mistake keeps it from starting."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.daemon.rig import daemon, problem
from tests.sandbox.stage import open_directory

CALLS: dict[str, Any] = {
    "turns": [
        {
            "steps": [
                {"call": {"tool": "http.fetch", "input": {"url": "https://elsewhere.invalid/"}}},
                {"call": {"tool": "workspace.exec", "input": {"argv": ["env"]}}},
                {"call": {"tool": "workspace.exec", "input": {"argv": ["touch", "made"]}}},
            ]
        },
        {"steps": [{"text": "Done."}]},
    ]
}


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_tools_and_limits_are_as_the_file_says(tmp_path: Path):
    config = write(
        tmp_path / "codesdk.toml",
        """
[daemon]
allow_yolo = true
fetch.allow = ["docs.example.org"]
limits.max_sessions = 1
limits.max_message_bytes = 1000

[daemon.commands]
allow = ["env", "touch"]
hosts = ["pypi.example.org"]
writable = false
""",
    )
    with open_directory() as workspace, daemon(tmp_path / "data", "--config", config) as running:
        session = running.session(CALLS, permission_mode="yolo", workspace=str(workspace))
        running.run(session)
        events = running.get(f"/v1/sessions/{session}/events", limit=1000)["events"]
        ends = [event["payload"] for event in events if event["type"] == "tool.call.completed"]
        fetched, environment, touched = (end["result_preview"] for end in ends)
        assert "elsewhere.invalid" in fetched
        assert "allowed" in fetched
        assert "https_proxy=http://127.0.0.1:" in environment
        assert "Read-only file system" in touched
        body = {"runtime": "scripted", "workspace": str(workspace)}
        assert problem(running.http.post("/v1/sessions", json=body)) == (429, "OVERLOADED")
        said = {"message": "x" * 2000}
        assert problem(running.http.post(f"/v1/sessions/{session}/tasks", json=said))[1] == "INVALID_REQUEST"


def test_a_mistake_in_the_file_is_one_line_and_nothing_is_made(tmp_path: Path):
    config = write(tmp_path / "codesdk.toml", "[daemon]\nworkspace_root = ['/srv']\n")
    argv = [
        sys.executable,
        "-m",
        "codesdk.cli.codesdkd",
        "--data-dir",
        str(tmp_path / "data"),
        "--config",
        config,
    ]
    refused = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        f"{config}: daemon.workspace_root is not a setting. Did you mean daemon.workspace_roots?"
        in refused.stderr
    )
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()
