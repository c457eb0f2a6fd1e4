"""What a browser, a proxy or somebody with a socket can try."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.requests import UNKNOWN
from tests.daemon.rig import Daemon, daemon
from tests.daemon.wire import exchange, replies, request

FORM_KINDS = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")
BODY = b'{"runtime": "scripted", "workspace": "/"}'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("wire") / "data", "--runtimes", "scripted") as running:
        yield running


@pytest.fixture(autouse=True)
def no_session_came_of_it(running: Daemon) -> Iterator[None]:
    yield
    assert running.get("/v1/sessions")["sessions"] == []


# --- names and sites -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:80"]
)
def test_the_daemon_answers_to_its_own_names(running: Daemon, host: str):
    assert request(running.url, "GET /v1/whoami HTTP/1.1", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "",
        "[::1",
        "0.0.0.0",
        "127.0.0.2",
        "evil.example#localhost",
        "evil.example/localhost",
        "localhost.",
    ],
)
def test_a_name_that_was_bent_to_us_is_refused(running: Daemon, host: str):
    reply = request(running.url, "GET /v1/whoami HTTP/1.1", host=host)
    assert (reply.status, json.loads(reply.body)["code"]) == (421, "FORBIDDEN")


def test_a_request_without_a_name_is_refused(running: Daemon):
    assert request(running.url, "GET /v1/whoami HTTP/1.0", host=None).status == 421


def test_a_name_that_the_operator_allows_is_answered(tmp_path: Path):
    with daemon(tmp_path / "data", "--allow-host", "codes.example") as running:
        assert request(running.url, "GET /v1/health HTTP/1.1", host="Codes.Example:8443").status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "http://localhost:1", "file://", "http://[", "http://localhost.evil"],
)
@pytest.mark.parametrize("line", ["GET /v1/sessions HTTP/1.1", "POST /v1/sessions HTTP/1.1"])
def test_a_page_of_another_site_is_refused(running: Daemon, line: str, origin: str):
    more = ["Content-Type: application/json", f"Content-Length: {len(BODY)}"] if line[0] == "P" else []
    reply = request(
        running.url, line, f"Origin: {origin}", *more, host="localhost:80", body=BODY if more else b""
    )
    assert (reply.status, json.loads(reply.body)["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", "something-new"])
def test_what_a_browser_says_comes_from_elsewhere_is_refused(running: Daemon, site: str):
    assert request(running.url, "GET /v1/sessions HTTP/1.1", f"Sec-Fetch-Site: {site}").status == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_daemons_own_pages_are_let_in(running: Daemon, site: str):
    own = (f"Sec-Fetch-Site: {site}", "Origin: http://localhost:80")
    assert request(running.url, "GET /v1/sessions HTTP/1.1", *own, host="localhost:80").status == 200


@pytest.mark.parametrize("kind", [*FORM_KINDS, "application/jsonp", "json", ""])
def test_what_a_form_can_send_is_not_taken_for_json(running: Daemon, kind: str):
    reply = request(
        running.url,
        "POST /v1/sessions HTTP/1.1",
        f"Content-Type: {kind}",
        f"Content-Length: {len(BODY)}",
        body=BODY,
    )
    assert reply.status == 415


def test_no_other_site_is_ever_told_that_it_may_read(running: Daemon):
    ask = ("Origin: http://evil.example", "Access-Control-Request-Method: POST")
    before = request(running.url, "OPTIONS /v1/sessions HTTP/1.1", *ask)
    plain = request(running.url, "OPTIONS /v1/sessions HTTP/1.1")
    assert (before.status, plain.status, plain.headers["allow"]) == (403, 405, "GET, HEAD, POST")
    for reply in (before, plain, request(running.url, "GET /v1/health HTTP/1.1")):
        assert [name for name in reply.headers if name.startswith("access-control")] == []
        assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["TRACE", "PUT", "PATCH", "PROPFIND", "OPTIONS", "DELETE", "PURGE"])
def test_a_method_that_means_nothing_here_is_refused(running: Daemon, method: str):
    assert request(running.url, f"{method} /v1/sessions HTTP/1.1").status == 405


@pytest.mark.parametrize(
    "line", ["CONNECT evil.example:443 HTTP/1.1", "get /v1/health HTTP/1.1", "X /v1 HTTP/1.1"]
)
def test_a_method_that_is_none_gets_nothing(running: Daemon, line: str):
    assert request(running.url, line).status in (400, 404, 405)


# --- paths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/sessions/..%2f..%2fetc%2fpasswd", 404),
        ("/v1/sessions/../health", 404),
        ("/v1/./health", 404),
        ("//v1/health", 404),
        ("/v1/health/", 404),
        ("/V1/health", 404),
        ("/v1/health%00", 404),
        ("/v1/sessions/%00", 400),
        ("/v1/sessions/%ff%fe", 400),
        ("/v1/sessions/%zz", 404),
        ("/v1/sessions/" + "a" * 513, 400),
        ("/v1/sessions/" + "a" * 60_000, 400),
        ("/" + "a" * 60_000, 404),
        ("/v1/sessions/%2e%2e/events", 404),
        ("/v1/artifacts/..%2F..%2Flock/content", 404),
        ("/v1/sessions/ses_1;admin=1", 404),
        ("/v1/sessions/ses_1%0d%0aX-Evil:%201", 404),
        ("http://evil.example/v1/health", 200),
        ("*", 404),
    ],
)
def test_a_path_leads_to_what_it_spells_and_nowhere_else(running: Daemon, path: str, status: int):
    reply = request(running.url, f"GET {path} HTTP/1.1")
    assert reply.status == status
    assert "x-evil" not in reply.headers


@pytest.mark.parametrize(
    "query",
    [
        "limit=1&limit=2",
        "nothing=1",
        "limit=0",
        "limit=1001",
        "limit=abc",
        "after=%ff",
        "limit=",
        "status=other",
        "&".join(f"a{n}=1" for n in range(60)),
    ],
)
def test_a_query_that_is_not_as_it_should_be_is_refused(running: Daemon, query: str):
    reply = request(running.url, f"GET /v1/sessions?{query} HTTP/1.1")
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "INVALID_REQUEST")


# --- headers, and where a request ends --------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["Host", "Authorization", "Content-Type", "Idempotency-Key", "Origin", "Range"]
)
def test_a_header_that_decides_something_is_given_once(running: Daemon, name: str):
    twice = (f"{name}: localhost", f"{name}: evil.example")
    reply = request(
        running.url, "GET /v1/health HTTP/1.1", *twice, host=None if name == "Host" else "localhost"
    )
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("value", ["a b", "ü", "x" * 201, ""])
def test_an_idempotency_key_is_plain_text(running: Daemon, value: str):
    more = ("Content-Type: application/json", f"Content-Length: {len(BODY)}", f"Idempotency-Key: {value}")
    assert request(running.url, "POST /v1/sessions HTTP/1.1", *more, body=BODY).status == 400


def test_a_request_id_of_the_clients_is_kept_if_it_is_one(running: Daemon):
    for given, kept in (("abc-1_2", True), ("a b", False), ("x" * 65, False), ("csdk_" + "k" * 30, False)):
        reply = request(running.url, "GET /v1/whoami HTTP/1.1", f"X-Request-Id: {given}")
        assert (reply.headers["x-request-id"] == given) is kept


INNER = b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4",
        b"Content-Length: 4\r\nContent-Length: 5",
        b"Content-Length: 4, 4",
        b"Content-Length: +4",
        b"Content-Length: 0x4",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999999",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding : chunked",
        b"Content-Length : 4",
        b"X-A: a\r\n\tfolded: b\r\nTransfer-Encoding:\x0bchunked",
        b"X-A: a\x00b",
        b"X A: b",
        b"X-A: a\rContent-Length: 4",
    ],
)
def test_nobody_can_hide_a_request_in_another(running: Daemon, lines: bytes):
    """Where a request's end could be read in two ways, there is one answer, no second, and the line is cut."""
    head = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + lines
    answer = exchange(running.url, head + b"\r\n\r\n0\r\n\r\n" + INNER)
    assert [reply.status for reply in replies(answer)] == [400]


