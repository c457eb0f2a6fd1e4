"""The MCP host: what it lists and passes on, whom it refuses, and what becomes of a call whose client waits, cancels or leaves."""

import asyncio
import logging
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from sse_starlette import EventSourceResponse
from tests.tools.mcp.tool_calls import HeldCalls, RecordingCalls, said, spec, within
from tests.tools.mcp.wire import HEADERS, HELLO, Wire, next_message, request, wire

from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.errors import Conflict, NotFound
from codesdk.contract.tools import ToolAnnotations
from codesdk.runtimes.claude import ENTRY as CLAUDE
from codesdk.runtimes.codex import ENTRY as CODEX
from codesdk.tools.mcp.host import McpHost, bearer
from codesdk.tools.mcp.memory import in_memory

pytestmark = pytest.mark.slow

each_era = pytest.mark.parametrize("mode", ["legacy", "auto"])


@each_era
async def test_tools_are_listed_with_the_names_that_providers_allow_and_hints_from_their_class(mode: str):
    kinds = ("read_only", "write", "network", "dangerous")
    calls = RecordingCalls(
        offered=[spec(f"test.{kind}", kind, safe_replay=kind == "read_only") for kind in kinds]
    )
    async with McpHost() as host, Client(await host.admit("ses_1", calls, CLAUDE.mcp), mode=mode) as client:
        listed = (await client.list_tools()).tools
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    hints = {  # readOnly, destructive, idempotent, openWorld
        "read_only": (True, False, True, False),
        "write": (False, False, False, False),
        "network": (False, False, False, True),
        "dangerous": (False, True, False, True),
    }
    assert [tool.model_dump(exclude_none=True, by_alias=True) for tool in listed] == [
        {
            "name": f"test_{kind}",
            "description": f"Does test.{kind}.",
            "inputSchema": schema,
            "annotations": {
                "readOnlyHint": hints[kind][0],
                "destructiveHint": hints[kind][1],
                "idempotentHint": hints[kind][2],
                "openWorldHint": hints[kind][3],
            },
            "_meta": dict(CLAUDE.mcp.tool_meta),
        }
        for kind in kinds
    ]


@each_era
async def test_a_call_reaches_the_session_under_its_own_name_and_its_reply_comes_back_as_text(mode: str):
    calls = RecordingCalls(reply="line 1\nline 2 \ud800é")
    async with McpHost() as host, Client(await host.admit("ses_1", calls), mode=mode) as client:
        result = await client.call_tool("workspace_read", {"path": "a"})
    assert said(result) == ("line 1\nline 2 ?é", False)
    assert result.structured_content is None
    assert calls.asked == [("ses_1", "workspace.read", {"path": "a"}, None)]


@pytest.mark.parametrize(
    ("reply", "text"), [({"a": [1, "é"]}, '{"a":[1,"é"]}'), (None, "null"), (True, "true")]
)
async def test_a_reply_that_is_no_text_is_written_as_json(reply: Any, text: str):
    async with McpHost() as host, Client(await host.admit("s", RecordingCalls(reply=reply))) as client:
        assert said(await client.call_tool("workspace_read", {})) == (text, False)


async def test_a_tool_describes_itself_and_its_result_where_it_can():
    output = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
    notes = ToolAnnotations(title="Count lines", destructive=True, idempotent=True)
    calls = RecordingCalls(
        reply={"lines": 3}, offered=[spec("test.count", "write", output_schema=output, annotations=notes)]
    )
    async with McpHost() as host, Client(await host.admit("s", calls)) as client:
        (tool,) = (await client.list_tools()).tools
        result = await client.call_tool("test_count", {})
        calls.reply, calls.is_error = "It is a folder.", True
        refused = await client.call_tool("test_count", {})
    assert tool.output_schema == output
    assert tool.annotations is not None
    assert tool.annotations.model_dump() == {
        "title": "Count lines",
        "read_only_hint": False,
        "destructive_hint": True,
        "idempotent_hint": True,
        "open_world_hint": False,
    }
    assert (said(result), result.structured_content) == (('{"lines":3}', False), {"lines": 3})
    assert (said(refused), refused.structured_content) == (("It is a folder.", True), None)


