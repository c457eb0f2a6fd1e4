"""Permission requests are our approvals: answered in an editor or anywhere else, first wins, and the answer names who gave it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.editor import ALLOW, CANCELLED, REJECT, call, connected, local, playing

from codesdk import CodeSDK
from codesdk.acp_agent.asking import Open, permission, permission_answer
from codesdk.contract.actions import ApproveCall, Caller, DenyCall
from codesdk.contract.events import Event
from codesdk.contract.tools import Actor

WRITE = call("workspace.write", path="made.txt", content="x")
OFFER = playing([WRITE], [{"text": "Done."}], [WRITE], [{"text": "Again."}])


async def events(sdk: CodeSDK, session: str, *types: str) -> list[Event]:
    """Return a session's events of these types."""
    found = [await sdk.service.event(session, seq + 1) for seq in range(await sdk.service.head(session))]
    return [event for event in found if event.type in types]


async def decided(sdk: CodeSDK, session: str) -> list[Any]:
    """Return the decisions on calls: what, by whom, through which client."""
    found = await events(sdk, session, "tool.call.approved", "tool.call.denied")
    return [
        (event.type.rpartition(".")[2], event.payload.by, (event.trace.client_id or "").partition("-")[0])  # type: ignore[union-attr]
        for event in found
    ]


