"""A real program that has nothing to do is ended, and the next task starts it again: it knows the conversation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.claude.rig import hashes_of, join

from codesdk import CodeSDK, Limits
from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.runtimes import create_runtime
from codesdk.runtimes.acp.adapter import AcpRuntime
from codesdk.runtimes.claude.adapter import ClaudeRuntime
from codesdk.runtimes.program.retelling import RETOLD
from codesdk.script import parse_object

SCRIPT = parse_object({"loop": True, "turns": [{"steps": [{"text": "Noted."}]}]}, "idle")
MODELS = {
    "claude-agent-sdk": "claude-sonnet-4-5",
    "codex-sdk": "gpt-5",
    "opencode-server": "gpt-5.5",
    "acp:codex-acp": "gpt-5.5",
}


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def process_of(runtime: Any, session_id: str) -> int | None:
    """Return the pid of a session's program, or None if there is none."""
    if isinstance(runtime, ClaudeRuntime):
        live = runtime._live.get(session_id)
        return None if live is None else live.process.pid
    running = runtime._agents if isinstance(runtime, AcpRuntime) else runtime._servers
    server = running.get(session_id)
    return None if server is None else server.child.pid


def is_alive(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


async def requests(sdk: CodeSDK, events: list[Any]) -> list[str]:
    """Return what was sent to the model, request by request."""
    sent: list[str] = []
    for payload in events:
        if isinstance(payload, ev.ModelInput) and payload.capture == "exact":
            document = json.loads(await sdk.read_artifact(payload.input_ref.artifact_id))
            parts = {name: await sdk.archive.blobs.get(name) for name in hashes_of(document)}
            sent.append(json.dumps(join(document, parts)))
    return sent


@pytest.mark.parametrize("name", MODELS)
async def test_an_idle_program_is_gone_and_the_next_task_knows_what_was_said(tmp_path: Path, name: str):
    runtime: Any = create_runtime(name)
    limits = Limits(runtime_idle_s=0.0)
    async with CodeSDK.open(
        tmp_path / "data", runtimes={runtime.name: runtime}, providers={}, limits=limits
    ) as sdk:
        session = await sdk.create_session(
            runtime=runtime.name, workspace=tmp_path, plays=SCRIPT, model=MODELS[runtime.name]
        )
        task = await session.start("The word is heron.")
        first = process_of(runtime, session.id)
        await task.result()
        async for event in session.events():
            if isinstance(event.payload, ev.RuntimeNotice) and event.payload.kind == "idle":
                break
        assert process_of(runtime, session.id) is None
        assert not is_alive(first)
        assert (await (await session.start("What was the word?")).result()).text == "Noted."
        await session.close()
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
        assert (await replay_session(sdk.archive.log, sdk.archive.blobs, session.id))[1] == []
        second = (await requests(sdk, [event.payload for event in events]))[-1]
        assert "The word is heron." in second
        assert RETOLD not in second  # its own copy of the conversation, not ours
        said = [e.payload.message for e in events if isinstance(e.payload, ev.RuntimeNotice)]
        assert not [message for message in said if "rebuilt" in message]
        ids = {e.runtime.runtime_session_id for e in events if isinstance(e.payload, ev.TaskCompleted)}
        assert len(ids) == 1