async def test_an_error_reply_is_an_error_of_the_tool_and_not_of_the_protocol():
    calls = RecordingCalls(reply="Denied: ask the user first.", is_error=True)
    async with McpHost() as host, Client(await host.admit("s", calls)) as client:
        result = await client.call_tool("workspace_edit", {})
    assert said(result) == ("Denied: ask the user first.", True)


@pytest.mark.parametrize(
    ("told", "meta", "found"),
    [
        (CLAUDE.mcp, {"claudecode/toolUseId": "toolu_1"}, "toolu_1"),
        (CODEX.mcp, {"callId": "call_1", "itemId": "item_1", "threadId": "t"}, "call_1"),
        (ANY_CLIENT, {"codesdk/toolCallId": "x", "callId": "y"}, "x"),
        (CLAUDE.mcp, {"codesdk/toolCallId": "x", "callId": "y"}, None),
        (CODEX.mcp, {"callId": 7}, None),
        (CODEX.mcp, {"callId": ""}, None),
        (CODEX.mcp, {"other": "x"}, None),
    ],
)
async def test_the_id_that_a_runtime_gave_the_call_is_taken_from_where_it_puts_it(
    told: McpClient, meta: dict[str, Any], found: str | None
):
    calls = RecordingCalls()
    async with (
        McpHost() as host,
        wire(await host.admit("s", calls, told)) as client,
        client.call(1, "workspace_read", **meta) as answer,
    ):
        await answer.aread()
    assert calls.asked == [("s", "workspace.read", {}, found)]


async def test_a_name_that_is_not_offered_reaches_the_session_as_it_is():
    calls = RecordingCalls(reply="There is no tool named nope.", is_error=True)
    async with McpHost() as host, Client(await host.admit("s", calls)) as client:
        assert (await client.call_tool("nope", {})).is_error
    assert calls.asked == [("s", "nope", {}, None)]


async def test_what_a_call_raises_is_an_error_that_a_model_can_read(caplog: pytest.LogCaptureFixture):
    async with McpHost() as host:
        conflict = await host.admit("s", RecordingCalls(reply=Conflict("No task runs in this session.")))
        bug = await host.admit("s", RecordingCalls(reply=ValueError("secret detail")))
        async with Client(conflict) as client:
            result = await client.call_tool("workspace_read", {})
            assert said(result) == ("No task runs in this session.", True)
        async with Client(bug) as client:
            result = await client.call_tool("workspace_read", {})
    assert said(result) == ("The call of workspace_read failed unexpectedly (ValueError).", True)
    assert [record.levelno for record in caplog.records if "over MCP failed" in record.message] == [
        logging.ERROR
    ]


@each_era
async def test_a_session_that_is_no_longer_there_is_an_error_of_the_protocol(mode: str):
    class Nobody(RecordingCalls):
        def specs(self, session_id: str) -> Any:
            raise NotFound("There is no session ses_1.")

    async with McpHost() as host, Client(await host.admit("ses_1", Nobody()), mode=mode) as client:
        with pytest.raises(MCPError, match="There is no session ses_1"):
            await client.list_tools()


async def test_calls_of_one_client_run_at_the_same_time():
    calls = HeldCalls()
    async with McpHost() as host, Client(await host.admit("s", calls), mode="legacy") as client:
        running = [asyncio.create_task(client.call_tool("workspace_read", {})) for _ in range(4)]
        for _ in running:
            await within(calls.entered.acquire())
        calls.let_go.set()
        assert [result.is_error for result in await within(asyncio.gather(*running))] == [False] * 4


