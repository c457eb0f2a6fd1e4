"""Modes, models and runtimes as an editor chooses them, slash commands, and what a prompt can carry."""

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.editor import ALLOW, Refused, call, connected, local, playing

from codesdk import CodeSDK
from codesdk.acp_agent import Offer
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import DEFAULT_RUNTIME
from codesdk.contract.messages import ArtifactBlock, Text
from codesdk.contract.settings import SessionSettings
from codesdk.runtimes import ScriptedRuntime

WRITE = call("workspace.write", path="made.txt", content="x")
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENAI_COMPATIBLE_BASE_URL")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n pixel").decode()


class Seeing(ScriptedRuntime):
    """A runtime that takes whatever is attached."""

    def capabilities(self) -> Capabilities:
        return Capabilities()


def values(options: Any, name: str) -> tuple[str, list[str]]:
    """Return what is chosen of an option, and what can be."""
    (found,) = [option for option in options if option["id"] == name]
    return found["currentValue"], [each["value"] for each in found["options"]]


@pytest.mark.parametrize("permitted", [False, True])
async def test_yolo_is_listed_only_where_it_is_permitted(tmp_path: Path, permitted: bool):
    async with CodeSDK.open(allow_yolo=permitted) as sdk, connected(local(sdk), playing([WRITE])) as editor:
        await editor.hello()
        found = await editor.request("session/new", cwd=str(tmp_path), mcpServers=[])
        expected = ["ask", "auto", *(["yolo"] if permitted else [])]
        assert [mode["id"] for mode in found["modes"]["availableModes"]] == expected
        assert values(found["configOptions"], "mode") == ("ask", expected)
        session = found["sessionId"]
        if not permitted:
            with pytest.raises(Refused, match="not enabled here"):
                await editor.request("session/set_mode", sessionId=session, modeId="yolo")
            return
        await editor.request("session/set_mode", sessionId=session, modeId="yolo")
        await editor.until(lambda: editor.of("current_mode_update"))
        assert editor.of("current_mode_update")[0]["currentModeId"] == "yolo"
        assert values(editor.of("config_option_update")[0]["configOptions"], "mode")[0] == "yolo"
        with pytest.raises(Refused):  # nobody is asked, and the script ends after the call
            await editor.prompt(session)
        assert (tmp_path / "made.txt").exists()


async def test_a_model_is_chosen_from_those_that_are_offered_or_named(tmp_path: Path):
    async with (
        CodeSDK.open() as sdk,
        connected(local(sdk), playing([WRITE], models=("small", "large"))) as editor,
    ):
        await editor.hello()
        found = await editor.request("session/new", cwd=str(tmp_path), mcpServers=[])
        session = found["sessionId"]
        assert values(found["configOptions"], "model") == ("small", ["small", "large"])

        async def choose(value: Any, option: str = "model") -> Any:
            given = {"sessionId": session, "configId": option, "value": value}
            return (await editor.request("session/set_config_option", **given))["configOptions"]

        assert values(await choose("large"), "model") == ("large", ["small", "large"])
        assert values(await choose("huge"), "model") == ("huge", ["small", "large", "huge"])
        assert (await sdk.service.session(session)).model == "huge"
        for value, option in (
            ("", "model"),
            (True, "model"),
            ("default", "model"),
            ("x", "mode"),
            ("x", "y"),
        ):
            with pytest.raises(Refused) as refused:
                await choose(value, option)
            assert refused.value.code == -32602


async def test_an_editor_that_names_no_runtime_gets_the_default_whatever_else_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The engine has the one rule (tests/sdk/test_default_runtime.py); without a model, it says what else there is."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    async with CodeSDK.open() as sdk, connected(local(sdk), Offer()) as editor:
        await editor.hello()
        with pytest.raises(Refused, match=f"No runtime is named, and {DEFAULT_RUNTIME}") as refused:
            await editor.new(tmp_path)
        assert refused.value.code == -32602
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    async with CodeSDK.open() as sdk, connected(local(sdk), Offer()) as editor:
        await editor.hello()
        assert (await sdk.runtime_auth("claude")).ready
        session = await editor.new(tmp_path)
        assert (await sdk.service.session(session)).runtime == DEFAULT_RUNTIME


async def test_a_session_is_moved_to_another_runtime_that_is_offered(tmp_path: Path):
    offer = playing([WRITE])
    two = type(offer)(runtimes=("scripted", "codex-sdk"), settings=offer.settings)
    async with CodeSDK.open() as sdk, connected(local(sdk), two) as editor:
        await editor.hello()
        found = await editor.request("session/new", cwd=str(tmp_path), mcpServers=[])
        assert values(found["configOptions"], "runtime") == ("scripted", ["scripted", "codex-sdk"])
        given = {"sessionId": found["sessionId"], "configId": "runtime", "value": "codex-sdk"}
        moved = await editor.request("session/set_config_option", **given)
        assert values(moved["configOptions"], "runtime")[0] == "codex-sdk"
        assert (await sdk.service.session(found["sessionId"])).runtime == "codex-sdk"


@pytest.mark.slow
async def test_somebody_elses_choice_is_shown(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), playing([WRITE])) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        await (await sdk.session(session)).set(permission_mode="auto", model="m", title="Ours")
        await editor.until(lambda: editor.of("session_info_update"))
        assert editor.of("current_mode_update") == [
            {"sessionUpdate": "current_mode_update", "currentModeId": "auto"}
        ]
        assert values(editor.of("config_option_update")[0]["configOptions"], "model")[0] == "m"
        assert editor.of("session_info_update")[0]["title"] == "Ours"