async def test_an_answer_in_the_editor_names_the_editor(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello("Zed")
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        editor.answer(await editor.asked(), ALLOW)
        await ending
        ending = editor.prompt(session)
        editor.answer(await editor.asked(), REJECT)
        await ending
        zed = Actor(kind="user", id="Zed")
        assert await decided(sdk, session) == [("approved", zed, "Zed"), ("denied", zed, "Zed")]
        refused = [u for u in editor.of("tool_call_update") if u.get("status") == "failed"]
        assert refused[0]["content"][0]["content"]["text"] == "Denied by Zed: denied in the editor"
        assert refused[0]["_meta"]["codesdk"]["by"]["id"] == "Zed"


async def test_allowed_for_the_session_it_is_not_asked_again(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        asked = await editor.asked()
        assert [option["kind"] for option in asked["params"]["options"]] == [
            "allow_once",
            "allow_always",
            "reject_once",
        ]
        editor.answer(asked, {"outcome": {"outcome": "selected", "optionId": "allow_session"}})
        await ending
        await editor.prompt(session)
        assert [grant.tool for grant in await sdk.service.grants(session)] == ["workspace.write"]


async def test_somebody_elses_answer_ends_the_editors_question_and_the_editor_is_told_whose_it_was(
    tmp_path: Path,
):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        asked = await editor.asked()
        terminal = sdk.as_caller(Caller(actor=Actor(kind="user", id="terminal"), client_id="tty"))
        await (await terminal.session(session)).approve(asked["params"]["toolCall"]["toolCallId"])
        assert (await ending)["stopReason"] == "end_turn"
        await editor.until(lambda: editor.withdrawn == [asked["id"]])
        told = [
            u["_meta"]["codesdk"] for u in editor.of("tool_call_update") if "decision" in str(u.get("_meta"))
        ]
        assert told == [{"decision": "approve", "by": {"kind": "user", "id": "terminal", "client": "tty"}}]
        # The editor's own answer comes too late, and changes nothing.
        editor.answer(asked, REJECT)
        assert (await editor.request("session/list"))["sessions"]
        assert await decided(sdk, session) == [("approved", Actor(kind="user", id="terminal"), "tty")]


async def test_a_cancel_stops_the_task_for_the_editor_and_with_it_what_was_asked(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello("Zed")
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        asked = await editor.asked()
        editor.notify("session/cancel", sessionId=session)
        editor.answer(asked, CANCELLED)
        assert (await ending)["stopReason"] == "cancelled"
        for event in await events(sdk, session, "task.stop_requested", "task.stopped"):
            assert event.payload.by == Actor(kind="user", id="Zed")  # type: ignore[union-attr]
        assert await decided(sdk, session) == [("denied", Actor(kind="user", id="Zed"), "Zed")]
        (answered,) = await events(sdk, session, "approval.answered")
        assert answered.payload.by == Actor(kind="user", id="Zed")  # type: ignore[union-attr]
        assert not (tmp_path / "made.txt").exists()
        assert (await editor.prompt(session))["stopReason"] == "end_turn"
        assert editor.said() == "Done."


async def test_a_dismissed_question_denies_and_the_task_goes_on(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello("Zed")
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        editor.answer(await editor.asked(), CANCELLED)
        assert (await ending)["stopReason"] == "end_turn"
        assert await decided(sdk, session) == [("denied", Actor(kind="user", id="Zed"), "Zed")]


async def test_a_prompt_can_be_cancelled_before_its_task_exists_and_while_it_streams(tmp_path: Path):
    offer = playing([{"text": "One. "}, {"await_steer": True}], [{"text": "Two."}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        editor.notify("session/cancel", sessionId=session)
        assert (await ending)["stopReason"] == "cancelled"
        ending = editor.prompt(session)
        await editor.until(lambda: "One." in editor.said())
        editor.notify("session/cancel", sessionId=session)
        assert (await ending)["stopReason"] == "cancelled"


async def test_a_request_that_is_taken_back_stops_its_task(tmp_path: Path):
    offer = playing([{"text": "One. "}, {"await_steer": True}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        await editor.until(lambda: "One." in editor.said())
        editor.notify("$/cancel_request", requestId="q3")
        error = (await asyncio.wait_for(asyncio.gather(ending, return_exceptions=True), 30))[0]
        assert getattr(error, "code", None) == -32800
        async for event in (await sdk.session(session)).events():
            if event.type == "task.stopped":
                break


async def test_what_waits_is_asked_again_when_the_session_is_loaded(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        async with connected(local(sdk), OFFER) as gone:
            await gone.hello("first")
            session = await gone.new(tmp_path)
            gone.prompt(session).add_done_callback(lambda done: done.cancelled() or done.exception())
            asked = await gone.asked()
        # The editor is gone in the middle of a question. Its task goes on, and so does the question.
        for method in ("session/load", "session/resume"):
            async with connected(local(sdk)) as back:
                await back.hello("second")
                await back.request(method, sessionId=session, cwd=str(tmp_path), mcpServers=[])
                again = await back.asked()
                assert again["params"]["toolCall"]["toolCallId"] == asked["params"]["toolCall"]["toolCallId"]
                if method == "session/resume":
                    back.answer(again, ALLOW)
                    await back.until(lambda: "Done." in back.said())
        assert (tmp_path / "made.txt").read_text() == "x"
        assert await decided(sdk, session) == [("approved", Actor(kind="user", id="second"), "second")]


async def test_a_question_outlives_the_process_and_its_answer_goes_on_with_the_task(tmp_path: Path):
    data = tmp_path / "data"
    async with CodeSDK.open(data, goes_on=False) as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        editor.prompt(session).add_done_callback(lambda done: done.cancelled() or done.exception())
        await editor.asked()
    async with CodeSDK.open(data, goes_on=False) as sdk, connected(local(sdk)) as editor:
        await editor.hello()
        await editor.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        editor.answer(await editor.asked(), ALLOW)
        await editor.until(lambda: "Done." in editor.said())
        assert (tmp_path / "made.txt").read_text() == "x"


def test_a_used_up_budget_is_asked_about_and_can_be_granted_again_or_not():
    asked = Open(approval_id="apr_1", summary="The session has used 110 tokens.", budget=True)
    request = permission("ses_1", asked)
    assert request.tool_call.title == asked.summary
    assert [option.name for option in request.options] == ["Grant the same amount again", "Deny"]
    assert permission_answer("ses_1", asked, ALLOW) == ApproveCall(session_id="ses_1", tool_call_id="apr_1")
    reason = "denied in the editor"
    denied = DenyCall(session_id="ses_1", tool_call_id="apr_1", reason=reason)
    assert permission_answer("ses_1", asked, REJECT) == denied


@pytest.mark.parametrize("result", [None, 7, {}, {"outcome": "x"}, {"outcome": {"optionId": "allow_all"}}])
def test_what_is_not_one_of_the_options_denies(result: Any):
    asked = Open(
        approval_id="apr_1", summary="workspace.write", tool_call_id="call_1", attempt=1, input_hash="h"
    )
    assert isinstance(permission_answer("ses_1", asked, result), DenyCall)
