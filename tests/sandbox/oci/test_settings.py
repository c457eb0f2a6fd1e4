"""The container sandbox as an operator sets it: with flags of `codesdk run`, and in the daemon's file."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Shell
from tests.daemon.rig import daemon
from tests.sandbox.oci.engine import IMAGE, RunningEngine
from tests.sandbox.stage import open_directory

from codesdk.sandbox.owner import SANDBOX_USER

HELLO = ["/bin/sh", "-c", "pwd; cat greeting"]
SCRIPT: dict[str, Any] = {
    "turns": [
        {
            "steps": [
                {"call": {"tool": "workspace.exec", "input": {"argv": HELLO}}},
                {"call": {"tool": "workspace.exec", "input": {"argv": ["/bin/sh", "-c", "exec sleep 60"]}}},
                {"call": {"tool": "workspace.exec", "input": {"argv": ["/bin/ls"]}}},
            ]
        },
        {"steps": [{"text": "Done."}]},
    ]
}


@pytest.fixture
def shell() -> Generator[Shell]:
    """A place whose workspace belongs to the sandbox's user."""
    with open_directory() as root:
        shell = Shell(root)
        (shell.workspace / "greeting").write_text("hello from outside\n")
        os.chown(shell.workspace, *SANDBOX_USER)
        yield shell


def require_contained(events: list[Any]) -> None:
    """Fail unless the first command ran in a container, the second reached its limit, and the third was refused."""
    ends = [event["payload"] for event in events if event["type"] == "tool.call.completed"]
    assert [end["execution_env"] for end in ends] == ["codesdk_docker"] * 3
    first, second, third = (end["result_preview"] for end in ends)
    assert "/workspace\nhello from outside" in first
    assert "It was stopped because its time was up." in second
    assert "This command is not allowed here" in third


def test_codesdk_run_takes_the_image_the_engine_and_limits(shell: Shell, engine: RunningEngine):
    ran = shell.codesdk(
        *(
            "run",
            "--runtime=scripted",
            "--script",
            shell.write_script(json.dumps(SCRIPT), "script.json"),
            "--workspace",
            "ws",
            "--json",
        ),
        *("--permission-mode", "yolo", "--allow-yolo", "--allow-command", "/bin/sh -c"),
        *("--sandbox", "oci", "--image", IMAGE, "--engine", f"unix://{engine.socket}"),
        *("--cpus", "1", "--command-limit", "wall_s=1", "--command-limit", "processes=32"),
        "Go.",
    )
    assert ran.code == 0, ran.err
    require_contained(ran.lines)
    assert engine.containers() == []


def test_an_image_that_the_engine_has_not_is_said_so_before_anything_is_stored(
    shell: Shell, engine: RunningEngine
):
    options = ("--allow-command", "sh", "--sandbox", "oci", "--image", "nowhere:1", "--engine", engine.socket)
    refused = shell.codesdk(
        "run", "--runtime=scripted", "--script", shell.write_script(json.dumps(SCRIPT)), *options, "Go."
    )
    assert refused.code != 0
    assert "nowhere:1" in refused.err
    assert shell.codesdk("sessions", "--json").out == ""


def test_a_daemon_takes_them_from_its_file(shell: Shell, engine: RunningEngine, tmp_path: Path):
    config = tmp_path / "codesdk.toml"
    config.write_text(f"""
[daemon]
allow_yolo = true

[daemon.commands]
allow = ["/bin/sh -c"]
sandbox = "oci"
image = "{IMAGE}"
engine = "{engine.socket}"

[daemon.commands.limits]
wall_s = 1
""")
    with daemon(shell.data, "--config", str(config)) as running:
        session = running.session(SCRIPT, permission_mode="yolo", workspace=str(shell.workspace))
        running.run(session)
        require_contained(running.get(f"/v1/sessions/{session}/events", limit=1000)["events"])
    assert engine.containers() == []
