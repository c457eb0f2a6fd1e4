"""Canaries: secrets that are put into a daemon, what comes out of it, and where they may not be. Shared by tests."""

import base64
import gzip
import io
import json
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from tests.daemon.rig import Daemon

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


def collect(spy: Spy, session: str) -> None:
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
        found = http.get(f"/v1/sessions/{session}/{check}").json()["findings"]
        assert found == [], (check, found)
    bundle = http.get(f"/v1/sessions/{session}/support-bundle")
    assert bundle.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(bundle.content)) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            spy.answers[f"bundle {member.name}"] = member.name.encode() + (file.read() if file else b"")


def files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything in a data directory: names, bytes, what is compressed, and the cells of databases."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        yield f"name {name}", name.encode()
        if not path.is_file() or name.split("/")[0] in ("undo", "equipment"):
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # of a program that is at work
            continue
        yield f"file {name}", data
        if data[:2] == b"\x1f\x8b":
            yield f"unpacked {name}", gzip.decompress(data)
        if data[:15] == b"SQLite format 3":
            yield from _cells(path, name)


def _cells(path: Path, name: str) -> Iterator[tuple[str, bytes]]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        db.text_factory = bytes
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{table.decode()}"'):
                cells = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in row]
                yield f"{name} {table.decode()} {row[:2]!r}", b"\n".join(cells)
    db.close()


def leaks(found: dict[str, bytes], words: list[str]) -> list[tuple[str, str]]:
    def forms(word: str) -> list[bytes]:
        inside = base64.b64encode(word.encode())[:-4]
        return [word.encode(), quote(word, safe="").encode(), inside, word.encode("utf-16-le")]

    return [
        (name, word) for name, data in found.items() for word in words if any(f in data for f in forms(word))
    ]
