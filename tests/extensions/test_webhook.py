"""The example webhook: signed, for chosen events, tried until the receiver takes it, also over a kill."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.extensions.jobs_rig import Watched
from tests.extensions.rig import Extensions, extended, session_in, settle

from codesdk.extensions import ExtensionOptions, HandlerResult

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "extensions" / "webhook"
WORKER = str(Path(__file__).with_name("jobs_worker.py"))
SECRET = "a-secret-of-two"
TALK = [[{"text": "Hello."}]]


class Delivery(NamedTuple):
    """A request that came."""

    name: str
    body: bytes
    signature: str
    status: int


class Receiver(ThreadingHTTPServer):
    """A listener that answers each request with the status that `answer` says: of its delivery, the nth time."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, int], int]) -> None:
        self.got: list[Delivery] = []
        self.came = threading.Condition()
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def take(self, name: str, body: bytes, signature: str) -> int:
        with self.came:
            nth = sum(one.name == name for one in self.got) + 1
            status = self.answer(name, nth)
            self.got.append(Delivery(name, body, signature, status))
            self.came.notify_all()
        return status

    @property
    def accepted(self) -> dict[str, Any]:
        """What was answered with 2xx, by delivery."""
        return {one.name: json.loads(one.body) for one in self.got if one.status == 204}


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        name, signature = self.headers["x-codesdk-delivery"], self.headers["x-codesdk-signature"]
        status = self.server.take(name, body, signature)
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("location", f"{self.server.url}/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the library's name

    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def receiving(answer: Callable[[str, int], int]) -> Iterator[Receiver]:
    server = Receiver(answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(monkeypatch: pytest.MonkeyPatch, server: Receiver, events: str | None = None) -> None:
    monkeypatch.setenv("CODESDK_WEBHOOK_URL", server.url)
    monkeypatch.setenv("CODESDK_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("CODESDK_WEBHOOK_BACKOFF_MS", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    if events is not None:
        monkeypatch.setenv("CODESDK_WEBHOOK_EVENTS", events)


def is_signed(one: Delivery) -> bool:
    """Check a signature as a receiver does."""
    moment, _, found = one.signature.removeprefix("t=").partition(",v1=")
    wanted = hmac.new(SECRET.encode(), f"{moment}.".encode() + one.body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(found, wanted) and abs(time.time() - int(moment)) < 300


def options() -> ExtensionOptions:
    return ExtensionOptions(roots=(str(EXAMPLE),))


def test_the_example_is_short():
    assert len((EXAMPLE / "events.py").read_text().splitlines()) < 100


async def test_each_chosen_event_is_sent_signed_until_it_is_taken(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The first two tries of each fail, one of them by sending it elsewhere.
    with receiving(lambda name, nth: {1: 500, 2: 302}.get(nth, 204)) as server:
        environment(monkeypatch, server, "turn.completed, task.started")
        async with extended(ext, tmp_path, TALK, options=options()) as sdk:
            watched = Watched(sdk)
            session = await session_in(sdk, tmp_path)
            await (await session.start("Go.")).result()
            rows = await watched.ended(2)
            assert [(row.state, row.attempts) for row in rows] == [("completed", 3)] * 2
    assert [one.status for one in server.got].count(204) == 2
    assert len(server.got) == 6
    assert all(is_signed(one) for one in server.got)
    assert {row.job_id for row in rows} == set(server.accepted)
    told = sorted(server.accepted.values(), key=lambda body: body["seq"])
    assert [(body["type"], body["session"]["id"]) for body in told] == [
        ("task.started", session.id),
        ("turn.completed", session.id),
    ]
    assert told[1]["data"]["status"] == "completed"


async def test_one_that_is_never_taken_fails_and_says_why(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with receiving(lambda name, nth: 500) as server:
        environment(monkeypatch, server, "turn.completed")
        async with extended(ext, tmp_path, TALK, options=options()) as sdk:
            watched = Watched(sdk)
            session = await session_in(sdk, tmp_path)
            await (await session.start("Go.")).result()
            (row,) = await watched.ended()
            assert (row.state, row.attempts) == ("failed", 10)
            assert row.error == "ConnectionError: the receiver answered with 500"
            server.answer = lambda name, nth: 204
            await sdk.retry_job(row.job_id)
            await watched.until(lambda: watched.rows[-1].state == "completed")
    assert len(server.accepted) == 1


async def test_without_an_address_nothing_is_queued(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CODESDK_WEBHOOK_URL", raising=False)
    async with extended(ext, tmp_path, TALK, options=options()) as sdk:
        found: list[Any] = []
        sdk.extensions.on_emitted = lambda signal, results: found.extend(results)
        session = await session_in(sdk, tmp_path)
        await (await session.start("Go.")).result()
        await settle(sdk)
        assert found
        assert all(isinstance(one, HandlerResult) and one.value["queued"] is False for one in found)
        assert await sdk.jobs() == []


async def test_what_a_killed_process_did_not_send_or_not_note_the_next_one_sends(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Killed when two requests have come: one was answered, the other never is, and a third was not sent."""
    pids: list[int] = []

    def answer(name: str, nth: int) -> int:
        if pids and len(server.got) == 1:
            os.kill(pids[0], signal.SIGKILL)
            return 500
        return 204

    with receiving(answer) as server:
        environment(monkeypatch, server, "session.created,task.started,turn.completed")
        process = await asyncio.create_subprocess_exec(
            sys.executable, WORKER, str(tmp_path), str(EXAMPLE), "never", "1"
        )
        pids.append(process.pid)
        assert await process.wait() == -signal.SIGKILL
        pids.clear()
        async with extended(ext, tmp_path, TALK, stored=True, options=options()) as sdk:
            watched = Watched(sdk)
            await settle(sdk)
            rows = await watched.drained(sdk)
    types = sorted(body["type"] for body in server.accepted.values())
    assert types == ["session.created", "task.started", "turn.completed"]
    assert {row.state for row in rows} == {"completed"}
    assert {row.job_id for row in rows} == set(server.accepted)
    assert all(is_signed(one) for one in server.got)
