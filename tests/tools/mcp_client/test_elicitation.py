"""What an attached MCP server asks: a person is shown its form field by field, and what cannot be shown is declined."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from tests.tools.mcp.tool_calls import within
from tests.tools.mcp_client.asking import WHERE

from codesdk import CodeSDK, SessionSettings
from codesdk.contract import events as ev
from codesdk.contract.codec import decode
from codesdk.contract.ports import ToolInvocation, ToolRun
from codesdk.contract.tools import Question
from codesdk.contract.workspace import Workspace
from codesdk.engine.calls.server_questions import MAX_QUESTIONS
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.script import parse_object
from codesdk.tools import builtin_registry
from codesdk.tools.mcp_client.attached import AttachedTools
from codesdk.tools.mcp_client.connection import MAX_ROUNDS
from codesdk.tools.mcp_client.elicitation import elicit
from codesdk.tools.mcp_client.servers import StdioServer

ASKING = str(Path(__file__).with_name("asking.py"))
PROTOCOLS = {"old": {"OLD": "1"}, "new": {}}
FORM = {
    "type": "object",
    "properties": {
        "host": {"type": "string", "title": "Host", "description": "its name"},
        "size": {"type": "string", "enum": ["small", "large"]},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "now": {"type": "boolean"},
        "note": {"type": "string"},
    },
    "required": ["host", "size", "count", "share", "now"],
}
ANSWERS = {
    "Host: its name": "a.example",
    "size": "large",
    "count": "3",
    "share": "0.5",
    "now": "true",
    "note": "",
}
FILLED = {"host": "a.example", "size": "large", "count": 3, "share": 0.5, "now": True}


def server(protocol: str) -> StdioServer:
    return StdioServer(command=sys.executable, args=(ASKING,), env=PROTOCOLS[protocol])


async def filled_in(question: Question) -> str | None:
    assert question.asker == "x"
    return ANSWERS[question.text.removeprefix(f"{WHERE}\n\n")]


async def run(tools: AttachedTools, ask: Any, **arguments: Any) -> ToolRun:
    prepared = tools.prepare("mcp.x.deploy", arguments)
    assert not isinstance(prepared, str)
    call = ToolInvocation(
        session_id="s",
        task_id=None,
        tool_call_id="c",
        attempt=1,
        name="",
        input={},
        workspace=Workspace("/"),
        ask=ask,
    )
    return await within(prepared.run(call, lambda *_: None))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_form_is_asked_field_by_field_and_what_is_declined_once_is_declined(protocol: str):
    async def no(question: Question) -> str | None:
        return None

    async with AttachedTools({"x": server(protocol)}, builtin_registry()) as tools:
        said = await run(tools, filled_in, schema=FORM)
        assert json.loads(said.result) == [["accept", FILLED]]
        assert json.loads((await run(tools, no, schema=FORM)).result) == [["decline", None]]
        if protocol == "new":
            endless = await run(tools, filled_in, schema=FORM, for_ever=True)
            assert (endless.is_error, f"asked {MAX_ROUNDS} times in place" in endless.result) == (True, True)
            nothing = await run(tools, filled_in, times=0)
            assert "did not say what it needs" in nothing.result


UNSHOWN: list[Any] = [
    {"a": {"type": "object", "properties": {}}},
    {"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}},
    {"a": {"type": ["string", "null"]}},
    {"a": {"$ref": "#/x"}},
    {"a": {}},
    {"a": "string"},
    {"": {"type": "string"}},
    {"a": {"type": "string", "enum": [1]}},
    {"a": {"type": "string", "enum": []}},
    {"a": {"type": "string", "enum": ["x"] * 65}},
    {"a": {"type": "integer", "enum": ["1"]}},
    {"a": {"type": "string", "oneOf": "x"}},
    {"a": {"type": "string", "oneOf": [{"title": "X"}]}},
    {"a": {"type": "string", "title": "x" * 4_001}},
    {"a": {"type": "string", "description": 3}},
    {str(number): {"type": "string"} for number in range(9)},
    [],
]


@pytest.mark.parametrize("properties", UNSHOWN)
async def test_what_cannot_be_shown_is_declined_and_nobody_is_asked(properties: Any):
    async def ask(question: Question) -> str | None:
        raise AssertionError(question)

    params = types.ElicitRequestFormParams(message="?", requested_schema={"properties": properties})
    assert (await elicit("x", params, ask)).action == "decline"


async def test_addresses_to_open_are_declined_and_a_form_without_fields_asks_yes_or_no():
    async def yes(question: Question) -> str | None:
        asked.append(question)
        return "true" if len(asked) == 1 else "false"

    asked: list[Question] = []
    opened = types.ElicitRequestURLParams(message="Pay", url="http://127.0.0.1", elicitation_id="1")
    assert (await elicit("x", opened, yes)).action == "decline"
    empty = types.ElicitRequestFormParams(
        message="Sure?", requested_schema={"type": "object", "properties": {}}
    )
    assert await elicit("x", empty, yes) == types.ElicitResult(action="accept", content={})
    assert (await elicit("x", empty, yes)).action == "decline"
    assert asked == [Question(text="Sure?", expects="boolean", asker="x")] * 2


async def test_choices_with_titles_are_named_by_their_values():
    async def first(question: Question) -> str | None:
        return question.options[0]

    field = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
    params = types.ElicitRequestFormParams(message="?", requested_schema={"properties": {"size": field}})
    assert (await elicit("x", params, first)).content == {"size": "s"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_in_a_session_it_is_a_question_like_any_other_and_a_flood_is_bounded(
    tmp_path: Path, protocol: str
):
    form = {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]}
    calls: list[Any] = [
        [{"call": {"tool": "mcp.x.deploy", "input": {"schema": form}}}],
        [{"call": {"tool": "mcp.x.deploy", "input": {"schema": form, "times": 40}}}],
    ]
    script = parse_object(
        {"turns": [*[{"steps": steps} for steps in calls], {"steps": [{"text": "Done."}]}]}, "asks"
    )
    async with CodeSDK.open(tmp_path / "data", providers={}, allow_yolo=True) as sdk:
        from codesdk.script import dump

        session = await sdk.create_session(
            runtime="scripted",
            workspace=tmp_path,
            permission_mode="yolo",
            mcp_servers={"x": server(protocol)},
            settings=SessionSettings(runtime_config={"script": dump(script)}),
        )
        task = await session.start("Deploy")
        async with asyncio.timeout(60):
            async for event in task.events():
                if isinstance(event.payload, ev.ApprovalRequested):
                    assert (event.payload.kind, event.payload.asker) == ("question", "x")
                    await task.answer(event.payload.approval_id, "a.example")
        events = [decode(frame.data) async for frame in sdk.archive.frames(session.id)]
        one, many = [e.payload.result_preview for e in events if isinstance(e.payload, ev.ToolCallCompleted)]
        assert json.loads(one) == [["accept", {"host": "a.example"}]]
        actions = [action for action, _ in json.loads(many)]
        assert (actions.count("accept"), actions.count("decline")) == (MAX_QUESTIONS, 40 - MAX_QUESTIONS)
        assert len([e for e in events if e.type == "approval.requested"]) == 1 + MAX_QUESTIONS
        assert await verify_session(sdk.archive.log, sdk.archive.blobs, session.id) == []
        assert (await replay_session(sdk.archive.log, sdk.archive.blobs, session.id))[1] == []
