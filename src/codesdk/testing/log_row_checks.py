"""What every `EventLog` must do with the rows beside its frames. Each check is given an empty log.

The counterpart of `log_checks`.
"""

import asyncio
from typing import Any, Literal

import msgspec

from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.messages import ArtifactRef, user
from codesdk.contract.ports import EventLog
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    Changes,
    KeyRow,
    MessageRow,
    SessionStatus,
    Snapshot,
    TaskRow,
    TaskState,
)
from codesdk.testing.cells import holds, refused, same
from codesdk.testing.log_checks import TIME, session, start

_alter = msgspec.structs.replace


def _task(name: str, of: str = "ses_1", state: TaskState = "running") -> TaskRow:
    return TaskRow(task_id=name, session_id=of, state=state, created_at=TIME)


def _message(index: int, text: str = "hello") -> MessageRow:
    return MessageRow(index=index, seq=index, tokens=3, chain=f"sha256:{index}", message=user(text))


def _approval(
    name: str,
    of: str = "ses_1",
    state: Literal["waiting", "carried", "approved", "closed"] = "waiting",
    summary: str = "run",
) -> ApprovalRow:
    return ApprovalRow(
        approval_id=name, session_id=of, state=state, kind="tool", summary=summary, requested_at=TIME
    )


def _artifact(name: str, scope: str = "ses_1", content_hash: str = "sha256:00") -> ArtifactRow:
    ref = ArtifactRef(artifact_id=name, content_hash=content_hash, content_type="text/plain", size_bytes=1)
    return ArtifactRow(ref=ref, scope=scope, principal="local", created_at=TIME)


def _key(answer: Any, body: str = "sha256:aa", principal: str = "local") -> KeyRow:
    return KeyRow(principal=principal, route="r", key="k", body_hash=body, answer=answer)


async def _change(log: EventLog, changes: Changes, name: str = "ses_1") -> None:
    """Append one frame with row changes."""
    await log.append(name, 1, await log.head(name) + 1, [b"{}"], durable=False, changes=changes)


async def rows_change_with_their_frames(log: EventLog) -> None:
    await start(log)
    changes = Changes(
        session=_alter(session(), title="new", active_task_id="task_1"),
        snapshot=b"state",
        tasks=[_alter(_task("task_1"), started_seq=1)],
        messages=[_message(0, "hi")],
        approvals=[_approval("apr_1")],
        artifacts=[_artifact("art_1")],
        keys=[_key({"task_id": "task_1", "more": [1, None]})],
    )
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=True, changes=changes)
    same("session", await log.session("ses_1"), changes.session)
    same("snapshot", await log.snapshot("ses_1"), Snapshot(seq=2, state=b"state"))
    same("task", await log.task("task_1", "local"), changes.tasks[0])
    same("messages", await log.messages("ses_1", before=None, limit=5), changes.messages)
    same("approvals", await log.approvals(principal=None, session_id=None), changes.approvals)
    same("artifact", await log.artifact("art_1"), changes.artifacts[0])
    same("key", await log.key("local", "r", "k"), changes.keys[0])


async def rows_change_without_a_frame_in_the_order_of_asking(log: EventLog) -> None:
    await start(log)
    await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False),
        log.append("ses_1", 1, 2, [], durable=False, changes=Changes(keys=[_key("done")])),
        log.append("ses_1", 1, 2, [b"b"], durable=False),
    )
    same("key", await log.key("local", "r", "k"), _key("done"))
    same("head", await log.head("ses_1"), 2)


async def a_later_row_takes_the_place_of_an_earlier_one(log: EventLog) -> None:
    await start(log)
    for number in range(3):
        await _change(
            log,
            Changes(
                session=_alter(session(), title=str(number)),
                snapshot=str(number).encode(),
                tasks=[_alter(_task("task_1"), ended_seq=number)],
                messages=[_message(0, str(number))],
                approvals=[_approval("apr_1", summary=str(number))],
                artifacts=[_artifact("art_1", content_hash=f"sha256:{number}")],
                keys=[_key(number)],
            ),
        )
    same("session", await log.session("ses_1"), _alter(session(), title="2"))
    same("snapshot", await log.snapshot("ses_1"), Snapshot(seq=3, state=b"2"))
    same("tasks", await log.tasks("ses_1", limit=5), [_alter(_task("task_1"), ended_seq=2)])
    same("messages", await log.messages("ses_1", before=None, limit=5), [_message(0, "2")])
    same("approvals", await log.approvals(principal=None, session_id=None), [_approval("apr_1", summary="2")])
    artifacts = await log.artifacts("ses_1", after=None, limit=5)
    same("artifacts", artifacts, [_artifact("art_1", content_hash="sha256:2")])
    same("key", await log.key("local", "r", "k"), _key(2))


