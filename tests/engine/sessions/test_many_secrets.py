"""Secrets without end, from a client, an adapter or an agent program: each way in is bounded, and the log says what was taught."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.engine.acting import live_session
from tests.engine.rig import Rig, rig

from codesdk import CodeSDK
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import RuntimeNotice, TaskFailed
from codesdk.contract.runtime import Finished
from codesdk.engine.models.requests import SessionTap
from codesdk.engine.sessions.session import LiveSession
from codesdk.handles import Session
from codesdk.redaction import Redactor
from codesdk.redaction.bounds import MAX_CHARS, MAX_SECRET_CHARS, MAX_SECRETS
from codesdk.redaction.patterns import MARKER
from codesdk.testing.fakes import delta, done, memory_sdk

TOO_MANY = [f"secret-{number:04}" for number in range(MAX_SECRETS + 1)]
TOO_LONG = ["s" * (MAX_SECRET_CHARS + 1)]
TOO_MUCH = [f"{number:04}" + "s" * (MAX_SECRET_CHARS - 4) for number in range(MAX_CHARS // MAX_SECRET_CHARS + 1)]  # fmt: skip
EXCESSES = [
    (TOO_MANY, "There may be 256 secrets, not 257"),
    (TOO_LONG, "A secret may have 8,192 characters, not 8,193"),
    (TOO_MUCH, "All secrets together may have 65,536 characters, not 73,728"),
]


@pytest.mark.parametrize(("secrets", "words"), EXCESSES)
async def test_a_session_is_not_given_more_secrets_than_can_be_searched_for(
    secrets: Sequence[str], words: str
):
    async with memory_sdk([[{"text": "Hi."}]]) as sdk:
        with pytest.raises(InvalidRequest, match=words) as caught:
            await sdk.create_session(runtime="scripted", secrets=list(secrets))
        assert secrets[0] not in caught.value.message


async def test_expressions_for_long_secrets_are_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch):
    threads: list[threading.Thread] = []
    prepare = Redactor.prepare

    def watched(redactor: Redactor) -> Redactor:
        threads.append(threading.current_thread())
        return prepare(redactor)

    monkeypatch.setattr(Redactor, "prepare", watched)
    async with memory_sdk([[{"text": "Hi."}]]) as sdk:
        session = await sdk.create_session(runtime="scripted", secrets=["a secret of many words " * 60])
        await sdk.session(session.id, secrets=["and another one"])
    assert len(threads) == 2, "once for each way to give secrets"
    assert threading.main_thread() not in threads


@pytest.fixture
def preparing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Long secrets are prepared until the second event is set; the first says that this has begun."""
    begun, go_on = threading.Event(), threading.Event()
    prepare = Redactor.prepare

    def slowly(redactor: Redactor) -> Redactor:
        begun.set()
        assert go_on.wait(30)
        return prepare(redactor)

    monkeypatch.setattr(Redactor, "prepare", slowly)
    yield begun, go_on
    go_on.set()


LONG = ["a secret of many words " * 60]
KEY = "provider-key-0193-4f1c9a7e"


async def test_a_session_that_is_being_created_learns_the_key_that_is_stored_meanwhile(
    tmp_path: Path, preparing: tuple[threading.Event, threading.Event]
):
    begun, go_on = preparing
    async with CodeSDK.open(tmp_path / "data") as sdk:
        creating = asyncio.create_task(
            sdk.create_session(runtime="scripted", workspace=tmp_path, secrets=LONG)
        )
        await asyncio.to_thread(begun.wait, 30)
        sdk.keys.add("alice", "openai", KEY)
        await sdk.create_session(runtime="scripted", workspace=tmp_path)  # the engine learns the key
        go_on.set()
        session = await creating
        await session.set(values={"key": KEY})
        stored = b"".join([frame.data async for frame in sdk.archive.frames(session.id)])
        assert MARKER.encode() in stored
        assert KEY.encode() not in stored


async def test_a_creation_that_is_given_up_does_not_count_as_an_open_session(
    tmp_path: Path, preparing: tuple[threading.Event, threading.Event]
):
    begun, go_on = preparing
    async with CodeSDK.open(tmp_path / "data") as sdk:
        creating = asyncio.create_task(
            sdk.create_session(runtime="scripted", workspace=tmp_path, secrets=LONG)
        )
        await asyncio.to_thread(begun.wait, 30)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        go_on.set()
        assert (await sdk.sessions(), sdk.engine.open_sessions) == ([], 0)


def live(r: Rig, session: Session) -> LiveSession:
    return r.get(live_session(r.engine, session.id))


@pytest.mark.parametrize(("secrets", "words"), EXCESSES)
def test_a_runtime_teaches_no_more_secrets_than_can_be_searched_for(secrets: Sequence[str], words: str):
    with rig() as r:
        session = r.open()
        r.start(session)
        scope = live(r, session).scope
        before = scope.redactor
        with pytest.raises(InvalidRequest, match=words):
            r.play.host.learn(secrets)
        assert scope.redactor is before, "nothing of it is taken"
        for secret in TOO_MANY[:MAX_SECRETS]:
            r.play.host.learn([secret])
        with pytest.raises(InvalidRequest, match="There may be 256 secrets"):
            r.play.host.learn(["one-more-secret"])
        scope.learn(["key-of-the-operator"])
        assert "key-of-the-operator" in scope.redactor.secrets, (
            "there is always room for those of CodeSDK itself"
        )


def test_the_log_says_when_a_runtime_names_secrets_and_not_which():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.play.host.learn(["hide-these-words", "and-these-words"])
        r.play.host.learn(["hide-these-words"])
        r.emit(delta("I will hide-these-words."), done())
        (notice,) = r.all(session, RuntimeNotice)
        assert (notice.kind, notice.details) == ("secrets", {"count": 2})
        assert "hide-these-words" not in str(r.events(session.id))


def test_what_is_learned_in_the_middle_of_a_task_is_looked_for_in_the_names_that_its_later_events_carry():
    with rig() as r:
        session = r.open().traced(client_id="app of hidden-words", request_id="r-hidden-words")
        r.start(session, task_id="task_after-hidden-words")
        r.emit(delta("Before."))
        r.play.host.learn(["hidden-words"])
        r.emit(delta("After."), done())
        events = r.events(session.id)
        at = next(event.seq for event in events if isinstance(event.payload, RuntimeNotice))
        before, after = events[: at - 1], events[at - 1 :]
        assert "app of hidden-words" in str([event.trace for event in before])
        assert len(after) > 2
        # The id of the task cannot be taken back: events refer to it.
        assert {event.trace.task_id for event in after} == {"task_after-hidden-words"}
        assert {event.trace.client_id for event in after if event.trace.client_id} == {"app of [redacted]"}
        assert {event.trace.request_id for event in after if event.trace.request_id} == {"r-[redacted]"}


def test_a_program_that_brings_logins_without_end_is_ended():
    with rig() as r:
        session = r.open()
        r.start(session)
        tap: SessionTap = live(r, session).resources.tap

        async def bring(secrets: Sequence[str]) -> None:
            tap.learn_login(secrets)

        r.get(bring(TOO_MANY[:-1]))
        r.get(bring(TOO_MANY[-1:]))
        r.play.emit(Finished(stop_reason="end_turn"))
        r.settle()
        error = r.one(session, TaskFailed).error
        assert (error.code, "brought too many logins" in error.message) == ("RUNTIME_PROTOCOL", True)
