"""What every `EventLog` must do with frames, owners and its own end. Each check is given an empty log.

The counterpart of `log_row_checks`.
"""

import asyncio

from codesdk.contract.errors import CodeSDKError, Conflict, NotFound, StorageFailure
from codesdk.contract.ports import EventLog
from codesdk.contract.records import Changes, SessionRow, Snapshot, StoredFrame
from codesdk.testing.cells import holds, refused, same

TIME = "2026-01-02T03:04:05.678Z"


def session(name: str = "ses_1", principal: str = "local") -> SessionRow:
    """Return a session's row."""
    return SessionRow(
        session_id=name,
        principal=principal,
        status="open",
        runtime="scripted",
        workspace="ws",
        permission_mode="ask",
        created_at=TIME,
        updated_at=TIME,
    )


async def start(log: EventLog, *names: str) -> None:
    """Register sessions."""
    for name in names or ("ses_1",):
        same("the epoch of a new session", await log.create(session(name), "me"), 1)


def seqs(frames: list[StoredFrame]) -> list[int]:
    """Return the seqs of frames."""
    return [frame.seq for frame in frames]


def data(frames: list[StoredFrame]) -> list[bytes]:
    """Return the bytes of frames."""
    return [frame.data for frame in frames]


async def frames_come_back_in_order_and_in_pages(log: EventLog) -> None:
    await start(log)
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=False)
    await log.append("ses_1", 1, 3, [b"c"], durable=True)
    same("the head", await log.head("ses_1"), 3)
    page = await log.read("ses_1", 0, 2)
    same(
        "the first page",
        [(frame.seq, frame.data, frame.damage) for frame in page],
        [(1, b"a", None), (2, b"b", None)],
    )
    same("the second page", data(await log.read("ses_1", 2, 2)), [b"c"])
    same("the page after the last", await log.read("ses_1", 3, 2), [])


async def frames_may_hold_any_bytes(log: EventLog) -> None:
    await start(log)
    frames = [b"", b"\0", b"\xff" * 10, "é".encode(), b"x" * 1_000_000]
    await log.append("ses_1", 1, 1, frames, durable=False)
    holds(data(await log.read("ses_1", 0, 9)) == frames, "what is read is what was written, byte for byte")


async def odd_pages_are_empty_or_whole_but_never_an_error(log: EventLog) -> None:
    await start(log)
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=False)
    odd: list[tuple[int, int, list[int]]] = [(-5, 9, [1, 2]), (0, 0, []), (0, -1, []), (2**70, 1, [])]
    for after, limit, wanted in odd:
        same(f"read(after {after}, limit {limit})", seqs(await log.read("ses_1", after, limit)), wanted)
        same(f"read_all(after {after}, limit {limit})", seqs(await log.read_all(after, limit)), wanted)


async def a_session_that_is_not_there_is_empty(log: EventLog) -> None:
    same("head", await log.head("ses_1"), 0)
    same("read", await log.read("ses_1", 0, 5), [])
    same("session", await log.session("ses_1"), None)
    same("snapshot", await log.snapshot("ses_1"), None)
    same("messages", await log.messages("ses_1", before=None, limit=5), [])
    same("tasks", await log.tasks("ses_1", limit=5), [])
    same("task_at", await log.task_at("ses_1", 1), None)


