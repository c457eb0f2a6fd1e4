"""Secrets through every entrance of the daemon, then a search through everything that comes out of it.

A known value (a session's `secrets`, a provider's key, what MCP servers are given, a token) and anything that looks
like a key must be nowhere: not in an answer, a log, a metric, the audit, a bundle, or any file of the data directory.
Three places hold what a user has, as it is: the workspace, `undo/`, which keeps files byte for byte as they
were before a tool changed them, and `equipment/`, where sessions' secrets are sealed; both for the owner only.
"""

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.daemon.canaries import (
    ALL,
    KNOWN,
    LATER,
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

READS = {
    "turns": [
        {
            "steps": [
                {"text": f"I say {ALL}."},
                {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}}},
                {"call": {"tool": "workspace.read", "input": {"path": f"{KNOWN}.txt"}}},
                {"call": {"tool": "workspace.write", "input": {"path": "out.txt", "content": ALL}}},
            ]
        },
        {
            "steps": [
                {
                    "text": [
                        "It says canary-of-",
                        "the-session-7f3a and sk-ant-api",
                        "03-canary0123456789abcdef",
                    ]
                }
            ]
        },
    ],
    "loop": True,
}


def test_no_secret_comes_out_anywhere(tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text(f"{ALL}\n{LATER}\n")
    token, _ = TokenFile(tmp_path / "data").add("someone", ["admin"])
    env = {**os.environ, **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), PROVIDER)}
    with (
        (tmp_path / "stderr").open("wb") as stderr,
        daemon(tmp_path / "data", env=env, stderr=stderr) as running,
    ):
        spy = Spy(running, token)
        session = _work(spy, str(work))
        _knock(spy, session)
        collect(spy, session)
        running.stop()
        rest = running.process.stdout.read() if running.process.stdout else ""
    found = dict(spy.answers) | {"stdout": rest.encode(), "stderr": (tmp_path / "stderr").read_bytes()}
    found |= dict(files(tmp_path / "data"))
    assert leaks(found, [*PATTERNS.values(), KNOWN, LATER, PROVIDER, SERVER, PASSWORD, token]) == []
    assert len(spy.answers) > 60
    assert any("codesdk.db" in name for name in found)


def _work(spy: Spy, work: str) -> str:
    """Use a session with secrets in every text that it takes."""
    body = {
        "runtime": "scripted",
        "workspace": work,
        "title": f"Title {ALL}",
        "model": f"model-{PATTERNS['token']}",
        "secrets": [KNOWN],
        "settings": {"runtime_config": {"script": READS | {"name": ALL}}},
    }
    made = spy.post("/v1/sessions", body, **{"idempotency-key": KNOWN})
    assert made.status_code == 201, made.text
    unknown = body | {"settings": {"runtime_config": {"note": ALL, ALL: ALL}}}
    assert spy.post("/v1/sessions", unknown).status_code == 400
    session = made.json()["session_id"]
    path = f"/v1/sessions/{session}"
    spy.post(f"{path}/equipment", {"secrets": [LATER]}, **{"idempotency-key": LATER})
    task = spy.post(f"{path}/tasks", {"message": f"Here: {ALL}"}, **{"idempotency-key": KNOWN}).json()[
        "task_id"
    ]
    spy.follow(session, {"approval.requested"})
    call = spy.running.get(f"{path}/approvals")["approvals"][0]["tool_call_id"]
    spy.post(f"{path}/calls/{call}/approve", {"input_hash": KNOWN, "reason": ALL})
    spy.post(f"{path}/steer", {"message": ALL, "task_id": task})
    spy.post(
        f"{path}/calls/{call}/approve", {"reason": ALL, "scope": "session"}, **{"idempotency-key": PROVIDER}
    )
    spy.follow(session, TERMINAL)
    spy.post(f"{path}/undo", {"tool_call_id": KNOWN})
    spy.post(f"{path}/resume", {"message": ALL})
    spy.post(f"{path}/tasks", {"message": f"Again {LATER}", "task_id": f"task_{KNOWN}"})
    fork = spy.post(f"{path}/fork", {"title": ALL}, **{"idempotency-key": KNOWN}).json()["session_id"]
    stopped = spy.post(f"/v1/sessions/{fork}/tasks", {"message": ALL}).json()["task_id"]
    spy.post(f"/v1/sessions/{fork}/stop", {"reason": ALL, "task_id": stopped})
    spy.post(f"/v1/sessions/{fork}/close", {"reason": ALL})
    return session


def _knock(spy: Spy, session: str) -> None:
    """Put secrets where none belong."""
    http, path = spy.running.http, f"/v1/sessions/{session}"
    servers = {
        "far": {
            "type": "http",
            "url": f"http://me:{PASSWORD}@127.0.0.1:9/{SERVER}",
            "headers": {"Authorization": f"Bearer {SERVER}", "X-Key": SERVER},
        },
        "near": {"type": "stdio", "command": "/bin/false", "args": ["x"], "env": {"KEY": SERVER}},
    }
    for name, server in servers.items():
        body = {"runtime": "scripted", "workspace": "/", "title": SERVER, "mcp_servers": {name: server}}
        spy.post("/v1/sessions", body)
        spy.post(f"{path}/equipment", {"mcp_servers": {name: server}, "script": {"turns": ALL}})
    for word in [KNOWN, PROVIDER, *PATTERNS.values()]:
        escaped = quote(word)
        for place in (
            f"/v1/sessions/{escaped}",
            f"{path}/calls/{escaped}/approve",
            f"/v1/tasks/{escaped}",
            f"/v1/artifacts/{escaped}/content",
            f"/v1/runtimes/{escaped}/auth",
            f"/{escaped}",
            f"{path}/events?types={escaped}",
            f"{path}/events?{escaped}=1",
            f"/v1/sessions?after={escaped}&status={escaped}",
            f"{path}/artifacts?after={escaped}",
        ):
            http.get(place, headers={"x-request-id": word[:64]})
        http.post(f"{path}/calls/{escaped}/approve", json={})
        http.delete(f"{path}/grants/{escaped}")
        http.post(f"/v1/artifacts?name={escaped}", content=ALL.encode())
        http.post("/v1/artifacts", content=b"\xff\0" + KNOWN.encode() + PROVIDER.encode())
        http.post("/v1/artifacts", content=b"x", headers={"content-type": f"text/{word[:40]}"})
        for name in ("last-event-id", "range", "if-none-match", "accept", "user-agent", "host", "origin"):
            http.get(f"{path}/events?stream=page", headers={name: word})
        http.get("/v1/whoami", headers={"authorization": f"Bearer {word}"})
        spy.post("/v1/sessions", {"runtime": word, "workspace": f"/{word}"})
        spy.post(
            "/v1/sessions", {"runtime": "scripted", "workspace": f"/{word}", word: 1, "permission_mode": word}
        )
        spy.post(
            f"{path}/tasks", {"message": [{"role": "user", "content": [{"type": word}]}], "on_busy": word}
        )


@pytest.mark.parametrize("name", ["undo", "equipment", "lock", "tokens.json", "codesdk.db", "blobs"])
def test_what_is_stored_is_for_its_owner_only(tmp_path: Path, name: str):
    TokenFile(tmp_path / "data").add("someone", ["admin"])
    with daemon(tmp_path / "data") as running:
        place = running.data_dir / name
        shut = not running.data_dir.stat().st_mode & 0o077
        assert shut or not place.exists() or not place.stat().st_mode & 0o077
