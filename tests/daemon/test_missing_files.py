"""Files deleted under a running daemon: nothing that was stored is lost without a word, and nobody takes its place."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import Daemon, asks, daemon, problem, waiting

from codesdk.local.directory import AUDIT, BLOBS, DATABASE, LOCK, OWNER

WAL = f"{DATABASE}-wal"


def start(running: Daemon, session: str) -> Any:
    return running.http.post(f"/v1/sessions/{session}/tasks", json={"message": "Go."})


def codesdk(data_dir: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "codesdk.cli.main", "--data-dir", str(data_dir), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", [WAL, DATABASE])
def test_a_daemon_whose_database_was_deleted_stores_nothing_more_and_says_why(tmp_path: Path, name: str):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        (running.data_dir / name).unlink()
        answer = start(running, session)
        assert problem(answer) == (507, "STORAGE_FAILED")
        assert f"{name} was deleted or replaced while it was in use" in answer.json()["detail"]


def test_what_was_stored_before_the_write_ahead_log_was_deleted_is_there_after_a_kill(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        before = running.get(f"/v1/sessions/{session}/events")
        (running.data_dir / WAL).unlink()
        assert problem(start(running, session)) == (507, "STORAGE_FAILED")
        running.stop(signal.SIGKILL)
    with sqlite3.connect(running.data_dir / DATABASE) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    db.close()
    with daemon(tmp_path / "data") as running:
        assert running.get(f"/v1/sessions/{session}/events") == before
        running.run(session)
        assert running.get(f"/v1/sessions/{session}/verify")["findings"] == []


def test_nobody_takes_the_directory_when_its_lock_was_deleted(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        (running.data_dir / LOCK).unlink()
        argv = [sys.executable, "-m", "codesdk.cli.codesdkd", "--data-dir", str(running.data_dir)]
        second = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
        assert second.stdout == ""
        assert f"The data directory {running.data_dir} is in use by another process" in second.stderr
        running.run(session)


def test_a_task_is_closed_after_a_crash_though_the_name_of_the_owner_was_deleted(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session(asks())
        waiting(running, session)
        (running.data_dir / OWNER).unlink()
        running.stop(signal.SIGKILL)
    with daemon(tmp_path / "data") as running:
        (task,) = running.get(f"/v1/sessions/{session}/tasks")["tasks"]
        assert task["state"] == "failed"
        assert running.get(f"/v1/sessions/{session}/verify")["findings"] == []


def test_verify_names_what_was_deleted_of_the_blobs(tmp_path: Path):
    large = {"call": {"tool": "workspace.write", "input": {"path": "large.txt", "content": "x" * 200_000}}}
    script = {"turns": [{"steps": [large]}, {"steps": [{"text": "Done."}]}]}
    with daemon(tmp_path / "data", "--allow-yolo") as running:
        session = running.session(script, permission_mode="yolo")
        running.run(session)
        other = running.session()
        (blob,) = [path for path in (running.data_dir / BLOBS).rglob("*") if path.is_file()][:1]
        blob.unlink()
        findings = running.get(f"/v1/sessions/{session}/verify")["findings"]
        assert findings
        assert all("whose bytes cannot be read" in found["message"] for found in findings)
        running.run(other)  # is not disturbed
        running.stop()
    checked = codesdk(running.data_dir, "verify", "--all")
    assert checked.returncode == 1
    assert f"{blob.parent.name}{blob.name}" in checked.stdout


def test_a_daemon_says_that_its_audit_was_deleted_and_works_on(tmp_path: Path):
    with daemon(tmp_path / "data") as running:
        session = running.session()
        running.run(session)
        running.get("/v1/audit")  # by now it is written
        shutil.rmtree(running.data_dir / AUDIT)
        running.run(session)
        refused = running.http.delete(f"/v1/sessions/{session}")  # what the audit does not know of stays
        assert problem(refused) == (507, "STORAGE_FAILED")
        assert "its file was deleted while it was in use" in refused.json()["detail"]
        assert "its file was deleted while it was in use" in running.get("/v1/ready")["problems"][0]
