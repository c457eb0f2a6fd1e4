"""What is wrong with a request is said, with the right status; nothing happens, and the daemon goes on."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.requests import SAMPLES, UNKNOWN, content_of, path_of
from tests.daemon.rig import TERMINAL, Daemon, asks, daemon, problem, waiting
from tests.daemon.wire import exchange, replies

from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.operations.operation import Operation

JSON_POSTS = [
    operation for operation in OPERATIONS if operation.method == "POST" and operation.body != "bytes"
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("input") / "data", "--runtimes", "scripted") as running:
        yield running


def named(operation: Operation) -> str:
    return operation.name


# --- bodies ----------------------------------------------------------------------------------------


NO_REQUESTS = [
    b"",
    b"{",
    b"nonsense",
    b"[]",
    b"null",
    b'"text"',
    b"1",
    b"NaN",
    b"\xff",
    b"{}{}",
    b'{"unheard_of": 1}',
    b"\xef\xbb\xbf{}",
    b'{"reason": "\\ud800"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
]


@pytest.mark.parametrize("operation", JSON_POSTS, ids=named)
def test_a_body_that_is_no_such_request_is_refused(running: Daemon, operation: Operation):
    path, kind = path_of(operation), {"content-type": "application/json"}
    answers = {body[:20]: running.http.post(path, content=body, headers=kind) for body in NO_REQUESTS}
    assert {body: problem(answer) for body, answer in answers.items()} == {
        body[:20]: (400, "INVALID_REQUEST") for body in NO_REQUESTS
    }


def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(running: Daemon):
    body = b'{"settings": {"runtime_config": {"x": [' + b"[]," * 600_000 + b"[]]}}}"
    answer = running.http.post("/v1/sessions", content=body, headers={"content-type": "application/json"})
    assert problem(answer) == (400, "INVALID_REQUEST")
    assert "1,000,000 values" in answer.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runtime", 1),
        ("runtime", None),
        ("workspace", ["/"]),
        ("workspace", "not/absolute"),
        ("workspace", "/nowhere/at/all"),
        ("workspace", "/a\0b"),
        ("workspace", "/" + "a" * 10_000),
        ("title", {}),
        ("title", "t" * (5 * 1024 * 1024)),
        ("permission_mode", "everything"),
        ("settings", {"approval_timeout_s": "long"}),
        ("settings", {"unheard_of": 1}),
        ("script", {"turns": "none"}),
        ("budgets", {"task": {"requests": "many"}}),
        ("mcp_servers", {"a": {"type": "carrier pigeon"}}),
        ("mcp_servers", {"a b": {"type": "stdio", "command": "true"}}),
        ("mcp_servers", {"a": {"type": "http", "url": "ftp://x"}}),
        ("secrets", ["abc"]),
        ("secrets", "secret"),
        ("secrets", [1]),
        ("model", 5),
    ],
)
def test_a_session_that_cannot_be_is_not_created(running: Daemon, name: str, value: Any):
    before = running.get("/v1/sessions", limit=1000)["sessions"]
    body = {"runtime": "scripted", "workspace": str(running.data_dir), name: value}
    assert problem(running.http.post("/v1/sessions", json=body)) == (400, "INVALID_REQUEST")
    assert running.get("/v1/sessions", limit=1000)["sessions"] == before


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"runtime": "unheard-of"}, (400, "INVALID_REQUEST")),
        ({"runtime": "claude"}, (403, "FORBIDDEN")),
        ({"permission_mode": "yolo"}, (403, "FORBIDDEN")),
    ],
)
def test_what_the_operator_does_not_allow_is_refused(
    running: Daemon, body: dict[str, Any], expected: tuple[int, str]
):
    whole = {"runtime": "scripted", "workspace": str(running.data_dir)} | body
    assert problem(running.http.post("/v1/sessions", json=whole)) == expected


def test_settings_that_are_nested_too_deeply_are_refused(running: Daemon):
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    body = {"runtime": "scripted", "workspace": "/", "settings": {"runtime_config": deep}}
    assert problem(running.http.post("/v1/sessions", json=body)) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("root", ["inside", "link", "outside", "up"])
def test_a_workspace_is_in_a_directory_that_the_operator_allows(tmp_path: Path, root: str):
    (tmp_path / "allowed" / "inside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "outside")
    where = {"outside": tmp_path / "outside", "up": tmp_path / "allowed" / ".." / "outside"}
    with daemon(tmp_path / "data", "--workspace-root", str(tmp_path / "allowed")) as running:
        workspace = str(where.get(root, tmp_path / "allowed" / root))
        answer = running.http.post("/v1/sessions", json={"runtime": "scripted", "workspace": workspace})
        assert answer.status_code == (201 if root == "inside" else 403)


@pytest.mark.parametrize("message", [[], [{"role": "assistant", "content": []}], 1, None, [{"role": "user"}]])
def test_a_message_that_is_none_starts_nothing(running: Daemon, message: Any):
    session = running.session()
    answer = running.http.post(f"/v1/sessions/{session}/tasks", json={"message": message})
    assert problem(answer) == (400, "INVALID_REQUEST")
    assert running.get(f"/v1/sessions/{session}/tasks") == {"tasks": []}


@pytest.mark.parametrize("size", ["announced", "chunked"])
def test_a_body_that_is_too_long_is_refused_before_it_is_read(running: Daemon, size: str):
    lines = ["POST /v1/sessions HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    if size == "announced":
        data = "\r\n".join([*lines, "Content-Length: 99999999", "", ""]).encode()
    else:
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        data = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode() + chunk * 9
    assert _first(running.url, data).status == 413
    assert running.http.get("/v1/health").status_code == 200


def _first(url: str, data: bytes) -> Any:
    """Send the beginning of a request and return the answer, without waiting for the daemon to hang up."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as link:
        sender = threading.Thread(target=_send, args=(link, data))
        sender.start()
        received = b""
        while b"\r\n\r\n" not in received or not received.rstrip().endswith(b"}"):
            received += link.recv(65536)
        link.shutdown(socket.SHUT_RDWR)
        sender.join()
    return replies(received)[0]


