"""What a request over HTTP says of itself reaches the events and the audit that it brings about."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.daemon.rig import Daemon, daemon

from codesdk.client import SyncClient
from codesdk.contract.errors import InvalidRequest
from codesdk.local.tokens import TokenFile

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("daemon") / "data") as started:
        tokens = TokenFile(started.data_dir)
        secret, _ = tokens.add("ann", ["run", "read", "admin"], label="ci bot")
        started.http.headers["authorization"] = f"Bearer {secret}"
        yield started


def first_event(running: Daemon, session: str) -> Any:
    return running.get(f"/v1/sessions/{session}/events")["events"][0]["trace"]


def create(running: Daemon, **headers: str) -> Any:
    body = {"runtime": "scripted", "workspace": str(running.data_dir.parent)}
    answer = running.http.post("/v1/sessions", json=body, headers=headers)
    assert answer.is_success, answer.text
    return answer


def test_the_events_of_a_request_carry_its_id_its_token_and_its_trace(running: Daemon):
    answer = create(running, **{"X-Request-Id": "deploy:42", "traceparent": TRACEPARENT})
    session = answer.json()["session_id"]
    assert answer.headers["x-request-id"] == "deploy:42"
    assert first_event(running, session) == {
        "session_id": session,
        "request_id": "deploy:42",
        "client_id": "ci bot",
        "user_id": "ann",
        "traceparent": TRACEPARENT,
    }
    found = [
        line for line in running.get("/v1/audit")["records"] if line["who"].get("request_id") == "deploy:42"
    ]
    assert {line["who"].get("client_id") for line in found} == {"ci bot"}
    assert "request" in {line["category"] for line in found}


@pytest.mark.parametrize("given", ["a b", "x" * 65, "csdk_" + "k" * 30])
def test_an_id_that_is_none_is_replaced_and_the_answer_says_by_which(running: Daemon, given: str):
    answer = create(running, **{"X-Request-Id": given, "traceparent": "00-garbage"})
    made = answer.headers["x-request-id"]
    assert made.startswith("req_")
    trace = first_event(running, answer.json()["session_id"])
    assert trace["request_id"] == made
    assert "traceparent" not in trace


def test_a_client_says_what_its_requests_are_part_of(running: Daemon):
    token = running.http.headers["authorization"].removeprefix("Bearer ")
    with SyncClient.connect(running.url, token) as client:
        named = client.traced(request_id="r-7", traceparent=TRACEPARENT)
        session = named.create_session(runtime="scripted", workspace=running.data_dir.parent)
        session.traced(request_id="r-8").close()
        traces = [event["trace"] for event in running.get(f"/v1/sessions/{session.id}/events")["events"]]
        assert [(trace["request_id"], trace["traceparent"]) for trace in traces] == [
            ("r-7", TRACEPARENT),
            ("r-8", TRACEPARENT),
        ]
        mine = client.traced(client_id="mein Gerät").create_session(
            runtime="scripted", workspace=running.data_dir.parent
        )
        # What a token says of a client comes first, whatever the client says.
        assert first_event(running, mine.id)["client_id"] == "ci bot/mein Gerät"
        with pytest.raises(InvalidRequest, match="request id"):
            client.traced(request_id="a b")
