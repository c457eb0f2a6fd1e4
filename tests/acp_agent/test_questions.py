"""Questions of a model or of an MCP server: a form, the options of a permission request, or the next prompt."""

from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.approved import answered
from tests.acp_agent.editor import FORMS, call, connected, local, playing

from codesdk import CodeSDK

FREE = playing([call("user.ask", question="Which name?")], [{"text": "Thanks."}], [{"text": "More."}])
PICK = playing([call("user.ask", question="Which one?", options=["red", "blue"])], [{"text": "Thanks."}])


async def test_an_editor_with_forms_is_shown_one(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), FREE) as editor:
        await editor.hello("Zed", **FORMS)
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        asked = await editor.asked()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "Which name?"
        assert asked["params"]["requestedSchema"]["properties"]["answer"]["type"] == "string"
        editor.answer(asked, {"action": "accept", "content": {"answer": "Ada"}})
        assert (await ending)["stopReason"] == "end_turn"
        assert await answered(sdk, session) == [("approve", "Ada", "Zed")]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_that_is_not_filled_in_declines(tmp_path: Path, action: str):
    async with CodeSDK.open() as sdk, connected(local(sdk), FREE) as editor:
        await editor.hello("Zed", **FORMS)
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        editor.answer(await editor.asked(), {"action": action})
        assert (await ending)["stopReason"] == "end_turn"
        assert await answered(sdk, session) == [("deny", None, "Zed")]


@pytest.mark.parametrize(
    ("option", "expected"), [("option_1", ("approve", "blue", "Zed")), ("reject", ("deny", None, "Zed"))]
)
async def test_without_forms_options_are_those_of_a_permission_request(
    tmp_path: Path, option: str, expected: Any
):
    async with CodeSDK.open() as sdk, connected(local(sdk), PICK) as editor:
        await editor.hello("Zed")
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        asked = await editor.asked()
        assert asked["params"]["toolCall"]["title"] == "Which one?"
        assert [each["name"] for each in asked["params"]["options"]] == ["red", "blue", "Decline"]
        editor.answer(asked, {"outcome": {"outcome": "selected", "optionId": option}})
        assert (await ending)["stopReason"] == "end_turn"
        assert await answered(sdk, session) == [expected]


async def test_without_forms_a_question_for_words_ends_the_turn_and_the_next_prompt_answers_it(
    tmp_path: Path,
):
    async with CodeSDK.open() as sdk, connected(local(sdk), FREE) as editor:
        await editor.hello("Zed")
        session = await editor.new(tmp_path)
        assert (await editor.prompt(session))["stopReason"] == "end_turn"
        assert "Which name?" in editor.said()
        assert (await editor.prompt(session, "Ada"))["stopReason"] == "end_turn"
        assert editor.said().endswith("Thanks.")
        assert await answered(sdk, session) == [("approve", "Ada", "Zed")]
        # From here on a prompt is a prompt again.
        assert (await editor.prompt(session, "Go on"))["stopReason"] == "end_turn"
        assert editor.said().endswith("More.")


async def test_a_question_for_words_is_said_again_to_who_comes_later(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        async with connected(local(sdk), FREE) as first:
            await first.hello("first")
            session = await first.new(tmp_path)
            await first.prompt(session)
        async with connected(local(sdk)) as second:
            await second.hello("second")
            await second.request("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            await second.until(lambda: "Which name?" in second.said())
            await second.prompt(session, "Bob")
            assert await answered(sdk, session) == [("approve", "Bob", "second")]
