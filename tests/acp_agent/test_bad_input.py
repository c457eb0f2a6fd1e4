"""Editors that send nonsense, or disappear: clean errors, and the sessions are there for others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.acp_agent.editor import Refused, call, connected, local, playing

from codesdk import CodeSDK
from codesdk.acp_agent.channel import LineChannel, TooLong
from codesdk.acp_agent.peer import MAX_REQUESTS, Peer

OFFER = playing([call("workspace.write", path="made.txt", content="x")], [{"text": "Done."}])


def frame(**fields: Any) -> Any:
    return {"jsonrpc": "2.0", **fields}


@pytest.mark.parametrize(
    ("sent", "code", "number"),
    [
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 5000, -32700, None),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "_x", "params": [' + b"[]," * 600_000 + b"[]]}",
            -32600,
            None,
        ),
        (b"7", -32600, None),
        (b"null", -32600, None),
        ([frame(id=1, method="initialize")], -32600, None),
        ({}, -32600, None),
        (frame(id=1), -32600, 1),
        (frame(id=1, method=7), -32600, 1),
        (frame(id=True, method="session/list"), -32600, None),
        (frame(id=1.5, method="session/list"), -32600, None),
        (frame(id={"a": 1}, method="session/list"), -32600, None),
        (frame(id=None, method="session/list"), -32600, None),
        (frame(id="x", method="session/nothing"), -32601, "x"),
        (frame(id="x", method="_ext/method", params={}), -32601, "x"),
        (frame(id="x", method="authenticate", params={"methodId": "y"}), -32601, "x"),
        (frame(id="x", method="session/new", params=[]), -32602, "x"),
        (frame(id="x", method="session/new", params={"mcpServers": []}), -32602, "x"),
        (frame(id="x", method="session/prompt", params={"sessionId": 7, "prompt": []}), -32602, "x"),
        (frame(id="x", method="session/prompt", params={"sessionId": "ses_x", "prompt": []}), -32602, "x"),
        (
            frame(id="x", method="session/load", params={"sessionId": "ses_x", "cwd": "/", "mcpServers": []}),
            -32002,
            "x",
        ),
        (frame(id="x", method="session/delete", params={"sessionId": "../../etc"}), -32002, "x"),
    ],
)
async def test_nonsense_gets_an_error_and_the_next_request_an_answer(sent: Any, code: int, number: Any):
    async with CodeSDK.open() as sdk, connected(local(sdk)) as editor:
        await editor.hello()
        editor.write(sent)
        await editor.until(lambda: editor.stray)
        assert (editor.stray[0]["id"], editor.stray[0]["error"]["code"]) == (number, code)
        assert await editor.request("session/list") == {"sessions": []}


@pytest.mark.parametrize(
    "sent",
    [
        frame(method="session/nothing"),
        frame(method="session/cancel"),
        frame(method="session/cancel", params={"sessionId": "ses_x"}),
        frame(method="$/cancel_request", params=[]),
        frame(method="$/cancel_request", params={"requestId": [1]}),
        frame(id=99, result={}),
        frame(id=[1], result={}),
        frame(id="x", error={"code": 1, "message": "x"}),
        frame(id=0, error="x"),
    ],
)
async def test_what_has_no_answer_is_dropped(sent: Any):
    async with CodeSDK.open() as sdk, connected(local(sdk)) as editor:
        await editor.hello()
        editor.write(sent)
        assert await editor.request("session/list") == {"sessions": []}
        assert editor.stray == []


async def test_an_editor_must_say_who_it_is_first(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        with pytest.raises(Refused, match="initialize first"):
            await editor.new(tmp_path)
        found = await editor.request("initialize", protocolVersion=99)
        assert found["protocolVersion"] == 1
        assert await editor.new(tmp_path)


@pytest.mark.parametrize("name", ["", " ", "\x00\x1b[31m", "x" * 5000, "Zed\nEvil: yes", "編集者"])
async def test_an_absurd_name_is_cut_to_one_that_can_be_stored(tmp_path: Path, name: str):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello(name)
        session = await editor.new(tmp_path)
        client = (await sdk.service.event(session, 1)).trace.client_id
        assert client is not None
        assert client.isprintable()
        assert len(client) <= 64


@pytest.mark.parametrize(
    "cwd", ["", ".", "relative", "/no/such/place", "/etc/hosts", "\x00", "/" + "x" * 5000, "//../.."]
)
async def test_absurd_directories_are_refused_or_resolved(cwd: str):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        if cwd == "//../..":
            found = await editor.request("session/new", cwd=cwd, mcpServers=[])
            assert (await sdk.service.session(found["sessionId"])).workspace == "/"
        else:
            with pytest.raises(Refused) as refused:
                await editor.request("session/new", cwd=cwd, mcpServers=[])
            assert refused.value.code == -32602
        assert "sessions" in await editor.request("session/list", cwd=cwd)


async def test_a_session_stays_in_its_directory_and_has_only_one(tmp_path: Path):
    (tmp_path / "other").mkdir()
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        for method in ("session/load", "session/resume", "session/fork"):
            elsewhere = {"sessionId": session, "cwd": str(tmp_path / "other"), "mcpServers": []}
            with pytest.raises(Refused, match="cannot be moved"):
                await editor.request(method, **elsewhere)
        with pytest.raises(Refused, match="one directory"):
            await editor.new(tmp_path, additionalDirectories=["/tmp"])


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"type": "sse", "name": "s", "url": "http://localhost:1", "headers": []}, "over sse"),
        ({"type": "acp", "name": "s", "serverId": "1"}, "over acp"),
        ({"name": "!!!", "command": "x", "args": [], "env": []}, "needs a name"),
        ({"name": "s"}, "mcpServers.0 is not a server"),
        ({"type": "carrier pigeon", "name": "s", "url": "x"}, "mcpServers.0 is not a server"),
        (7, "mcpServers.0 is not a server"),
        ({"type": "http", "name": "s", "url": "not an address", "headers": []}, "needs a url"),
        ({"name": "s", "command": "/no/such/program", "args": [], "env": []}, "s"),
    ],
)
async def test_a_server_that_cannot_be_attached_is_an_error_and_leaves_no_session(
    tmp_path: Path, server: Any, why: str
):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        with pytest.raises(Refused, match=why):
            await editor.request("session/new", cwd=str(tmp_path), mcpServers=[server])
        assert await sdk.sessions() == []


async def test_too_many_requests_at_once_are_refused_one_by_one(tmp_path: Path):
    offer = playing([{"text": "One. "}, {"await_steer": True}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        endings = [editor.prompt(session) for _ in range(MAX_REQUESTS + 3)]
        await editor.until(lambda: sum(ending.done() for ending in endings) >= 3)
        refused = [str(ending.exception()) for ending in endings[MAX_REQUESTS:]]
        assert refused == [f"{MAX_REQUESTS} requests are open already."] * 3
        editor.notify("session/cancel", sessionId=session)
        results = await asyncio.gather(*endings[:MAX_REQUESTS], return_exceptions=True)
        assert len(results) == MAX_REQUESTS


async def test_an_id_that_is_in_use_is_refused(tmp_path: Path):
    offer = playing([{"text": "One. "}, {"await_steer": True}])
    async with CodeSDK.open() as sdk, connected(local(sdk), offer) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        for _ in range(2):
            editor.write(frame(id="same", method="session/prompt", params=params))
        await editor.until(lambda: editor.stray)
        assert "still open" in editor.stray[0]["error"]["message"]
        editor.notify("session/cancel", sessionId=session)
        await editor.until(lambda: len(editor.stray) == 2)
        assert editor.stray[1]["result"]["stopReason"] == "cancelled"


async def test_an_editor_that_is_gone_in_the_middle_of_a_question_leaves_it_to_others(tmp_path: Path):
    async with CodeSDK.open() as sdk:
        async with connected(local(sdk), OFFER) as gone:
            await gone.hello()
            session = await gone.new(tmp_path)
            gone.prompt(session).add_done_callback(lambda done: done.cancelled() or done.exception())
            asked = await gone.asked()
        handle = await sdk.session(session)
        (row,) = await handle.approvals()
        assert row.tool_call_id == asked["params"]["toolCall"]["toolCallId"]
        assert row.state == "waiting"
        await handle.approve(row.tool_call_id or "")
        (task,) = await handle.tasks()
        assert (await handle.task(task.task_id).result()).text == "Done."


@pytest.mark.parametrize(
    "result",
    [
        None,
        7,
        "x",
        [],
        {},
        {"outcome": None},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": 5}},
    ],
)
async def test_an_answer_that_is_none_denies(tmp_path: Path, result: Any):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        editor.answer(await editor.asked(), result)
        assert (await ending)["stopReason"] == "end_turn"
        assert not (tmp_path / "made.txt").exists()


async def test_an_editor_that_cannot_ask_leaves_the_question_open(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), OFFER) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        ending = editor.prompt(session)
        asked = await editor.asked()
        editor.write(frame(id=asked["id"], error={"code": -32601, "message": "Method not found"}))
        assert await editor.request("session/list")
        handle = await sdk.session(session)
        await handle.approve(asked["params"]["toolCall"]["toolCallId"])
        assert (await ending)["stopReason"] == "end_turn"


async def test_a_session_that_is_deleted_under_an_editor_ends_its_turns(tmp_path: Path):
    async with CodeSDK.open() as sdk, connected(local(sdk), playing([{"text": "Hi."}])) as editor:
        await editor.hello()
        session = await editor.new(tmp_path)
        await editor.prompt(session)
        await sdk.delete_session(session)
        with pytest.raises(Refused):
            await editor.prompt(session)
        other = await editor.new(tmp_path)
        assert (await editor.prompt(other))["stopReason"] == "end_turn"


# --- lines ----------------------------------------------------------------------------------------------


async def lines(*chunks: bytes, limit: int = 10) -> list[Any]:
    """Return the messages that chunks of bytes are, with those that were too long."""
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    channel = LineChannel(reader, None, limit)  # type: ignore[arg-type]
    found: list[Any] = []
    while True:
        try:
            line = await channel.receive()
        except TooLong:
            line = TooLong
        if line is None:
            return found
        found.append(line)


async def test_a_line_that_is_too_long_is_dropped_and_the_next_one_is_read():
    assert await lines(b"one\n\n  \n" + b"x" * 50 + b"\ntwo\n", b"cut off") == [b"one", TooLong, b"two"]
    assert await lines(b"x" * 30, b"x" * 30 + b"\nok\n") == [TooLong, b"ok"]


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 40))
def test_however_bytes_arrive_the_lines_are_the_same(parts: list[bytes], size: int):
    whole = b"".join(parts) + b"\n"
    chunks = [whole[place : place + size] for place in range(0, len(whole), size)]
    expected = [
        TooLong if len(line) > 10 else line
        for line in whole.split(b"\n")[:-1]
        if len(line) > 10 or line.strip()
    ]
    assert asyncio.run(lines(*chunks)) == expected


class Recorded:
    """A channel that plays what an editor sends, and keeps what it is sent."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames
        self.sent: list[bytes] = []

    async def receive(self) -> bytes | None:
        await asyncio.sleep(0)
        return self.frames.pop(0) if self.frames else None

    async def send(self, message: bytes) -> None:
        self.sent.append(message)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "requestId"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)


@given(
    st.lists(
        JSON.map(lambda value: __import__("json").dumps(value).encode()) | st.binary(max_size=40), max_size=6
    )
)
def test_no_message_ends_the_connection(frames: list[bytes]):
    channel = Recorded(list(frames))
    asyncio.run(Peer(channel, {}, {}).run())
    assert channel.frames == []
