"""Good inputs to begin with: golden files, examples in the documentation, and small ones made here."""

import gzip
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from tests.daemon.requests import SAMPLES, UNKNOWN, path_of
from tests.tools.mcp.wire import HELLO, request

from codesdk.bundle.box import FORMAT, Box, Manifest
from codesdk.contract import actions as act
from codesdk.contract.settings import Budget, Budgets, SessionSettings
from codesdk.daemon.app import OPERATIONS
from codesdk.gateway.cassettes.cassette import Chunk, Exchange, dump_cassette
from codesdk.local.control import Execute, Follow, Put
from codesdk.redaction import Redactor
from codesdk.script import dump, parse_script
from codesdk.store.audit.chain import AuditEntry, Place, Who, seal

ROOT = Path(__file__).parents[2]
TURN = "turn_1"
_MAX_BYTES = 16 * 1024  # what is larger holds no more kinds of things, and takes longer
_WIRES = ROOT / "tests" / "gateway" / "golden"


def _small(*patterns: str, under: Path = ROOT) -> list[bytes]:
    paths = sorted(path for pattern in patterns for path in under.glob(pattern))
    return [path.read_bytes() for path in paths if path.stat().st_size <= _MAX_BYTES]


def requests(wire: str) -> list[bytes]:
    """Return the bodies of a wire format's requests."""
    return _small("requests/*/request.json", under=_WIRES / wire)


def answers(wire: str) -> list[bytes]:
    """Return the streams of a wire format."""
    return _small("answers/*/stream.txt", "seen/*/stream.txt", under=_WIRES / wire)


def whole_answers(wire: str) -> list[bytes]:
    """Return the unstreamed answers of a wire format."""
    return _small("answers/*/whole.json", "seen/*/whole.json", under=_WIRES / wire)


def streams() -> list[bytes]:
    """Return server-sent events of all kinds."""
    ours = b": alive\n\nid: 1\nevent: e\ndata: {}\n\nid: 2\r\ndata: a\r\ndata: b\r\n\r\n"
    return [ours, *(stream for wire in ("anthropic", "gemini") for stream in answers(wire))]