def _send(link: socket.socket, data: bytes) -> None:
    try:
        link.sendall(data)
    except OSError:
        pass  # hung up on


def test_a_client_that_hangs_up_in_the_middle_of_its_body_leaves_nothing(running: Daemon):
    before = running.get("/v1/sessions", limit=1000)
    head = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    exchange(running.url, head + b'Content-Length: 100\r\n\r\n{"runtime":', half_close=True)
    assert running.get("/v1/sessions", limit=1000) == before


# --- ids, cursors, ranges --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("after_seq=-1", {}),
        ("after_seq=x", {}),
        ("after_seq=99999999999999999999", {}),
        ("after_seq=1000000&stream=sse", {}),
        ("types=nothing.like.it", {}),
        ("stream=websocket", {}),
        ("stream=sse", {"last-event-id": "x"}),
        ("stream=sse", {"last-event-id": "-1"}),
        ("stream=sse", {"last-event-id": "9" * 16}),
        ("stream=sse", {"last-event-id": "9" * 17}),
    ],
)
def test_a_place_in_the_log_that_cannot_be_is_refused(running: Daemon, query: str, headers: dict[str, str]):
    session = running.session()
    answer = running.http.get(f"/v1/sessions/{session}/events?{query}", headers=headers)
    assert problem(answer) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "after", ["nothing", "ses_1", "'; DROP TABLE sessions; --", UNKNOWN["session_id"], "%00"]
)
def test_a_cursor_that_is_none_gives_a_page_or_a_refusal(running: Daemon, after: str):
    session = running.session()
    assert running.http.get(f"/v1/sessions?after={after}").status_code in (200, 400)
    assert running.http.get(f"/v1/sessions/{session}/artifacts?after={after}").status_code in (200, 400)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("bytes=0-3", (206, b"0123", "bytes 0-3/10")),
        ("bytes=8-", (206, b"89", "bytes 8-9/10")),
        ("bytes=-2", (206, b"89", "bytes 8-9/10")),
        ("bytes=5-500", (206, b"56789", "bytes 5-9/10")),
        ("bytes=10-", (416, None, "bytes */10")),
        ("bytes=99999999999999999999-", (416, None, "bytes */10")),
        ("bytes=-0", (416, None, "bytes */10")),
        ("bytes=5-2", (200, b"0123456789", None)),
        ("bytes=a-b", (200, b"0123456789", None)),
        ("lines=1-2", (200, b"0123456789", None)),
        ("bytes=0-1,3-4", (200, b"0123456789", None)),
        ("bytes=-", (200, b"0123456789", None)),
    ],
)
def test_a_range_is_in_the_artifact_or_refused(
    running: Daemon, given: str, expected: tuple[int, bytes | None, str | None]
):
    artifact = running.http.post("/v1/artifacts", content=b"0123456789").json()["artifact_id"]
    answer = running.http.get(f"/v1/artifacts/{artifact}/content", headers={"range": given})
    body = None if answer.status_code == 416 else answer.content
    assert (answer.status_code, body, answer.headers.get("content-range")) == expected


