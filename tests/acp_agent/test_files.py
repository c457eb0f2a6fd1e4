"""The editor's files: what is not saved is seen by the tools of its own tasks, and what they change comes back to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.editor import ALLOW, Editor, call, connected, local, playing

from codesdk import CodeSDK
from codesdk.acp_agent import files as attached_files
from codesdk.acp_agent.place import SharedPlace
from codesdk.contract.events import ToolCallCompleted
from codesdk.tools import ExecOptions

SAVED, TYPED = "one\ntwo\n", "one\nTWO\n"
READ = [call("workspace.read", path="a.txt")]
EDIT = [call("workspace.edit", path="a.txt", old="one", new="1")]
NOW = "1\nTWO\n"


class Buffer:
    """A file that is open in an editor, with what was asked and written."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.text = TYPED
        self.asked: list[str] = []

    def read(self, params: dict[str, Any]) -> Any:
        self.asked.append(params["path"])
        return {"content": self.text if params["path"] == self.path else "of another file"}

    def write(self, params: dict[str, Any]) -> Any:
        assert params["path"] == self.path
        self.text = params["content"]
        return {}


@asynccontextmanager
async def opened(
    tmp_path: Path, buffer: Buffer | None, *turns: Any, **options: Any
) -> AsyncIterator[tuple[CodeSDK, Editor, str]]:
    """Give an editor with a session in a workspace that has one file, opened as `codesdk acp` opens it."""
    (tmp_path / "a.txt").write_text(SAVED)
    offer = playing(*turns)
    async with SharedPlace(lambda: CodeSDK.open(**options)) as place, connected(place, offer) as editor:
        capabilities: dict[str, Any] = {}
        if buffer is not None:
            capabilities = {"fs": {"readTextFile": True, "writeTextFile": True}}
            editor.answers |= {"fs/read_text_file": buffer.read, "fs/write_text_file": buffer.write}
        editor.answers["session/request_permission"] = lambda _: ALLOW
        await editor.hello("Zed", **capabilities)
        yield place.sdk, editor, await editor.new(tmp_path)


async def results(sdk: CodeSDK, session: str) -> list[ToolCallCompleted]:
    found = [await sdk.service.event(session, seq + 1) for seq in range(await sdk.service.head(session))]
    return [event.payload for event in found if isinstance(event.payload, ToolCallCompleted)]


async def test_tools_see_what_is_not_saved_and_the_editor_is_given_what_they_write(tmp_path: Path):
    buffer = Buffer(tmp_path / "a.txt")
    async with opened(tmp_path, buffer, [*READ, *EDIT], [{"text": "Done."}]) as (sdk, editor, session):
        assert (await editor.prompt(session))["stopReason"] == "end_turn"
        assert (buffer.text, (tmp_path / "a.txt").read_text()) == (NOW, NOW)
        seen, changed = await results(sdk, session)
        assert "TWO" in seen.result_preview
        assert "not saved yet" in seen.result_preview
        assert "saved with it" in changed.result_preview
        # The difference is what the tool did, and not what the person typed.
        shown = [update for update in editor.of("tool_call_update") if update.get("status") == "completed"]
        (diff,) = [item for item in shown[-1]["content"] if item["type"] == "diff"]
        assert (diff["oldText"], diff["newText"]) == ("one\nTWO\n", NOW)
        assert (await editor.prompt(session, "/undo"))["stopReason"] == "end_turn"
        assert (tmp_path / "a.txt").read_text() == TYPED


@pytest.mark.parametrize("why", ["not offered", "commands run here", "somebody else's task", "over a daemon"])
async def test_only_the_disk_counts_where_an_editor_cannot_or_must_not_be_asked(tmp_path: Path, why: str):
    buffer = Buffer(tmp_path / "a.txt")
    options = {"run": ExecOptions(allow=[["true"]], sandbox="host")} if why == "commands run here" else {}
    given = None if why == "not offered" else buffer
    if why == "over a daemon":
        (tmp_path / "a.txt").write_text(SAVED)
        async with CodeSDK.open() as sdk, connected(local(sdk), playing(READ, [])) as editor:
            editor.answers["fs/read_text_file"] = buffer.read
            editor.answers["session/request_permission"] = lambda _: ALLOW
            await editor.hello("Zed", fs={"readTextFile": True, "writeTextFile": True})
            session = await editor.new(tmp_path)
            await editor.prompt(session)
            (seen,) = await results(sdk, session)
    else:
        async with opened(tmp_path, given, READ, [], **options) as (sdk, editor, session):
            if why == "somebody else's task":
                await (await (await sdk.session(session)).start("Go.")).result()
            else:
                await editor.prompt(session)
            (seen,) = await results(sdk, session)
    assert "two" in seen.result_preview
    assert buffer.asked == []


async def test_an_editor_that_does_not_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attached_files, "ANSWER_S", 0.01)
    buffer = Buffer(tmp_path / "a.txt")
    async with opened(tmp_path, buffer, READ, READ, EDIT, []) as (_, editor, session):
        del editor.answers["fs/read_text_file"]
        assert (await editor.prompt(session))["stopReason"] == "end_turn"
        asked = await editor.asked()
        assert asked["method"] == "fs/read_text_file"
        assert editor.withdrawn == [asked["id"]]
        assert (tmp_path / "a.txt").read_text() == "1\ntwo\n"


async def test_an_editor_that_refuses_or_answers_nonsense_leaves_the_disk(tmp_path: Path):
    buffer = Buffer(tmp_path / "a.txt")
    async with opened(tmp_path, buffer, [*READ], [], READ, [], EDIT, []) as (_, editor, session):
        for nonsense in (None, {"content": 7}, ["x"]):
            editor.answers["fs/read_text_file"] = lambda _, nonsense=nonsense: nonsense
            assert (await editor.prompt(session))["stopReason"] == "end_turn"
        assert (tmp_path / "a.txt").read_text() == "1\ntwo\n"
        assert buffer.text == TYPED