def test_requests_behind_each_other_are_answered_in_their_order(running: Daemon):
    last = INNER.replace(b"Host", b"Connection: close\r\nHost").replace(b"whoami", b"health")
    answers = replies(exchange(running.url, INNER + INNER + last))
    assert [sorted(json.loads(reply.body)) for reply in answers] == [
        ["principal", "scopes"],
        ["principal", "scopes"],
        ["contract_version", "status", "version"],
    ]


def test_headers_without_an_end_are_cut_off(running: Daemon):
    endless = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * (8 * 1024 * 1024)
    answer = exchange(running.url, endless)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert running.http.get("/v1/health").status_code == 200


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100, b"hello\r\n\r\n"]
)
def test_what_is_no_http_gets_no_more_than_a_refusal(running: Daemon, data: bytes):
    answer = exchange(running.url, data, half_close=True)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


def test_an_upgrade_to_another_protocol_is_not_made(running: Daemon):
    ask = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: eA==",
    )
    path = f"/v1/sessions/{UNKNOWN['session_id']}/events"
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *ask]
    answer = exchange(running.url, "\r\n".join(lines).encode() + b"\r\n\r\n", half_close=True)
    assert not answer.startswith(b"HTTP/1.1 101")
    assert running.http.get("/v1/health").status_code == 200
