"""The real codex, offline, with an extension that subscribes to what its app server says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extensions import probe
from tests.extensions.rig import Extensions
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.codex.rig import opened, read

from codesdk.runtimes import hosted_runtime

NAMES = [
    "app_server.remote_control.status.changed",
    "app_server.thread.started",
    "app_server.turn.started",
    "app_server.item.agent_message.delta",
    "app_server.item.completed",
    "app_server.turn.completed",
    "app_server.request.mcp_server.elicitation.request",
    "app_server.request.item.command_execution.request_approval",
]
SOURCE = f"""
def handle(event, tools): note(event)
def register(registry):
    for name in {NAMES!r}: registry.on(name, handle)
"""


@pytest.fixture(autouse=True)
def loopback_only(tmp_path: Path) -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


@pytest.mark.parametrize("hosted", [False, True])
async def test_an_extension_is_told_what_codex_says_and_asks(tmp_path: Path, hosted: bool):
    probe.SEEN.clear()
    ext = Extensions(tmp_path / "extensions")
    ext.write("helper", SOURCE, events=NAMES)
    steps = [{"call": {"tool": "exec_command", "input": {"cmd": "echo milk"}, "id": "x1"}}]
    async with opened(
        tmp_path,
        [read(), *steps],
        [{"text": ["They say: ", "milk."]}],
        mode="yolo",
        native_tools=["exec_command"],
        extensions=ext.options(),
        runtime=hosted_runtime("codex") if hosted else None,
    ) as rig:
        assert await rig.ask() == "They say: milk."
        await rig.sdk.extensions.app_server.settle()
        await rig.events()
        session_id = rig.session.id
        thread = {event.runtime.runtime_session_id for event in await rig.events()} - {None}
    seen: list[Any] = list(probe.SEEN)
    probe.SEEN.clear()
    types = [event.type for event in seen]
    assert types.index("app_server.turn.started") < types.index("app_server.item.agent_message.delta")
    assert types.count("app_server.turn.completed") == 1
    assert "app_server.request.item.command_execution.request_approval" in types
    deltas = [e.payload["params"]["delta"] for e in seen if e.type == "app_server.item.agent_message.delta"]
    assert "".join(deltas) == "They say: milk."
    assert {event.payload["session"]["id"] for event in seen} == {session_id}
    named = {event.payload["context"]["thread_id"] for event in seen} - {None}
    assert named == thread
    asked = next(e for e in seen if e.payload["signal_type"] == "request")
    assert asked.payload["request_id"] is not None
    assert asked.payload["params"]["threadId"] in thread
