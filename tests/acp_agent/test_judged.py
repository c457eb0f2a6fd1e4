"""ACP's own TypeScript SDK drives CodeSDK, over stdio and over the daemon: it checks every message that it is sent."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.acp_agent.editor import call
from tests.acp_agent.judged import Refused, judging, load, new, script, stdio, websocket
from tests.daemon.rig import daemon
from tests.tools.mcp_client.test_attached import outside_at

from codesdk import CodeSDK
from codesdk.client import CodeSDKClient
from codesdk.contract.events import ApprovalAnswered

WRITE = call("workspace.write", path="made.txt", content="x")
OUTSIDE = Path(__file__).parents[1] / "tools" / "mcp_client" / "outside.py"


@contextmanager
def place(way: str, tmp_path: Path, *options: str) -> Iterator[dict[str, Any]]:
    """Give where an editor finds CodeSDK."""
    if way == "stdio":
        yield stdio(tmp_path / "data", *options)
        return
    with daemon(tmp_path / "data", *options) as running:
        if way == "daemon":
            yield websocket(running.url)
        else:  # the command, which works through the daemon that holds the directory
            yield stdio(tmp_path / "data")


EVERYWHERE = pytest.mark.parametrize("way", ["stdio", "daemon", "through a daemon"])


async def answers(data: Path, session: str) -> list[Any]:
    """Return who answered what in a stored session."""
    async with CodeSDK.open(data, goes_on=False) as sdk:
        found = [await sdk.service.event(session, seq + 1) for seq in range(await sdk.service.head(session))]
    return [
        (event.payload.decision, event.payload.answer, (event.payload.by.id or "").partition("-")[0])
        for event in found
        if isinstance(event.payload, ApprovalAnswered)
    ]


@pytest.fixture
async def tools_over_http() -> AsyncIterator[str]:
    """Serve the tools of somebody else over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with outside_at(port):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.slow
