"""A daemon that lives in something else: in the process that started it, under systemd, in a container."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.daemon.rig import daemon

from codesdk.cli.codesdkd import codesdkd

DEPLOY = Path(__file__).parents[2] / "deploy"
PARENT = """
import subprocess, sys
argv = [sys.executable, "-m", "codesdk.cli.codesdkd", "--exit-with-parent", "--data-dir", sys.argv[1]]
argv += ["--port", "0", "--grace", "0"]
child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline(), flush=True)
child.wait()
"""


def test_a_daemon_ends_in_good_order_when_its_parent_is_killed(tmp_path: Path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid, _, first = parent.stdout.readline().partition(" ")
        handle = os.pidfd_open(int(pid))
        try:
            session = _at_work(json.loads(first)["url"], str(tmp_path))
            parent.kill()
            parent.wait(60)
            ended, _, _ = select.select([handle], [], [], 60)
            assert ended
        finally:
            os.close(handle)
    with daemon(tmp_path / "data") as running:
        last = running.get(f"/v1/sessions/{session}/events")["events"][-1]
        assert (last["type"], last["payload"]["reason"]) == ("task.stopped", "the daemon is shutting down")


def _at_work(url: str, workspace: str) -> str:
    """Start a task that goes on for ever, and return its session."""
    script = {"turns": [{"steps": [{"delay_s": 600}]}]}
    body = {"runtime": "scripted", "workspace": workspace, "settings": {"runtime_config": {"script": script}}}
    with httpx2.Client(base_url=url, timeout=60) as http:
        session = http.post("/v1/sessions", json=body).json()["session_id"]
        assert http.post(f"/v1/sessions/{session}/tasks", json={"message": "Go."}).status_code == 202
    return session


def test_a_daemon_whose_parent_is_gone_already_does_not_stay(tmp_path: Path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    argv = [sys.executable, "-m", "codesdk.cli.codesdkd", "--data-dir", str(tmp_path / "data")]
    ended = subprocess.run(
        [*argv, f"--exit-with-parent={gone.pid}"], capture_output=True, timeout=60, check=False
    )
    assert ended.returncode in (0, -signal.SIGTERM)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path):
    unit = (DEPLOY / "codesdkd.service").read_text()
    program = Path(sys.executable).with_name("codesdkd")
    (tmp_path / "codesdkd.service").write_text(unit.replace("/usr/local/bin/codesdkd", str(program)))
    argv = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "codesdkd.service")]
    checked = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", ["codesdkd.service", "Containerfile"])
def test_every_option_that_is_used_is_one_that_there_is(name: str):
    words = (DEPLOY / name).read_text().splitlines()
    line = next(line for line in words if line.startswith(("ExecStart=", "CMD ")))
    used = set(re.findall(r"--[a-z-]+", line))
    assert used
    assert used <= {option for parameter in codesdkd.params for option in parameter.opts}