async def test_only_the_token_opens_the_door():
    async with McpHost() as host, httpx2.AsyncClient() as http:
        url = await host.admit("s", RecordingCalls())
        dismissed = await host.admit("s", RecordingCalls())
        await host.dismiss(dismissed)
        wrong = [
            dismissed,
            f"{host.url}/mcp",
            f"{host.url}/m/wrong/mcp",
            f"{host.url}/m//mcp",
            host.url,
            url[:-4],
        ]
        for address in wrong:
            answer = await http.post(address, json=request(0, "initialize", HELLO), headers=HEADERS)
            assert answer.status_code == 401, address
            assert "no session behind this address" in answer.json()["error"]["message"]
        assert host.refused == len(wrong)
        assert (await Wire(url, http).hello()).status_code == 200


async def test_the_token_may_come_as_a_bearer_so_that_no_address_shows_it():
    async with McpHost() as host, httpx2.AsyncClient() as http:
        token = bearer(await host.admit("s", RecordingCalls()))
        by_header = Wire(f"{host.url}/mcp", http, HEADERS | {"authorization": f"Bearer {token}"})
        assert (await by_header.hello()).status_code == 200
        assert len((await by_header.ask(1, "tools/list"))["result"]["tools"]) == 2
        for given in (f"Basic {token}", token, "Bearer wrong", ""):
            headers = HEADERS | {"authorization": given}
            assert (await Wire(f"{host.url}/mcp", http, headers).hello()).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"host": "127.0.0.1"},
        {"origin": "http://evil.example"},
        {"origin": "https://127.0.0.1:PORT"},
        {"origin": "null"},
    ],
)
@pytest.mark.slow
async def test_a_web_page_cannot_reach_it_under_another_name(headers: dict[str, str]):
    async with McpHost() as host, httpx2.AsyncClient() as http:
        url = await host.admit("s", RecordingCalls())
        port = host.url.rpartition(":")[2]
        given = {name: value.replace("PORT", port) for name, value in headers.items()}
        assert (await Wire(url, http, HEADERS | given).hello()).status_code == 403
        own = {"host": f"localhost:{port}", "origin": f"http://localhost:{port}"}
        assert (await Wire(url, http, HEADERS | own).hello()).status_code == 200


async def test_a_body_over_the_limit_is_refused_and_the_client_stays_welcome():
    calls = RecordingCalls()
    async with McpHost(max_body_bytes=10_000) as host, wire(await host.admit("s", calls)) as client:
        async with client.call(1, "workspace_read", {"path": "x" * 1_000_000}) as answer:
            assert answer.status_code == 413
        async with client.call(2, "workspace_read", {"path": "x" * 5_000}) as answer:
            assert answer.status_code == 200
            await answer.aread()
    assert [len(arguments["path"]) for _, _, arguments, _ in calls.asked] == [5_000]


async def test_a_body_of_too_many_values_is_refused_and_the_client_stays_welcome():
    async with McpHost() as host, wire(await host.admit("s", RecordingCalls())) as client:
        body = b"[" + b"[]," * 600_000 + b"[]]"
        answer = await client.http.post(client.url, content=body, headers=client.headers)
        assert (answer.status_code, "1,000,000 JSON values" in answer.text) == (413, True)
        assert len((await client.ask(1, "tools/list"))["result"]["tools"]) == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"jsonrpc":"2.0"}', b"\xff", b"[" * 100_000])
@pytest.mark.slow
async def test_nonsense_is_refused_and_harms_nobody(body: bytes):
    async with McpHost() as host, wire(await host.admit("s", RecordingCalls())) as client:
        answer = await client.http.post(client.url, content=body, headers=client.headers)
        assert answer.status_code == 400
        assert len((await client.ask(1, "tools/list"))["result"]["tools"]) == 2


async def test_one_session_does_not_know_the_clients_of_another():
    async with McpHost() as host:
        ours, theirs = await host.admit("a", RecordingCalls()), await host.admit("b", RecordingCalls())
        async with wire(ours) as client:
            client.url = theirs
            answer = await client.http.post(theirs, json=request(1, "tools/list", {}), headers=client.headers)
            assert answer.status_code == 404


