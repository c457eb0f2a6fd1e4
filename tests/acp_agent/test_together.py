"""Several at once on one session: two editors, a terminal, a process that holds the directory and then does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.approved import answered
from tests.acp_agent.editor import ALLOW, REJECT, Editor, call, connected, local, playing

from codesdk import CodeSDK
from codesdk.acp_agent.place import Client, SharedPlace
from codesdk.contract.actions import Caller
from codesdk.contract.tools import Actor

WRITE = call("workspace.write", path="made.txt", content="x")
OFFER = playing([{"text": "One."}], [WRITE], [{"text": "Two."}], [{"text": "Three."}])


async def load(editor: Editor, session: str, workspace: Path) -> None:
    await editor.request("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])


def shown(editor: Editor) -> list[Any]:
    """Return what an editor shows of a conversation, with pieces joined, as its user sees it in the end."""
    found: list[Any] = []
    for update in editor.updates:
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            text = update["content"].get("text", "")
            if found and found[-1][0] == kind:
                found[-1] = (kind, found[-1][1] + text)
            else:
                found.append((kind, text))
        elif kind == "tool_call":
            found.append((update["toolCallId"], "pending"))
        elif kind == "tool_call_update" and "status" in update:
            found = [
                (name, update["status"]) if name == update["toolCallId"] else (name, at) for name, at in found
            ]
    return found


async def test_everyone_sees_everything_also_what_others_prompt(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as one, connected(local(sdk)) as two:
        await one.hello("one")
        await two.hello("two")
        session = await one.new(tmp_path)
        await load(two, session, tmp_path)
        await one.prompt(session, "First")
        ending = two.prompt(session, "Second")
        # Both are asked, and one of them answers.
        asked, other = await one.asked(), await two.asked()
        assert asked["params"]["toolCall"]["toolCallId"] == other["params"]["toolCall"]["toolCallId"]
        one.answer(asked, ALLOW)
        assert (await ending)["stopReason"] == "end_turn"
        await two.until(lambda: two.withdrawn == [other["id"]])
        terminal = await sdk.as_caller(Caller(actor=Actor(kind="user", id="terminal"))).session(session)
        await (await terminal.start("Third")).result()
        for editor in (one, two):
            await editor.until(lambda: "Three." in editor.said())  # noqa: B023
        assert one.said() == two.said() == "One.Two.Three."
        assert one.said("user_message_chunk") == "SecondThird"
        assert two.said("user_message_chunk") == "FirstThird"
        assert await answered(sdk, session) == [("approve", None, "one")]


async def test_of_two_answers_the_first_counts(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as one, connected(local(sdk)) as two:
        await one.hello("one")
        await two.hello("two")
        session = await one.new(tmp_path)
        await load(two, session, tmp_path)
        await one.prompt(session)
        ending = one.prompt(session)
        asked, other = await one.asked(), await two.asked()
        two.answer(other, REJECT)
        one.answer(asked, ALLOW)
        assert (await ending)["stopReason"] == "end_turn"
        (only,) = await answered(sdk, session)
        assert only[0] == ("approve" if (tmp_path / "made.txt").exists() else "deny")
        assert only[2] == ("one" if only[0] == "approve" else "two")


async def test_cut_off_and_back_both_end_with_the_same_picture(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        async with connected(local(sdk), OFFER) as one, connected(local(sdk)) as two:
            await one.hello("one")
            await two.hello("two")
            session = await one.new(tmp_path)
            await load(two, session, tmp_path)
            await one.prompt(session, "First")
            one.prompt(session, "Second").add_done_callback(lambda done: done.cancelled() or done.exception())
            await two.asked()
        # Both are gone, in the middle of a question. One comes back and answers; the other comes after that.
        async with connected(local(sdk)) as one:
            await one.hello("one")
            await load(one, session, tmp_path)
            one.answer(await one.asked(), ALLOW)
            await one.until(lambda: "Two." in one.said())
            async with connected(local(sdk)) as two:
                await two.hello("two")
                await load(two, session, tmp_path)
                await one.prompt(session, "Third")
                await two.until(lambda: "Three." in two.said())
                assert two.said("user_message_chunk") == "FirstSecondThird"
                assert two.said() == "One.Two.Three."
            async with connected(local(sdk)) as three:
                await three.hello("three")
                await load(three, session, tmp_path)
                assert shown(three) == shown(two)
        head = await sdk.service.head(session)
        seqs = [(await sdk.service.event(session, seq + 1)).seq for seq in range(head)]
        assert seqs == list(range(1, head + 1))


async def test_one_that_comes_while_a_message_streams_has_all_of_it(tmp_path: Path):
    offer = playing(
        [{"reasoning": "Hm. "}, {"text": ["One ", "two "]}, {"await_steer": True}, {"text": "three."}]
    )
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as one, connected(local(sdk)) as two:
        await one.hello("one")
        await two.hello("two")
        session = await one.new(tmp_path)
        ending = one.prompt(session)
        await one.until(lambda: "two " in one.said())
        await load(two, session, tmp_path)
        assert (two.said("agent_thought_chunk"), two.said()) == ("Hm. ", "One two ")
        await (await sdk.session(session)).steer("go")
        await ending
        await two.until(lambda: "three." in two.said())
        assert two.said() == one.said()


async def test_closing_a_session_stops_ones_own_prompt_and_nobody_elses(tmp_path: Path):
    offer = playing([{"text": "One. "}, {"await_steer": True}], [{"text": "Two."}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as one, connected(local(sdk)) as two:
        await one.hello("one")
        await two.hello("two")
        session = await one.new(tmp_path)
        await load(two, session, tmp_path)
        ending = one.prompt(session)
        await two.until(lambda: "One." in two.said())
        await two.request("session/close", sessionId=session)
        assert not ending.done()
        await one.request("session/close", sessionId=session)
        assert (await ending)["stopReason"] == "cancelled"


# --- many processes, one directory ----------------------------------------------------------------------


@asynccontextmanager
async def shared(data: Path) -> AsyncIterator[SharedPlace]:
    async with SharedPlace(lambda: CodeSDK.open(data, goes_on=False)) as place:
        yield place


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for a holder that does not come."""
    monkeypatch.setattr("codesdk.local.holder.PATIENCE_S", 0.0)


