"""Readers of a session: each sees every event once, in order, and only what is stored, however slow it is."""

import pytest
from tests.engine.acting import delete, follow
from tests.engine.world import World, world

from codesdk.contract.codec import decode
from codesdk.engine.log.feed import RING_EVENTS
from codesdk.testing.fakes import delta, done, message

MANY = 3 * RING_EVENTS


def stored(w: World, session: str) -> list[bytes]:
    return [frame.data for frame in w.frames(session)]


def read_to_end(w: World, *readers: object) -> None:
    for _ in range(MANY):
        w.settle()
        if all(reader.cursor == len(stored(w, reader.session_id)) for reader in readers):  # type: ignore[attr-defined]
            return
        for reader in readers:
            reader.pull()  # type: ignore[attr-defined]


def test_a_reader_sees_what_was_stored_before_it_came_and_what_comes_later(w: World):
    session = w.create()
    w.start(session)
    w.emit(delta("Hel"))
    reader = w.watch(session)
    reader.pull()
    w.settle()
    assert reader.seen == stored(w, session)
    w.emit(delta("lo"), message("Hello"), done())
    assert reader.seen == stored(w, session)
    reader.check()


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_reader_may_begin_anywhere(w: World, after: int):
    session = w.create()
    w.start(session)
    w.emit(message("Hello"), done())
    reader = w.watch(session, after)
    reader.pull()
    w.settle()
    assert reader.seen == stored(w, session)[after:]


@pytest.mark.parametrize("sqlite", [False, True])
def test_a_reader_that_falls_behind_reads_on_from_the_store_and_loses_nothing(sqlite: bool):
    with world(sqlite=sqlite) as w:
        session = w.create()
        w.start(session)
        fast, slow = w.watch(session), w.watch(session, slow=True)
        fast.pull()
        slow.pull()
        w.settle()
        for _ in range(6):
            w.emit(*[delta("x") for _ in range(MANY // 6)])
        w.emit(message("done"), done())
        assert len(slow.seen) < 10
        assert fast.seen == stored(w, session)
        read_to_end(w, slow)
        assert slow.seen == stored(w, session)
        assert w.session(session).recorder.feed.catch_ups > 0
        for reader in (fast, slow):
            reader.check()
        w.check_all()


def test_a_slow_reader_slows_nobody(w: World):
    session = w.create()
    reader = w.watch(session, slow=True)
    reader.pull()
    w.start(session)
    w.emit(*[delta("x") for _ in range(MANY)], message("done"), done())
    assert w.types(session)[-1] == "task.completed"


def test_nothing_is_shown_before_it_is_committed(w: World):
    session = w.create()
    reader = w.watch(session)
    reader.pull()
    w.start(session)
    w.runtime.tasks[-1].emit(delta("a"), delta("b"), message("ab"), done())
    live = w.session(session)
    for _ in range(60):
        w.settle(1)
        assert len(reader.seen) <= len(stored(w, session)) <= live.state.seq
    assert reader.seen == stored(w, session)
    reader.check()


def test_readers_of_a_session_end_when_the_engine_closes_after_they_have_seen_everything(w: World):
    session = w.create()
    w.start(session)
    reader = w.watch(session)
    reader.pull()
    w.close()
    assert decode(reader.seen[-1]).type == "task.stopped"
    assert reader.seen == stored(w, session)
    w.reopen()


def test_a_reader_of_a_deleted_session_comes_to_an_end(w: World):
    session = w.create()
    live = w.session(session)

    async def read() -> list[int]:
        return [item.event.seq async for batch in follow(live, 0) for item in batch]

    reading = w.loop.create_task(read())
    w.settle()
    w.get(delete(w.engine, session))
    w.settle()
    assert reading.result() == [1]


def test_the_same_event_object_is_shown_to_all(w: World):
    session = w.create()
    live = w.session(session)

    async def first() -> object:
        async for batch in follow(live, 0):
            return batch[0].event
        return None

    readers = [w.loop.create_task(first()) for _ in range(2)]
    w.settle()
    one, two = (reader.result() for reader in readers)
    assert one is two
