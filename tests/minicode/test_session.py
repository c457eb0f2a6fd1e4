"""Sessions of minicode alone: whatever happens to a turn, its end is one, and what was said is kept."""

import asyncio
import base64
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.peers import peer, say
from tests.minicode.rig import alone, endpoint, variables

from codesdk.contract.errors import (
    Busy,
    CodeSDKError,
    Conflict,
    InvalidRequest,
    NotFound,
    StorageFailure,
    TaskFailure,
)
from codesdk.contract.messages import Text, text_of
from codesdk.minicode import Session, create_minicode
from codesdk.minicode.agent import INTERRUPTED
from codesdk.minicode.plugins import define_tool
from codesdk.minicode.types import Abort, Finish, TextDelta, ToolResultEvent, TurnError

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SAY: list[dict[str, Any]] = [{"text": ["They say ", "milk."]}]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def roles(session: Session) -> list[str]:
    return [message.role for message in session.snapshot().messages]


async def test_a_turn_goes_on_whether_or_not_anybody_listens(tmp_path: Path, work: Path):
    async with alone(work, tmp_path, [SAY, SAY], "anthropic") as sdk:
        session = await sdk.open_session()
        assert (await session.send("Hm?").response).text == "They say milk."
        turn = session.send("And?")
        async for event in turn.events:
            assert isinstance(event, TextDelta)
            break
        assert (await turn.response).text == "They say milk."
        assert turn.over
        assert session.turn is turn
        assert roles(session) == ["user", "assistant"] * 2


async def test_one_turn_at_a_time_and_none_without_words(tmp_path: Path, work: Path):
    async with alone(work, tmp_path, [[{"stall": "stopped"}]], "anthropic") as sdk:
        session = await sdk.open_session()
        with pytest.raises(InvalidRequest, match="says something"):
            session.send("")
        turn = session.send("Hm?")
        with pytest.raises(Busy, match="busy with a turn"):
            session.send("And?")
        turn.abort("Enough.")
        assert (await turn.response).finish_reason == "aborted"
        with pytest.raises(Conflict, match="The turn is over"):
            turn.steer("More.")