async def sessions_are_listed_newest_first_and_filtered(log: EventLog) -> None:
    for number in range(6):
        row = session(f"ses_{number}", principal="ab"[number % 2])
        await log.create(_alter(row, status="closed" if number == 4 else "open"), "me")

    async def listed(
        after: str | None, limit: int, principal: str | None, status: SessionStatus | None
    ) -> str:
        rows = await log.sessions(after=after, limit=limit, principal=principal, status=status)
        return "".join(row.session_id[-1] for row in rows)

    same("the first two", await listed(None, 2, None, None), "54")
    same("after ses_4", await listed("ses_4", 9, None, None), "3210")
    same("open ones of a", await listed(None, 9, "a", "open"), "20")
    same("closed ones", await listed(None, 9, None, "closed"), "4")
    same("none", await listed(None, 0, None, None), "")
    same("counts", (await log.count_sessions("open"), await log.count_sessions("closed")), (5, 1))


async def sessions_with_work_in_hand_are_found_after_a_crash(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2", "ses_3")
    await _change(log, Changes(session=_alter(session("ses_2"), active_task_id="task_1")), "ses_2")
    await _change(log, Changes(session=_alter(session("ses_3"), queued=1)), "ses_3")
    same(
        "all three, for of ses_1 nothing was written",
        await log.interrupted("me"),
        ["ses_1", "ses_2", "ses_3"],
    )
    await _change(log, Changes(session=session("ses_1")), "ses_1")
    same("an active and a queued task", await log.interrupted("me"), ["ses_2", "ses_3"])
    await _change(log, Changes(session=session("ses_2")), "ses_2")
    same("a queued task", await log.interrupted("me"), ["ses_3"])


async def tasks_are_listed_newest_first_and_found_by_seq(log: EventLog) -> None:
    await start(log)
    first = _alter(_task("task_z", state="completed"), started_seq=2, ended_seq=4)
    second = _alter(_task("task_a"), started_seq=6)
    waiting = _task("task_m", state="queued")
    await _change(log, Changes(tasks=[first, second, waiting]))
    same("the newest two", await log.tasks("ses_1", limit=2), [waiting, second])
    found = [await log.task_at("ses_1", seq) for seq in range(1, 8)]
    same("the tasks at seq 1 to 7", found, [None, first, first, first, None, second, second])


async def messages_are_paged_from_the_end(log: EventLog) -> None:
    await start(log)
    await _change(log, Changes(messages=[_message(index) for index in range(5)]))
    pages: list[tuple[int | None, int, list[int]]] = [
        (None, 2, [3, 4]),
        (3, 2, [1, 2]),
        (1, 9, [0]),
        (0, 9, []),
        (None, 0, []),
    ]
    for before, limit, wanted in pages:
        page = await log.messages("ses_1", before=before, limit=limit)
        same(f"messages before {before}, limit {limit}", page, [_message(index) for index in wanted])


async def open_approvals_are_listed_oldest_first(log: EventLog) -> None:
    await log.create(session("ses_1", principal="a"), "me")
    await log.create(session("ses_2", principal="b"), "me")
    await _change(log, Changes(approvals=[_approval("apr_9"), _approval("apr_5")]))
    await _change(log, Changes(approvals=[_approval("apr_1", "ses_2")]), "ses_2")

    async def listed(principal: str | None = None, session_id: str | None = None) -> str:
        rows = await log.approvals(principal=principal, session_id=session_id)
        return "".join(row.approval_id[-1] for row in rows)

    same("all", await listed(), "951")
    same("of b", await listed(principal="b"), "1")
    same("of ses_1", await listed(session_id="ses_1"), "95")
    same("of b in ses_1", await listed(principal="b", session_id="ses_1"), "")
    changes = Changes(approvals=[_approval("apr_9", state="closed"), _approval("apr_5", state="carried")])
    await _change(log, changes)
    same("all that are not closed", await listed(), "51")


async def artifacts_are_paged_by_id_and_counted_by_content(log: EventLog) -> None:
    await start(log)
    second = _artifact("art_2", content_hash="sha256:2")
    upload = _artifact("art_3", "uploads", "sha256:3")
    await _change(log, Changes(artifacts=[second, _artifact("art_1")]))
    await log.add_artifact(upload)
    same("the first", await log.artifacts("ses_1", after=None, limit=1), [_artifact("art_1")])
    same("the rest", await log.artifacts("ses_1", after="art_1", limit=9), [second])
    same("one that no event names", await log.artifact("art_3"), upload)
    hashes = [f"sha256:{number}" for number in range(2000)]
    same("the hashes still named", await log.referenced(hashes), {"sha256:2", "sha256:3"})
    same("of none, none", await log.referenced([]), set[str]())


async def a_task_id_belongs_to_one_session_of_a_principal(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    first, second = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False, changes=Changes(tasks=[_task("task_1")])),
        log.append("ses_2", 1, 1, [b"b"], durable=False, changes=Changes(tasks=[_task("task_1", "ses_2")])),
        return_exceptions=True,
    )
    holds(first is None, f"the first is stored, found {first!r}")
    holds(isinstance(second, Conflict), f"the second gets Conflict, found {second!r}")
    same("the task", await log.task("task_1", "local"), _task("task_1"))
    same("the head of the second session", await log.head("ses_2"), 0)
    await log.create(session("ses_3", principal="other"), "me")
    await _change(log, Changes(tasks=[_task("task_1", "ses_3")]), "ses_3")
    same("that of another principal", await log.task("task_1", "other"), _task("task_1", "ses_3"))
    same("the first one still", await log.task("task_1", "local"), _task("task_1"))
    same("that of nobody", await log.task("task_1", "nobody"), None)
    await log.delete("ses_3")
    same("what a deletion leaves", await log.task("task_1", "local"), _task("task_1"))