@pytest.mark.parametrize("kind", ["nonsense", "a/b/c", "x" * 200 + "/y"])
def test_an_upload_is_of_a_kind_that_there_can_be(running: Daemon, kind: str):
    answer = running.http.post("/v1/artifacts", content=b"x", headers={"content-type": kind})
    assert problem(answer) == (415, "INVALID_REQUEST")


def test_an_uploaded_page_does_not_run_in_a_browser(running: Daemon):
    page = b"<script>alert(1)</script>"
    made = running.http.post("/v1/artifacts", content=page, headers={"content-type": "text/html"}).json()
    headers = running.http.get(f"/v1/artifacts/{made['artifact_id']}/content").headers
    assert headers["content-disposition"] == "attachment"
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert headers["x-content-type-options"] == "nosniff"


# --- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize(
    "other", [{"attempt": 2}, {"attempt": 0}, {"input_hash": "sha256:" + "0" * 64}, {"input_hash": ""}]
)
def test_a_decision_about_something_else_is_a_conflict(running: Daemon, word: str, other: dict[str, Any]):
    session = running.session(asks())
    call = waiting(running, session)
    path = f"/v1/sessions/{session}/calls/{call['tool_call_id']}/{word}"
    assert problem(running.http.post(path, json=other)) == (409, "CONFLICT")
    assert len(running.get(f"/v1/sessions/{session}/approvals")["approvals"]) == 1
    running.post(f"/v1/sessions/{session}/stop")


def test_a_call_is_decided_once(running: Daemon):
    session = running.session(asks())
    call = waiting(running, session)
    path = f"/v1/sessions/{session}/calls/{call['tool_call_id']}"
    body = {"attempt": call["attempt"], "input_hash": call["input_hash"]}
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda word: running.http.post(f"{path}/{word}", json=body), ["approve", "deny"] * 4)
        )
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {204, 404, 409}
    for event in running.stream(session):
        if event["type"] in TERMINAL:
            break
    events = running.get(f"/v1/sessions/{session}/events", limit=1000)["events"]
    answered = [event["payload"] for event in events if event["type"] == "approval.answered"]
    assert len(answered) == 1
    words = {"approve": 0, "deny": 1}
    lost = statuses[1 - words[answered[0]["decision"]] :: 2]
    assert 204 not in lost


# --- limits ----------------------------------------------------------------------------------------


def test_a_principal_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path):
    with daemon(tmp_path / "data", "--requests-per-second", "0.01", "--request-burst", "3") as running:
        statuses = [running.http.get("/v1/whoami").status_code for _ in range(4)]
        answer = running.http.get("/v1/whoami")
        assert statuses == [200, 200, 200, 429]
        assert problem(answer) == (429, "RATE_LIMITED")
        assert 1 <= int(answer.headers["retry-after"]) <= 100
        assert answer.json()["retryable"] is True
        assert running.http.get("/v1/health").status_code == 200


def test_tasks_of_a_runtime_that_are_started_too_often_are_refused(tmp_path: Path):
    with daemon(tmp_path / "data", "--tasks-per-minute", "2") as running:
        session = running.session()
        path = f"/v1/sessions/{session}/tasks"
        answers = [running.http.post(path, json={"message": "Go."}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [202, 202, 429]
        assert problem(answers[2]) == (429, "RATE_LIMITED")
        assert 1 <= int(answers[2].headers["retry-after"]) <= 60
        assert problem(running.http.post(f"/v1/sessions/{session}/resume")) == (429, "RATE_LIMITED")
        assert len(running.get(path)["tasks"]) == 2


# --- the place -------------------------------------------------------------------------------------


def start(*options: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "codesdk.cli.codesdkd", *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_that_is_taken_is_named(running: Daemon, tmp_path: Path):
    port = running.url.rpartition(":")[2]
    ended = start("--data-dir", str(tmp_path / "data"), "--port", port)
    assert (ended.returncode != 0, ended.stdout) == (True, "")
    assert f"port {port}: Address already in use" in ended.stderr


def test_a_directory_that_is_in_use_names_who_has_it(running: Daemon):
    ended = start("--data-dir", str(running.data_dir))
    assert (ended.returncode != 0, ended.stdout) == (True, "")
    assert f"is in use by pid {running.process.pid} (" in ended.stderr


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
def test_a_problem_is_described_in_the_document(running: Daemon, operation: Operation):
    answer = running.http.request(operation.method, path_of(operation), **content_of(operation))
    described = running.get("/openapi.json")["paths"][operation.path][operation.method.lower()]["responses"]
    assert answer.status_code == SAMPLES[operation.name].status
    assert str(answer.status_code) in described
