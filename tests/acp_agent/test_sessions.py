"""Sessions as an editor has them: made, prompted, listed, loaded with their past, resumed, forked, closed, deleted."""

from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.editor import ALLOW, Refused, call, connected, local, playing

from codesdk import CodeSDK

READ_AND_FIX = (
    [
        {"reasoning": "I look first."},
        {"text": ["Let me ", "read."]},
        call("workspace.read", path="hello.txt"),
    ],
    [call("workspace.edit", path="hello.txt", old="Helo", new="Hello")],
    [{"text": "Done."}],
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "hello.txt").write_text("Helo, world\n")
    return tmp_path


async def test_a_prompt_streams_and_its_calls_have_kind_place_difference_and_output(workspace: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), playing(*READ_AND_FIX)) as editor:
        await editor.hello()
        session = await editor.new(workspace)
        ending = editor.prompt(session, "Fix the greeting")
        editor.answer(await editor.asked(), ALLOW)
        asked = await editor.asked()
        editor.answer(asked, ALLOW)
        assert (await ending)["stopReason"] == "end_turn"
    path = str(workspace / "hello.txt")
    assert editor.said("agent_thought_chunk") == "I look first."
    assert editor.said() == "Let me read.Done."
    assert editor.said("user_message_chunk") == ""  # the editor shows its own prompt itself
    read, edit = editor.of("tool_call")
    assert (read["kind"], read["title"], read["locations"]) == (
        "read",
        "workspace.read hello.txt",
        [{"path": path}],
    )
    before = {"type": "diff", "path": path, "oldText": "Helo", "newText": "Hello"}
    assert (edit["kind"], edit["content"], edit["rawInput"]) == (
        "edit",
        [before],
        {"path": "hello.txt", "old": "Helo", "new": "Hello"},
    )
    # Who is asked sees what it is about, in the request itself.
    shown = asked["params"]["toolCall"]
    assert {name: shown[name] for name in ("toolCallId", "kind", "content", "locations")} == {
        name: edit[name] for name in ("toolCallId", "kind", "content", "locations")
    }
    ended = [update for update in editor.of("tool_call_update") if update.get("status") == "completed"]
    assert [update["rawOutput"] for update in ended] == ["     1\tHelo, world", "Edited hello.txt at line 1."]
    assert ended[1]["content"][0] == {
        "type": "diff",
        "path": path,
        "oldText": "Helo, world\n",
        "newText": "Hello, world\n",
    }
    assert ended[1]["locations"] == [{"path": path}]


