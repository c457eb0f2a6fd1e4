"""A process killed around a dispatch: after the next start each event has been dispatched, and each action done once."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.extensions.rig import Extensions, extended, settle

from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.engine import verify_session

pytestmark = pytest.mark.anyio

WORKER = str(Path(__file__).with_name("kill_worker.py"))
HELPER = """
from pathlib import Path
SEEN = Path({seen!r})
def handle(event, tools):
    with SEEN.open("a") as file:
        file.write(f"{{event.type}} {{event.correlation_id}}\\n")
    if event.type == "approval.requested":
        return {{"kind": "action_request", "action_type": "approval.decide", "payload": {{"decision": "approve"}}}}
def register(registry):
    for name in ("task.started", "approval.requested", "turn.completed"):
        registry.on(name, handle)
"""


@pytest.mark.parametrize("moment", ["before", "after", "cursor"])
async def test_after_a_kill_every_event_is_dispatched_and_the_answer_is_given_once(
    ext: Extensions, tmp_path: Path, moment: str
):
    seen = tmp_path / "seen.txt"
    ext.write("helper", HELPER.format(seen=str(seen)))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, WORKER, str(tmp_path), moment],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    async with extended(ext, tmp_path, stored=True) as sdk:
        await settle(sdk)
        (row,) = await sdk.archive.sessions()
        log, blobs = sdk.archive.log, sdk.archive.blobs
        stored = [decode(frame.data) for frame in await log.read(row.session_id, 0, 1_000)]
        assert await verify_session(log, blobs, row.session_id) == []
    wanted = {
        f"{'turn.completed' if event.type in ('task.failed', 'task.completed', 'task.stopped') else event.type}"
        f" {row.session_id}:{event.seq}"
        for event in stored
        if event.type
        in ("task.started", "approval.requested", "task.failed", "task.completed", "task.stopped")
    }
    assert set(seen.read_text().splitlines()) == wanted
    answers = [event.payload for event in stored if isinstance(event.payload, ev.ApprovalAnswered)]
    assert len([answer for answer in answers if answer.by.kind == "extension"]) <= 1
