"""Secrets that an attached MCP server tells, in everything it can say, then a search through all that comes out."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.canaries import (
    ALL,
    KNOWN,
    PASSWORD,
    PATTERNS,
    PROVIDER,
    SERVER,
    Spy,
    collect,
    files,
    leaks,
)
from tests.daemon.rig import TERMINAL, daemon

from codesdk.local.tokens import TokenFile

PROGRAM = str(Path(__file__).with_name("leaky_server.py"))
NAME = PATTERNS["token"]
TOOLS = ["say", "data", "fail", "refuse", "steps", "given"]
DONE = {"steps": [{"text": "Done."}]}


@contextmanager
def listening(words: Path) -> Iterator[dict[str, Any]]:
    """Run the server on a port, and yield how it is reached."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, PROGRAM, str(words), str(port)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            with socket.socket() as knocking:
                if knocking.connect_ex(("127.0.0.1", port)) == 0:
                    break
        headers = {"Authorization": f"Bearer {SERVER}", "X-Key": SERVER}
        yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "headers": headers}
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_no_secret_that_an_attached_server_tells_comes_out_anywhere(tmp_path: Path, transport: str):
    (tmp_path / "work").mkdir()
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"all": f"{ALL} {SERVER}", "name": NAME}))
    token, _ = TokenFile(tmp_path / "data").add("someone", ["admin"])
    near = {"type": "stdio", "command": sys.executable, "args": [PROGRAM, str(words)], "env": {"KEY": SERVER}}
    with (
        listening(words) as far,
        (tmp_path / "stderr").open("wb") as stderr,
        daemon(tmp_path / "data", env={**os.environ, "OPENAI_API_KEY": PROVIDER}, stderr=stderr) as running,
    ):
        spy = Spy(running, token)
        session = _call_all(spy, str(tmp_path / "work"), near if transport == "stdio" else far)
        dead = {**near, "env": {"KEY": SERVER, "DIE": "1"}}
        refused = spy.post("/v1/sessions", _body(str(tmp_path / "work"), dead, []))
        assert "The MCP server out cannot be used" in refused.json()["detail"]
        collect(spy, session)
        running.stop()
        rest = running.process.stdout.read() if running.process.stdout else ""
    found = dict(spy.answers) | {"stdout": rest.encode(), "stderr": (tmp_path / "stderr").read_bytes()}
    found |= dict(files(tmp_path / "data"))
    assert leaks(found, [*PATTERNS.values(), KNOWN, PROVIDER, SERVER, PASSWORD, token]) == []


def _body(work: str, server: dict[str, Any], turns: list[Any]) -> dict[str, Any]:
    return {
        "runtime": "scripted",
        "workspace": work,
        "secrets": [KNOWN],
        "mcp_servers": {"out": server},
        "settings": {"runtime_config": {"script": {"turns": turns, "loop": True}}},
    }


def _call_all(spy: Spy, work: str, server: dict[str, Any]) -> str:
    """Call every tool of the server; each must have answered, or nothing would have been told.

    One has a secret for a name. It cannot be called: what is on record is not its name.
    """
    calls = [{"call": {"tool": f"mcp.out.{name}", "input": {"text": "x"}}} for name in [*TOOLS, NAME]]
    made = spy.post("/v1/sessions", _body(work, server, [{"steps": calls}, DONE]))
    assert made.status_code == 201, made.text
    session = made.json()["session_id"]
    spy.post(f"/v1/sessions/{session}/tasks", {"message": "Call them."})
    assert spy.follow(session, TERMINAL)["type"] == "task.completed"
    events = spy.running.get(f"/v1/sessions/{session}/events", limit=1000)["events"]
    ended = [e["payload"] for e in events if e["type"] == "tool.call.completed"]
    assert [call["name"] for call in ended] == [f"mcp.out.{name}" for name in TOOLS]
    denied = [e["payload"]["name"] for e in events if e["type"] == "tool.call.denied"]
    assert denied == ["mcp.out.[redacted]"]
    for call in ended:
        assert "[redacted]" in json.dumps(call) or call["name"] == "mcp.out.steps", call
    assert [e["payload"]["delta"] for e in events if e["type"] == "tool.output.delta"]
    return session
