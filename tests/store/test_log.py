"""What every event log must do: the checks of `codesdk.testing` over each implementation, and what ours say beyond it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.samples import LOGS, key, opened, seqs, session, task

from codesdk.contract.errors import Conflict, StorageFailure
from codesdk.contract.ports import EventLog
from codesdk.contract.records import Changes, StoredFrame
from codesdk.testing.job_checks import JOB_CHECKS
from codesdk.testing.log_checks import FRAME_CHECKS
from codesdk.testing.log_row_checks import ROW_CHECKS

pytestmark = pytest.mark.anyio


@pytest.fixture(params=LOGS)
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    async with opened(request.param, tmp_path) as log:
        yield log


@pytest.mark.parametrize("check", [*FRAME_CHECKS, *ROW_CHECKS, *JOB_CHECKS], ids=lambda check: check.__name__)
@pytest.mark.slow
async def test_the_contract(log: EventLog, check: Any):
    await check(log)


async def test_a_frame_is_read_with_its_cursor_and_session(log: EventLog):
    await log.create(session(), "me")
    await log.append("ses_1", 1, 1, [b"a", b"b"], durable=False)
    assert await log.read("ses_1", 0, 2) == [
        StoredFrame(seq=1, data=b"a", cursor=1, session_id="ses_1"),
        StoredFrame(seq=2, data=b"b", cursor=2, session_id="ses_1"),
    ]


async def test_an_append_is_stored_although_nobody_waits_for_it(log: EventLog):
    await log.create(session(), "me")
    done = log.append("ses_1", 1, 1, [b"a"], durable=False)
    assert isinstance(done, asyncio.Future)
    done.cancel()
    await log.append("ses_1", 1, 2, [b"b"], durable=False)
    assert seqs(await log.read("ses_1", 0, 5)) == [1, 2]


# --- what refusals say ---------------------------------------------------------------------------


@pytest.mark.parametrize("first_seq", [0, 1, 3, 4, -1])
async def test_a_misfit_says_where_the_log_ends(log: EventLog, first_seq: int):
    await log.create(session(), "me")
    await log.append("ses_1", 1, 1, [b"a"], durable=False)
    with pytest.raises(Conflict, match="ends at seq 1") as caught:
        await log.append("ses_1", 1, first_seq, [b"x"], durable=False)
    assert caught.value.details == {"first_seq": first_seq, "head": 1}


async def test_what_fails_behind_another_append_says_so(log: EventLog):
    await log.create(session(), "me")
    results = await asyncio.gather(
        log.append("ses_1", 1, 9, [b"x"], durable=False),
        log.append("ses_1", 1, 1, [b"a"], durable=False),
        return_exceptions=True,
    )
    assert "An earlier append" in str(results[1])


async def test_a_session_that_exists_is_gone_or_was_taken_over_is_said_to_be(log: EventLog):
    with pytest.raises(Conflict, match="not in the store"):
        await log.append("ses_1", 1, 1, [b"a"], durable=False)
    await log.create(session(), "me")
    with pytest.raises(Conflict, match="exists"):
        await log.create(session(), "me")
    await log.take("ses_1", "other")
    with pytest.raises(Conflict, match="taken over"):
        await log.append("ses_1", 1, 1, [b"old"], durable=False)


async def test_a_task_id_or_key_that_is_taken_is_named(log: EventLog):
    await log.create(session("ses_1"), "me")
    await log.create(session("ses_2"), "me")
    rows = Changes(tasks=[task("task_1")], keys=[key("k")])
    await log.append("ses_1", 1, 1, [b"a"], durable=False, changes=rows)
    with pytest.raises(Conflict, match="task_1"):
        await log.append(
            "ses_2", 1, 1, [b"b"], durable=False, changes=Changes(tasks=[task("task_1", "ses_2")])
        )
    with pytest.raises(Conflict, match="idempotency key 'k'"):
        await log.append("ses_2", 1, 1, [b"b"], durable=False, changes=Changes(keys=[key("k")]))


async def test_a_closed_log_says_so(log: EventLog):
    await log.create(session(), "me")
    await log.close()
    with pytest.raises(StorageFailure, match="closed"):
        await log.append("ses_1", 1, 1, [b"a"], durable=False)
    with pytest.raises(StorageFailure, match="closed"):
        await log.create(session("ses_2"), "me")