async def test_the_headers_of_an_answer_are_there_while_the_call_still_waits():
    calls = HeldCalls()
    async with (
        McpHost() as host,
        wire(await host.admit("s", calls)) as client,
        client.call(1, "workspace_read") as answer,
    ):
        await within(calls.entered.acquire())
        assert (answer.status_code, answer.headers["content-type"]) == (
            200,
            "text/event-stream",
        )
        calls.let_go.set()
        assert (await next_message(answer.aiter_lines()))["result"]["content"] == [
            {"type": "text", "text": "done"}
        ]


@each_era
async def test_a_client_that_asked_for_progress_gets_it_until_the_answer(mode: str):
    calls = HeldCalls()
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        if len(seen) == 3:
            calls.let_go.set()

    async with McpHost(progress_s=0.01) as host, Client(await host.admit("s", calls), mode=mode) as client:
        result = await within(client.call_tool("workspace_read", {}, progress_callback=on_progress))
    assert said(result) == ("done", False)
    assert len(seen) >= 3
    assert sorted(set(seen)) == seen


async def test_a_stream_is_kept_alive_for_a_client_that_did_not_ask_for_progress(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.01)
    calls = HeldCalls()
    async with (
        McpHost(progress_s=0.01) as host,
        wire(await host.admit("s", calls)) as client,
        client.call(1, "workspace_read") as answer,
    ):
        lines = answer.aiter_lines()
        comments = 0
        while comments < 3:
            line = await within(anext(lines))
            assert not line.startswith("data")
            comments += line.startswith(":")
        calls.let_go.set()
        assert (await next_message(lines))["id"] == 1


@pytest.mark.slow
@each_era
async def test_a_client_that_cancels_cancels_the_tool(mode: str):
    calls = HeldCalls()
    async with McpHost() as host, Client(await host.admit("s", calls), mode=mode) as client:
        call = asyncio.create_task(client.call_tool("workspace_read", {}))
        await within(calls.entered.acquire())
        call.cancel()
        await within(calls.cancelled.acquire())
        assert len((await client.list_tools()).tools) == 2


async def test_a_cancelled_call_is_answered_so_that_its_stream_ends():
    calls = HeldCalls()
    async with McpHost() as host, wire(await host.admit("s", calls)) as client:
        async with client.call(7, "workspace_read") as answer:
            await within(calls.entered.acquire())
            await client.notify("notifications/cancelled", {"requestId": 7, "reason": "enough"})
            message = await within(next_message(answer.aiter_lines()))
        await within(calls.cancelled.acquire())
    assert (message["id"], message["error"]["message"]) == (7, "Request cancelled")
    assert calls.asked == []


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_a_client_that_hangs_up_cancels_the_tool(version: str):
    calls = HeldCalls()
    async with McpHost() as host, wire(await host.admit("s", calls)) as client:
        if version == "2026-07-28":
            client.headers = HEADERS | {"mcp-protocol-version": version}
            client.headers |= {"mcp-method": "tools/call", "mcp-name": "workspace_read"}
        meta = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        async with httpx2.AsyncClient(timeout=60) as http:
            leaving = Wire(client.url, http, client.headers)

            async def ask() -> None:
                async with leaving.call(
                    1, "workspace_read", **(meta if version == "2026-07-28" else {})
                ) as answer:
                    await answer.aread()

            asking = asyncio.create_task(ask())
            await within(calls.entered.acquire())
            asking.cancel()
        await within(calls.cancelled.acquire())


async def test_a_client_that_is_killed_cancels_the_tool():
    calls = HeldCalls()
    program = (
        "import asyncio, sys\nfrom mcp.client.client import Client\n"
        "async def main():\n"
        "    async with Client(sys.argv[1], mode='legacy') as client:\n"
        "        await client.call_tool('workspace_read', {})\n"
        "asyncio.run(main())\n"
    )
    async with McpHost() as host:
        url = await host.admit("s", calls)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url)
        try:
            await within(calls.entered.acquire())
        finally:
            child.kill()
            await child.wait()
        await within(calls.cancelled.acquire())


