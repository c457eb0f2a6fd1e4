"""CodeSDK killed by the kernel while it asks about a call of a real agent: nobody has answered, and nothing ran."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.consent_worker import NOTE, SCRIPT, client
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.programs import TRIED
from tests.runtimes.reading import events_of

from codesdk import CodeSDK
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.gateway.scripted import ScriptedModel
from codesdk.local.directory import DataDir
from codesdk.script import parse_object
from codesdk.store.audit.verify import verify_audit

WORKER = str(Path(__file__).with_name("consent_worker.py"))
DECIDED = ("approval.answered", "tool.call.approved", "tool.call.denied", "tool.call.started")


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def decisions(events: list[Event]) -> list[tuple[str, str, str | None, str | None]]:
    found: list[tuple[str, str, str | None, str | None]] = []
    for event in events:
        if event.type in DECIDED:
            by: Any = getattr(event.payload, "by", None)
            found.append((event.type, by.kind, by.id, event.trace.client_id))
    return found


def run_until_killed(command: list[str]) -> None:
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr


async def left_in(data: Path) -> list[Event]:
    """Return the events of the one session, as the killed process left them."""
    directory = await DataDir.open_reader(data)
    try:
        (row,) = await directory.log.sessions(after=None, limit=10, principal=None, status=None)
        return [decode(frame.data) for frame in await directory.log.read(row.session_id, 0, 1000)]
    finally:
        await directory.close()


@pytest.mark.parametrize("runtime", TRIED)
async def test_a_kill_while_somebody_is_asked_is_nobodys_answer(tmp_path: Path, runtime: str):
    data, note = tmp_path / "data", tmp_path / "ws" / NOTE
    note.parent.mkdir()
    note.write_text("remember the milk\n")
    command = [sys.executable, WORKER, str(data), str(note.parent), runtime]
    run_until_killed(command)
    events = await left_in(data)
    assert [event.type for event in events].count("approval.requested") == 1
    assert decisions(events) == []
    by_engine = ("tool.call.denied", "engine", None, None)
    async with CodeSDK.open(data, providers={}) as sdk:
        (waiting,) = await sdk.approvals()
        assert waiting.state == "carried"
        second = client(sdk, "second")
        session = await second.session(
            waiting.session_id, plays=ScriptedModel(parse_object(SCRIPT, "note"), 1)
        )
        assert decisions(await events_of(sdk, session)) == [by_engine]
        await session.deny(waiting.tool_call_id or "", "No rum.")
        assert (await (await session.resume()).result()).text == "Then not."
        assert decisions(await events_of(sdk, session)) == [
            by_engine,
            ("approval.answered", "user", "second", "second"),
        ]
        assert sdk.audit is not None
        records = await sdk.audit.read(session_id=session.id)
        found = [
            (record.action, record.outcome, record.who.kind, record.who.id, record.who.client_id)
            for record in records
            if record.action in ("approval.answer", "tool.decision", "tool.start")
        ]
        assert found == [
            ("tool.decision", "denied", "engine", None, None),
            ("approval.answer", "denied", "user", "second", "second"),
        ]
        root = sdk.audit.root
    assert verify_audit(root).findings == []
    assert note.read_text() == "remember the milk\n"
    assert left_behind(data) == []
