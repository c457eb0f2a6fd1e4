"""Secrets through every entrance of the daemon, then a search through everything that comes out of it.

A known value (a session's `secrets`, a provider's key, what MCP servers are given, a token) and anything that looks
like a key must be nowhere: not in an answer, a log, a metric, the audit, a bundle, or any file of the data directory.
Two places hold what a user has, as it is: the workspace, and `undo/`, which keeps files byte for byte as they
were before a tool changed them, for the owner only.
"""

import base64
import gzip
import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from tests.daemon.rig import TERMINAL, Daemon, daemon

from codesdk.store.tokens import TokenFile

KNOWN = "canary-of-the-session-7f3a"
LATER = "canary-given-later-91bc"
PROVIDER = "canary-of-the-provider-55d0"
SERVER = "canary-of-the-mcp-server-0c2e"
PATTERNS = {
    "key": "sk-ant-api03-canary0123456789abcdef",
    "token": "ghp_canary0123456789abcdefghij",
    "cloud": "AKIACANARY0123456789",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjF9.c2lnbmF0dXJlLWNhbmFyeQ",
    "ours": "csdk_canary0123456789abcdefghijklmnopq",
}
PASSWORD = "canary-in-a-url"
ALL = " ".join([KNOWN, PROVIDER, *PATTERNS.values(), f"https://me:{PASSWORD}@example.org/x"])
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


class Spy:
    """A daemon whose every answer is kept."""

    def __init__(self, running: Daemon, token: str) -> None:
        self.running = running
        self.token = token
        self.answers: dict[str, bytes] = {}
        running.http.headers["authorization"] = f"Bearer {token}"
        running.http.event_hooks = {"response": [self._keep]}

    def _keep(self, answer: httpx2.Response) -> None:
        if "event-stream" not in answer.headers.get("content-type", ""):
            what = repr(sorted(answer.headers.items())).encode() + answer.read()
            self.answers[f"{len(self.answers)} {answer.request.method} {answer.url.path[:60]}"] = what

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.running.http.post(path, json=body, headers=headers)

    def follow(self, session: str, kinds: set[str]) -> Any:
        """Stream a session until an event of a kind comes, and keep what was streamed."""
        seen: list[Any] = []
        for event in self.running.stream(session):
            seen.append(event)
            if event["type"] in kinds:
                break
            if event["type"] == "approval.requested":  # again, after what was said in between
                call = event["payload"]["tool_call_id"]
                self.post(f"/v1/sessions/{session}/calls/{call}/approve", {"reason": ALL})
        self.answers[f"{len(self.answers)} stream"] = json.dumps(seen, ensure_ascii=False).encode()
        return seen[-1]


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
        _collect(spy, session)
        running.stop()
        rest = running.process.stdout.read() if running.process.stdout else ""
    found = dict(spy.answers) | {"stdout": rest.encode(), "stderr": (tmp_path / "stderr").read_bytes()}
    found |= dict(_files(tmp_path / "data"))
    assert _leaks(found, [*PATTERNS.values(), KNOWN, LATER, PROVIDER, SERVER, PASSWORD, token]) == []
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
        "settings": {"runtime_config": {"script": READS, "note": ALL}},
    }
    made = spy.post("/v1/sessions", body, **{"idempotency-key": KNOWN})
    assert made.status_code == 201, made.text
    session = made.json()["session_id"]
    path = f"/v1/sessions/{session}"
    spy.post(f"{path}/equipment", {"secrets": [LATER]}, **{"idempotency-key": LATER})
    task = spy.post(f"{path}/tasks", {"message": f"Here: {ALL}"}, **{"idempotency-key": KNOWN}).json()[
        "task_id"
    ]
    spy.follow(session, {"approval.requested"})
    call = spy.running.get(f"{path}/approvals")["approvals"][0]["tool_call_id"]
    spy.post(f"{path}/calls/{call}/approve", {"input_hash": KNOWN, "reason": ALL})
    spy.post(f"/v1/tasks/{task}/steer", {"message": ALL})
    spy.post(
        f"{path}/calls/{call}/approve", {"reason": ALL, "scope": "session"}, **{"idempotency-key": PROVIDER}
    )
    spy.follow(session, TERMINAL)
    spy.post(f"{path}/undo", {"tool_call_id": KNOWN})
    spy.post(f"{path}/resume", {"message": ALL})
    spy.post(f"{path}/tasks", {"message": f"Again {LATER}", "task_id": f"task_{KNOWN}"})
    fork = spy.post(f"{path}/fork", {"title": ALL}, **{"idempotency-key": KNOWN}).json()["session_id"]
    stopped = spy.post(f"/v1/sessions/{fork}/tasks", {"message": ALL}).json()["task_id"]
    spy.post(f"/v1/tasks/{stopped}/stop", {"reason": ALL})
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


def _collect(spy: Spy, session: str) -> None:
    """Ask for everything that there is to read."""
    http = spy.running.http
    for name in (
        "",
        "/events?limit=1000",
        "/transcript",
        "/tasks",
        "/approvals",
        "/grants",
        "/artifacts",
        "/audit",
    ):
        http.get(f"/v1/sessions/{session}{name}")
    for path in (
        "/v1/sessions",
        "/v1/approvals",
        "/v1/usage",
        "/v1/metrics",
        "/v1/audit?limit=1000",
        "/v1/whoami",
    ):
        assert http.get(path).status_code == 200
    for artifact in http.get(f"/v1/sessions/{session}/artifacts").json()["artifacts"]:
        http.get(f"/v1/artifacts/{artifact['artifact_id']}/content")
    for check in ("verify", "replay"):
        assert http.get(f"/v1/sessions/{session}/{check}").json()["findings"] == []
    bundle = http.get(f"/v1/sessions/{session}/support-bundle")
    assert bundle.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(bundle.content)) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            spy.answers[f"bundle {member.name}"] = member.name.encode() + (file.read() if file else b"")


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything in a data directory: names, bytes, what is compressed, and the cells of databases."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        yield f"name {name}", name.encode()
        if not path.is_file() or name.split("/")[0] == "undo":
            continue
        data = path.read_bytes()
        yield f"file {name}", data
        if data[:2] == b"\x1f\x8b":
            yield f"unpacked {name}", gzip.decompress(data)
        if data[:15] == b"SQLite format 3":
            yield from _cells(path, name)


def _cells(path: Path, name: str) -> Iterator[tuple[str, bytes]]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"'):
                cells = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in row]
                yield f"{name} {table} {row[:2]!r}", b"\n".join(cells)
    db.close()


def _leaks(found: dict[str, bytes], words: list[str]) -> list[tuple[str, str]]:
    def forms(word: str) -> list[bytes]:
        inside = base64.b64encode(word.encode())[:-4]
        return [word.encode(), quote(word, safe="").encode(), inside, word.encode("utf-16-le")]

    return [
        (name, word) for name, data in found.items() for word in words if any(f in data for f in forms(word))
    ]


@pytest.mark.parametrize("name", ["undo", "lock", "tokens.json", "codesdk.db", "blobs"])
def test_what_is_stored_is_for_its_owner_only(tmp_path: Path, name: str):
    TokenFile(tmp_path / "data").add("someone", ["admin"])
    with daemon(tmp_path / "data") as running:
        place = running.data_dir / name
        shut = not running.data_dir.stat().st_mode & 0o077
        assert shut or not place.exists() or not place.stat().st_mode & 0o077
