"""Subscribers: whoever listens from a seq sees every later event once and in order, and none that is not stored."""

import asyncio
from typing import Any

import pytest
from tests.engine.rig import BEGUN, Rig, rig

from codesdk import Session, StorageFailure
from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.engine.log import feed as feeds
from codesdk.engine.sessions.registry import RETRY_S
from codesdk.store.memory import MemoryLog
from codesdk.testing.fakes import call, delta, done, message


class Listener:
    """Takes a session's events as they come; a slow one, only when it is told to."""

    def __init__(self, r: Rig, session: Session, after: int = 0, *, slow: bool = False) -> None:
        self.seen: list[Event] = []
        self.error: CodeSDKError | None = None
        self._go = asyncio.Event()
        self._slow = slow
        self.task = r.loop.create_task(self._listen(session, after))
        r.settle()

    async def _listen(self, session: Session, after: int) -> None:
        try:
            async for event in session.events(after):
                self.seen.append(event)
                if self._slow:
                    await self._go.wait()
        except CodeSDKError as error:
            self.error = error

    def hurry(self) -> None:
        self._slow = False
        self._go.set()

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.seen]


def talk(r: Rig, session: Session, deltas: int = 3) -> None:
    """Play a task of some deltas."""
    name = f"m{r.last(session).seq}"
    r.start(session)
    for number in range(deltas):
        r.emit(delta(f"{number} ", name))
    r.emit(message("whole", name), done())


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(("after", "first"), [(0, 1), (4, 5), (8, 9), (12, 13)])
def test_a_subscriber_sees_everything_after_its_seq_stored_and_live(after: int, first: int, reopened: bool):
    with rig() as r:
        session = r.open()
        talk(r, session)
        assert r.last(session).seq == 8
        if reopened:
            r.reopen()
            session = r.handle(session)
        listener = Listener(r, session, after)
        assert listener.seqs == list(range(first, 9))
        talk(r, session)
        assert r.last(session).seq == 15
        assert listener.seqs == list(range(first, 16))
        assert listener.seen == r.events(session.id)[first - 1 :]


def test_a_subscriber_that_falls_behind_catches_up_from_the_store(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feeds, "RING_EVENTS", 8)
    monkeypatch.setattr(feeds, "PAGE_EVENTS", 5)
    with rig() as r:
        session = r.open()
        slow, quick = Listener(r, session, slow=True), Listener(r, session)
        talk(r, session, deltas=50)
        assert slow.seqs == [1]
        catch_ups = r.session(session.id).recorder.feed.catch_ups
        slow.hurry()
        r.settle()
        assert r.session(session.id).recorder.feed.catch_ups > catch_ups
        talk(r, session)
        assert slow.seen == quick.seen == r.events(session.id)


def test_subscribers_that_come_at_different_times_see_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feeds, "RING_EVENTS", 4)
    with rig() as r:
        session = r.open("yolo")
        listeners = [Listener(r, session)]
        r.start(session)
        for item in (delta("a"), call("fake.read"), delta("b"), message("ab"), done()):
            r.emit(item)
            listeners.append(Listener(r, session))
        assert [listener.seen for listener in listeners] == [r.events(session.id)] * 6


def test_a_subscriber_sees_only_what_is_stored_the_moment_it_sees_it():
    with rig() as r:
        session = r.open("yolo")
        readers = [r.watch(session.id), r.watch(session.id, 2, slow=True)]
        r.start(session)
        for item in (*map(delta, "abcdef"), call("fake.read"), message("abcdef"), done()):
            for reader in readers:
                reader.pull()
            r.emit(item)
        for reader in readers * 3:
            reader.pull()
            r.settle()
            reader.check()
        stored = [frame.data for frame in r.frames(session.id)]
        assert [reader.seen for reader in readers] == [stored, stored[2:]]


def test_a_subscriber_is_not_shown_the_events_of_other_sessions():
    with rig() as r:
        session, other = r.open(), r.open()
        listener = Listener(r, session)
        talk(r, other)
        assert listener.seqs == [1]


def test_a_task_is_followed_from_its_first_event_to_its_last_and_no_further():
    with rig() as r:
        session = r.open()
        talk(r, session)
        task = r.start(session, "two")
        queued = r.start(session, "three")

        async def follow(of: Any) -> list[Event]:
            return [event async for event in of.events()]

        following = [r.loop.create_task(follow(of)) for of in (task, queued)]
        r.emit(message("zwei", "m-two"), done())
        r.emit(message("drei", "m-three"), done())
        one = [*BEGUN, "model.output.completed", "task.completed"]
        assert [[event.type for event in each.result()] for each in following] == [one, one]
        assert r.get(follow(task)) == following[0].result()


@pytest.mark.parametrize("how", ["engine", "session deleted"])
def test_subscriptions_end_when_nothing_more_can_come(how: str):
    with rig() as r:
        session = r.open()
        talk(r, session)
        listener, slow = Listener(r, session), Listener(r, session, slow=True)
        stored = r.events(session.id)
        if how == "engine":
            r.close()
        else:
            r.get(r.sdk.delete_session(session.id))
        assert listener.task.done()
        slow.hurry()
        r.settle()
        assert (slow.task.done(), slow.error, listener.error) == (True, None, None)
        assert listener.seen == stored
        assert slow.seen == (stored if how == "engine" else slow.seen)


