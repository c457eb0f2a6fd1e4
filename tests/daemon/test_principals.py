"""Two principals on one daemon: what is one's does not exist for the other."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.daemon.requests import SAMPLES, UNKNOWN, content_of, path_of
from tests.daemon.rig import TERMINAL, Daemon, daemon

from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.operations.operation import Operation
from codesdk.local.tokens import TokenFile

WAITS = {
    "turns": [
        {
            "steps": [
                {"call": {"tool": "workspace.write", "input": {"path": "hers.txt", "content": "alicia"}}}
            ]
        },
        {"steps": [{"text": "Done, alicia."}]},
    ]
}


class Pair:
    """A daemon, what belongs to alice, and bob."""

    def __init__(self, running: Daemon, alice: str, bob: str, carol: str) -> None:
        self.running = running
        self.bob = {"authorization": f"Bearer {bob}"}
        self.carol = {
            "authorization": f"Bearer {carol}"
        }  # has never asked for anything, so nothing is her own echo
        self.alice = {"authorization": f"Bearer {alice}"}
        running.http.headers.update(self.alice)
        self.ids = self._make()
        del running.http.headers["authorization"]
        self.mine = running.post(
            "/v1/sessions", {"runtime": "scripted", "workspace": str(running.data_dir)}, **self.bob
        )["session_id"]

    def _make(self) -> dict[str, str]:
        """Let alice have one of everything, with a call that waits for her."""
        running = self.running
        session = running.session(WAITS, title="alicia's own")
        granted = self._waiting(session)
        running.post(f"/v1/sessions/{session}/calls/{granted['tool_call_id']}/approve", {"scope": "session"})
        running.post(f"/v1/sessions/{session}/stop")
        session = running.session(WAITS, title="alicia's own")
        waiting = self._waiting(session)
        upload = running.http.post("/v1/artifacts?name=alicia.txt", content=b"alicia wrote this")
        return {
            "session_id": session,
            "task_id": waiting["task_id"],
            "tool_call_id": waiting["tool_call_id"],
            "approval_id": waiting["approval_id"],
            "artifact_id": upload.json()["artifact_id"],
        }

    def _waiting(self, session: str) -> Any:
        task = self.running.post(f"/v1/sessions/{session}/tasks", {"message": "Please, alicia."})["task_id"]
        for event in self.running.stream(session):
            if event["type"] == "approval.requested" and event["trace"]["task_id"] == task:
                return self.running.get(f"/v1/sessions/{session}/approvals")["approvals"][0]
            assert event["type"] not in TERMINAL, event
        raise AssertionError("nothing waits")

    def ask(self, operation: Operation, ids: dict[str, str], who: dict[str, str]) -> httpx2.Response:
        content = content_of(operation)
        headers = {**who, **content.pop("headers", {})}
        return self.running.http.request(
            operation.method, path_of(operation, ids), headers=headers, **content
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    data_dir = tmp_path_factory.mktemp("principals") / "data"
    tokens = TokenFile(data_dir)
    secrets = [tokens.add(name, ["admin"])[0] for name in ("alicia", "bob", "carol")]
    with daemon(data_dir, "--runtimes", "scripted") as running:
        yield Pair(running, *secrets)


def as_unknown(pair: Pair, answer: httpx2.Response) -> tuple[int, dict[str, str], bytes]:
    """Return an answer with the ids of alice's things replaced by those of nothing."""
    body = answer.content
    for name, value in pair.ids.items():
        body = body.replace(value.encode(), UNKNOWN[name].encode())
    request_id = answer.headers.pop("x-request-id")
    return answer.status_code, dict(answer.headers), body.replace(request_id.encode(), b"")


NAMING = [
    operation
    for operation in OPERATIONS
    if any("{" + name + "}" in operation.path for name in ("session_id", "task_id", "artifact_id"))
]
LISTING = [
    operation
    for operation in OPERATIONS
    # A login is somebody's, too: tests/engine/test_logins.py.
    if operation not in NAMING and operation.method == "GET" and "{login_id}" not in operation.path
]


@pytest.mark.parametrize("operation", NAMING, ids=lambda operation: operation.name)
def test_what_is_anothers_answers_as_if_it_were_not_there(pair: Pair, operation: Operation):
    hers, nothing = (pair.ask(operation, ids, pair.bob) for ids in (pair.ids, UNKNOWN))
    assert nothing.status_code == SAMPLES[operation.name].status == 404
    first, second = as_unknown(pair, hers), as_unknown(pair, nothing)
    lengths = {first[1].pop("content-length"), second[1].pop("content-length")}
    assert first == second
    assert len(lengths) == 1  # ids of one kind are of one length