async def test_an_aborted_turn_keeps_what_was_said_and_marks_the_interruption(tmp_path: Path, work: Path):
    steps: list[dict[str, Any]] = [{"text": ["Let me ", "think."]}, {"stall": "stopped"}]
    async with alone(work, tmp_path, [steps, SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        turn = session.send("Hm?")
        said = ""
        async for event in turn.events:
            if isinstance(event, TextDelta):
                said += event.text
                if said == "Let me think.":
                    turn.abort("Enough.")
        assert isinstance(event, Abort)
        question, partial, mark = session.snapshot().messages
        assert text_of(question.content) == "Hm?"
        assert partial.content == [Text(text="Let me think.")]
        assert (mark.role, text_of(mark.content)) == ("user", INTERRUPTED)
        assert (await session.send("Go on.").response).text == "They say milk."
    stored = json.loads((tmp_path / "sessions" / "one.json").read_text())
    assert len(stored["messages"]) == 5


async def test_a_message_that_comes_meanwhile_is_told_before_the_next_step(tmp_path: Path, work: Path):
    begun = asyncio.Event()
    go_on = asyncio.Event()

    @define_tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go_on.wait()
        return "Waited."

    async with endpoint([{"call": {"tool": "wait", "input": {}}}], SAY) as url:
        env = variables(tmp_path, url, "openai")
        async with await create_minicode(cwd=work, env=env, agent={"tools": [wait]}) as sdk:
            session = await sdk.open_session()
            turn = session.send("Hm?")
            await begun.wait()
            turn.steer("Hurry up.")
            go_on.set()
            await turn.response
            assert roles(session) == ["user", "assistant", "tool", "user", "assistant"]


async def test_compact_goes_on_from_a_summary(tmp_path: Path, work: Path):
    async with alone(work, tmp_path, [SAY, [{"text": "Milk was asked for."}], SAY], "google") as sdk:
        session = await sdk.open_session(id="one")
        with pytest.raises(InvalidRequest, match="nothing to sum up"):
            await session.compact()
        await session.send("Hm?").response
        await session.compact()
        [summary] = session.snapshot().messages
        assert text_of(summary.content).endswith("\n\nMilk was asked for.")
        await session.send("Go on.").response
        assert roles(session) == ["user", "user", "assistant"]


async def test_an_option_of_the_agent_that_does_not_exist_is_refused(work: Path):
    with pytest.raises(InvalidRequest, match="agent has no 'model'"):
        await create_minicode(cwd=work, env={}, agent={"model": "x"})  # pyright: ignore[reportArgumentType]


async def test_an_attached_image_stays_with_the_session_and_goes_with_it(tmp_path: Path, work: Path):
    (work / "dot.png").write_bytes(PIXEL)
    async with alone(work, tmp_path, [SAY], "openai") as sdk:
        session = await sdk.open_session(id="one")
        block = await session.attach(work / "dot.png", "image/png")
        await session.send([Text(text="What is this?"), block]).response
        await session.close()
        assert len(list((tmp_path / "artifacts" / "one").iterdir())) == 1
        await sdk.delete_session("one")
        assert not (tmp_path / "artifacts" / "one").exists()
        with pytest.raises(NotFound):
            await sdk.open_session(id="one", create_if_missing=False)


# --- bad input ------------------------------------------------------------------------------------------


async def failure(session: Session) -> CodeSDKError:
    """Send something. Return the one error that comes of it, as the events have it and as the response raises it."""
    turn = session.send("Hm?")
    events = [event async for event in turn.events]
    with pytest.raises(TaskFailure) as raised:
        await turn.response
    assert isinstance(events[-1], TurnError)
    assert events[-1].error.message == raised.value.message
    return raised.value


async def test_a_base_url_that_answers_html_is_one_clear_error(tmp_path: Path, work: Path):
    async with peer(say(b"<html>Welcome</html>", 200, "content-type: text/html")) as place:
        env = variables(tmp_path, place.url, "openai-compatible")
        async with await create_minicode(cwd=work, env=env) as sdk:
            error = await failure(await sdk.open_session())
    assert "address" in error.message


async def test_an_unknown_model_is_one_clear_error_and_the_session_goes_on(tmp_path: Path, work: Path):
    refused: list[dict[str, Any]] = [{"http": {"status": 404, "message": "no such model"}}]
    async with alone(work, tmp_path, [refused, SAY], "anthropic") as sdk:
        session = await sdk.open_session(runtime={"model": "no-such-model"})
        error = await failure(session)
        assert "no-such-model" in error.message
        assert roles(session) == ["user"]
        assert (await session.send("Again.").response).text == "They say milk."


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def said(session: Session) -> list[str]:
    return [text_of(message.content) for message in session.snapshot().messages]


async def test_of_two_writers_the_second_is_told_where_its_turn_is_kept(tmp_path: Path, work: Path):
    (work / "dot.png").write_bytes(PIXEL)
    async with alone(work, tmp_path, [SAY, SAY, SAY, SAY], "anthropic") as sdk:
        mine, theirs = await sdk.open_session(id="one"), await sdk.open_session(id="one")
        picture = await mine.attach(work / "dot.png", "image/png")
        await theirs.send("First.").response
        turn = mine.send([Text(text="Second."), picture])
        with pytest.raises(TaskFailure) as raised:
            await turn.response
        assert raised.value.code == "CONFLICT"
        kept = (raised.value.details or {})["kept_as"]
        assert f"kept as the session {kept}" in raised.value.message
        assert said(await sdk.open_session(id="one")) == ["First.", "They say milk."]
        assert {each.id for each in await sdk.list_sessions()} == {"one", kept}
        with pytest.raises(Conflict, match=f"{kept}"):
            mine.send("And?")
        other = await sdk.open_session(id=kept, create_if_missing=False)
        assert said(other) == ["Second.", "They say milk."]
        # Its attachments came along, so the session it was taken from may go.
        await mine.close()
        await theirs.close()
        shutil.rmtree(tmp_path / "artifacts" / "one")
        assert (await other.send("And?").response).text == "They say milk."


async def test_the_second_of_two_writers_on_a_full_disk_keeps_its_turn_in_memory(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    (work / "dot.png").write_bytes(PIXEL)
    async with alone(work, tmp_path, [SAY, SAY], "anthropic") as sdk:
        mine, theirs = await sdk.open_session(id="one"), await sdk.open_session(id="one")
        await mine.attach(work / "dot.png", "image/png")
        await theirs.send("First.").response
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.minicode.storage.sessions.write_file", full)
            error = await failure(mine)
        assert "kept in memory" in error.message
        assert [path.name for path in (tmp_path / "artifacts").iterdir()] == ["one"]
        with pytest.raises(Conflict, match="kept as the session one-") as raised:
            await mine.close()
        kept = await sdk.open_session(id=(raised.value.details or {})["kept_as"])
        assert said(kept) == ["Hm?", "They say milk."]


async def test_a_turn_of_a_session_that_was_deleted_meanwhile_is_kept_under_another_name(
    tmp_path: Path, work: Path
):
    async with alone(work, tmp_path, [SAY, SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="a" * 100)
        (tmp_path / "sessions" / f"{session.id}.json").unlink()
        error = await failure(session)
        assert "was deleted meanwhile" in error.message
        [kept] = await sdk.list_sessions()
        assert kept.id in error.message
        assert said(await sdk.open_session(id=kept.id)) == ["Hm?", "They say milk."]


@pytest.mark.parametrize(
    ("content", "says"), [("{nonsense", "damaged"), ('{"version": 99, "id": "one"}', "newer")]
)
async def test_a_damaged_or_newer_session_file_is_reported_and_kept(
    tmp_path: Path, work: Path, content: str, says: str, caplog: pytest.LogCaptureFixture
):
    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        (tmp_path / "sessions").mkdir()
        (tmp_path / "sessions" / "one.json").write_text(content)
        with pytest.raises(StorageFailure):
            await sdk.open_session(id="one")
        with caplog.at_level(logging.WARNING):
            assert await sdk.list_sessions() == []
        assert (tmp_path / "sessions" / "one.json").read_text() == content


async def test_a_workspace_that_vanishes_is_one_clear_error(tmp_path: Path, work: Path):
    call: list[dict[str, Any]] = [{"call": {"tool": "bash", "input": {"command": "true"}}}]
    async with alone(work, tmp_path, [call, SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        shutil.rmtree(work)
        turn = session.send("Hm?")
        events = [event async for event in turn.events]
        assert isinstance(events[-1], Finish), "the model is told, and the turn goes on"
        await session.close()
        with pytest.raises(InvalidRequest, match=r"Name a directory that is there"):
            await sdk.open_session(id="one")


async def test_a_turn_that_finds_the_disk_full_is_stored_with_the_next_one(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    async with alone(work, tmp_path, [SAY, SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.minicode.storage.sessions.write_file", full)
            error = await failure(session)
        assert error.code == "STORAGE_FAILED"
        assert "No space left on device" in error.message
        assert "kept in memory" in error.message
        await session.send("And?").response
        stored = ["Hm?", "They say milk.", "And?", "They say milk."]
        assert said(await sdk.open_session(id="one")) == stored


async def test_what_could_not_be_stored_is_stored_when_the_session_is_closed(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.minicode.storage.sessions.write_file", full)
            await failure(session)
        await session.close()
        assert said(await sdk.open_session(id="one")) == ["Hm?", "They say milk."]


async def test_a_session_that_cannot_be_stored_to_the_end_says_so_when_it_is_closed(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.minicode.storage.sessions.write_file", full)
            await failure(session)
            with pytest.raises(StorageFailure, match="No space left on device"):
                await session.close()
        await sdk.delete_session("one")  # it is closed all the same


async def test_a_turn_beside_a_file_that_was_damaged_meanwhile_is_kept_under_another_name(
    tmp_path: Path, work: Path
):
    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        (tmp_path / "sessions" / "one.json").write_text("{nonsense")
        error = await failure(session)
        assert "damaged" in error.message
        [kept] = await sdk.list_sessions()
        assert kept.id in error.message
        assert said(await sdk.open_session(id=kept.id)) == ["Hm?", "They say milk."]
        assert (tmp_path / "sessions" / "one.json").read_text() == "{nonsense"


async def test_closing_in_mid_turn_ends_it_and_a_closed_session_refuses(tmp_path: Path, work: Path):
    async with alone(work, tmp_path, [[{"stall": "stopped"}]], "anthropic") as sdk:
        session = await sdk.open_session(id="one")
        turn = session.send("Hm?")
        await session.close()
        assert (await turn.response).finish_reason == "aborted"
        with pytest.raises(Conflict, match="is closed"):
            session.send("And?")
        await sdk.delete_session("one")


@pytest.mark.parametrize(
    ("runtime", "says"),
    [
        ({"provider": "nobody"}, "runtime.provider"),
        ({"modle": "x"}, "runtime has no 'modle'"),
        ({"model": 5}, "runtime.model: expected `str`, got `int`"),
        ({"model": "../elsewhere"}, "runtime.model: "),
        ({"openai_compatible": {"base_url": "http://127.0.0.1:1/v1"}}, "only for the provider"),
        ({"provider": "openai-compatible", "openai_compatible": {"url": "x"}}, "runtime.openai_compatible"),
    ],
)
async def test_a_wrong_choice_of_runtime_is_refused_by_name(
    tmp_path: Path, work: Path, runtime: Any, says: str
):
    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        with pytest.raises(InvalidRequest) as raised:
            await sdk.open_session(runtime=runtime)
        assert says in str(raised.value)
        assert await sdk.list_sessions() == []


HALF = "a\ud800b"
"""Half of a surrogate pair, as in the name of a file that is not UTF-8. No file can keep it, and no provider be sent it."""


@define_tool
async def odd() -> str:
    """Give what cannot be encoded."""
    return HALF


async def test_an_output_that_cannot_be_encoded_is_mended_and_the_turn_goes_on(tmp_path: Path, work: Path):
    call: list[dict[str, Any]] = [{"call": {"tool": "odd", "input": {}}}]
    async with endpoint(call, SAY) as url:
        env = variables(tmp_path, url, "anthropic")
        async with await create_minicode(cwd=work, env=env, agent={"tools": [odd]}) as sdk:
            session = await sdk.open_session(id="one")
            events = [event async for event in session.send("Go.").events]
            assert isinstance(events[-1], Finish)
            [result] = [event for event in events if isinstance(event, ToolResultEvent)]
            assert result.output.output_message == "a\ufffdb"
            assert roles(session) == ["user", "assistant", "tool", "assistant"]


async def test_a_turn_that_cannot_be_stored_for_whatever_reason_has_an_end(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> bytes:
        raise TypeError("a value that is not JSON")

    async with alone(work, tmp_path, [SAY, SAY], "anthropic") as sdk:
        session = await sdk.open_session()
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.minicode.storage.sessions._encode", broken)
            error = await failure(session)
        assert error.message.startswith("The turn could not be stored: TypeError: a value that is not JSON. ")
        assert (await session.send("Again.").response).text == "They say milk."
        assert said(session) == ["Hm?", "They say milk.", "Again.", "They say milk."]


@pytest.mark.parametrize("metadata", [{"a": HALF}, {"a": object()}, {"a": {1}}, {1: "a"}])
async def test_what_no_file_can_keep_is_refused_before_anything_is_made(
    tmp_path: Path, work: Path, metadata: Any
):
    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        with pytest.raises(InvalidRequest, match="metadata"):
            await sdk.open_session(metadata=metadata)
        session = await sdk.open_session()
        with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
            session.send(HALF)
        assert (await session.send("Hm?").response).text == "They say milk."


async def test_a_session_that_is_refused_is_not_left_open(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    async def changed_meanwhile(*_: object) -> None:
        raise Conflict("Another process has changed it.")

    async with alone(work, tmp_path, [SAY], "anthropic") as sdk:
        await (await sdk.open_session(id="one")).close()
        with monkeypatch.context() as patch:
            patch.setattr("codesdk.minicode.storage.FsSessionRepository.save", changed_meanwhile)
            with pytest.raises(Conflict, match="Another process"):
                await sdk.open_session(id="one", runtime={"model": "another"})
        await sdk.delete_session("one")  # which is refused while it is open
