"""A session that moves from agent to agent, around and back to the first: the last knows what the first was told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.programs import PROGRAMS
from tests.runtimes.reading import events_of, is_exact, request_text, workspace_in

from codesdk import CodeSDK
from codesdk.script import parse_object

ORDER = ("claude-agent-sdk", "gemini-cli-core", "opencode-server", "codex-sdk", "acp:qwen")
CIRCLE = [name for name in ORDER if name in PROGRAMS]
"""The agents in the order in which they get the session; then it goes back to the first."""


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def says(text: str) -> dict[str, object]:
    return {"steps": [{"text": text}]}


async def test_a_session_goes_around_all_agents_with_all_that_was_said(tmp_path: Path):
    read = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}
    rest = [*CIRCLE[1:], CIRCLE[0]]
    turns = [
        {"steps": [{"text": "Let me look."}, read]},
        says("It says milk."),
        *(says(f"{name} here, stop {place}.") for place, name in enumerate(rest)),
    ]
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=CIRCLE[0],
            workspace=workspace_in(tmp_path, "ws"),
            plays=parse_object({"turns": turns}, "circle"),
            permission_mode="auto",
        )
        task = await session.start("My parrot is Xanthippe. What does my note say?")
        assert (await task.result()).text == "It says milk."
        for place, name in enumerate(rest):
            await session.move(name)
            answer = (await (await session.start(f"Who are you at stop {place}?")).result()).text
            assert answer == f"{name} here, stop {place}."
        events = await events_of(sdk, session)
        last = [event for event in events if is_exact(event)][-1]
        told = await request_text(sdk, last)
    moved = [event.payload for event in events if event.type == "session.resumed"]
    before = [CIRCLE[0], *rest]
    assert [(p.runtime, p.lost) for p in moved] == [
        (name, ["reasoning", f"what {before[place]} kept of the conversation on its own"])
        for place, name in enumerate(rest)
    ]
    assert last.runtime.name == CIRCLE[0]
    known = ["My parrot is Xanthippe.", "remember the milk", "It says milk."]
    for place, name in enumerate(rest[:-1]):
        known += [f"Who are you at stop {place}?", f"{name} here, stop {place}."]
    assert [words for words in known if words not in told] == []
