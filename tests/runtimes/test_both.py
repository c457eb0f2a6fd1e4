"""Two real programs on one contract: the same script gives the same events, and a session moves from one to the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside

from codesdk import CodeSDK, Session
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.script import Script, parse_object

MODELS = {"claude-agent-sdk": "claude-sonnet-4-5", "codex-sdk": "gpt-5"}
SCRIPT: dict[str, Any] = {
    "turns": [
        {
            "steps": [
                {"text": ["I will ", "read."]},
                {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}},
                {"call": {"tool": "workspace.list", "input": {"path": "."}, "id": "l1"}},
            ],
            "usage": {"input": 100, "output": 20},
        },
        {
            "steps": [
                {
                    "call": {
                        "tool": "workspace.edit",
                        "input": {"path": "notes.txt", "old": "milk", "new": "tea"},
                        "id": "e1",
                    }
                }
            ],
            "expect": {"tool_result_contains": "remember the milk"},
            "usage": {"input": 200, "output": 10},
        },
        {"steps": [{"text": "Done."}], "usage": {"input": 300, "output": 5}},
    ]
}

ALLOWED_DIFFERENCES = {
    "runtime.notice": "each says what it has to say of itself",
    "usage.reported by the runtime": "what each reports on top of the gateway's figures",
    "model.output.delta": "how a text is cut into pieces",
    "the order inside a model message": "claude runs a call before it has streamed the next one of the same message",
    "model.output.completed without text": "only one of them ends a message that has no text",
}
"""What may differ between the two, and why. Anything else fails the test."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def workspace_in(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "notes.txt").write_text("remember the milk\n")
    return folder


async def events_of(sdk: CodeSDK, session: Session) -> list[Event]:
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []
    return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


def normalized(events: list[Event]) -> list[Any]:
    """Return what happened, request by request, without what may differ."""
    rounds: list[set[str]] = [set()]
    for event in events:
        payload: Any = event.payload
        if event.type in ("runtime.notice", "model.output.delta") or (
            event.type == "usage.reported" and payload.source == "runtime"
        ):
            continue
        if event.type == "runtime.request.started":
            rounds.append(set())
        rounds[-1].update(_described(event))
    return [sorted(part) for part in rounds]


def _described(event: Event) -> list[str]:
    payload: Any = event.payload
    if event.type.startswith(("tool.call.", "tool.output.")):
        return [f"{event.type} {payload.runtime_tool_call_id is not None} {payload.input_hash}"]
    if event.type == "approval.requested":
        return [f"{event.type} {payload.summary}"]
    if event.type == "approval.answered":
        return [f"{event.type} {payload.decision}"]
    if event.type == "model.output.completed":
        text = "".join(getattr(block, "text", "") for block in payload.content)
        return [f"{event.type} {text}"] if text else []
    if event.type == "usage.reported":
        return [f"{event.type} {payload.input} {payload.output}"]
    if event.type == "model.input":
        return [f"{event.type} {payload.capture}"]
    if event.type == "runtime.request.completed":
        return [f"{event.type} {payload.status} {payload.http_status}"]
    if event.type == "task.completed":
        return [f"{event.type} {payload.text} {payload.usage.input} {payload.usage.output}"]
    return [event.type]


async def play(tmp_path: Path, runtime: str, script: Script) -> list[Event]:
    workspace = workspace_in(tmp_path, f"ws-{runtime}")
    async with CodeSDK.open(tmp_path / f"data-{runtime}", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime, workspace=workspace, plays=script, permission_mode="auto", model=MODELS[runtime]
        )
        task = await session.start("Please change my note.")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.approve(event.payload.tool_call_id or "")
        assert (workspace / "notes.txt").read_text() == "remember the tea\n"
        return await events_of(sdk, session)


async def test_the_same_script_gives_the_same_events_on_both(tmp_path: Path):
    claude, codex = [
        normalized(await play(tmp_path, runtime, parse_object(SCRIPT, "both"))) for runtime in MODELS
    ]
    assert claude == codex


async def test_a_session_goes_from_claude_to_codex_and_back_with_all_that_was_said(tmp_path: Path):
    script = parse_object(
        {
            "turns": [
                {
                    "steps": [
                        {"text": "Let me look."},
                        {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}},
                    ]
                },
                {"steps": [{"text": "It says milk."}]},
                {"steps": [{"text": "Codex here: milk it is."}]},
                {"steps": [{"text": "Claude again, still milk."}]},
            ]
        },
        "move",
    )
    workspace = workspace_in(tmp_path, "ws")
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime="claude",
            workspace=workspace,
            plays=script,
            permission_mode="auto",
            model="claude-sonnet-4-5",
        )
        assert (await (await session.start("What does my note say?")).result()).text == "It says milk."
        await session.move("codex", model="gpt-5")
        assert (await (await session.start("And you?")).result()).text == "Codex here: milk it is."
        await session.move("claude", model="claude-sonnet-4-5")
        assert (await (await session.start("And now?")).result()).text == "Claude again, still milk."
        events = await events_of(sdk, session)
        moved = [event.payload for event in events if event.type == "session.resumed"]
        assert [(p.runtime, p.lost) for p in moved] == [
            ("codex-sdk", ["reasoning", "what claude-agent-sdk kept of the conversation on its own"]),
            ("claude-agent-sdk", ["reasoning", "what codex-sdk kept of the conversation on its own"]),
        ]
        told = [await request_text(sdk, event) for event in events if is_exact(event)]
    assert all(words in told[2] for words in ("What does my note say?", "remember the milk", "It says milk."))
    assert all(words in told[3] for words in ("And you?", "Codex here: milk it is.", "remember the milk"))


def is_exact(event: Event) -> bool:
    return event.type == "model.input" and event.payload.capture == "exact"


async def request_text(sdk: CodeSDK, event: Any) -> str:
    import json

    from codesdk.gateway.capture.exact import hashes_of

    document = json.loads(await sdk.read_artifact(event.payload.input_ref.artifact_id))
    parts = [(await sdk.archive.blobs.get(name)).decode() for name in hashes_of(document)]
    return "\n".join(parts).replace("\\n", "\n")
