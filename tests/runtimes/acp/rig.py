"""A session of the runtime `acp` whose agent is a command."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from codesdk import CodeSDK, Limits, Session, SessionSettings
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.script import parse_object

PRETENDER = Path(__file__).parent / "pretender.py"
ROW: dict[str, Any] = {
    "wire": "chat",
    "model": "gpt-5.5",
    "lists_tools": False,
    "launch": {"environment": {"OPENAI_BASE_URL": "${model_url}/v1"}},
}
TIMEOUT_S = 60.0


def pretending(*deed: str) -> list[str]:
    """Return the command of a program that only pretends to be an agent, or is a bad one."""
    return [sys.executable, str(PRETENDER), *deed]


@asynccontextmanager
async def opened(
    tmp_path: Path,
    command: list[str],
    mode: Any = "auto",
    idle_timeout_s: float = 60.0,
    system_prompt: str = "",
    limits: Limits | None = None,
    **row: Any,
) -> AsyncIterator[Session]:
    """Open an SDK with one session of an agent that a command starts."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    config = {"command": command, "row": {**ROW, **row}, "system_prompt": system_prompt}
    async with (
        asyncio.timeout(TIMEOUT_S),
        CodeSDK.open(tmp_path / "data", providers={}, allow_yolo=True, limits=limits or Limits()) as sdk,
    ):
        yield await sdk.create_session(
            runtime="acp",
            workspace=workspace,
            permission_mode=mode,
            plays=parse_object({"turns": [{"steps": [{"text": "Never asked."}]}]}, "a test"),
            settings=SessionSettings(runtime_config=config, stop_grace_s=8, idle_timeout_s=idle_timeout_s),
        )


async def log_of(tmp_path: Path, session: Session) -> list[Event]:
    """Return a session's events, from its directory, checked."""
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        log, blobs = sdk.archive.log, sdk.archive.blobs
        assert await verify_session(log, blobs, session.id) == []
        assert (await replay_session(log, blobs, session.id))[1] == []
        return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


def payloads(events: list[Event], kind: str) -> list[Any]:
    """Return the payloads of a type."""
    return [event.payload for event in events if event.type == kind]


def notices(events: list[Event], kind: str) -> list[str]:
    """Return what notices of a kind say."""
    return [p.message for p in payloads(events, "runtime.notice") if p.kind == kind]
