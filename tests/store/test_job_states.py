"""Any sequence of jobs queued, begun, ended, canceled, retried and deleted: both stores say the same, and keep to their bounds."""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.counts import COUNTS
from tests.store.samples import LOGS, TIME, opened, session

from codesdk.contract import jobs
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.jobs import FINAL, JobRow
from codesdk.contract.ports import EventLog

ROOM, KEEP = 3, 2
CHANGES = {
    "begin": jobs.begun,
    "complete": jobs.completed,
    "fail": lambda row, now: jobs.failed(row, now, "no"),
    "wait": jobs.waiting,
    "cancel": jobs.canceled,
    "retry": jobs.retried,
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "delete", *CHANGES]), st.integers(0, 5), st.integers(0, 2)
    ),
    max_size=40,
)


def row(number: int, identity: int, of: int) -> JobRow:
    return JobRow(
        job_id=f"job_{number:03}",
        type=f"type_{identity % 2}",
        state="queued",
        identity=str(identity),
        principal=f"principal_{of % 2}",
        project_id="prj_1",
        source_session_id=f"ses_{of}",
        extension="helper",
        created_at=TIME,
        run_at=f"{TIME[:-5]}.{number:03}Z",
    )


async def everything(log: EventLog) -> list[JobRow]:
    return await log.jobs(principal=None, state=None, job_type=None, session_id=None, after=None, limit=1_000)


async def take(log: EventLog, number: int, verb: str, which: int, of: int) -> Any:
    """Take one step; return what it gave, or the error that it gave."""
    if verb == "add":
        return await log.add_job(row(number, which, of), b'{"n":%d}' % number, room=ROOM)
    if verb == "delete":
        return await log.delete(f"ses_{of}")
    found = await everything(log)
    if not found:
        return None
    old = found[which % len(found)]
    new = CHANGES[verb](old, f"{TIME[:-5]}.{number:03}Z")
    # The third time it comes from a row that was never stored.
    return await log.replace_job(new if of == 2 else old, new, keep=KEEP)


async def play(kind: str, steps: list[tuple[str, int, int]]) -> list[Any]:
    with tempfile.TemporaryDirectory() as directory:
        async with opened(kind, Path(directory)) as log:
            said: list[Any] = []
            for name in range(3):
                await log.create(session(f"ses_{name}"), "me")
            for number, (verb, which, of) in enumerate(steps):
                try:
                    said.append(await take(log, number, verb, which, of))
                except CodeSDKError as error:
                    said.append((error.code, error.message))
            rows = await everything(log)
            check(rows)
            due = await log.due_jobs(["type_0", "type_1"], TIME, "3", besides=["job_001"], limit=9)
            return [said, rows, due, await log.count_jobs(), await log.job_payload("job_000")]


def check(rows: list[JobRow]) -> None:
    identities = Counter((one.principal, one.type, one.identity) for one in rows)
    assert set(identities.values()) <= {1}
    for principal in ("principal_0", "principal_1"):
        own = [one for one in rows if one.principal == principal]
        assert sum(one.state in FINAL for one in own) <= KEEP


@pytest.mark.slow
@given(steps=STEPS)
@settings(deadline=None, max_examples=COUNTS.examples)
def test_both_stores_say_the_same(steps: list[tuple[str, int, int]]):
    first, second = (asyncio.run(play(kind, steps)) for kind in LOGS)
    assert first == second