@pytest.mark.parametrize("operation", LISTING, ids=lambda operation: operation.name)
def test_no_list_names_what_is_anothers(pair: Pair, operation: Operation):
    answer = pair.ask(operation, UNKNOWN, pair.carol)
    assert answer.status_code == SAMPLES[operation.name].status
    assert [name for name in (*pair.ids.values(), "alicia") if name in answer.text] == []


def test_the_same_requests_find_everything_for_who_owns_it(pair: Pair):
    reads = [operation for operation in NAMING if operation.method == "GET"]
    assert {operation.name: pair.ask(operation, pair.ids, pair.alice).status_code for operation in reads} == {
        operation.name: 200 for operation in reads
    }


@pytest.mark.parametrize("name", ["call", "grant"])
def test_an_approver_cannot_reach_anothers_call_through_a_session_of_its_own(pair: Pair, name: str):
    if name == "grant":
        path = f"/v1/sessions/{pair.mine}/grants/workspace.write"
        answer = pair.running.http.delete(path, headers=pair.bob)
    else:
        path = f"/v1/sessions/{pair.mine}/calls/{pair.ids['tool_call_id']}/approve"
        answer = pair.running.http.post(path, json={}, headers=pair.bob)
    assert answer.status_code == 404


def test_a_message_cannot_attach_what_is_anothers(pair: Pair):
    texts = [pair.ids["artifact_id"], UNKNOWN["artifact_id"]]
    answers: list[Any] = []
    for artifact in texts:
        block = {"type": "artifact_ref", "artifact_id": artifact}
        body = {"message": [{"role": "user", "content": [block]}]}
        answer = pair.running.http.post(f"/v1/sessions/{pair.mine}/tasks", json=body, headers=pair.bob)
        problem = answer.json()
        problem.pop("request_id")
        answers.append(json.loads(json.dumps(problem).replace(artifact, "")))
    assert answers[0] == answers[1]
    assert (answers[0]["status"], answers[0]["code"]) == (404, "NOT_FOUND")


def test_a_page_behind_anothers_session_shows_the_callers_own_at_most(pair: Pair):
    rows = pair.running.http.get(f"/v1/sessions?after={pair.ids['session_id']}", headers=pair.bob).json()
    assert {row["session_id"] for row in rows["sessions"]} <= {pair.mine}


def test_a_task_id_that_another_has_chosen_is_as_free_as_any(pair: Pair):
    place = {"runtime": "scripted", "workspace": str(pair.running.data_dir)}
    hers = pair.running.post("/v1/sessions", place, **pair.alice)["session_id"]

    def start(session: str, who: dict[str, str]) -> tuple[int, Any]:
        body = {"message": "Go.", "task_id": "task_chosen"}
        answer = pair.running.http.post(f"/v1/sessions/{session}/tasks", json=body, headers=who)
        return answer.status_code, answer.json().get("session_id")

    owners = [(hers, pair.alice), (pair.mine, pair.bob)]
    assert [start(*owner) for owner in owners] == [(202, hers), (202, pair.mine)]
    assert [start(*owner) for owner in owners] == [(409, None)] * 2  # each has it now
    tasks = [pair.running.http.get("/v1/tasks/task_chosen", headers=who).json() for _, who in owners]
    assert [task["session_id"] for task in tasks] == [hers, pair.mine]


def test_keys_of_two_principals_do_not_meet(pair: Pair):
    body = {"runtime": "scripted", "workspace": str(pair.running.data_dir)}
    made = [
        pair.running.http.post("/v1/sessions", json=body, headers={**who, "idempotency-key": "one"}).json()
        for who in (pair.alice, pair.bob, pair.alice)
    ]
    assert made[0]["session_id"] == made[2]["session_id"] != made[1]["session_id"]
    assert [row["principal"] for row in made] == ["alicia", "bob", "alicia"]


def test_none_of_it_has_changed_anything(pair: Pair):
    """Runs last: everything that bob tried is over."""
    waiting = pair.running.http.get("/v1/approvals", headers=pair.alice).json()["approvals"]
    assert [(row["tool_call_id"], row["state"]) for row in waiting] == [(pair.ids["tool_call_id"], "waiting")]
    check = pair.running.http.get(f"/v1/sessions/{pair.ids['session_id']}/verify", headers=pair.alice)
    assert check.json()["ok"] is True
