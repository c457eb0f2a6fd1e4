"""What a server over stdio may write, and that nothing of it is left."""

import asyncio
import sys
from pathlib import Path

import pytest

from codesdk.tools.mcp import transport
from codesdk.tools.mcp.transport import Tail, connect
from codesdk.tools.mcp_client.servers import StdioServer


def server(script: str) -> StdioServer:
    return StdioServer(command=sys.executable, args=("-c", script))


async def heard(script: str) -> list[str]:
    """Return what is heard of a server until its connection ends."""
    ended = asyncio.Event()
    async with asyncio.timeout(60), connect(server(script), Tail(), ended) as (reading, _):
        kinds = [type(message).__name__ async for message in reading]
        assert ended.is_set()
    return kinds


async def test_a_line_without_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 1_000_000)
    assert await heard("while True: print(end='x' * 65536, flush=True)") == []


async def test_messages_are_heard_until_a_line_is_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 100_000)
    line = '{"jsonrpc": "2.0", "method": "notifications/x"}'
    assert await heard(f"print({line!r}); print('no JSON'); print('x' * 100_001, flush=True); input()") == [
        "SessionMessage",
        "ValidationError",
    ]


async def test_messages_are_heard_until_a_line_has_too_many_values():
    line = '{"jsonrpc": "2.0", "method": "notifications/x"}'
    crowd = "'[' + '[],' * 600_000 + '[]]'"
    assert await heard(f"print({line!r}); print({crowd}, flush=True); input()") == ["SessionMessage"]


async def test_what_a_server_started_ends_with_it(tmp_path: Path):
    script = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '3600']);"
        f" open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))"
    )
    async with asyncio.timeout(60), connect(server(f"{script}; sys.stdin.read()"), Tail(), asyncio.Event()):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
    child = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    async with asyncio.timeout(20):
        while _runs(child):  # noqa: ASYNC110 - of the system
            await asyncio.sleep(0.01)


def _runs(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
