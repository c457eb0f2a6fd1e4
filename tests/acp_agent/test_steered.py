"""What others add to a task, as an editor is shown it: an extension by its name, a reminder of the engine not at all."""

from typing import Any

import pytest

from codesdk.acp_agent.updates import Translator
from codesdk.contract.events import (
    RuntimeInfo,
    TaskSteered,
    TaskSteeredEvent,
    Trace,
    TranscriptSupplemented,
    TranscriptSupplementedEvent,
)
from codesdk.contract.messages import user
from codesdk.contract.tools import Actor


@pytest.mark.parametrize(
    ("by", "shown"),
    [
        (None, [("user_message_chunk", "Left.")]),
        (Actor(kind="engine"), []),
        (
            Actor(kind="extension", id="guide"),
            [("agent_message_chunk", "\n\n(guide adds:)\n\n"), ("user_message_chunk", "Left.")],
        ),
    ],
)
def test_who_adds_something_is_shown(by: Actor | None, shown: list[tuple[str, str]]):
    anything: Any = None
    event = TaskSteeredEvent(
        schema_version=1,
        seq=3,
        time="2026-11-17T12:00:00.000Z",
        trace=Trace(session_id="ses_1", task_id="task_1"),
        runtime=RuntimeInfo(name="scripted"),
        payload=TaskSteered(messages=[user("Left.")], by=by),
    )
    updates: list[Any] = Translator("/ws", anything, anything, live=True)._task(event) or []
    assert [(update.session_update, update.content.text) for update in updates] == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("Well done.", [("agent_message_chunk", "\n\n(guide adds: Well done.)")]), (None, [])]
)
def test_what_is_put_beside_the_transcript_is_shown_where_it_is_text(
    text: str | None, shown: list[tuple[str, str]]
):
    anything: Any = None
    event = TranscriptSupplementedEvent(
        schema_version=1,
        seq=3,
        time="2026-11-17T12:00:00.000Z",
        trace=Trace(session_id="ses_1"),
        runtime=RuntimeInfo(name="scripted"),
        payload=TranscriptSupplemented(
            supplement_id="a", by=Actor(kind="extension", id="guide"), text=text, data={"a": 1}
        ),
    )
    updates: list[Any] = Translator("/ws", anything, anything, live=True)._session(event) or []
    assert [(update.session_update, update.content.text) for update in updates] == shown