async def all_sessions_are_read_in_the_order_of_commits(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    await log.append("ses_2", 1, 1, [b"a"], durable=False)
    await log.append("ses_1", 1, 1, [b"b", b"c"], durable=False)
    await log.append("ses_2", 1, 2, [b"d"], durable=False)
    frames = await log.read_all(0, 10)
    found = [(frame.session_id, frame.seq, frame.data) for frame in frames]
    wanted = [("ses_2", 1, b"a"), ("ses_1", 1, b"b"), ("ses_1", 2, b"c"), ("ses_2", 2, b"d")]
    same("the whole log", found, wanted)
    cursors = [frame.cursor for frame in frames]
    holds(cursors == sorted(set(cursors)) and cursors[0] > 0, f"cursors grow from above 0, found {cursors}")
    same("the page after the second cursor", await log.read_all(cursors[1], 1), frames[2:3])


async def deltas_can_be_left_out(log: EventLog) -> None:
    await start(log)
    delta, said = b'{"type":"model.output.delta","seq":1}', b'{"type":"runtime.notice","x":"'
    quoting = said + rb'{\"type\":\"model.output.delta\"}"}'
    await log.append("ses_1", 1, 1, [delta, said, delta, delta, quoting], durable=False)
    frames = await log.read_all(0, 2, deltas=False)
    same("the first two that are no deltas", seqs(frames), [2, 5])
    same("the page after them", await log.read_all(frames[-1].cursor, 2, deltas=False), [])
    same("the whole log", seqs(await log.read_all(0, 9)), [1, 2, 3, 4, 5])


async def each_subscriber_keeps_a_cursor(log: EventLog) -> None:
    same("the cursor of somebody new", await log.cursor_of("one"), None)
    same("the last cursor of an empty log", await log.last_cursor(), 0)
    await log.keep_cursor("one", 7)
    await log.keep_cursor("two", 5)
    await log.keep_cursor("one", 2**40)
    same("the cursors", [await log.cursor_of(name) for name in ("one", "two", "")], [2**40, 5, None])
    await start(log)
    await log.append("ses_1", 1, 1, [b"1", b"2"], durable=False)
    same("the last cursor", await log.last_cursor(), (await log.read_all(0, 9))[-1].cursor)


async def appends_queued_together_are_committed_in_order(log: EventLog) -> None:
    await start(log)
    waiting = [log.append("ses_1", 1, seq, [str(seq).encode()], durable=False) for seq in range(1, 101)]
    await asyncio.gather(*waiting)
    same("seqs", seqs(await log.read("ses_1", 0, 200)), list(range(1, 101)))


async def an_append_is_queued_at_once_before_it_is_awaited(log: EventLog) -> None:
    await start(log)
    first = log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    same("seqs", seqs(await log.read("ses_1", 0, 5)), [1, 2])
    await first


async def an_append_that_does_not_continue_the_log_is_refused_whole(log: EventLog) -> None:
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    for first_seq in (0, 1, 3, 4, -1):
        work = log.append("ses_1", 1, first_seq, [b"x"], durable=False, changes=Changes(snapshot=b"x"))
        await refused(f"an append at seq {first_seq} to a log that ends at 1", work, Conflict)
    same("the head", await log.head("ses_1"), 1)
    same("the snapshot", await log.snapshot("ses_1"), None)


async def what_is_queued_behind_a_failure_fails_and_the_neighbours_do_not(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    results = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False),
        log.append("ses_1", 1, 9, [b"x"], durable=False),
        log.append("ses_2", 1, 1, [b"n"], durable=False),
        log.append("ses_1", 1, 2, [b"b"], durable=False),  # would fit, but was sent to follow x
        log.append("ses_1", 1, 2, [], durable=False, changes=Changes(snapshot=b"x")),
        log.append("ses_2", 1, 2, [b"n"], durable=False),
        return_exceptions=True,
    )
    kinds = [type(result).__name__ for result in results]
    same("results", kinds, ["NoneType", "Conflict", "NoneType", "Conflict", "Conflict", "NoneType"])
    same("the heads", (await log.head("ses_1"), await log.head("ses_2")), (1, 2))
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    same("the head after a new append", await log.head("ses_1"), 2)


async def an_append_without_frames_changes_rows_only(log: EventLog) -> None:
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.append("ses_1", 1, 2, [], durable=False, changes=Changes(snapshot=b"s"))
    same("the snapshot", await log.snapshot("ses_1"), Snapshot(seq=1, state=b"s"))
    same("the head", await log.head("ses_1"), 1)


async def a_session_is_registered_once(log: EventLog) -> None:
    await start(log)
    await refused("create, again", log.create(session(), "me"), Conflict)