async def an_idempotency_key_stands_for_one_effect(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    await _change(log, Changes(keys=[_key("first")]))
    again = _change(log, Changes(keys=[_key("second")]), "ses_2")
    await refused("the key in another session", again, Conflict)
    other = _change(log, Changes(keys=[_key("second", "sha256:bb")]))
    await refused("the key with another body", other, Conflict)
    same("the key", await log.key("local", "r", "k"), _key("first"))
    await _change(log, Changes(keys=[_key("third", principal="other")]), "ses_2")
    same(
        "the same key of another principal",
        await log.key("other", "r", "k"),
        _key("third", principal="other"),
    )
    same("the same key of another route", await log.key("local", "other", "k"), None)


async def a_row_that_json_cannot_hold_is_refused_alone(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    bad, good = await asyncio.gather(
        log.append("ses_1", 1, 1, [b"a"], durable=False, changes=Changes(keys=[_key(object())])),
        log.append("ses_2", 1, 1, [b"b"], durable=False),
        return_exceptions=True,
    )
    holds(isinstance(bad, InvalidRequest), f"the row gets InvalidRequest, found {bad!r}")
    holds(good is None, f"its neighbour is stored, found {good!r}")
    same("the heads", (await log.head("ses_1"), await log.head("ses_2")), (0, 1))


async def a_deleted_session_leaves_nothing_behind(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    everything = Changes(
        snapshot=b"s",
        tasks=[_task("task_1")],
        messages=[_message(0)],
        approvals=[_approval("apr_1")],
        artifacts=[_artifact("art_1")],
        keys=[_key(1)],
    )
    await _change(log, everything)
    await _change(log, Changes(), "ses_2")
    await log.delete("ses_1")
    same("session", await log.session("ses_1"), None)
    same("frames", await log.read("ses_1", 0, 9), [])
    same("snapshot", await log.snapshot("ses_1"), None)
    same("task", await log.task("task_1", "local"), None)
    same("messages", await log.messages("ses_1", before=None, limit=9), [])
    same("approvals", await log.approvals(principal=None, session_id=None), [])
    same("artifact", await log.artifact("art_1"), None)
    same("key", await log.key("local", "r", "k"), None)
    same("hashes still named", await log.referenced(["sha256:00"]), set[str]())
    same("the whole log", [frame.session_id for frame in await log.read_all(0, 9)], ["ses_2"])


ROW_CHECKS = (
    rows_change_with_their_frames,
    rows_change_without_a_frame_in_the_order_of_asking,
    a_later_row_takes_the_place_of_an_earlier_one,
    sessions_are_listed_newest_first_and_filtered,
    sessions_with_work_in_hand_are_found_after_a_crash,
    tasks_are_listed_newest_first_and_found_by_seq,
    messages_are_paged_from_the_end,
    open_approvals_are_listed_oldest_first,
    artifacts_are_paged_by_id_and_counted_by_content,
    a_task_id_belongs_to_one_session_of_a_principal,
    an_idempotency_key_stands_for_one_effect,
    a_row_that_json_cannot_hold_is_refused_alone,
    a_deleted_session_leaves_nothing_behind,
)
