"""Idempotency keys over HTTP: whatever is posted under one, is done once and answered alike; anything else under it is refused."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from tests.daemon.requests import BY_NAME, path_of
from tests.daemon.rig import HELLO, TERMINAL, Daemon, asks, daemon, problem, waiting
from tests.extensions.rig import Extensions

from codesdk.daemon.app import OPERATIONS

LOGINS = {"beginLogin", "answerLogin"}
"""Left out: no runtime of this daemon has a login to begin. tests/daemon/test_logins.py tries the dialog, with keys."""
ALIKE = {"reloadExtensions", "cancelJob", "retryJob"}
"""Left out: their bodies say nothing, so no two requests differ."""
POSTS = [op.name for op in OPERATIONS if op.method == "POST" and op.name not in LOGINS | ALIKE]
AT_ONCE = 4
SLOW = """
import asyncio
async def asked(event, tools): await asyncio.Event().wait()
def register(registry): registry.on("suggest_request.requested", asked, timeout_ms=60_000)
"""
"""An extension that never answers, so that a request for suggestions is open until somebody else does."""
HEADERS = {"content-type": "application/octet-stream"}


class Place(NamedTuple):
    """A daemon, and a session that the one before it was killed in."""

    running: Daemon
    interrupted: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data_dir = tmp_path_factory.mktemp("keys") / "data"
    with daemon(data_dir) as before:
        interrupted = before.session(asks("resumed.txt") | {"loop": True})
        waiting(before, interrupted)
        before.stop(signal.SIGKILL)
    ext = Extensions(data_dir.parent / "extensions")
    ext.write("slow", SLOW, events=["suggest_request.requested"])
    with daemon(data_dir, "--extension", str(ext.root)) as running:
        yield Place(running, interrupted)


class Try(NamedTuple):
    """A request that changes something, and another one that is not the same."""

    ids: dict[str, str]
    one: Any
    other: Any
    effect: str | None = None
    """The event that says in the log of the session that it was done; None if nothing says so."""
    rest: frozenset[str] | None = None
    """What to wait for before the session is quiet again; the effect, if not given."""


def _new(place: Place) -> Try:
    body = {"runtime": "scripted", "workspace": str(place.running.data_dir)}
    return Try({}, body, body | {"title": "other"})


def _begins(place: Place) -> Try:
    session = place.running.session(asks("begun.txt"))
    messages = {"message": "Go."}, {"message": "Go, please."}
    return Try({"session_id": session}, *messages, "task.started", frozenset({"approval.requested"}))


def _idle(place: Place, one: Any, other: Any, effect: str | None = None) -> Try:
    session = place.running.session()
    place.running.run(session)
    return Try({"session_id": session}, one, other, effect)


def _asking(place: Place, one: Any, other: Any, effect: str, *rest: str) -> Try:
    session = place.running.session(asks(f"{effect}.txt"))
    call = waiting(place.running, session)
    ids = {name: call[name] for name in ("session_id", "task_id", "tool_call_id")}
    return Try(ids, one, other, effect, frozenset(rest) or None)


def _questioned(place: Place) -> Try:
    ask = {"call": {"tool": "user.ask", "input": {"question": "Which?"}}}
    session = place.running.session({"turns": [{"steps": [ask]}, {"steps": [{"text": "Done."}]}]})
    asked = waiting(place.running, session)
    ids = {name: asked[name] for name in ("session_id", "approval_id")}
    return Try(ids, {"text": "this"}, {"text": "that"}, "approval.answered", frozenset(TERMINAL))


def _resumed(place: Place) -> Try:
    bodies = {"message": "Go on."}, {"message": "Go on, please."}
    return Try({"session_id": place.interrupted}, *bodies, "session.resumed", frozenset(TERMINAL))


def _changed(place: Place, path: str = "undone.txt") -> Try:
    session = place.running.session(asks(path))
    call = waiting(place.running, session)["tool_call_id"]
    place.running.post(f"/v1/sessions/{session}/calls/{call}/approve")
    _quiet(place.running, session, 0, frozenset(TERMINAL))
    return Try({"session_id": session}, {}, {"tool_call_id": "call_1"}, "files.undone")


def _suggesting(place: Place) -> Try:
    session = place.running.session()
    asked = place.running.post(f"/v1/sessions/{session}/suggestions")
    one = {"kind": "handler_result", "module_name": "m", "event_type": "suggest_request.requested"}
    return Try(
        {"session_id": session, "suggest_id": asked["suggest_id"]},
        {"results": [one]},
        {"results": []},
        "suggest_request.answered",
    )


def _key(provider: str) -> dict[str, str]:
    return {"provider": provider, "key": "a-key-of-nobody-0123456789"}


def _collected(place: Place) -> Try:
    """A collection that removes something: done again, it would find nothing."""
    _changed(place, "collected.txt")
    return Try({}, {"undo_max_bytes": 0}, {"undo_max_bytes": 1})


TRIES: dict[str, Callable[[Place], Try]] = {
    "addKey": lambda _: Try({}, _key("openai"), _key("gemini")),
    "createSession": _new,
    "equipSession": lambda place: _idle(place, {"secrets": ["hidden-word"]}, {"script": HELLO}),
    "forkSession": lambda place: _idle(place, {}, {"title": "other"}),
    "resumeSession": _resumed,
    "moveSession": lambda place: _idle(
        place, {"runtime": "codex"}, {"runtime": "codex", "model": "m"}, "session.resumed"
    ),
    "compactSession": lambda place: _idle(place, {"keep_tokens": 0}, {"keep_tokens": 1}, "session.compacted"),
    "supplementTranscript": lambda place: _idle(
        place,
        {"supplement_id": "a", "text": "one"},
        {"supplement_id": "a", "text": "other"},
        "transcript.supplemented",
    ),
    "requestSuggestions": lambda place: _idle(
        place, {"text": "one"}, {"text": "other"}, "suggest_request.requested"
    ),
    "answerSuggestRequest": _suggesting,
    "closeSession": lambda place: _asking(
        place, {"reason": "enough"}, {"reason": "more than enough"}, "session.closed"
    ),
    "changeSettings": lambda place: _idle(
        place, {"title": "one"}, {"title": "other"}, "session.settings_changed"
    ),
    "undoChanges": _changed,
    "startTask": _begins,
    "stopTask": lambda place: _asking(
        place, {"reason": "enough"}, {"reason": "more than enough"}, "task.stopped"
    ),
    "steerTask": lambda place: _asking(place, {"message": "Left."}, {"message": "Right."}, "task.steered"),
    "approveCall": lambda place: _asking(
        place, {"reason": "fine"}, {"reason": "so fine"}, "approval.answered", *TERMINAL
    ),
    "denyCall": lambda place: _asking(
        place, {"reason": "no"}, {"reason": "no, no"}, "approval.answered", *TERMINAL
    ),
    "answerQuestion": _questioned,
    "collectGarbage": _collected,
    "uploadArtifact": lambda _: Try({}, b"one", b"two"),
}


def test_every_operation_that_can_be_repeated_is_tried_with_a_key():
    assert set(POSTS) == set(TRIES)


@pytest.mark.parametrize("name", POSTS)
def test_a_key_stands_for_one_request(place: Place, name: str):
    running, given = place.running, TRIES[name](place)
    path, session = path_of(BY_NAME[name], given.ids), given.ids.get("session_id")
    before = _events(running, session)
    sessions = _sessions(running)

    def send(body: Any) -> Any:
        headers = {"idempotency-key": f"key-of-{name}"}
        if isinstance(body, bytes):
            return running.http.post(path, content=body, headers=headers | HEADERS)
        return running.http.post(path, json=body, headers=headers)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(send, [given.one] * AT_ONCE))
    assert {answer.status_code for answer in answers} == {BY_NAME[name].status}, answers[0].text
    if given.effect is not None and session is not None:
        _quiet(running, session, len(before), given.rest or frozenset({given.effect}))
    there, done = _events(running, session), _sessions(running)
    assert problem(send(given.other)) == (409, "CONFLICT")
    answers.append(send(given.one))

    assert answers[-1].status_code == BY_NAME[name].status
    assert [_body(answer) for answer in answers] == [_body(answers[0])] * (AT_ONCE + 1)
    assert (_events(running, session), _sessions(running)) == (there, done)
    told = Counter(event["type"] for event in there[len(before) :])
    assert given.effect is None or told[given.effect] == 1
    assert len(done) - len(sessions) == (1 if name in ("createSession", "forkSession") else 0)


def test_what_bytes_are_said_to_be_is_part_of_the_request(place: Place):
    def send(kind: str) -> Any:
        headers = {"idempotency-key": "bytes", "content-type": kind}
        return place.running.http.post("/v1/artifacts", content=b"<p>", headers=headers)

    assert send("text/html").status_code == 201
    assert problem(send("text/plain")) == (409, "CONFLICT")


def _events(running: Daemon, session: str | None) -> list[Any]:
    if session is None:
        return []
    return running.get(f"/v1/sessions/{session}/events", limit=1000)["events"]


def _sessions(running: Daemon) -> list[str]:
    return [row["session_id"] for row in running.get("/v1/sessions", limit=1000)["sessions"]]


def _quiet(running: Daemon, session: str, after: int, types: frozenset[str]) -> None:
    for event in running.stream(session, after):
        if event["type"] in types:
            return


def _body(answer: Any) -> Any:
    return answer.json() if answer.content else None
