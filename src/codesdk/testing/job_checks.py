"""What every `EventLog` must do with jobs. Each check is given an empty log.

The counterpart of `log_row_checks`.
"""

import asyncio

import msgspec

from codesdk.contract import jobs
from codesdk.contract.errors import Busy, InvalidRequest, NotFound, StorageFailure
from codesdk.contract.jobs import JobRow, JobState
from codesdk.contract.ports import EventLog
from codesdk.testing.cells import holds, refused, same
from codesdk.testing.log_checks import TIME, session, start

_alter = msgspec.structs.replace
_LATER = "2026-01-02T03:04:06.678Z"
_LATEST = "2026-01-02T03:09:05.678Z"


def _job(
    name: str, of: str = "ses_1", principal: str = "local", kind: str = "mail", identity: str | None = None
) -> JobRow:
    return JobRow(
        job_id=name,
        type=kind,
        state="queued",
        identity=identity or name,
        principal=principal,
        project_id="prj_1",
        source_session_id=of,
        extension="helper",
        created_at=TIME,
        run_at=TIME,
    )


async def _ids(
    log: EventLog,
    *,
    principal: str | None = None,
    state: JobState | None = None,
    kind: str | None = None,
    session_id: str | None = None,
    after: str | None = None,
    limit: int = 9,
) -> list[str]:
    found = await log.jobs(
        principal=principal, state=state, job_type=kind, session_id=session_id, after=after, limit=limit
    )
    return [row.job_id for row in found]


async def _due(log: EventLog, now: str = TIME, *besides: str, limit: int = 9) -> list[str]:
    return [row.job_id for row in await log.due_jobs(["mail"], now, _LATEST, besides=besides, limit=limit)]


async def a_job_is_stored_with_its_payload(log: EventLog) -> None:
    await start(log)
    row = _job("job_1")
    same("what was added", await log.add_job(row, b'{"a":1}'), row)
    same("its row", await log.job("job_1"), row)
    same("its payload", await log.job_payload("job_1"), b'{"a":1}')
    same("a job that is not there", (await log.job("job_2"), await log.job_payload("job_2")), (None, None))