async def a_writer_that_lost_its_session_cannot_append(log: EventLog) -> None:
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    same("the epoch after a take", await log.take("ses_1", "other"), 2)
    old, new = await asyncio.gather(
        log.append("ses_1", 1, 2, [b"old"], durable=False),
        log.append("ses_1", 2, 2, [b"new"], durable=False),
        return_exceptions=True,
    )
    holds(isinstance(old, Conflict), f"the old epoch gets Conflict, found {old!r}")
    holds(new is None, f"the new epoch may append, found {new!r}")
    same("frames", data(await log.read("ses_1", 0, 5)), [b"a", b"new"])


async def appends_queued_before_a_take_are_kept(log: EventLog) -> None:
    await start(log)
    before = log.append("ses_1", 1, 1, [b"a"], durable=False)
    same("the epoch after a take", await log.take("ses_1", "other"), 2)
    await before
    same("the head", await log.head("ses_1"), 1)


async def what_is_not_there_cannot_be_taken_appended_to_or_deleted(log: EventLog) -> None:
    await refused("take", log.take("ses_1", "me"), NotFound)
    await refused("append", log.append("ses_1", 1, 1, [b"a"], durable=False), Conflict)
    await refused("delete", log.delete("ses_1"), NotFound)


async def a_session_made_again_starts_over_and_no_cursor_comes_twice(log: EventLog) -> None:
    await start(log)
    await log.append("ses_1", 1, 1, [b"a"] * 5000, durable=False)
    last = (await log.read("ses_1", 4999, 1))[0].cursor
    await log.delete("ses_1")
    await start(log)
    same("the head", await log.head("ses_1"), 0)
    await log.append("ses_1", 1, 1, [b"b"], durable=False)
    frames = await log.read_all(0, 9)
    same("the whole log", data(frames), [b"b"])
    holds(frames[0].cursor > last, f"the cursor is over {last}, found {frames[0].cursor}")


async def a_commit_wakes_the_one_who_waits(log: EventLog) -> None:
    await start(log)
    await log.changed(60)  # what was committed before the first call counts
    waiter = asyncio.create_task(log.changed(60))
    await asyncio.sleep(0)
    holds(not waiter.done(), "changed waits while nothing is committed")
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await waiter
    await log.changed(0.001)  # nothing new: ends by its timeout
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    await log.changed(60)


async def a_closed_log_has_committed_all_and_refuses_the_rest(log: EventLog) -> None:
    await start(log)
    last = log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.close()
    await last
    await refused("append", log.append("ses_1", 1, 2, [b"b"], durable=False), StorageFailure)
    await refused("create", log.create(session("ses_2"), "me"), StorageFailure)
    await log.close()


async def every_refusal_is_one_of_the_errors_of_the_contract(log: EventLog) -> None:
    await start(log)
    work = (
        log.create(session(), "me"),
        log.take("ses_9", "me"),
        log.append("ses_1", 7, 1, [b"a"], durable=False),
        log.append("ses_1", 1, 7, [b"a"], durable=False),
        log.delete("ses_9"),
    )
    for result in await asyncio.gather(*work, return_exceptions=True):
        holds(isinstance(result, CodeSDKError), f"a CodeSDKError comes, found {result!r}")


FRAME_CHECKS = (
    frames_come_back_in_order_and_in_pages,
    frames_may_hold_any_bytes,
    odd_pages_are_empty_or_whole_but_never_an_error,
    a_session_that_is_not_there_is_empty,
    all_sessions_are_read_in_the_order_of_commits,
    deltas_can_be_left_out,
    each_subscriber_keeps_a_cursor,
    appends_queued_together_are_committed_in_order,
    an_append_is_queued_at_once_before_it_is_awaited,
    an_append_that_does_not_continue_the_log_is_refused_whole,
    what_is_queued_behind_a_failure_fails_and_the_neighbours_do_not,
    an_append_without_frames_changes_rows_only,
    a_session_is_registered_once,
    a_writer_that_lost_its_session_cannot_append,
    appends_queued_before_a_take_are_kept,
    what_is_not_there_cannot_be_taken_appended_to_or_deleted,
    a_session_made_again_starts_over_and_no_cursor_comes_twice,
    a_commit_wakes_the_one_who_waits,
    a_closed_log_has_committed_all_and_refuses_the_rest,
    every_refusal_is_one_of_the_errors_of_the_contract,
)