def claude_lines() -> list[bytes]:
    """Return what claude wrote, with requests of the control protocol, which recordings do not hold."""
    asked = [
        {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t", "input": {"command": "id"}},
        {"subtype": "hook_callback", "callback_id": "codesdk-native"},
        {"subtype": "other"},
    ]
    lines = [{"type": "control_request", "request_id": "r", "request": each} for each in asked]
    answered = {"subtype": "success", "request_id": "codesdk-1", "response": {}}
    control = _lines([*lines, {"type": "control_response", "response": answered}])
    return [control, *_small("golden/claude-agent-sdk/*/raw.jsonl", under=ROOT / "tests")]


def codex_lines() -> list[bytes]:
    """Return what codex wrote, each turn with the id `TURN`."""
    return [_of_one_turn(raw) for raw in _small("golden/codex-sdk/*/raw.jsonl", under=ROOT / "tests")]


def golden_lines(under: Path, pattern: str) -> list[list[Any]]:
    """Return the lines of recordings, read."""
    return [[json.loads(line) for line in raw.splitlines()] for raw in _small(pattern, under=under)]


def _of_one_turn(raw: bytes) -> bytes:
    lines = [json.loads(line) for line in raw.splitlines()]
    return _lines([line["frame"] for line in lines]).replace(lines[0]["turn"].encode(), TURN.encode())


def _lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def mcp_requests() -> list[bytes]:
    """Return what a client of our MCP server sends."""
    call = {"name": "workspace_read", "arguments": {"path": "a"}, "_meta": {"progressToken": 1, "k": "v"}}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    sent = [
        request(1, "initialize", HELLO),
        request(2, "tools/list", {"cursor": "1"}),
        request(3, "tools/call", call),
        request(4, "ping", {}),
        cancelled,
    ]
    return [json.dumps(each).encode() for each in sent]


def mcp_answers() -> list[bytes]:
    """Return what an attached MCP server answers: to hello, to the list of its tools, to a call."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "outside", "version": "1"},
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:x",
        "type": "object",
        "properties": {"text": {"type": "string", "pattern": "a+"}, "n": {"$ref": "#/$defs/n"}},
        "patternProperties": {"^x": {"enum": [1]}},
        "additionalProperties": False,
        "required": ["text"],
        "allOf": [{"$ref": "#n"}],
        "$defs": {"n": {"$anchor": "n", "minimum": 1, "multipleOf": 0.5}},
    }
    tools = {"tools": [{"name": "echo", "description": "Says it.", "inputSchema": schema}], "nextCursor": ""}
    texts = [
        {"type": "text", "text": "yes"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
    ]
    results = [
        hello,
        tools,
        {"content": texts, "isError": False},
        {"content": [], "structuredContent": {"a": 1}},
    ]
    good = [{"jsonrpc": "2.0", "id": 1, "result": result} for result in results]
    news = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}
    return [_lines(good[:3]), _lines([*good[:2], good[3], news]), _lines([*good[:2], error])]


def yaml_scripts() -> list[bytes]:
    """Return scripts as they are written by hand."""
    shared = b"turns:\n  - &t\n    steps: [&s {text: hi}, *s]\n  - *t\nloop: true\n"
    return [shared, (ROOT / "examples" / "hello.yaml").read_bytes(), *_fenced("docs/script.md", "yaml")]


def json_scripts() -> list[bytes]:
    """Return the same scripts in JSON."""
    return [json.dumps(dump(parse_script(text.decode(), "s.yaml"))).encode() for text in yaml_scripts()]


def policies() -> list[bytes]:
    """Return policy files."""
    return _fenced("docs/policy.md", "toml")


def _fenced(page: str, language: str) -> list[bytes]:
    found = re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [text.encode() for text in found]


def patches() -> list[bytes]:
    """Return patches with every kind of header."""
    plain = b"--- a/a.txt\n+++ b/a.txt\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"
    moved = b"diff --git a/a b/b\nsimilarity index 90%\nrename from a\nrename to b\nold mode 100644\nnew mode 100755\n"
    made = b"diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    quoted = b'--- "a/\\303\\244\\t.txt"\t2024-01-01\n+++ "b/\\303\\244\\t.txt"\n@@ -9,2 +9 @@\n 9\n-10\n'
    return [plain, moved, made, quoted, plain + made + quoted]


def bundles() -> list[bytes]:
    """Return a support bundle."""
    error = {"code": "MODEL_ERROR", "message": "no"}
    task = {"started_at": "2026-01-01", "state": "failed", "duration_ms": 5, "error": error}
    told = {"session": {"runtime": "scripted"}, "tasks": [task], "errors": [{"seq": 1}], "tool_calls": 1}
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder), Redactor(), 1_000_000)
        box.add_json("summary.json", told, "what happened")
        box.add("events/1.jsonl", b"{}\n", "events")
        box.leave_out("artifacts", "too large", 7)
        manifest = Manifest(
            format=FORMAT,
            created_at="2026-01-01T00:00:00Z",
            session_id="ses_1",
            codesdk_version="1",
            contract_version=1,
            last_seq=3,
            max_bytes=box.max_bytes,
            files=box.files,
            left_out=box.left_out,
        )
        packed = io.BytesIO()
        box.pack(packed, manifest, 0)
    return [packed.getvalue()]


def cassettes() -> list[bytes]:
    """Return a cassette of two exchanges."""
    asked = json.loads(requests("anthropic")[0])
    chunks = [Chunk(ms=1, text="data: {}\n\n"), Chunk(ms=2, data=b"\xff")]
    exchange = Exchange(
        number=1,
        wire="anthropic",
        method="POST",
        path="/v1/messages",
        hash="sha256:0",
        purpose="main",
        request=asked,
        status=200,
        chunks=chunks,
        ending="complete",
    )
    return [dump_cassette([exchange, exchange])]


def events() -> list[bytes]:
    """Return stored events, one of each type, and one of an older version."""
    golden = (ROOT / "tests" / "contract" / "golden_events.jsonl").read_bytes().splitlines()
    return [*golden, *_small("tests/contract/fixtures/*.json")]


def logs() -> list[bytes]:
    """Return the stored events of one session, in their order."""
    return [(ROOT / "tests" / "contract" / "golden_events.jsonl").read_bytes()]


def http_requests() -> list[bytes]:
    """Return one request for every operation of the daemon: method and path, headers, an empty line, the body."""
    return [_http_request(operation.method, path_of(operation), operation.name) for operation in OPERATIONS]


def _http_request(method: str, path: str, name: str) -> bytes:
    sample = SAMPLES[name].body
    body = (
        sample
        if isinstance(sample, bytes)
        else b""
        if sample is None
        else json.dumps(_FULL.get(name, sample)).encode()
    )
    kind = "application/json" if not isinstance(sample, bytes) else "text/plain"
    headers = f"content-type: {kind}\nrange: bytes=0-1\nlast-event-id: 1\nidempotency-key: k"
    return f"{method} {path}\n{headers}\n\n".encode() + body


def proxied() -> list[bytes]:
    """Return what a command asks its proxy for."""
    get = b"GET http://a.example.com:80/x?y HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n"
    return [b"CONNECT 8.8.8.8:443 HTTP/1.1\r\n\r\n", b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", get]


def web_answers() -> list[bytes]:
    """Return what web servers answer: whole, in chunks, compressed."""
    packed = gzip.compress(b"Hello." * 100, mtime=0)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
    return [
        head + b"Content-Length: 2\r\n\r\nhi",
        head + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,
    ]


def audit_lines() -> list[bytes]:
    """Return a record of the audit."""
    who = Who(principal="local", client_id="c")
    entry = AuditEntry(
        time="2026-01-01T00:00:00.000Z", category="tool", action="a", outcome="ok", who=who, what={"n": 1.5}
    )
    return [seal(entry, Place())[0].removesuffix(b"\n")]


_CREATE = act.CreateSession(
    runtime="scripted",
    workspace="/",
    permission_mode="auto",
    title="t",
    model="m",
    secrets=["long-enough-to-count"],
    budgets=Budgets(task=Budget(tokens=5), session=Budget(cost_usd=1.5)),
    settings=SessionSettings(approval_timeout_s=5, runtime_config={"model": "x"}),
)
_SAID = {"role": "user", "content": [{"type": "text", "text": "Go."}]}
_FULL: dict[str, Any] = {
    "createSession": {
        name: value for name, value in msgspec.to_builtins(_CREATE).items() if name != "action"
    },
    "startTask": {"message": _SAID, "on_busy": "queue"},
    "approveCall": {"scope": "once", "reason": "r", "attempt": 1},
    "changeSettings": {"title": "other", "settings": {"approval_timeout_s": 5}},
}
"""Bodies with more fields than a sample needs."""

SESSION, ARTIFACT = UNKNOWN["session_id"], UNKNOWN["artifact_id"]
"""Stand in a seed for a session and an artifact that are there."""


def control_lines() -> list[bytes]:
    """Return requests of the control socket."""
    actions = [
        _CREATE,
        act.StartTask(session_id=SESSION, message="Go."),
        act.StopTask(session_id=SESSION, task_id="task_1", reason="r"),
        act.ForkSession(session_id=SESSION),
        act.UndoChanges(session_id=SESSION),
        act.CloseSession(session_id=SESSION),
    ]
    requests = [*(Execute(action=action, key="k") for action in actions), Follow(session_id=SESSION)]
    put = Put(size=2, content_type="text/plain", name="a")
    return [msgspec.json.encode(each) + b"\n" for each in requests] + [msgspec.json.encode(put) + b"\nab"]
