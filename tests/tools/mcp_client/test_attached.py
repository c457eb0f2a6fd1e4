"""MCP servers that are attached: their tools as owned tools, and what becomes of a call whose server fails, dies or changes."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tools.calling import ready, where
from tests.tools.mcp.tool_calls import HeldCalls, RecordingCalls, spec, within

from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.ports import ToolInvocation, ToolRun
from codesdk.contract.tools import SandboxSummary, Subjects, ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.processes import GUARD_NAME, own_guard
from codesdk.testing.processes import command_line
from codesdk.tools import builtin_registry
from codesdk.tools.mcp.host import McpHost, bearer
from codesdk.tools.mcp_client.attached import AttachedTools
from codesdk.tools.mcp_client.servers import HttpServer, McpServer, StdioServer, secrets_of
from codesdk.tools.registry import ToolRegistry

OUTSIDE = str(Path(__file__).with_name("outside.py"))
PROGRAM = StdioServer(command=sys.executable, args=(OUTSIDE,))
MUTE = StdioServer(command="sleep", args=("1000",))


def silent(stream: str, text: str) -> None:
    """Take output and forget it."""


async def run(tools: AttachedTools, name: str, output: Any = silent, **arguments: Any) -> ToolRun:
    call = ToolInvocation(
        session_id="ses_1",
        task_id=None,
        tool_call_id="tc_1",
        attempt=1,
        name=name,
        input=arguments,
        workspace=Workspace("/"),
    )
    prepared = tools.prepare(name, arguments)
    if isinstance(prepared, str):
        return ToolRun(result=prepared, is_error=True)
    return await within(prepared.run(call, output))


@asynccontextmanager
async def attached(**servers: McpServer) -> AsyncIterator[AttachedTools]:
    async with AttachedTools(servers, builtin_registry()) as tools:
        yield tools


async def until(condition: Callable[[], bool]) -> None:
    """Wait for another process to get there."""
    while not condition():  # noqa: ASYNC110 - it has no event for us
        await asyncio.sleep(0.01)


async def test_tools_of_a_server_are_owned_tools_besides_the_others_and_dangerous_by_default(
    caplog: pytest.LogCaptureFixture,
):
    server = msgspec.structs.replace(PROGRAM, tool_classes={"echo": "read_only"})
    async with attached(out=server) as tools:
        found = {spec.name: spec for spec in tools.specs()}
        base = [spec.name for spec in builtin_registry().specs()]
        assert list(found) == [
            *base,
            "mcp.out.echo",
            "mcp.out.echo_twice",
            "mcp.out.env",
            "mcp.out.fail",
            "mcp.out.die",
            "mcp.out.hold",
            "mcp.out.grow",
            "mcp.out.mixed",
            "mcp.out.data",
            "mcp.out.steps",
        ]
        kinds = {name: tool.tool_class for name, tool in found.items() if name.startswith("mcp.")}
        assert kinds.pop("mcp.out.echo") == "read_only"
        assert set(kinds.values()) == {"dangerous"}
        assert found["mcp.out.echo"].description == "Outside echo."
        assert found["mcp.out.fail"].description == "The tool fail of the MCP server out."
        assert where(tools, "mcp.out.echo", {"text": "a"}) == (
            "codesdk_host",
            SandboxSummary(network=True, timeout_ms=300_000),
        )
        read = ("workspace.read", {"path": "a"})
        assert where(tools, *read) == where(builtin_registry(), *read)
    logged = [
        record.getMessage() for record in caplog.records if record.name == "codesdk.tools.mcp_client.attached"
    ]
    assert logged == ["A tool of the MCP server out is left out."]
    assert ["mcp.out.fetches_its_schema" in words for words in tools.left_out] == [True]


async def test_a_call_goes_to_the_server_under_the_name_that_it_gave():
    async with attached(out=PROGRAM) as tools:
        assert await run(tools, "mcp.out.echo", text="hällo") == ToolRun(result="hällo")
        assert await run(tools, "mcp.out.echo_twice", text="a") == ToolRun(result="a\na")
        assert await run(tools, "mcp.out.fail") == ToolRun(result="It did not work.", is_error=True)
        assert await run(tools, "mcp.out.data") == ToolRun(result='{"n":1}')


async def test_what_is_no_text_is_named():
    async with attached(out=PROGRAM) as tools:
        result = await run(tools, "mcp.out.mixed")
    assert result.result == "a text\n(image/png, 6 bytes: not text)\nfrom a resource\n(more: file:///more)"


async def test_an_input_is_checked_here_before_the_server_sees_it():
    async with attached(out=PROGRAM) as tools:
        assert ready(tools, "mcp.out.echo", {"text": "a"}).subjects == Subjects()
        problem = tools.prepare("mcp.out.echo", {})
        assert isinstance(problem, str)
        assert problem.startswith(
            "The input of mcp.out.echo is not valid. The required field text is missing."
        )
        assert await run(tools, "mcp.out.echo", text=1) == ToolRun(
            result=tools.prepare("mcp.out.echo", {"text": 1}), is_error=True
        )
        assert "There is no tool named mcp.out.nope" in str(tools.prepare("mcp.out.nope", {}))


async def test_the_other_tools_are_still_there(tmp_path: Path):
    (tmp_path / "a.txt").write_text("hello\n")
    async with attached(out=PROGRAM) as tools:
        call = ToolInvocation(
            session_id="s",
            task_id=None,
            tool_call_id="t",
            attempt=1,
            name="workspace.read",
            input={"path": "a.txt"},
            workspace=Workspace(str(tmp_path)),
        )
        read = ready(tools, "workspace.read", {"path": "a.txt"})
        assert (await read.run(call, silent)).result == "     1\thello"
        ours = ready(builtin_registry(), "workspace.read", {"path": "a.txt"})
        assert read.subjects == ours.subjects


async def test_a_program_gets_a_plain_path_and_what_it_was_given_and_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("HOME", "USER", "TERM", "SHELL", "LOGNAME", "API_KEY_OF_OURS"):
        monkeypatch.setenv(name, "ours")
    server = msgspec.structs.replace(PROGRAM, env={"TERM": "theirs", "TOKEN": "t-1"})
    async with attached(out=server) as tools:
        seen = json.loads((await run(tools, "mcp.out.env")).result)
    seen.pop("LC_CTYPE", None)  # Python sets it for itself
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "theirs", "TOKEN": "t-1"}
    assert seen == {**given, **own_guard().variables}


async def test_progress_of_the_server_is_output_of_the_call():
    said: list[tuple[str, str]] = []
    async with attached(out=PROGRAM) as tools:
        result = await run(tools, "mcp.out.steps", lambda stream, text: said.append((stream, text)))
        assert result == ToolRun(result="done")
        await within(until(lambda: bool(said)))
    assert said == [("progress", "1 of 2: half\n")]


async def test_cancelling_a_call_cancels_it_at_the_server(tmp_path: Path):
    mark = tmp_path / "mark"
    async with attached(out=PROGRAM) as tools:
        call = asyncio.create_task(run(tools, "mcp.out.hold", mark=str(mark)))
        await within(until(mark.exists))
        call.cancel()
        await within(until(lambda: mark.read_text() == "cancelled"))
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await run(tools, "mcp.out.echo", text="still there") == ToolRun(result="still there")


async def test_a_call_that_takes_too_long_is_an_error_and_cancelled_at_the_server(tmp_path: Path):
    mark = tmp_path / "mark"
    async with attached(out=msgspec.structs.replace(PROGRAM, timeout_s=1)) as tools:
        result = await run(tools, "mcp.out.hold", mark=str(mark))
        assert result == ToolRun(
            result="The MCP server out did not answer within 1 s; the call was cancelled.", is_error=True
        )
        await within(until(lambda: mark.read_text() == "cancelled"))


async def test_a_server_that_dies_is_an_error_of_the_call_and_comes_back_with_the_next():
    async with attached(out=PROGRAM) as tools:
        died = await run(tools, "mcp.out.die")
        assert died.is_error
        assert died.result.startswith("The MCP server out ended while it worked on this call.")
        assert await run(tools, "mcp.out.echo", text="back") == ToolRun(result="back")


async def test_a_server_that_died_between_two_calls_is_started_again_for_the_next():
    async with attached(out=PROGRAM) as tools:
        assert await run(tools, "mcp.out.echo", text="a") == ToolRun(result="a")
        (first,) = children()
        os.kill(first, signal.SIGKILL)
        await within(until(lambda: not children()))
        result = await run(tools, "mcp.out.echo", text="b")
        if result.is_error:  # the pipe told us of its end a moment later than the process list
            result = await run(tools, "mcp.out.echo", text="b")
        assert result == ToolRun(result="b")
        assert children() != [first]


async def test_one_who_gives_up_the_start_leaves_no_program_behind():
    tools = AttachedTools({"good": PROGRAM, "mute": MUTE}, builtin_registry())
    starting = asyncio.create_task(tools.start())
    await within(until(lambda: len(children()) == 1 and len(children("sleep")) == 1))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(starting)
    assert not children()
    assert not children("sleep")


async def test_a_server_that_cannot_come_back_is_an_error_of_each_call(tmp_path: Path):
    program = tmp_path / "outside.py"
    shutil.copy(OUTSIDE, program)
    async with attached(out=StdioServer(command=sys.executable, args=(str(program),))) as tools:
        program.write_text("import sys; sys.exit('no more, says token-1')")
        assert (await run(tools, "mcp.out.die")).is_error
        for _ in range(2):
            result = await run(tools, "mcp.out.echo", text="?")
            assert result == ToolRun(
                result="The MCP server out cannot be used: it ended. It wrote: no more, says token-1",
                is_error=True,
            )


@pytest.mark.parametrize("env", [{}, {"OLD": "1"}])
async def test_a_changed_list_is_noticed(env: dict[str, str]):
    async with attached(out=msgspec.structs.replace(PROGRAM, env=env)) as tools:
        assert "mcp.out.new" not in [spec.name for spec in tools.specs()]
        assert await run(tools, "mcp.out.grow") == ToolRun(result="grown")
        await within(until(lambda: "mcp.out.new" in [spec.name for spec in tools.specs()]))
        assert await run(tools, "mcp.out.new", text="a") == ToolRun(result="new: {'text': 'a'}")


async def test_a_server_over_http_gets_the_headers_and_its_host_is_known_to_the_policy():
    calls = RecordingCalls(offered=[spec("notes.find")], reply={"found": 1})
    async with McpHost() as host:
        token = bearer(await host.admit("theirs", calls))
        server = HttpServer(url=f"{host.url}/mcp", headers={"Authorization": f"Bearer {token}"})
        async with attached(notes=server) as tools:
            assert await run(tools, "mcp.notes.notes_find", path="a") == ToolRun(result='{"found":1}')
            find = ready(tools, "mcp.notes.notes_find", {"path": "a"})
            assert find.subjects == Subjects(hosts=["127.0.0.1"])
            assert find.execution_env == "unknown"
    assert calls.asked == [("theirs", "notes.find", {"path": "a"}, None)]


async def test_cancelling_a_call_over_http_cancels_it_at_the_server():
    calls = HeldCalls(offered=[spec("notes.find")])
    async with McpHost() as host, attached(notes=HttpServer(url=await host.admit("theirs", calls))) as tools:
        call = asyncio.create_task(run(tools, "mcp.notes.notes_find"))
        await within(calls.entered.acquire())
        call.cancel()
        await within(calls.cancelled.acquire())


@asynccontextmanager
async def outside_at(port: int) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(sys.executable, OUTSIDE, str(port))
    try:
        await within(until(lambda: is_open(port)))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_server_over_http_that_was_restarted_is_found_again():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with outside_at(port):
        tools = AttachedTools({"out": HttpServer(url=f"http://127.0.0.1:{port}/mcp")}, builtin_registry())
        await tools.start()
        assert await run(tools, "mcp.out.echo", text="a") == ToolRun(result="a")
        died = await run(tools, "mcp.out.die")
        assert died.is_error
    gone = await run(tools, "mcp.out.echo", text="b")
    assert gone.is_error
    assert gone.result.startswith("The MCP server out cannot be used:")
    assert str(port) not in gone.result
    async with outside_at(port):
        assert await run(tools, "mcp.out.echo", text="c") == ToolRun(result="c")
        await tools.close()


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (StdioServer(command="no-such-program"), "there is no program no-such-program."),
        (
            StdioServer(
                command=sys.executable,
                args=("-c", "import os, sys; sys.exit('bad token ' + os.environ['TOKEN'])"),
                env={"TOKEN": "secret-0123456789"},
            ),
            "it ended. It wrote: bad token [secret]",
        ),
        (
            HttpServer(url="http://127.0.0.1:9/with-a-secret-0123456789"),
            "connecting to it failed (ConnectError).",
        ),
    ],
)
async def test_a_server_that_cannot_be_reached_is_named_at_the_start_and_the_others_are_ended(
    server: McpServer, reason: str
):
    tools = AttachedTools({"good": PROGRAM, "bad": server}, builtin_registry())
    with pytest.raises(CodeSDKError) as caught:
        await within(tools.start())
    assert caught.value.code == "TOOL_FAILED"
    assert caught.value.message.startswith("The MCP server bad cannot be used: ")
    assert caught.value.message.endswith(reason)
    assert "secret-0123456789" not in caught.value.message
    assert not children()


async def test_whatever_goes_wrong_once_they_are_connected_ends_them_all():
    class Broken(ToolRegistry):
        def specs(self) -> list[ToolSpec]:
            raise RuntimeError("no tools today")

    tools = AttachedTools({"one": PROGRAM, "two": PROGRAM}, Broken())
    with pytest.raises(RuntimeError, match="no tools today"):
        await within(tools.start())
    assert not children()


async def test_closing_ends_the_programs():
    async with attached(one=PROGRAM, two=PROGRAM):
        assert len(children()) == 2
    assert not children()


def children(what: str = OUTSIDE) -> list[int]:
    """Return the processes of this one that run an outside server, or something else."""
    mine = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [int(pid) for file in mine for pid in file.read_text().split()]
    lines = {pid: command_line(pid) for pid in pids}
    return [pid for pid, line in lines.items() if what.encode() in line and GUARD_NAME.encode() not in line]


async def test_without_servers_it_is_the_tools_below_and_nothing_is_loaded():
    async with AttachedTools({}, builtin_registry()) as tools:
        assert [spec.name for spec in tools.specs()] == [spec.name for spec in builtin_registry().specs()]


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("", PROGRAM),
        ("a.b", PROGRAM),
        ("ä", PROGRAM),
        ("a", HttpServer(url="ftp://host/")),
        ("a", HttpServer(url="http://")),
        ("a", HttpServer(url="http://host:99999999/")),
        ("a", StdioServer(command="")),
        ("a", StdioServer(command="A=B")),
        ("a", StdioServer(command="x", timeout_s=0)),
        ("a", StdioServer(command="x", timeout_s=1e308)),
        ("a", HttpServer(url="http://host/", timeout_s=float("nan"))),
    ],
)
def test_a_server_that_cannot_work_is_refused_at_once(name: str, server: McpServer):
    with pytest.raises(InvalidRequest):
        AttachedTools({name: server}, builtin_registry())


def test_servers_are_read_from_json_and_do_not_show_their_secrets():
    text = b"""{
        "a": {"type": "stdio", "command": "x", "args": ["y"], "env": {"K": "secret-1", "DEBUG": "1"}, "tool_class": "network"},
        "b": {"type": "http", "url": "https://host/mcp", "headers": {"Authorization": "Bearer secret-2", "X": ""}}
    }"""
    servers = msgspec.json.decode(text, type=dict[str, McpServer])
    assert servers == {
        "a": StdioServer(command="x", args=("y",), env={"K": "secret-1", "DEBUG": "1"}, tool_class="network"),
        "b": HttpServer(url="https://host/mcp", headers={"Authorization": "Bearer secret-2", "X": ""}),
    }
    assert secrets_of(servers) == ["secret-1", "Bearer secret-2", "secret-2"]
    assert "secret" not in f"{servers} {servers!r}"