async def test_an_editor_says_itself_what_a_new_session_is_given(tmp_path: Path):
    script = {"turns": [{"steps": [{"text": "Hi."}]}]}
    wishes = {
        "runtime": "scripted",
        "runtime_config": {"script": script},
        "title": "Mine",
        "permission_mode": "auto",
    }
    async with CodeSDK.open() as sdk, connected(local(sdk)) as editor:
        await editor.hello()
        session = await editor.new(tmp_path, _meta={"codesdk": wishes})
        await editor.prompt(session)
        row = await sdk.service.session(session)
        assert (editor.said(), row.title, row.permission_mode) == ("Hi.", "Mine", "auto")
        with pytest.raises(Refused, match="codesdk"):
            await editor.new(tmp_path, _meta={"codesdk": {"color": "red"}})


async def test_commands_are_offered_and_do_what_they_say(tmp_path: Path):
    offer = playing([WRITE], [{"text": "Done."}], [{"text": "More."}, {"await_steer": True}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        await editor.until(lambda: editor.of("available_commands_update"))
        names = [each["name"] for each in editor.of("available_commands_update")[0]["availableCommands"]]
        assert names == ["compact", "undo", "resume", "steer", "title", "close"]
        ending = editor.prompt(session)
        editor.answer(await editor.asked(), ALLOW)
        await ending
        assert (await editor.prompt(session, "/undo"))["stopReason"] == "end_turn"
        assert not (tmp_path / "made.txt").exists()
        assert "Put back: made.txt." in editor.said()
        assert (await editor.prompt(session, "/title A new name"))["stopReason"] == "end_turn"
        assert (await sdk.service.session(session)).title == "A new name"
        ending = editor.prompt(session, "go on")
        await editor.until(lambda: "More." in editor.said())
        await editor.prompt(session, "/steer be quick")
        assert (await ending)["stopReason"] == "end_turn"
        for words in ("/resume", "/steer", "/compact all"):
            with pytest.raises(Refused):
                await editor.prompt(session, words)
        await editor.prompt(session, "/compact")
        assert "Compacted" in editor.said("agent_thought_chunk")
        await editor.prompt(session, "/close")
        assert (await sdk.service.session(session)).status == "closed"
        with pytest.raises(Refused, match="closed"):
            await editor.prompt(session)


async def test_other_words_with_a_slash_are_for_the_model(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), playing([{"text": "Hi."}])) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        await editor.prompt(session, "/etc/hosts: what is in it?")
        assert editor.said() == "Hi."


async def test_images_files_and_links_reach_the_model_and_come_back_with_the_past(tmp_path: Path):
    blocks = [
        {"type": "text", "text": "Look: "},
        {"type": "image", "mimeType": "image/png", "data": PIXEL, "uri": "file:///tmp/a%20pixel.png"},
        {
            "type": "resource",
            "resource": {"uri": "file:///tmp/a.py", "text": "x = 1", "mimeType": "text/x-python"},
        },
        {
            "type": "resource",
            "resource": {"uri": "file:///b.pdf", "blob": PIXEL, "mimeType": "application/pdf"},
        },
        {"type": "resource_link", "uri": "file:///tmp/c.py", "name": "c.py"},
    ]
    seeing = {"scripted": Seeing()}
    async with (
        CodeSDK.open(runtimes=seeing) as sdk,
        connected(local(sdk), playing([{"text": "Nice."}])) as editor,
    ):
        await editor.hello()
        session = await editor.new(tmp_path)
        assert (await editor.request("session/prompt", sessionId=session, prompt=blocks))[
            "stopReason"
        ] == "end_turn"
        said = (await sdk.service.transcript(session))[0].content
        image, pdf = [block for block in said if isinstance(block, ArtifactBlock)]
        assert (image.content_type, image.name) == ("image/png", "a pixel.png")
        assert (pdf.content_type, pdf.name) == ("application/pdf", "b.pdf")
        assert base64.b64encode(await sdk.read_artifact(image.artifact_id)).decode() == PIXEL
        assert [block.text for block in said if isinstance(block, Text)] == [
            "Look: ",
            '\n<file uri="file:///tmp/a.py">\nx = 1\n</file>\n',
            "[c.py](file:///tmp/c.py)",
        ]
        await editor.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        shown = [update["content"] for update in editor.of("user_message_chunk")]
        assert shown[1] == {"type": "image", "mimeType": "image/png", "data": PIXEL}
        assert shown[3]["type"] == "resource_link"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "mimeType": "audio/wav", "data": PIXEL},
        {"type": "image", "mimeType": "image/png", "data": "not base64!"},
        {"type": "image", "mimeType": "no type at all", "data": PIXEL},
    ],
)
async def test_what_cannot_be_given_to_a_model_is_refused(tmp_path: Path, block: Any):
    async with CodeSDK.open() as sdk, connected(local(sdk), playing([{"text": "Nice."}])) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        with pytest.raises(Refused) as refused:
            await editor.request("session/prompt", sessionId=session, prompt=[block])
        assert refused.value.code == -32602
        assert (await editor.prompt(session))["stopReason"] == "end_turn"


def test_an_editors_sessions_keep_their_questions():
    from codesdk.acp_agent.place import EDITOR_SETTINGS

    changed = {"approval_timeout_s": 86_400.0, "on_interrupt": "resume"}
    assert {
        name: getattr(EDITOR_SETTINGS, name)
        for name in SessionSettings.__struct_fields__
        if getattr(EDITOR_SETTINGS, name) != getattr(SessionSettings(), name)
    } == changed
