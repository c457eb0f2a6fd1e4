"""What every event log must do: the same tests over each implementation."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.store.samples import (
    LOGS,
    approval,
    artifact,
    key,
    message,
    opened,
    seqs,
    session,
    task,
    texts,
)

from codesdk.contract.errors import Conflict, InvalidRequest, NotFound, StorageFailure
from codesdk.contract.ports import EventLog
from codesdk.contract.records import Changes, Snapshot, StoredFrame

pytestmark = pytest.mark.anyio


@pytest.fixture(params=LOGS)
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    async with opened(request.param, tmp_path) as log:
        yield log


async def start(log: EventLog, *names: str) -> None:
    for name in names or ("ses_1",):
        assert await log.create(session(name), "me") == 1


async def change(log: EventLog, changes: Changes, name: str = "ses_1") -> None:
    """Append one frame with row changes."""
    head = await log.head(name)
    await log.append(name, 1, head + 1, [b"{}"], durable=False, changes=changes)


# --- frames --------------------------------------------------------------------------------------


async def test_frames_come_back_in_order_and_in_pages(log: EventLog):
    await start(log)
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=False)
    await log.append("ses_1", 1, 3, [b"c"], durable=True)
    assert await log.head("ses_1") == 3
    assert await log.read("ses_1", 0, 2) == [
        StoredFrame(seq=1, data=b"a", cursor=1, session_id="ses_1"),
        StoredFrame(seq=2, data=b"b", cursor=2, session_id="ses_1"),
    ]
    assert texts(await log.read("ses_1", 2, 2)) == [b"c"]
    assert await log.read("ses_1", 3, 2) == []


@pytest.mark.parametrize(
    ("after", "limit", "found"), [(-5, 9, [1, 2]), (0, 0, []), (0, -1, []), (2**70, 1, [])]
)
async def test_odd_pages_are_empty_or_whole_but_never_an_error(
    log: EventLog, after: int, limit: int, found: list[int]
):
    await start(log)
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=False)
    assert seqs(await log.read("ses_1", after, limit)) == found
    assert seqs(await log.read_all(after, limit)) == found


async def test_a_session_that_is_not_there_is_empty(log: EventLog):
    assert await log.head("ses_1") == 0
    assert await log.read("ses_1", 0, 5) == []
    assert await log.session("ses_1") is None
    assert await log.snapshot("ses_1") is None
    assert await log.messages("ses_1", before=None, limit=5) == []
    assert await log.tasks("ses_1", limit=5) == []
    assert await log.task_at("ses_1", 1) is None


async def test_all_sessions_are_read_in_the_order_of_commits(log: EventLog):
    await start(log, "ses_1", "ses_2")
    await log.append("ses_2", 1, 1, [b"a"], durable=False)
    await log.append("ses_1", 1, 1, [b"b", b"c"], durable=False)
    await log.append("ses_2", 1, 2, [b"d"], durable=False)
    frames = await log.read_all(0, 10)
    assert [(frame.session_id, frame.seq, frame.data) for frame in frames] == [
        ("ses_2", 1, b"a"),
        ("ses_1", 1, b"b"),
        ("ses_1", 2, b"c"),
        ("ses_2", 2, b"d"),
    ]
    assert await log.read_all(frames[1].cursor, 1) == frames[2:3]


async def test_appends_queued_together_are_committed_in_order(log: EventLog):
    await start(log)
    waiting = [log.append("ses_1", 1, seq, [str(seq).encode()], durable=False) for seq in range(1, 101)]
    await asyncio.gather(*waiting)
    assert seqs(await log.read("ses_1", 0, 200)) == list(range(1, 101))


async def test_an_append_is_queued_at_once_and_survives_that_nobody_waits(log: EventLog):
    await start(log)
    done = log.append("ses_1", 1, 1, [b"a"], durable=False)
    assert isinstance(done, asyncio.Future)
    done.cancel()
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    assert seqs(await log.read("ses_1", 0, 5)) == [1, 2]


@pytest.mark.parametrize("first_seq", [0, 1, 3, 4, -1])
async def test_an_append_that_does_not_continue_the_log_is_refused(log: EventLog, first_seq: int):
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    with pytest.raises(Conflict, match="ends at seq 1") as caught:
        await log.append("ses_1", 1, first_seq, [b"x"], durable=False, changes=Changes(snapshot=b"x"))
    assert caught.value.details == {"first_seq": first_seq, "head": 1}
    assert await log.head("ses_1") == 1
    assert await log.snapshot("ses_1") is None


async def test_what_is_queued_behind_a_failure_fails_and_the_neighbours_do_not(log: EventLog):
    await start(log, "ses_1", "ses_2")
    results = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False),
        log.append("ses_1", 1, 9, [b"x"], durable=False),
        log.append("ses_2", 1, 1, [b"n"], durable=False),
        log.append("ses_1", 1, 2, [b"b"], durable=False),  # would fit, but was meant to come after x
        log.append("ses_1", 1, 2, [], durable=False, changes=Changes(snapshot=b"x")),
        log.append("ses_2", 1, 2, [b"n"], durable=False),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [
        type(None),
        Conflict,
        type(None),
        Conflict,
        Conflict,
        type(None),
    ]
    assert "earlier append" in str(results[3])
    assert (await log.head("ses_1"), await log.head("ses_2")) == (1, 2)
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    assert await log.head("ses_1") == 2


async def test_an_append_without_frames_changes_rows_only(log: EventLog):
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.append("ses_1", 1, 2, [], durable=False, changes=Changes(snapshot=b"s"))
    assert await log.snapshot("ses_1") == Snapshot(seq=1, state=b"s")
    assert await log.head("ses_1") == 1


# --- owners --------------------------------------------------------------------------------------


async def test_a_session_is_registered_once(log: EventLog):
    await start(log)
    with pytest.raises(Conflict, match="exists"):
        await log.create(session(), "me")


async def test_a_writer_that_lost_its_session_cannot_append(log: EventLog):
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    assert await log.take("ses_1", "other") == 2
    results = await asyncio.gather(
        log.append("ses_1", 1, 2, [b"old"], durable=False),
        log.append("ses_1", 2, 2, [b"new"], durable=False),
        return_exceptions=True,
    )
    assert isinstance(results[0], Conflict)
    assert "taken over" in str(results[0])
    assert results[1] is None
    assert texts(await log.read("ses_1", 0, 5)) == [b"a", b"new"]


async def test_appends_queued_before_a_take_are_kept(log: EventLog):
    await start(log)
    before = log.append("ses_1", 1, 1, [b"a"], durable=False)
    assert await log.take("ses_1", "other") == 2
    await before
    assert await log.head("ses_1") == 1


async def test_what_is_not_there_cannot_be_taken_appended_to_or_deleted(log: EventLog):
    with pytest.raises(NotFound):
        await log.take("ses_1", "me")
    with pytest.raises(Conflict, match="not in the store"):
        await log.append("ses_1", 1, 1, [b"a"], durable=False)
    with pytest.raises(NotFound):
        await log.delete("ses_1")


# --- rows ----------------------------------------------------------------------------------------


async def test_rows_change_with_their_frames(log: EventLog):
    await start(log)
    changes = Changes(
        session=session(title="new", active_task_id="task_1"),
        snapshot=b"state",
        tasks=[task("task_1", started_seq=1)],
        messages=[message(0, "hi")],
        approvals=[approval("apr_1")],
        artifacts=[artifact("art_1")],
        keys=[key("k", answer={"task_id": "task_1", "more": [1, None]})],
    )
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=True, changes=changes)
    assert await log.session("ses_1") == changes.session
    assert await log.snapshot("ses_1") == Snapshot(seq=2, state=b"state")
    assert await log.task("task_1") == changes.tasks[0]
    assert await log.messages("ses_1", before=None, limit=5) == changes.messages
    assert await log.approvals(principal=None, session_id=None) == changes.approvals
    assert await log.artifact("art_1") == changes.artifacts[0]
    assert await log.key("local", "r", "k") == changes.keys[0]


async def test_a_later_row_takes_the_place_of_an_earlier_one(log: EventLog):
    await start(log)
    for number in range(3):
        await change(
            log,
            Changes(
                session=session(title=str(number)),
                snapshot=str(number).encode(),
                tasks=[task("task_1", ended_seq=number)],
                messages=[message(0, str(number))],
                approvals=[approval("apr_1", summary=str(number))],
                artifacts=[artifact("art_1", content_hash=f"sha256:{number}")],
                keys=[key("k", answer=number)],
            ),
        )
    assert await log.session("ses_1") == session(title="2")
    assert await log.snapshot("ses_1") == Snapshot(seq=3, state=b"2")
    assert await log.tasks("ses_1", limit=5) == [task("task_1", ended_seq=2)]
    assert await log.messages("ses_1", before=None, limit=5) == [message(0, "2")]
    assert await log.approvals(principal=None, session_id=None) == [approval("apr_1", summary="2")]
    assert await log.artifacts("ses_1", after=None, limit=5) == [artifact("art_1", content_hash="sha256:2")]
    assert await log.key("local", "r", "k") == key("k", answer=2)


async def test_sessions_are_listed_newest_first_and_filtered(log: EventLog):
    for number in range(6):
        status = "closed" if number == 4 else "open"
        await log.create(session(f"ses_{number}", principal="ab"[number % 2], status=status), "me")

    async def names(after: str | None, limit: int, principal: str | None, status: str | None) -> list[str]:
        rows = await log.sessions(after=after, limit=limit, principal=principal, status=status)  # type: ignore[arg-type]
        return [row.session_id for row in rows]

    assert await names(None, 2, None, None) == ["ses_5", "ses_4"]
    assert await names("ses_4", 9, None, None) == ["ses_3", "ses_2", "ses_1", "ses_0"]
    assert await names(None, 9, "a", "open") == ["ses_2", "ses_0"]
    assert await names(None, 9, None, "closed") == ["ses_4"]
    assert await names(None, 0, None, None) == []
    assert (await log.count_sessions("open"), await log.count_sessions("closed")) == (5, 1)


async def test_sessions_with_work_in_hand_are_found_after_a_crash(log: EventLog):
    await start(log, "ses_1", "ses_2", "ses_3")
    await change(log, Changes(session=session("ses_2", active_task_id="task_1")), "ses_2")
    await change(log, Changes(session=session("ses_3", queued=1)), "ses_3")
    assert await log.interrupted() == ["ses_1", "ses_2", "ses_3"]  # of ses_1, nothing was written yet
    await change(log, Changes(session=session("ses_1")), "ses_1")
    assert await log.interrupted() == ["ses_2", "ses_3"]
    await change(log, Changes(session=session("ses_2")), "ses_2")
    assert await log.interrupted() == ["ses_3"]


async def test_tasks_are_listed_newest_first_and_found_by_seq(log: EventLog):
    await start(log)
    first = task("task_z", started_seq=2, ended_seq=4, state="completed")
    second = task("task_a", started_seq=6)
    waiting = task("task_m", state="queued")
    await change(log, Changes(tasks=[first, second, waiting]))
    assert await log.tasks("ses_1", limit=2) == [waiting, second]
    found = [await log.task_at("ses_1", seq) for seq in range(1, 8)]
    assert found == [None, first, first, first, None, second, second]


async def test_messages_are_paged_from_the_end(log: EventLog):
    await start(log)
    await change(log, Changes(messages=[message(index) for index in range(5)]))
    assert await log.messages("ses_1", before=None, limit=2) == [message(3), message(4)]
    assert await log.messages("ses_1", before=3, limit=2) == [message(1), message(2)]
    assert await log.messages("ses_1", before=1, limit=9) == [message(0)]
    assert await log.messages("ses_1", before=0, limit=9) == []
    assert await log.messages("ses_1", before=None, limit=0) == []


async def test_open_approvals_are_listed_oldest_first(log: EventLog):
    await log.create(session("ses_1", principal="a"), "me")
    await log.create(session("ses_2", principal="b"), "me")
    await change(log, Changes(approvals=[approval("apr_9"), approval("apr_5")]))
    await change(log, Changes(approvals=[approval("apr_1", "ses_2")]), "ses_2")

    async def names(principal: str | None = None, session_id: str | None = None) -> list[str]:
        return [row.approval_id for row in await log.approvals(principal=principal, session_id=session_id)]

    assert await names() == ["apr_9", "apr_5", "apr_1"]
    assert await names(principal="b") == ["apr_1"]
    assert await names(session_id="ses_1") == ["apr_9", "apr_5"]
    assert await names(principal="b", session_id="ses_1") == []
    await change(
        log, Changes(approvals=[approval("apr_9", state="closed"), approval("apr_5", state="carried")])
    )
    assert await names() == ["apr_5", "apr_1"]


async def test_artifacts_are_paged_by_id_and_counted_by_content(log: EventLog):
    await start(log)
    await change(log, Changes(artifacts=[artifact("art_2", content_hash="sha256:2"), artifact("art_1")]))
    await log.add_artifact(artifact("art_3", "uploads", "sha256:3"))
    assert await log.artifacts("ses_1", after=None, limit=1) == [artifact("art_1")]
    assert await log.artifacts("ses_1", after="art_1", limit=9) == [
        artifact("art_2", content_hash="sha256:2")
    ]
    assert await log.artifact("art_3") == artifact("art_3", "uploads", "sha256:3")
    hashes = [f"sha256:{number}" for number in range(2000)]
    assert await log.referenced(hashes) == {"sha256:2", "sha256:3"}
    assert await log.referenced([]) == set()


async def test_a_task_id_belongs_to_one_session(log: EventLog):
    await start(log, "ses_1", "ses_2")
    results = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False, changes=Changes(tasks=[task("task_1")])),
        log.append("ses_2", 1, 1, [b"b"], durable=False, changes=Changes(tasks=[task("task_1", "ses_2")])),
        return_exceptions=True,
    )
    assert results[0] is None
    assert isinstance(results[1], Conflict)
    assert "task_1" in results[1].message
    assert await log.task("task_1") == task("task_1")
    assert await log.head("ses_2") == 0


@pytest.mark.parametrize(("name", "body"), [("ses_2", "sha256:aa"), ("ses_1", "sha256:bb")])
async def test_an_idempotency_key_stands_for_one_effect(log: EventLog, name: str, body: str):
    await start(log, "ses_1", "ses_2")
    await change(log, Changes(keys=[key("k", answer="first")]))
    with pytest.raises(Conflict, match="idempotency key 'k'"):
        await change(log, Changes(keys=[key("k", body, answer="second")]), name)
    assert await log.key("local", "r", "k") == key("k", answer="first")
    await change(log, Changes(keys=[key("k", body, answer="third", principal="other")]), name)
    assert await log.key("local", "other", "k") is None


async def test_a_row_that_json_cannot_hold_is_refused_alone(log: EventLog):
    await start(log, "ses_1", "ses_2")
    results = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False, changes=Changes(keys=[key("k", answer=object())])),
        log.append("ses_2", 1, 1, [b"b"], durable=False),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [InvalidRequest, type(None)]
    assert (await log.head("ses_1"), await log.head("ses_2")) == (0, 1)


# --- deleting, waiting, closing ------------------------------------------------------------------


async def test_a_deleted_session_leaves_nothing_behind(log: EventLog):
    await start(log, "ses_1", "ses_2")
    everything = Changes(
        snapshot=b"s",
        tasks=[task("task_1")],
        messages=[message(0)],
        approvals=[approval("apr_1")],
        artifacts=[artifact("art_1")],
        keys=[key("k")],
    )
    await change(log, everything)
    await change(log, Changes(), "ses_2")
    await log.delete("ses_1")
    assert await log.session("ses_1") is None
    assert await log.read("ses_1", 0, 9) == []
    assert await log.snapshot("ses_1") is None
    assert await log.task("task_1") is None
    assert await log.messages("ses_1", before=None, limit=9) == []
    assert await log.approvals(principal=None, session_id=None) == []
    assert await log.artifact("art_1") is None
    assert await log.key("local", "r", "k") is None
    assert await log.referenced(["sha256:00"]) == set()
    assert [frame.session_id for frame in await log.read_all(0, 9)] == ["ses_2"]


async def test_a_session_made_again_starts_anew_and_no_cursor_comes_twice(log: EventLog):
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"] * 5000, durable=False)
    last = (await log.read("ses_1", 4999, 1))[0].cursor
    await log.delete("ses_1")
    await start(log)
    assert await log.head("ses_1") == 0
    await log.append("ses_1", 1, 1, [b"b"], durable=False)
    frames = await log.read_all(0, 9)
    assert texts(frames) == [b"b"]
    assert frames[0].cursor > last


async def test_a_change_wakes_the_one_who_waits(log: EventLog):
    await start(log)
    await log.changed(60)  # what was committed before the first call counts
    waiter = asyncio.create_task(log.changed(60))
    await asyncio.sleep(0)
    assert not waiter.done()
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await waiter
    await log.changed(0.001)  # nothing new: ends by its time
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    await log.changed(60)


async def test_a_closed_log_has_committed_all_and_refuses_the_rest(log: EventLog):
    await start(log)
    last = log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.close()
    await last
    with pytest.raises(StorageFailure, match="closed"):
        await log.append("ses_1", 1, 2, [b"b"], durable=False)
    with pytest.raises(StorageFailure, match="closed"):
        await log.create(session("ses_2"), "me")
    await log.close()