@EVERYWHERE
async def test_sessions_approvals_modes_cancel_and_load(tmp_path: Path, way: str):
    plays = script(
        [{"reasoning": "Hm."}, {"text": "Now. "}, WRITE],
        [{"text": "Done."}],
        [{"text": "Long. "}, {"await_steer": True}],
        [WRITE],
        [{"text": "End."}],
    )
    with place(way, tmp_path) as where:
        async with judging("judge", where) as judge:
            session = await new(judge, tmp_path, plays)
            ending = judge.prompt(session, "First")
            asked = await judge.asked()
            assert [option["kind"] for option in asked["params"]["options"]] == [
                "allow_once",
                "allow_always",
                "reject_once",
            ]
            judge.answer(asked, "allow")
            assert (await ending)["stopReason"] == "end_turn"
            ending = judge.prompt(session, "Second")
            await judge.until(lambda: "Long. " in judge.said())
            judge.order(do="notify", method="session/cancel", params={"sessionId": session})
            assert (await ending)["stopReason"] == "cancelled"
            await judge.request("session/set_mode", sessionId=session, modeId="auto")
            await judge.until(lambda: judge.of("current_mode_update"))
            given = {"sessionId": session, "configId": "mode", "value": "ask"}
            options = (await judge.request("session/set_config_option", **given))["configOptions"]
            assert options[0]["currentValue"] == "ask"
            ending = judge.prompt(session, "Third")
            asked = await judge.asked()
            judge.order(do="notify", method="session/cancel", params={"sessionId": session})
            # The SDK answers a question of a cancelled turn itself, or we do.
            judge.order(do="answer", asked=asked["asked"], result={"outcome": {"outcome": "cancelled"}})
            assert (await ending)["stopReason"] == "cancelled"
            listed = (await judge.request("session/list", cwd=str(tmp_path)))["sessions"]
            assert [(row["sessionId"], row["title"]) for row in listed] == [(session, "First")]
            live = judge.said()
        async with judging("judge", where) as judge:
            found = await load(judge, session, tmp_path)
            assert found["modes"]["currentModeId"] == "ask"
            assert judge.said("user_message_chunk") == "FirstSecondThird"
            assert judge.said().startswith(live[: len("Now. Done.Long. ")])
            fork = await judge.request("session/fork", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            assert fork["sessionId"] != session
            await judge.request("session/close", sessionId=session)
            await judge.request("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            await judge.request("session/delete", sessionId=fork["sessionId"])
            for method, params in (
                ("session/nothing", {}),
                ("session/prompt", {"sessionId": "ses_x", "prompt": []}),
            ):
                with pytest.raises(Refused):
                    await judge.request(method, **params)
    assert await answers(tmp_path / "data", session) == [
        ("approve", None, "judge"),
        ("deny", None, "judge"),  # a cancel is an answer to what was asked
    ]


@pytest.mark.slow
@EVERYWHERE
@pytest.mark.parametrize("forms", [True, False])
async def test_questions(tmp_path: Path, way: str, forms: bool):
    ask = call("user.ask", question="Which?", options=["red", "blue"])
    with place(way, tmp_path) as where:
        async with judging("judge", where, forms=forms) as judge:
            session = await new(judge, tmp_path, script([ask], [{"text": "Thanks."}]))
            ending = judge.prompt(session)
            asked = await judge.asked()
            if forms:
                assert asked["method"] == "elicitation"
                result = {"action": "accept", "content": {"answer": "blue"}}
                judge.order(do="answer", asked=asked["asked"], result=result)
            else:
                judge.answer(asked, "option_1")
            assert (await ending)["stopReason"] == "end_turn"
    assert await answers(tmp_path / "data", session) == [("approve", "blue", "judge")]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stdio", "daemon"])
@pytest.mark.parametrize("kind", ["a program", "an address"])
async def test_servers_of_the_editor_are_tools_of_the_session(
    tmp_path: Path, way: str, kind: str, tools_over_http: str
):
    server: Any = {
        "name": "my tools",
        "command": sys.executable,
        "args": [str(OUTSIDE)],
        "env": [{"name": "PATH", "value": os.environ["PATH"]}],
    }
    if kind == "an address":
        server = {"type": "http", "name": "my tools", "url": tools_over_http, "headers": []}
    echo = call("mcp.my_tools.echo", text="across")
    with place(way, tmp_path) as where:
        async with judging("judge", where) as judge:
            session = await new(judge, tmp_path, script([echo], [{"text": "Done."}]), mcpServers=[server])
            ending = judge.prompt(session)
            asked = await judge.asked()
            assert asked["params"]["toolCall"]["title"] == "mcp.my_tools.echo"
            judge.answer(asked, "allow")
            assert (await ending)["stopReason"] == "end_turn"
            done = [u for u in judge.of("tool_call_update") if u.get("status") == "completed"]
            assert "across" in str(done[0]["rawOutput"])


@pytest.mark.slow
async def test_two_editors_a_terminal_and_a_client_of_the_daemon_at_once(tmp_path: Path):
    plays = script([WRITE], [{"text": "One."}], [WRITE], [{"text": "Two."}], [{"text": "Three."}])
    with daemon(tmp_path / "data") as running:
        here, there = websocket(running.url), stdio(tmp_path / "data")
        async with judging("one", here) as one, judging("two", there) as two:
            session = await new(one, tmp_path, plays)
            await load(two, session, tmp_path)
            ending = one.prompt(session, "First")
            asked, other = await one.asked(), await two.asked()
            two.answer(other, "allow")
            assert (await ending)["stopReason"] == "end_turn"
            await one.until(lambda: one.withdrawn == [asked["asked"]])
            ending = two.prompt(session, "Second")
            asked = await one.asked()
            # A terminal answers, while both editors ask.
            terminal = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "codesdk.cli.main",
                "--data-dir",
                str(tmp_path / "data"),
                "approve",
                session,
                asked["params"]["toolCall"]["toolCallId"],
                stdout=asyncio.subprocess.DEVNULL,
            )
            assert await terminal.wait() == 0
            assert (await ending)["stopReason"] == "end_turn"
            async with CodeSDKClient.connect(running.url) as client:
                await (await (await client.session(session)).start("Third")).result()
            for judge in (one, two):
                await judge.until(lambda: "Three." in judge.said())  # noqa: B023
                assert judge.said() == "One.Two.Three."
            assert one.said("user_message_chunk") == "SecondThird"
            assert two.said("user_message_chunk") == "FirstThird"
    assert await answers(tmp_path / "data", session) == [("approve", None, "two"), ("approve", None, "")]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stdio", "daemon"])
async def test_cut_off_in_the_middle_of_a_question_and_back_nothing_is_lost(tmp_path: Path, way: str):
    plays = script([{"text": "Now. "}, WRITE], [{"text": "Done."}])
    with place(way, tmp_path) as where:
        async with judging("first", where) as judge:
            session = await new(judge, tmp_path, plays)
            judge.prompt(session, "Go").add_done_callback(lambda done: done.cancelled() or done.exception())
            await judge.asked()
            judge.order(do="hangup")  # over stdio, the process that holds the directory is killed
            await judge.until(lambda: judge.ended)
        async with judging("second", where) as judge, judging("third", where) as other:
            await load(judge, session, tmp_path)
            await load(other, session, tmp_path)
            asked = await judge.asked()
            judge.answer(asked, "allow")
            for each in (judge, other):
                await each.until(lambda: "Done." in each.said())  # noqa: B023
            assert judge.said() == other.said()
            assert (tmp_path / "made.txt").read_text() == "x"
    assert await answers(tmp_path / "data", session) == [("approve", None, "second")]


@pytest.mark.slow
async def test_the_editors_files_over_stdio(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    plays = script([call("workspace.edit", path="a.txt", old="TWO", new="2")], [{"text": "Done."}])
    async with judging("judge", stdio(tmp_path / "data"), files=True) as judge:
        session = await new(judge, tmp_path, plays)
        ending = judge.prompt(session)
        judge.answer(await judge.asked(), "allow")
        asked = await judge.asked()
        assert (asked["method"], asked["params"]["path"]) == ("read", str(tmp_path / "a.txt"))
        judge.order(do="answer", asked=asked["asked"], result={"content": "one\nTWO\n"})
        asked = await judge.asked()
        assert (asked["method"], asked["params"]["content"]) == ("write", "one\n2\n")
        judge.order(do="answer", asked=asked["asked"], result={})
        assert (await ending)["stopReason"] == "end_turn"
    assert (tmp_path / "a.txt").read_text() == "one\n2\n"
