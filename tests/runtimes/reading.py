"""What tests of several runtimes share: a workspace with a note, a session's events, and what its model was told."""

import json
from pathlib import Path
from typing import Any

from codesdk import CodeSDK, Session
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.gateway.capture.exact import hashes_of

MODELS = {
    "acp:codex-acp": "gpt-5.5",
    "claude-agent-sdk": "claude-sonnet-4-5",
    "codex-sdk": "gpt-5",
    "gemini-cli-core": "gemini-2.5-flash",
    "minicode": "gpt-5.5",
    "opencode-server": "gpt-5.5",
}
"""The agents that tests of more than one look at closely, with a model for each."""


def workspace_in(tmp_path: Path, name: str) -> Path:
    """Make a workspace with a note."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "notes.txt").write_text("remember the milk\n")
    return folder


async def events_of(sdk: CodeSDK, session: Session) -> list[Event]:
    """Return the events of a session that verifies and replays."""
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []
    return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


def is_exact(event: Event) -> bool:
    """Return whether an event has a model request as it was sent."""
    return event.type == "model.input" and event.payload.capture == "exact"


async def request_text(sdk: CodeSDK, event: Any) -> str:
    """Return all texts of a model request."""
    document = json.loads(await sdk.read_artifact(event.payload.input_ref.artifact_id))
    parts = [(await sdk.archive.blobs.get(name)).decode() for name in hashes_of(document)]
    return "\n".join(parts).replace("\\n", "\n")
