"""Codex's own way to ask a person, enabled by name: each of its questions is one of ours, and codex gets the answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside
from tests.runtimes.codex.rig import opened

from codesdk.contract import events as ev

ASKS = [
    {
        "call": {
            "tool": "request_user_input",
            "id": "u1",
            "input": {
                "questions": [
                    {
                        "id": "db",
                        "header": "Store",
                        "question": "Which database?",
                        "options": [
                            {"label": "SQLite", "description": "One file."},
                            {"label": "Postgres", "description": "A server."},
                        ],
                    },
                    {
                        "id": "name",
                        "header": "Name",
                        "question": "What is it called?",
                        "options": [
                            {"label": "app", "description": "Short."},
                            {"label": "application", "description": "Long."},
                        ],
                    },
                ]
            },
        }
    }
]


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


def answered(*texts: str) -> list[Any]:
    """Return the last turn, whose model must have been told these texts."""
    return [{"steps": [{"text": "Fine."}], "expect": {"tool_result_contains": text}} for text in texts[:1]]


async def test_what_codex_asks_is_answered_by_a_person_and_told_to_its_model(tmp_path: Path):
    turns = [ASKS, *answered("Postgres, on the old machine")]
    async with opened(tmp_path, *turns, native_tools=["request_user_input"]) as rig:
        task = await rig.session.start("Make a store.")
        answers = {"Which database?": "Postgres, on the old machine", "What is it called?": "app"}
        async for event in task.events():
            if isinstance(event.payload, ev.ApprovalRequested):
                asked = event.payload.question
                assert (event.payload.kind, asked is not None) == ("question", True)
                await task.answer(event.payload.approval_id, answers[asked.text if asked else ""])
        assert (await task.result()).text == "Fine."
        assert not rig.sdk.model_problems(rig.session.id)
        events = await rig.events()
        ended = [e.payload for e in events if isinstance(e.payload, ev.ToolCallCompleted)]
        assert sorted(str(call.result_preview) for call in ended) == ["Postgres, on the old machine", "app"]
        assert {(call.name, call.executed_by) for call in ended} == {("request_user_input", "runtime")}
        offered = [
            e.payload for e in events if isinstance(e.payload, ev.ModelInput) and e.payload.capture == "exact"
        ]
        names = [entry.name for entry in offered[0].tool_manifest]
        assert "request_user_input" in names
        assert not {"exec_command", "apply_patch", "write_stdin"} & set(names)


async def test_where_nobody_is_the_model_is_told_what_to_do(tmp_path: Path):
    turns = [ASKS, *answered("No answer. Nobody can answer questions in a non-interactive session.")]
    options: dict[str, Any] = {"native_tools": ["request_user_input"], "interaction_mode": "non_interactive"}
    async with opened(tmp_path, *turns, **options) as rig:
        assert await rig.ask("Make a store.") == "Fine."
        assert not rig.sdk.model_problems(rig.session.id)
        assert [e.type for e in await rig.events()].count("tool.call.denied") == 2
