"""A disk that turns read-only under a daemon, as a kernel does when it meets an error: refused, said, nothing lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.rig import daemon, problem

SIZE = "64M"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own. Needs root and a loop device."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    subprocess.run(["truncate", "-s", SIZE, image], check=True)
    if os.geteuid() != 0 or subprocess.run(["mkfs.ext4", "-q", image], check=False).returncode != 0:
        pytest.skip("a file system can only be made by root, with e2fsprogs")
    if subprocess.run(["mount", "-o", "loop", image, place], check=False).returncode != 0:
        pytest.skip("there is no loop device to mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_that_turns_read_only_refuses_what_is_written_and_shows_what_is_stored(disk: Path):
    with Path("/dev/null").open("wb") as nowhere, daemon(disk / "data", stderr=nowhere) as running:
        session = running.session()
        running.run(session)
        before = running.get(f"/v1/sessions/{session}/events")
        subprocess.run(["mount", "-o", "remount,abort", disk], check=True)
        answer = running.http.post(f"/v1/sessions/{session}/tasks", json={"message": "Go."})
        assert problem(answer) == (507, "STORAGE_FAILED")
        assert str(disk / "data") in answer.json()["detail"]
        assert running.get(f"/v1/sessions/{session}/events") == before
        assert running.http.get("/v1/health").status_code == 200
        running.stop(signal.SIGKILL)


def test_a_daemon_does_not_begin_on_a_read_only_disk(disk: Path):
    with daemon(disk / "data") as running:
        session = running.session()
        running.run(session)
        assert running.stop() == 0
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    argv = ["--data-dir", str(disk / "data")]
    begun = subprocess.run(
        [sys.executable, "-m", "codesdk.cli.codesdkd", *argv], capture_output=True, text=True, check=False
    )
    assert begun.stdout == ""
    assert f"The data directory {disk / 'data'} cannot be written" in begun.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "codesdk.cli.main", *argv, "verify", "--all"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, session in checked.stdout) == (0, True)