async def test_whoever_worked_through_a_holder_that_is_gone_takes_its_place(tmp_path: Path, impatient: None):
    data = tmp_path / "data"
    first = CodeSDK.open(data, goes_on=False)
    await first.__aenter__()
    async with shared(data) as place, connected(place, OFFER) as editor:
        assert not place.sdk.is_holder
        await editor.hello("Zed")
        session = await editor.new(tmp_path)
        await editor.prompt(session, "First")
        ending = editor.prompt(session, "Second")
        asked = await editor.asked()
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await first.__aexit__(None, None, None)
        await editor.until(lambda: "Interrupted while it waited." in str(editor.updates))
        # The question was carried over. It is still open in the editor, and its answer goes on with the task.
        editor.answer(asked, ALLOW)
        await editor.until(lambda: "Two." in editor.said())
        assert (tmp_path / "made.txt").exists()
        assert (await editor.prompt(session, "Third"))["stopReason"] == "end_turn"
        assert place.sdk.is_holder
        found = await answered(place.sdk, session)
        assert found == [("approve", None, "Zed")]


async def test_two_that_lose_their_holder_agree_on_the_next(tmp_path: Path, impatient: None):
    data = tmp_path / "data"
    first = CodeSDK.open(data, goes_on=False)
    await first.__aenter__()
    async with shared(data) as one, shared(data) as two:
        client = Client(name="x", connection="1")
        services = [one.service(client), two.service(client)]
        await first.__aexit__(None, None, None)
        from codesdk.contract.actions import CreateSession

        created = await asyncio.gather(
            *[each.execute(CreateSession(runtime="scripted", workspace=str(tmp_path))) for each in services]
        )
        assert sorted([one.sdk.is_holder, two.sdk.is_holder]) == [False, True]
        rows = await services[0].sessions()
        assert {row.session_id for row in rows} == {row.session_id for row in created}