async def an_identity_stands_for_one_job(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    first = await log.add_job(_job("job_1", identity="same"), b"{}")
    again = [log.add_job(_job(f"job_{n}", "ses_2", identity="same"), b"[]") for n in (2, 3)]
    same("the same identity again", await asyncio.gather(*again), [first, first])
    for other in (
        _job("job_4", principal="other", identity="same"),
        _job("job_5", kind="post", identity="same"),
        _alter(_job("job_6", identity="same"), project_id="prj_2"),
    ):
        same("elsewhere", await log.add_job(other, b"{}"), other)
    ended = jobs.completed(first, _LATER)
    holds(await log.replace_job(first, ended), "a row can be replaced")
    same("once it has ended", await log.add_job(_job("job_7", identity="same"), b"{}"), ended)
    same("all of them", await _ids(log), ["job_6", "job_5", "job_4", "job_1"])
    same("the first payload", await log.job_payload("job_1"), b"{}")


async def a_row_is_replaced_only_if_it_is_the_expected_one(log: EventLog) -> None:
    await start(log)
    row = await log.add_job(_job("job_1"), b"{}")
    running = jobs.begun(row, _LATER)
    both = await asyncio.gather(
        log.replace_job(row, running), log.replace_job(row, jobs.canceled(row, _LATER))
    )
    same("of two changes one is made", both, [True, False])
    same("the stored row", await log.job("job_1"), running)
    same("a job that is not there", await log.replace_job(_job("job_2"), running), False)


async def jobs_are_listed_newest_first_and_filtered(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    await log.add_job(_job("job_1"), b"{}")
    await log.add_job(_job("job_2", "ses_2", kind="post"), b"{}")
    row = await log.add_job(_job("job_3", principal="other"), b"{}")
    await log.replace_job(row, jobs.begun(row, _LATER))
    same("all", await _ids(log), ["job_3", "job_2", "job_1"])
    same("a page", await _ids(log, after="job_3", limit=1), ["job_2"])
    same("of a principal", await _ids(log, principal="local"), ["job_2", "job_1"])
    same("in a state", await _ids(log, state="running"), ["job_3"])
    same("of a type", await _ids(log, kind="post"), ["job_2"])
    same("of a session", await _ids(log, session_id="ses_1"), ["job_3", "job_1"])
    same("none", await _ids(log, limit=0), [])
    same("counts", await log.count_jobs(), {"queued": 2, "running": 1})


async def due_jobs_come_in_the_order_in_which_they_are_due(log: EventLog) -> None:
    await start(log)
    for row in (
        _alter(_job("job_1"), run_at=_LATER),
        _job("job_2"),
        _job("job_3", kind="post"),
        _alter(_job("job_4"), run_at="2026-01-02T03:04:05.000Z"),
        _alter(_job("job_5"), run_at="2036-01-02T03:04:05.000Z"),
    ):
        await log.add_job(row, b"{}")
    # The fifth was queued by a clock that has been set back since.
    same("now", await _due(log), ["job_4", "job_2", "job_5"])
    same("the first", await _due(log, limit=1), ["job_4"])
    same("besides some", await _due(log, TIME, "job_4", "job_5"), ["job_2"])
    same("later", await _due(log, _LATER), ["job_4", "job_2", "job_1", "job_5"])
    same("the next", await log.next_job_at(["mail", "post"], TIME), _LATER)
    same("no type", await log.due_jobs([], TIME, _LATEST, besides=(), limit=9), [])
    same("of no type", await log.next_job_at([], TIME), None)
    (row,) = await log.due_jobs(["post"], TIME, _LATEST, besides=(), limit=9)
    await log.replace_job(row, jobs.begun(row, TIME))
    same("what runs is not due", await log.due_jobs(["post"], TIME, _LATEST, besides=(), limit=9), [])


async def a_principal_has_room_for_so_many_jobs(log: EventLog) -> None:
    await start(log)
    first = await log.add_job(_job("job_1"), b"{}", room=2)
    await log.add_job(_job("job_2"), b"{}", room=2)
    await refused("a third job", log.add_job(_job("job_3"), b"{}", room=2), Busy)
    same("one that is there", await log.add_job(_job("job_4", identity="job_1"), b"{}", room=2), first)
    await log.add_job(_job("job_5", principal="other"), b"{}", room=2)
    await log.replace_job(first, jobs.completed(first, _LATER))
    await log.add_job(_job("job_6"), b"{}", room=2)
    same("all of them", await _ids(log), ["job_6", "job_5", "job_2", "job_1"])


async def the_newest_finished_jobs_are_kept(log: EventLog) -> None:
    await start(log)
    for number, ended in enumerate((_LATEST, TIME, _LATER)):
        row = await log.add_job(_job(f"job_{number}"), b"{}")
        await log.replace_job(row, jobs.completed(row, ended), keep=2)
    other = await log.add_job(_job("job_8", principal="other"), b"{}")
    await log.replace_job(other, jobs.failed(other, TIME, "no"), keep=2)
    await log.add_job(_job("job_9"), b"{}")
    same("what is left", await _ids(log), ["job_9", "job_8", "job_2", "job_0"])
    again = await log.add_job(_job("job_a", identity="job_1"), b"{}")
    same("an identity that was removed", again.job_id, "job_a")


async def jobs_are_deleted_with_their_session(log: EventLog) -> None:
    await start(log, "ses_1", "ses_2")
    row = await log.add_job(_job("job_1"), b"{}")
    await log.add_job(_job("job_2", "ses_2"), b"{}")
    await log.delete("ses_1")
    same("what is left", await _ids(log), ["job_2"])
    same("a change of one that is gone", await log.replace_job(row, jobs.begun(row, TIME)), False)
    await refused("a job of a deleted session", log.add_job(_job("job_3"), b"{}"), NotFound)


async def a_job_that_json_cannot_hold_is_refused_alone(log: EventLog) -> None:
    await start(log)
    bad = log.add_job(_job("job_1", identity="\ud800"), b"{}")
    good = log.add_job(_job("job_2"), b"{}")
    results = await asyncio.gather(bad, good, return_exceptions=True)
    holds(isinstance(results[0], InvalidRequest), "half of a surrogate pair is refused")
    same("its neighbour", await _ids(log), ["job_2"])


async def a_closed_log_takes_no_job(log: EventLog) -> None:
    await log.create(session(), "me")
    row = await log.add_job(_job("job_1"), b"{}")
    await log.close()
    await refused("a job", log.add_job(_job("job_2"), b"{}"), StorageFailure)
    await refused("a change", log.replace_job(row, jobs.begun(row, TIME)), StorageFailure)


JOB_CHECKS = (
    a_job_is_stored_with_its_payload,
    an_identity_stands_for_one_job,
    a_row_is_replaced_only_if_it_is_the_expected_one,
    jobs_are_listed_newest_first_and_filtered,
    due_jobs_come_in_the_order_in_which_they_are_due,
    a_principal_has_room_for_so_many_jobs,
    the_newest_finished_jobs_are_kept,
    jobs_are_deleted_with_their_session,
    a_job_that_json_cannot_hold_is_refused_alone,
    a_closed_log_takes_no_job,
)
