"""A process killed between a commit and its record: after the next start, every stored event is in the audit, once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.audit_worker import MOMENTS
from tests.crash.audited import check_audit

from codesdk import CodeSDK

WORKER = str(Path(__file__).with_name("audit_worker.py"))


def kill(home: Path, moment: str, count: int) -> None:
    """Let a worker go its way until it is killed."""
    (home / "workspace").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, WORKER, str(home / "data"), str(home / "workspace"), moment, str(count)],
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
async def test_every_stored_event_has_one_record_whenever_the_writer_was_killed(tmp_path: Path, moment: str):
    told = 0
    for count in (1, 2, 5):
        kill(tmp_path, moment, count)
        async with CodeSDK.open(tmp_path / "data") as sdk:
            now = await check_audit(sdk, tmp_path / "data")
            assert now > told
            told = now
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert await check_audit(sdk, tmp_path / "data") == told