async def test_a_client_that_ends_its_session_cancels_its_tools():
    calls = HeldCalls()
    async with (
        McpHost() as host,
        wire(await host.admit("s", calls)) as client,
        client.call(1, "workspace_read"),
    ):
        await within(calls.entered.acquire())
        await client.http.delete(client.url, headers=client.headers)
        await within(calls.cancelled.acquire())


@pytest.mark.parametrize("end", ["dismiss", "close"])
async def test_whoever_takes_the_token_back_ends_streams_and_calls(end: str):
    calls = HeldCalls()
    host = McpHost()
    url = await host.admit("s", calls)
    async with wire(url) as client, client.call(1, "workspace_read") as answer:
        await within(calls.entered.acquire())
        async with client.http.stream("GET", url, headers=client.headers) as listening:
            await within(host.dismiss(url) if end == "dismiss" else host.close())
            assert calls.cancelled._value == 1  # by the time it returns
            await within(answer.aread())
            await within(listening.aread())
    await host.close()


@pytest.mark.slow
async def test_clients_that_come_and_go_leave_nothing_behind():
    async with McpHost() as host:
        url = await host.admit("s", RecordingCalls())
        async with Client(url, mode="legacy") as client:
            await client.list_tools()
        before = len(asyncio.all_tasks())
        for _ in range(10):
            async with Client(url, mode="legacy") as client:
                await client.call_tool("workspace_read", {})
        await within(_settled(before))
        for _ in range(10):  # these do not say goodbye
            async with wire(url) as rude:
                assert len((await rude.ask(1, "tools/list"))["result"]["tools"]) == 2
        await host.dismiss(url)
        await within(_settled(before))


async def _settled(tasks: int) -> None:
    """Wait until there are no more tasks than before."""
    while len(asyncio.all_tasks()) > tasks + 1:  # noqa: ASYNC110 - a task's end is no event; one more is this one
        await asyncio.sleep(0.01)


async def test_a_host_that_was_closed_can_be_used_again_and_one_that_never_served_can_be_closed():
    host = McpHost()
    await host.close()
    for _ in range(2):
        async with Client(await host.admit("s", RecordingCalls())) as client:
            assert len((await client.list_tools()).tools) == 2
        await host.close()


async def test_a_runtime_in_this_process_is_a_client_without_a_socket():
    calls = RecordingCalls()
    async with in_memory("ses_1", calls) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "workspace_read",
            "workspace_edit",
        ]
        result = await client.call_tool("workspace_read", {"path": "a"}, meta={"codesdk/toolCallId": "c1"})
    assert said(result) == ("done", False)
    assert calls.asked == [("ses_1", "workspace.read", {"path": "a"}, "c1")]


async def test_a_client_in_this_process_cancels_and_leaves_like_any_other():
    calls = HeldCalls()
    async with in_memory("s", calls) as client:
        call = asyncio.create_task(client.call_tool("workspace_read", {}))
        await within(calls.entered.acquire())
        call.cancel()
        await within(calls.cancelled.acquire())
        assert len((await client.list_tools()).tools) == 2


def test_the_library_is_imported_at_the_first_admission_and_not_by_the_thread_of_the_loop():
    program = (
        "import asyncio, sys, threading\n"
        "from codesdk.tools.mcp.host import McpHost\n"
        "class Watch:\n"
        "    seen = []\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('mcp', 'uvicorn'):\n"
        "            self.seen.append((name, threading.current_thread() is threading.main_thread()))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "async def main():\n"
        "    async with McpHost() as host:\n"
        "        assert not Watch.seen\n"
        "        await host.admit('s', None)\n"
        "asyncio.run(main())\n"
        "print(sorted(Watch.seen))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('mcp', False), ('uvicorn', False)]"