async def test_a_session_is_loaded_with_its_past_in_order_and_goes_on(workspace: Path):
    offer = playing(*READ_AND_FIX, [{"text": "And again."}], mode="auto")
    async with CodeSDK.open() as sdk:
        async with connected(local(sdk), offer) as first:
            await first.hello()
            session = await first.new(workspace)
            ending = first.prompt(session, "Fix the greeting")
            first.answer(await first.asked(), ALLOW)
            await ending
        async with connected(local(sdk)) as second:
            await second.hello("other")
            found = await second.request("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
            # All of the past comes before the answer.
            kinds = [update["sessionUpdate"] for update in second.updates]
            assert found["modes"]["currentModeId"] == "auto"
            assert second.said("user_message_chunk") == "Fix the greeting"
            assert second.said() == first.said()
            assert second.of("session_info_update")[0]["title"] == "Fix the greeting"
            assert kinds.index("agent_message_chunk") < kinds.index("tool_call")
            done = [(u["toolCallId"], u["status"]) for u in second.of("tool_call_update") if "status" in u]
            assert done == [
                (u["toolCallId"], u["status"]) for u in first.of("tool_call_update") if "status" in u
            ]
            assert (await second.prompt(session))["stopReason"] == "end_turn"
            assert second.said().endswith("And again.")


async def test_a_session_is_resumed_without_its_past(workspace: Path):
    async with CodeSDK.open() as sdk:
        async with connected(local(sdk), playing([{"text": "One."}], [{"text": "Two."}])) as first:
            await first.hello()
            session = await first.new(workspace)
            await first.prompt(session)
        async with connected(local(sdk)) as second:
            await second.hello()
            await second.request("session/resume", sessionId=session, cwd=str(workspace), mcpServers=[])
            await second.prompt(session)
            assert second.said() == "Two."


async def test_sessions_are_listed_by_directory_forked_closed_and_deleted(workspace: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    offer = playing([{"text": "One."}], [{"text": "Two."}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session, other = await editor.new(workspace), await editor.new(elsewhere)
        await editor.prompt(session, "A long tale")

        async def listed(**filters: Any) -> list[tuple[str, str | None]]:
            rows = (await editor.request("session/list", **filters))["sessions"]
            return [(row["sessionId"], row.get("title")) for row in rows]

        assert await listed(cwd=str(workspace)) == [(session, "A long tale")]
        assert await listed() == [(other, None), (session, "A long tale")]
        fork = (await editor.request("session/fork", sessionId=session, cwd=str(workspace)))["sessionId"]
        assert (await editor.prompt(fork))["stopReason"] == "end_turn"
        assert editor.said() == "One.Two."
        await editor.request("session/close", sessionId=session)
        with pytest.raises(Refused, match="not open here"):
            await editor.request("session/prompt", sessionId=session, prompt=[])
        await editor.request("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
        await editor.request("session/delete", sessionId=session)
        assert session not in [name for name, _ in await listed()]
        with pytest.raises(Refused) as gone:
            await editor.request("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
        assert gone.value.code == -32002


async def test_pages_of_sessions_follow_each_other(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codesdk.acp_agent.agent.PAGE", 2)
    async with CodeSDK.open() as sdk, connected(local(sdk), playing([{"text": "One."}])) as editor:
        await editor.hello()
        made = [await editor.new(workspace) for _ in range(5)]
        for where in ({}, {"cwd": str(workspace)}):
            found: list[str] = []
            cursor: dict[str, str] = {}
            while True:
                page = await editor.request("session/list", **where, **cursor)
                found += [row["sessionId"] for row in page["sessions"]]
                if "nextCursor" not in page:
                    break
                cursor = {"cursor": page["nextCursor"]}
            assert found == made[::-1]


async def test_a_prompt_that_comes_while_another_runs_has_its_turn(workspace: Path):
    async with (
        CodeSDK.open() as sdk,
        connected(local(sdk), playing([{"text": "1"}], [{"text": "2"}])) as editor,
    ):
        await editor.hello()
        session = await editor.new(workspace)
        first, second = editor.prompt(session), editor.prompt(session)
        assert [(await first)["stopReason"], (await second)["stopReason"]] == ["end_turn", "end_turn"]
        assert editor.said() == "12"


async def test_a_task_that_fails_is_an_error_with_its_code(workspace: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), playing([{"text": "1"}])) as editor:
        await editor.hello()
        session = await editor.new(workspace)
        await editor.prompt(session)
        with pytest.raises(Refused, match="turn"):  # the script has no second one
            await editor.prompt(session)
        await editor.request("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
        assert "(The task failed:" in editor.said()


async def test_what_is_used_and_spent_is_told(workspace: Path):
    turn = {"steps": [{"text": "Hi."}], "usage": {"input": 120, "output": 18, "cost_usd": 0.5}}
    offer = playing()
    offer.settings.runtime_config["script"] = {"turns": [turn], "loop": True}
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session = await editor.new(workspace)
        for _ in range(2):
            used = (await editor.prompt(session))["usage"]
        assert (used["inputTokens"], used["outputTokens"], used["totalTokens"]) == (120, 18, 138)
        last = editor.of("usage_update")[-1]
        assert last["cost"] == {"amount": 1.0, "currency": "USD"}
        assert 0 < last["used"] <= last["size"] == 100_000
