"""Who is let in: every operation with every kind of token, and a daemon that others can reach."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.daemon.requests import BY_NAME, SAMPLES, content_of, path_of
from tests.daemon.rig import Daemon, asks, daemon, problem, waiting

from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.operations.operation import Operation
from codesdk.local.tokens import SCOPES, TokenFile

HOUR = timedelta(hours=1)
NOT_LET_IN = ("none", "wrong", "expired", "revoked", "basic", "empty", "two")


class Door:
    """A running daemon and the Authorization headers to try on it."""

    def __init__(self, running: Daemon, tokens: TokenFile) -> None:
        self.running = running
        self.headers: dict[str, list[tuple[str, str]]] = {"none": []}
        for scope in SCOPES:
            self._give(scope, tokens.add(f"only-{scope}", [scope])[0])
        self._give("wrong", "csdk_" + "A" * 43)
        self._give("expired", tokens.add("late", ["admin"], expires_at=datetime.now(UTC) - HOUR)[0])
        secret, token = tokens.add("gone", ["admin"])
        tokens.revoke(token.token_id)
        self._give("revoked", secret)
        self.headers["basic"] = [("authorization", "Basic YTpi")]
        self.headers["empty"] = [("authorization", "Bearer")]
        self.headers["two"] = self.headers["admin"] * 2

    def _give(self, name: str, secret: str) -> None:
        self.headers[name] = [("authorization", f"Bearer {secret}")]

    def try_all(self, operation: Operation) -> dict[str, int]:
        """Return the status of an operation for each header."""
        content = content_of(operation)
        more = list(content.pop("headers", {}).items())
        return {
            name: self.running.http.request(
                operation.method, path_of(operation), headers=[*headers, *more], **content
            ).status_code
            for name, headers in self.headers.items()
        }


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    data_dir = tmp_path_factory.mktemp("access") / "data"
    with daemon(data_dir, "--runtimes", "scripted") as running:
        yield Door(running, TokenFile(data_dir))


def expected(operation: Operation) -> dict[str, int]:
    """Return what the operation's scope says about each header."""
    inside = SAMPLES[operation.name].status
    if operation.scope is None:
        return dict.fromkeys([*NOT_LET_IN, *SCOPES], inside) | {"two": 400}
    allowed = {operation.scope, "admin"} | ({"run", "approve"} if operation.scope == "read" else set())
    refused = dict.fromkeys(NOT_LET_IN, 401) | {"two": 400}
    return refused | {scope: inside if scope in allowed else 403 for scope in SCOPES}


def test_every_operation_has_a_sample_and_every_sample_an_operation():
    assert set(SAMPLES) == set(BY_NAME)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_is_for_those_who_have_its_scope(door: Door, operation: Operation):
    assert door.try_all(operation) == expected(operation)


def test_what_a_token_may_do_is_said_by_whoami(door: Door):
    answer = door.running.http.get("/v1/whoami", headers=door.headers["read"])
    assert answer.json() == {"principal": "only-read", "scopes": ["read"]}
    answer = door.running.http.get("/v1/whoami", headers=door.headers["run"])
    assert answer.json() == {"principal": "only-run", "scopes": ["read", "run"]}


def test_a_refusal_says_how_to_come_in_and_nothing_about_what_is_there(door: Door):
    known, unknown = (door.running.http.get(path) for path in ("/v1/sessions", "/v1/sessions/ses_1"))
    assert known.headers["www-authenticate"] == 'Bearer realm="codesdk"'
    first, second = known.json(), unknown.json()
    assert {**first, "request_id": ""} == {**second, "request_id": ""}
    assert first["code"] == "AUTH_REQUIRED"


def test_a_token_that_may_run_reads_what_it_runs_and_nothing_of_others(tmp_path: Path):
    tokens = TokenFile(tmp_path / "data")
    secret, other = tokens.add("ann", ["run"])[0], tokens.add("bob", ["approve"])[0]
    with daemon(tmp_path / "data") as running:
        running.http.headers["authorization"] = f"Bearer {secret}"
        session = running.session(asks(), interaction_mode="non_interactive")
        task = running.run(session)
        assert running.get(f"/v1/tasks/{task}")["state"] == "completed"
        assert running.get(f"/v1/sessions/{session}/transcript")["messages"]
        question = waiting(running, running.session(asks()))
        path = f"/v1/sessions/{question['session_id']}/calls/{question['tool_call_id']}/approve"
        assert problem(running.http.post(path, json={})) == (403, "FORBIDDEN")
        running.http.headers["authorization"] = f"Bearer {other}"
        assert problem(running.http.get(f"/v1/sessions/{session}")) == (404, "NOT_FOUND")
        assert problem(running.http.post(path, json={})) == (404, "NOT_FOUND")


def test_a_scope_that_a_request_needs_besides_is_asked_for(door: Door):
    body = {"runtime": "scripted", "workspace": "/", "native_tools": ["Bash"]}
    answer = door.running.http.post("/v1/sessions", json=body, headers=door.headers["run"])
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    servers = {"mcp_servers": {"a": {"type": "stdio", "command": "true"}}}
    body = {"runtime": "scripted", "workspace": "/"} | servers
    answer = door.running.http.post("/v1/sessions", json=body, headers=door.headers["run"])
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_a_stream_ends_soon_after_its_token_was_revoked(tmp_path: Path):
    tokens = TokenFile(tmp_path / "data")
    secret, token = tokens.add("someone", ["read", "run"])
    with daemon(tmp_path / "data", "--heartbeat", "0.1") as running:
        running.http.headers["authorization"] = f"Bearer {secret}"
        session = running.session()
        with running.http.stream("GET", f"/v1/sessions/{session}/events?stream=sse") as answer:
            lines = answer.iter_lines()
            while not next(lines).startswith(": still here"):
                pass
            tokens.revoke(token.token_id)
            assert [line for line in lines if line.startswith("data:")] == []
        assert running.http.get("/v1/whoami").status_code == 401


def test_a_stream_without_a_token_ends_when_the_first_token_is_made(tmp_path: Path):
    with daemon(tmp_path / "data", "--heartbeat", "0.1") as running:
        session = running.session()
        with running.http.stream("GET", f"/v1/sessions/{session}/events?stream=sse") as answer:
            lines = answer.iter_lines()
            assert next(lines) == "retry: 1000"
            TokenFile(tmp_path / "data").add("someone", ["read"])
            assert [line for line in lines if line.startswith("data:")][1:] == []
        assert running.http.get("/v1/whoami").status_code == 401


def lan_address() -> str:
    """Return an address of this machine that is not loopback; any that no interface has, if it is alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "192.0.2.7"
        return str(probe.getsockname()[0])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", lan_address(), "example.invalid"])
def test_a_daemon_that_others_can_reach_refuses_to_start_without_tokens(tmp_path: Path, host: str):
    argv = [
        sys.executable,
        "-m",
        "codesdk.cli.codesdkd",
        "--data-dir",
        str(tmp_path / "data"),
        "--host",
        host,
    ]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no token is required yet" in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("options", [("--require-token",), ()], ids=["by option", "by a token"])
def test_with_tokens_it_starts_and_wants_one(tmp_path: Path, options: tuple[str, ...]):
    secret, _ = TokenFile(tmp_path / "data").add("someone", ["read"])
    with daemon(tmp_path / "data", "--host", "0.0.0.0", *options) as running:
        port = running.url.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}/v1/whoami"
        assert running.http.get(url).status_code == 401
        assert running.http.get(url, headers={"authorization": f"Bearer {secret}"}).status_code == 200