# --- a log that cannot be written ----------------------------------------------------------------


def test_a_storage_failure_is_told_to_subscribers_and_callers_and_the_session_is_recovered():
    with rig() as r:
        session, other = r.open("yolo"), r.open("yolo")
        task = r.start(session)
        talk(r, other)
        play = r.runtime.tasks[0]
        listener, bystander = Listener(r, session), Listener(r, other)
        stored = r.events(session.id)
        r.flaky.appends = 0
        play.emit(delta("lost"))
        waiting = r.do(task.result(), turns=0)
        r.settle()
        assert isinstance(listener.error, StorageFailure)
        assert listener.seen == stored
        assert isinstance(waiting.exception(), StorageFailure)
        assert play.closed
        assert (bystander.error, bystander.task.done()) == (None, False)

        talk(r, other)
        assert bystander.seen == r.events(other.id)

        later = Listener(r, session)
        assert later.error is None, "it was told once; then the session is opened again"
        assert r.story(session)[len(stored) :] == ["session.recovered", "task.failed"]
        assert [end.error.code for end in r.ended(session)] == ["STORAGE_FAILED"]
        r.get(session.resume("go on"))
        r.emit(message("done"), done())
        assert [type(end) for end in r.ended(session)] == [ev.TaskFailed, ev.TaskCompleted]
        assert later.seen == r.events(session.id)


CALLS: dict[str, Any] = {
    "start": lambda s, name: s.start("More"),
    "steer": lambda s, name: s.steer("left"),
    "stop": lambda s, name: s.stop(),
    "approve": lambda s, name: s.approve(name),
    "deny": lambda s, name: s.deny(name, "no"),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_call_whose_effect_cannot_be_stored_raises_and_has_no_effect(what: str):
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(call("fake.write"))
        stored = r.frames(session.id)
        r.flaky.appends = 0
        asking = r.do(CALLS[what](session, r.call(session)))
        assert isinstance(asking.exception(), StorageFailure)
        assert r.tools.runs == []
        assert r.frames(session.id) == stored
        r.pass_time(RETRY_S)
        assert [row.state for row in r.get(r.sdk.approvals())] == ["carried"]
        r.get(session.approve(r.call(session)))
        r.get(session.resume())
        assert [run.attempt for run in r.tools.invocations] == [2]


def test_a_disk_that_stays_full_is_told_to_everyone_who_asks():
    with rig() as r:
        session = r.open()
        r.start(session)
        memory: Any = r.log
        memory.fault = lambda _: OSError("No space left on device")
        r.emit(delta("lost"))
        for _ in range(3):
            assert r.refused(session.start("More"), StorageFailure) == "STORAGE_FAILED"
        memory.fault = None
        r.get(session.resume())
        r.emit(message("done"), done())
        assert [type(end) for end in r.ended(session)] == [ev.TaskFailed, ev.TaskCompleted]


class Ring:
    """A feed of a log that nobody may read, and readers of it."""

    def __init__(self) -> None:
        self.feed = feeds.Feed(MemoryLog(), "ses_a", 0)
        self.seq = 0

    def publish(self, count: int, size: int = 1) -> None:
        items = [self._item(self.seq + number, size) for number in range(1, count + 1)]
        self.seq += count
        self.feed.publish(items)

    def holds(self) -> int:
        """Return how far back the ring reaches."""
        return max(n for n in range(self.seq + 1) if self.feed.since(self.seq - n) is not None)

    def _item(self, seq: int, size: int) -> feeds.Published:
        payload = ev.RuntimeNotice(kind="warning", message="", details={})
        event = ev.RuntimeNoticeEvent(
            schema_version=1,
            seq=seq,
            time="",
            trace=ev.Trace(session_id="ses_a"),
            runtime=ev.RuntimeInfo(name="fake"),
            payload=payload,
        )
        return feeds.Published(event.seq, b"x" * size, event)


@pytest.mark.anyio
async def test_the_ring_holds_what_a_reader_has_not_seen_and_a_few_events_for_those_who_come():
    ring = Ring()
    ring.publish(100)
    assert ring.holds() == feeds.FEW_EVENTS
    with ring.feed.reading():
        ring.publish(300)
        assert ring.holds() == feeds.FEW_EVENTS + 300
        waiting = asyncio.ensure_future(ring.feed.wait())
        await asyncio.sleep(0)
        assert ring.holds() == feeds.FEW_EVENTS
        ring.feed.forget()
        assert ring.holds() == 0
        ring.publish(1)
        assert await waiting
        ring.feed.forget()
        assert ring.holds() == 1, "somebody has yet to see it"
    assert ring.holds() == 0


@pytest.mark.anyio
async def test_the_ring_is_bounded_in_bytes_and_gives_no_more_than_is_wanted_at_once():
    ring = Ring()
    with ring.feed.reading():
        ring.publish(10, size=1000)
        assert [item.event.seq for item in ring.feed.since(2, 2500) or []] == [3, 4, 5]
        ring.publish(1, size=feeds.RING_BYTES - 500)
        assert ring.holds() == 1
        ring.publish(1, size=feeds.RING_BYTES + 1)
        assert ring.holds() == 0
