"""WebSockets of the daemon: who is let in, what each message counts for, and when the daemon hangs up."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import Daemon, daemon
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from codesdk.local import TokenFile

HELLO: Any = {"protocolVersion": 1, "clientInfo": {"name": "editor", "version": "1"}}
PATIENCE_S = 60


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path / "data", "--heartbeat", "0.05") as found:
        yield found


@asynccontextmanager
async def entered(running: Daemon, path: str = "/acp", **headers: str) -> AsyncIterator[ClientConnection]:
    address = running.url.replace("http", "ws", 1) + path
    async with connect(address, additional_headers=headers, max_size=None, proxy=None) as socket:
        yield socket


async def request(socket: ClientConnection, method: str, params: Any, number: int = 1) -> Any:
    """Send a request and return its answer."""
    await socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = json.loads(await socket.recv())
            if found.get("id") == number and "method" not in found:
                return found


async def refusal(running: Daemon, path: str = "/acp", **headers: str) -> tuple[int, str]:
    """Return the status and the code of an upgrade that is refused."""
    with pytest.raises(InvalidStatus) as refused:
        async with entered(running, path, **headers):
            pass
    body = json.loads(refused.value.response.body or b"{}")
    return refused.value.response.status_code, body.get("code", "")


async def test_a_socket_is_a_connection_of_its_own_with_a_name(running: Daemon):
    async with entered(running) as one, entered(running) as two:
        assert one.response is not None
        assert two.response is not None
        names = {one.response.headers["acp-connection-id"], two.response.headers["acp-connection-id"]}
        assert len(names) == 2
        for socket in (one, two):
            assert (await request(socket, "initialize", HELLO))["result"]["protocolVersion"] == 1


async def test_who_is_not_let_in_learns_nothing(running: Daemon):
    assert await refusal(running, "/acp/no") == (404, "NOT_FOUND")
    assert await refusal(running, "/v1/sessions") == (404, "NOT_FOUND")
    assert await refusal(running, Origin="http://evil.example") == (403, "FORBIDDEN")
    assert await refusal(running, Authorization="Bearer csdk_wrong") == (401, "AUTH_REQUIRED")
    assert (await refusal(running, "/acp?runtime=nothing"))[0] == 400
    assert running.http.get("/acp").status_code == 404
    # ACP's other remote transport, which a server may leave out, begins with this.
    assert (
        running.http.post("/acp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize"}).status_code == 404
    )


async def test_a_token_says_what_may_be_done_and_the_log_names_it_before_the_editor(
    running: Daemon, tmp_path: Path
):
    tokens = TokenFile(running.data_dir)
    reader, _ = tokens.add("ann", ["read"], label="look")
    worker, _ = tokens.add("ann", ["run", "approve"], label="work")
    assert (await refusal(running))[0] == 401
    wishes = {"runtime": "scripted", "runtime_config": {"script": {"turns": [{"steps": [{"text": "Hi."}]}]}}}
    new = {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"codesdk": wishes}}
    async with entered(running, Authorization=f"Bearer {reader}") as socket:
        await request(socket, "initialize", HELLO)
        assert "scope run" in (await request(socket, "session/new", new))["error"]["message"]
    async with entered(running, Authorization=f"Bearer {worker}") as socket:
        await request(socket, "initialize", HELLO)
        session = (await request(socket, "session/new", new))["result"]["sessionId"]
        # Servers of the editor run outside of any sandbox.
        server = {"name": "s", "command": "true", "args": [], "env": []}
        refused = await request(socket, "session/new", new | {"mcpServers": [server]})
        assert "scope admin" in refused["error"]["message"]
    headers = {"authorization": f"Bearer {worker}"}
    trace = running.http.get(f"/v1/sessions/{session}/events", headers=headers).json()["events"][0]["trace"]
    assert trace["client_id"].startswith("work/editor-")
    assert trace["user_id"] == "ann"


async def test_a_revoked_token_ends_the_connection(running: Daemon):
    tokens = TokenFile(running.data_dir)
    secret, token = tokens.add("ann", ["run"], label="work")
    async with entered(running, Authorization=f"Bearer {secret}") as socket:
        await request(socket, "initialize", HELLO)
        tokens.revoke(token.token_id)
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(PATIENCE_S):
                await socket.recv()
        assert socket.close_code == 1008


async def test_a_frame_that_is_too_long_or_not_text_hurts_nobody_else(running: Daemon):
    async with entered(running) as other:
        await request(other, "initialize", HELLO)
        async with entered(running) as socket:
            await request(socket, "initialize", HELLO)
            await socket.send(b"\x00binary")
            assert "result" in await request(socket, "session/list", {}, 2)
            with suppress(ConnectionClosed):  # it may be closed before all of it is sent
                await socket.send("x" * (17 * 1024 * 1024))
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1009
        assert "result" in await request(other, "session/list", {}, 2)


async def test_a_daemon_that_ends_says_so(running: Daemon):
    async with entered(running) as socket:
        await request(socket, "initialize", HELLO)
        running.process.terminate()
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(PATIENCE_S):
                await socket.recv()
        assert socket.close_code == 1012
        assert await asyncio.to_thread(running.process.wait, 60) == 0


async def test_tasks_over_a_socket_count_as_those_over_http(tmp_path: Path):
    wishes = {
        "runtime": "scripted",
        "runtime_config": {"script": {"turns": [{"steps": [{"text": "Hi."}]}], "loop": True}},
    }
    new = {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"codesdk": wishes}}
    with daemon(tmp_path / "data", "--tasks-per-minute", "1") as running:
        async with entered(running) as socket:
            await request(socket, "initialize", HELLO)
            session = (await request(socket, "session/new", new))["result"]["sessionId"]
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
            assert (await request(socket, "session/prompt", prompt, 2))["result"]["stopReason"] == "end_turn"
            assert (
                "Too many tasks" in (await request(socket, "session/prompt", prompt, 3))["error"]["message"]
            )


async def test_sockets_give_their_places_back(running: Daemon):
    for _ in range(3):
        async with entered(running) as socket:
            await request(socket, "initialize", HELLO)
    with running.http.stream("GET", "/v1/metrics") as answer:
        text = answer.read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("codesdk_connections ")]
    assert float(line.split()[1]) == 1  # the one that asks
