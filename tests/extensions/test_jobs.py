"""Jobs over a real engine: queued once, run in the extension's thread, tried again, called off, bounded, and kept to their scope."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.extensions import probe
from tests.extensions.jobs_rig import Watched, queues
from tests.extensions.requirements import shows
from tests.extensions.rig import Emitted, Extensions, both, extended, session_in, settle

from codesdk import CodeSDK, Session
from codesdk.contract.errors import Conflict, InvalidRequest, NotFound
from codesdk.contract.jobs import LONGEST_PAUSE_MS, MAX_PAYLOAD_BYTES, pause_ms
from codesdk.extensions import (
    ActionResult,
    AgentEventRegistry,
    EnqueueResult,
    ExtensionOptions,
    HandlerError,
    select_enqueue_winner,
)
from codesdk.extensions.running import EACH

pytestmark = pytest.mark.anyio

TALK = [[{"text": "Hello."}]]
ACTIONS = ["queue.enqueue"]


async def run(sdk: CodeSDK, tmp_path: Path, **fields: Any) -> Session:
    """Run a task, and wait until all of it was dispatched."""
    session = await session_in(sdk, tmp_path, **fields)
    await (await session.start("Go.")).result()
    await settle(sdk)
    return session


@shows("tools-enqueue")
async def test_a_handler_queues_a_job_that_is_run_once_in_the_thread_of_its_extension(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    body = "    import threading\n    note((event, threading.current_thread().name))"
    ext.write("helper", queues('{"type": "mail", "payload": {"to": "ann"}}', body), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted, watched = Emitted(sdk), Watched(sdk)
        session = await run(sdk, tmp_path)
        (row,) = await watched.ended()
        (result,) = emitted.of("turn.completed")
        assert isinstance(result, EnqueueResult)
        assert (result.status, result.job.id, result.job.state) == ("enqueued", row.job_id, "queued")
        assert (result.job.type, result.job.source_session_id) == ("mail", session.id)
        ((event, thread),) = seen
        assert thread == "codesdk-extension-helper" != threading.current_thread().name
        assert (event.type, event.payload["data"], event.correlation_id) == (
            "mail",
            {"to": "ann"},
            row.job_id,
        )
        assert event.payload["session"] == {"id": session.id, "project_id": row.project_id}
        assert (event.payload["job"]["attempt"], event.payload["job"]["extension"]) == (1, "helper")
        assert (row.state, row.attempts, row.extension, row.error) == ("completed", 1, "helper", None)
        detail = await sdk.job(row.job_id)
        assert (detail.payload, detail.ended_at) == ({"to": "ann"}, row.ended_at)
        assert await sdk.jobs(state="completed", job_type="mail", session_id=session.id) == [row]
        assert await sdk.jobs(state="queued") == []


async def test_an_identity_is_queued_once_and_the_first_says_what_it_is(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    job = '{"type": "mail", "identity": "the-same", "payload": {"n": 1}}'
    ext.write("helper", queues(job), actions=ACTIONS)
    other = queues(job).replace('registry.job("mail", run, )', "pass")
    ext.write("other", other, actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted, watched = Emitted(sdk), Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        await run(sdk, tmp_path)
        results = [one for one in emitted.of("turn.completed") if isinstance(one, EnqueueResult)]
    assert [one.status for one in results] == ["enqueued", *["already_queued"] * 3]
    assert {one.job.id for one in results} == {row.job_id}
    assert [one.job.state for one in results[2:]] == ["completed"] * 2
    assert select_enqueue_winner(results) is results[0]
    assert select_enqueue_winner(results, "prefer_existing") is results[1]
    assert len(seen) == 1


async def test_without_an_identity_two_payloads_are_two_jobs_and_two_equal_ones_are_one(
    ext: Extensions, tmp_path: Path
):
    source = """
async def handle(event, tools):
    found = [await tools.enqueue_job({"type": "mail", "payload": {"n": n}}) for n in (1, 2, 1)]
    return [one.status for one in found]
def run(event, tools): pass
def register(registry):
    registry.on("turn.completed", handle)
    registry.job("mail", run)
"""
    ext.write("helper", source, actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted, watched = Emitted(sdk), Watched(sdk)
        await run(sdk, tmp_path)
        assert [row.state for row in await watched.ended(2)] == ["completed"] * 2
    (result,) = emitted.of("turn.completed")
    assert getattr(result, "value", result) == ["enqueued", "enqueued", "already_queued"]


ASKS_FOR_IT = """
def asks(n, key=None):
    def handle(event, tools):
        job = {{"type": "mail", "payload": {{"n": n}}{more}}}
        return {{"kind": "action_request", "action_type": "queue.enqueue", "payload": job, "request_id": str(n)}}
    return handle
def run(event, tools): note(event.payload["data"]["n"])
def register(registry):
    for n in (1, 2):
        registry.on("turn.completed", asks(n), priority=n)
    registry.job("mail", run)
"""


@shows("action-queue")
async def test_a_job_is_queued_by_an_action_and_the_audit_names_the_extension(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    ext.write("helper", ASKS_FOR_IT.format(more=', "identity": "once"'), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        emitted, watched = Emitted(sdk), Watched(sdk)
        session = await run(sdk, tmp_path)
        (row,) = await watched.ended()
        await run(sdk, tmp_path)
        results = [one for one in emitted.of("turn.completed") if isinstance(one, ActionResult)]
        # The first that is performed wins; the second time the job is there, for both.
        statuses = [(one.request_id, one.status) for one in results]
        assert statuses == [
            ("1", "performed"),
            ("2", "not_eligible"),
            ("1", "already_resolved"),
            ("2", "already_resolved"),
        ]
        assert results[3].message == f"The job is {row.job_id}, which is completed."
        assert seen == [1]
        assert sdk.audit is not None
        first = next(one for one in await sdk.audit.read() if one.action == "extension.queue.enqueue")
        assert (first.who.kind, first.who.id, first.outcome) == ("extension", "helper", "performed")
        assert (first.what["session_id"], first.why["reason"]) == (session.id, f"The job is {row.job_id}.")


async def test_queueing_by_the_tool_is_in_the_audit_whether_it_is_done_or_refused(
    ext: Extensions, tmp_path: Path
):
    ext.write("helper", queues('{"type": "mail"}'), actions=ACTIONS)
    ext.write("undeclared", queues('{"type": "mail"}').replace('registry.job("mail", run, )', "pass"))
    ext.write(
        "wrong", queues('{"type": "post"}').replace('registry.job("mail", run, )', "pass"), actions=ACTIONS
    )
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        await run(sdk, tmp_path)
        assert sdk.audit is not None
        found = [one for one in await sdk.audit.read() if one.action == "extension.queue.enqueue"]
        assert [(one.who.id, one.outcome) for one in found] == [
            ("helper", "performed"),
            ("undeclared", "forbidden"),
            ("wrong", "invalid"),
        ]


@both
async def test_a_job_that_fails_is_tried_again_as_often_as_it_says(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    body = '    note(event.payload["job"]["attempt"])\n    raise OSError("nobody is at home")'
    ext.write("helper", queues('{"type": "mail"}', body, options="attempts=3, backoff_ms=1"), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        assert (row.state, row.attempts, row.error) == ("failed", 3, "OSError: nobody is at home")
        assert seen == [1, 2, 3]
        waits = [one for one in watched.rows if one.state == "queued"]
        assert [(one.attempts, one.error) for one in waits] == [(1, row.error), (2, row.error)]
        assert all(one.run_at > (one.started_at or "") for one in waits)
        again = await sdk.retry_job(row.job_id)
        assert (again.state, again.attempts, again.ended_at) == ("queued", 0, None)
        await watched.until(lambda: sum(one.state == "failed" for one in watched.rows) == 2)
        assert seen == [1, 2, 3] * 2


async def test_the_pause_before_each_attempt_is_twice_the_one_before_it(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pauses: list[int] = []

    def at_once(attempts: int, first_ms: int) -> int:
        pauses.append(pause_ms(attempts, first_ms))
        return 0

    monkeypatch.setattr("codesdk.contract.jobs.pause_ms", at_once)
    options = "attempts=12, backoff_ms=1_000"
    ext.write(
        "helper", queues('{"type": "mail"}', '    raise OSError("no")', options=options), actions=ACTIONS
    )
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
    assert (row.state, row.attempts) == ("failed", 12)
    assert pauses == [min(1_000 * 2**n, LONGEST_PAUSE_MS) for n in range(11)]
    assert pauses[-1] == LONGEST_PAUSE_MS


@both
async def test_one_that_succeeds_later_is_completed_and_one_that_takes_too_long_is_not(
    ext: Extensions, tmp_path: Path
):
    body = """
    if event.payload["job"]["attempt"] == 1:
        await asyncio.Event().wait()
"""
    options = "attempts=2, backoff_ms=1, timeout_ms=20"
    ext.write("helper", queues('{"type": "mail"}', body, options=options), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        assert (row.state, row.attempts, row.error) == ("completed", 2, None)
        (waited,) = [one for one in watched.rows if one.state == "queued"]
        assert waited.error == "It took longer than 20 ms."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    return {'kind': 'action_request', 'action_type': 'x'}", "a job does not ask for actions"),
        ("    return object()", "which is not JSON"),
        ("    raise SystemExit(3)", "SystemExit: 3"),
        ("    raise OSError(chr(0xD800))", "OSError: ?"),
    ],
)
async def test_what_a_job_must_not_do_is_its_failure(ext: Extensions, tmp_path: Path, body: str, words: str):
    ext.write("helper", queues('{"type": "mail"}', body, options="attempts=1"), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        assert row.state == "failed"
        assert words in (row.error or "")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ('{"type": "mail", "project_id": "prj_other"}', "The project_id is not that of the event"),
        ('{"type": "mail", "source_session_id": "ses_other"}', "The source_session_id is not that of"),
        ('{"type": "post"}', "No extension here runs jobs of the type post"),
        ('{"type": "mail", "payload": {"x": "y" * 70_000}}', f"at most {MAX_PAYLOAD_BYTES:,} bytes"),
        ('{"type": "mail", "payload": []}', "The job is not valid"),
        ('{"type": "mail", "wish": 1}', "The job is not valid"),
        ('{"type": "mail", "identity": ""}', "1 to 200 characters"),
        ('{"type": "mail", "identity": "x" * 201}', "1 to 200 characters"),
        ('{"type": "mail", "payload": {"x": object()}}', "The job is not JSON"),
        ('"mail"', "The job is not valid"),
    ],
)
async def test_a_job_that_reaches_too_far_or_is_none_is_refused(
    ext: Extensions, tmp_path: Path, job: str, words: str
):
    ext.write("helper", queues(job), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path)
        (result,) = emitted.of("turn.completed")
        assert isinstance(result, HandlerError)
        assert words in result.message
        assert await sdk.jobs() == []


async def test_what_the_event_is_from_may_be_named(ext: Extensions, tmp_path: Path):
    own = 'event.payload["session"]'
    job = f'{{"type": "mail", "project_id": {own}["project_id"], "source_session_id": {own}["id"]}}'
    ext.write("helper", queues(job, "    pass"), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        assert [row.state for row in await watched.ended()] == ["completed"]


@pytest.mark.parametrize(("trust", "queued"), [("enforced", 0), ("warn", 1), ("disabled", 1)])
async def test_queueing_has_to_be_declared(ext: Extensions, tmp_path: Path, trust: Any, queued: int):
    ext.write("helper", queues('{"type": "mail"}', "    pass"), actions=[])
    async with extended(ext, tmp_path, TALK, options=ext.options(trust=trust)) as sdk:
        await run(sdk, tmp_path)
        assert len(await sdk.jobs()) == queued


@both
async def test_no_secret_of_the_session_is_stored_with_a_job(ext: Extensions, tmp_path: Path):
    body = '    raise OSError("canary-7413 is wrong" + "x" * 1965 + "canary-7413")'
    job = '{"type": "mail", "payload": {"password": "canary-7413", "more": ["a canary-7413"]}}'
    ext.write("helper", queues(job, body, options="attempts=1"), actions=ACTIONS)
    named = queues('{"type": "mail", "identity": "canary-7413"}').replace(
        'registry.job("mail", run, )', "pass"
    )
    ext.write("named", named, actions=ACTIONS)
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        emitted, watched = Emitted(sdk), Watched(sdk)
        await run(sdk, tmp_path, secrets=["canary-7413"])
        (row,) = await watched.ended()
        detail = await sdk.job(row.job_id)
        assert "canary" not in repr(detail)
        assert (row.state, " is wrong" in (row.error or "")) == ("failed", True)
        refused = emitted.of("turn.completed")[1]
        assert isinstance(refused, HandlerError)
        assert "contains a secret" in refused.message
    assert b"canary-7413" not in (tmp_path / "data" / "codesdk.db").read_bytes()


async def test_an_identity_is_that_of_what_is_stored_and_no_hash_of_a_secret(ext: Extensions, tmp_path: Path):
    source = """
async def handle(event, tools):
    for one in ("canary-7413", "canary-9961"):
        found = await tools.enqueue_job({"type": "mail", "payload": {"password": one}})
    return found
def register(registry):
    registry.on("turn.completed", handle)
    registry.job("mail", lambda event, tools: None)
"""
    ext.write("helper", source, actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        emitted = Emitted(sdk)
        await run(sdk, tmp_path, secrets=["canary-7413", "canary-9961"])
        (result,) = emitted.of("turn.completed")
        assert isinstance(result, EnqueueResult)
        assert result.status == "already_queued"
        assert len(await sdk.jobs()) == 1


async def test_the_tools_of_a_job_are_dead_once_it_has_ended(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    body = """
    async def later():
        await gate.wait()
        try:
            await tools.enqueue_job({"type": "mail", "payload": {"late": True}})
        except Exception as error:
            note(type(error).__name__)
    gate = asyncio.Event()
    left.append(asyncio.create_task(later()))
    note((asyncio.get_running_loop(), gate))
"""
    ext.write("helper", "left = []\n" + queues('{"type": "mail"}', body), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        await watched.ended()
        loop, gate = seen[0]
        loop.call_soon_threadsafe(gate.set)
        assert (await probe.noted(2))[1] == "HandlerEnded"
        assert len(await sdk.jobs()) == 1


@both
async def test_a_job_may_queue_the_next_one(ext: Extensions, tmp_path: Path, seen: list[Any]):
    body = """
    n = event.payload["data"]["n"]
    note(n)
    if n:
        found = await tools.enqueue_job({"type": "mail", "payload": {"n": n - 1}})
        assert found.status == "enqueued"
"""
    ext.write("helper", queues('{"type": "mail", "payload": {"n": 2}}', body), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        session = await run(sdk, tmp_path)
        rows = await watched.ended(3)
        assert seen == [2, 1, 0]
        assert {row.source_session_id for row in rows} == {session.id}


GATED = """
import asyncio
async def handle(event, tools):
    for n in range({count}):
        await tools.enqueue_job({{"type": "mail", "payload": {{"n": n}}}})
async def run(event, tools):
    gate = asyncio.Event()
    note((asyncio.get_running_loop(), gate))
    await gate.wait()
def register(registry):
    registry.on("turn.completed", handle)
    registry.job("mail", run, attempts=2, backoff_ms=1)
"""


def open_gate(number: int) -> None:
    loop, gate = probe.SEEN[number]
    loop.call_soon_threadsafe(gate.set)


async def test_one_extension_runs_so_many_jobs_at_once_and_the_others_wait(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    ext.write("helper", GATED.format(count=EACH + 3), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        await watched.reached("running", EACH)
        assert len(await sdk.jobs(state="running")) == EACH
        assert len(await sdk.jobs(state="queued")) == 3
        for number in range(EACH + 3):
            await probe.noted(number + 1)
            open_gate(number)
        rows = await watched.ended(EACH + 3)
        assert {row.state for row in rows} == {"completed"}
        assert most_at_once(watched) == EACH


def most_at_once(watched: Watched) -> int:
    running: set[str] = set()
    most = 0
    for row in watched.rows:
        (running.add if row.state == "running" else running.discard)(row.job_id)
        most = max(most, len(running))
    return most


async def test_a_job_is_canceled_while_it_waits_or_runs_and_run_again_when_somebody_says_so(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    ext.write("helper", GATED.format(count=EACH + 1), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        watched = Watched(sdk)
        session = await run(sdk, tmp_path)
        running = await watched.reached("running", EACH)
        (waits,) = await sdk.jobs(state="queued")
        assert (await sdk.cancel_job(waits.job_id)).state == "canceled"
        stopped = await sdk.cancel_job(running[0].job_id)
        assert (stopped.state, stopped.attempts) == ("canceled", 1)
        with pytest.raises(Conflict, match="is canceled already"):
            await sdk.cancel_job(waits.job_id)
        with pytest.raises(Conflict, match="is running"):
            await sdk.retry_job(running[1].job_id)
        again = await sdk.retry_job(waits.job_id)
        assert (again.state, again.attempts) == ("queued", 0)
        await watched.reached("running", EACH + 1)
        for number in range(EACH + 1):
            await probe.noted(number + 1)
            open_gate(number)
        rows = await watched.ended(EACH)
        assert [row.state for row in rows] == ["completed"] * EACH
        assert (await sdk.job(stopped.job_id)).state == "canceled"
        with pytest.raises(Conflict, match="is completed"):
            await sdk.retry_job(rows[0].job_id)
        assert sdk.audit is not None
        changed = [
            one for one in await sdk.audit.read(session_id=session.id) if one.action.startswith("job.")
        ]
        assert [(one.action, one.what["job_id"], one.who.kind) for one in changed] == [
            ("job.cancel", waits.job_id, "user"),
            ("job.cancel", stopped.job_id, "user"),
            ("job.retry", waits.job_id, "user"),
        ]


@both
async def test_a_canceled_job_ends_and_the_next_one_runs(ext: Extensions, tmp_path: Path):
    job = '{"type": "mail", "payload": {"waits": event.payload["session"]["title"] == "waits"}}'
    body = '    if event.payload["data"]["waits"]:\n        await asyncio.Event().wait()'
    ext.write("helper", queues(job, body, options="attempts=1, timeout_ms=600_000"), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path, title="waits")
        (running,) = await watched.reached("running")
        assert (await sdk.cancel_job(running.job_id)).state == "canceled"
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        assert (row.state, row.job_id != running.job_id) == ("completed", True)
        assert (await sdk.job(running.job_id)).state == "canceled"


async def test_another_principals_jobs_do_not_exist(ext: Extensions, tmp_path: Path):
    ext.write("helper", queues('{"type": "mail", "identity": "same"}', "    pass"), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched, other = Watched(sdk), sdk.as_principal("ann")
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        assert await other.jobs() == []
        for attempt in (other.job, other.cancel_job, other.retry_job):
            with pytest.raises(NotFound, match="There is no job"):
                await attempt(row.job_id)
        await run(other, tmp_path)
        assert [(one.principal, one.identity) for one in await other.jobs()] == [("ann", "same")]


async def test_jobs_are_deleted_with_their_session(ext: Extensions, tmp_path: Path, seen: list[Any]):
    ext.write("helper", GATED.format(count=EACH + 1), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        session = await run(sdk, tmp_path)
        await watched.reached("running", EACH)
        await session.delete()
        assert await sdk.jobs() == []
        await probe.noted(EACH)
        for number in range(EACH):
            open_gate(number)
        # What runs comes to its end, and there is nothing left to be changed.
        await sdk.extensions.jobs.close(10)
        assert [row for row in watched.rows if row.state != "running"] == []


async def test_jobs_of_one_type_have_one_handler(ext: Extensions):
    source = "def run(event, tools): pass\ndef register(registry): registry.job('mail', run)\n"
    ext.write("first", source)
    ext.write("second", source)
    ext.write("third", source.replace("registry.job('mail', run)", "[registry.job('x', run) for _ in '12']"))
    reasons = await ext.reasons()
    assert reasons["first"] is None
    assert reasons["second"] == "Jobs of the type mail are those of first, loaded before it."
    assert "two handlers for jobs of the type x" in (reasons["third"] or "")
    loaded = await ext.load()
    first = loaded.inventory[0]
    assert (first.jobs, first.handlers, first.events) == (["mail"], 0, [])
    loaded.release()


@pytest.mark.parametrize(
    "options",
    [
        {"job_type": ""},
        {"job_type": "Mail"},
        {"job_type": 3},
        {"handler": None},
        {"timeout_ms": 0},
        {"timeout_ms": 600_001},
        {"attempts": 0},
        {"attempts": 101},
        {"attempts": True},
        {"backoff_ms": 0},
        {"backoff_ms": 300_001},
    ],
)
def test_what_cannot_be_registered_is_refused(options: Any):
    registry = AgentEventRegistry("helper")
    with pytest.raises(InvalidRequest):
        registry.job(**{"job_type": "mail", "handler": print} | options)
    registry.job("mail", print)
    registry.close()
    with pytest.raises(InvalidRequest):
        registry.job("post", print)


async def test_no_job_begins_while_extensions_reload_and_those_that_run_end_with_the_old_code(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    ext.write("helper", GATED.format(count=1), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        await probe.noted(1)
        new = queues('{"type": "mail", "payload": {"new": True}}', '    note(event.payload["data"])')
        ext.write("helper", new, actions=ACTIONS)
        await sdk.extensions.reload()
        await run(sdk, tmp_path)
        (fresh,) = await watched.ended()
        assert (fresh.state, seen[1]) == ("completed", {"new": True})
        open_gate(0)
        assert [row.state for row in await watched.ended(2)] == ["completed"] * 2
        with sdk.extensions.jobs.paused():
            await run(sdk, tmp_path)
            # It was asked for something that is due, and a change wakes it: it would begin now.
            assert len(await sdk.jobs(state="queued")) == 1
        assert len(await watched.ended(3)) == 3


async def test_a_job_whose_type_nobody_runs_any_more_waits_until_somebody_does(
    ext: Extensions, tmp_path: Path
):
    source = queues('{"type": "mail"}', "    raise OSError", options="attempts=2, backoff_ms=300_000")
    ext.write("helper", source, actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.reached("queued")
        ext.write("helper")
        await sdk.extensions.reload()
        await sdk.retry_job(row.job_id)
        ext.write("helper", queues('{"type": "mail"}', "    pass"), actions=ACTIONS)
        assert [one.state for one in await sdk.jobs()] == ["queued"]
        await sdk.extensions.reload()
        assert [one.state for one in await watched.ended()] == ["completed"]


async def test_what_runs_when_the_sdk_is_closed_is_begun_again_at_the_next_start_and_not_counted(
    ext: Extensions, tmp_path: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("codesdk.extending.CLOSE_S", 0.01)
    ext.write("helper", GATED.format(count=1), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        await probe.noted(1)
    (last,) = [row for row in watched.rows if row.state == "queued"]
    assert last.attempts == 0
    # Without extensions they are only stored, and can be called off or released.
    async with CodeSDK.open(tmp_path / "data") as sdk:
        assert await sdk.jobs() == [last]
        assert (await sdk.cancel_job(last.job_id)).state == "canceled"
        await sdk.retry_job(last.job_id)
    async with extended(ext, tmp_path, TALK, stored=True) as sdk:
        watched = Watched(sdk)
        await probe.noted(2)
        open_gate(1)
        (row,) = await watched.ended()
        assert (row.job_id, row.state, row.attempts) == (last.job_id, "completed", 1)


async def test_a_handler_that_waits_for_its_job_holds_up_neither_the_engine_nor_other_extensions(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    blocks = """
import threading
gate = threading.Event()
async def handle(event, tools):
    await tools.enqueue_job({"type": "mail"})
def run(event, tools):
    note(gate)
    gate.wait()
def register(registry):
    registry.on("task.started", handle)
    registry.job("mail", run)
"""
    ext.write("blocks", blocks, actions=ACTIONS)
    ext.write("other", queues('{"type": "post"}', "    pass").replace('"mail"', '"post"'), actions=ACTIONS)
    async with extended(ext, tmp_path, TALK) as sdk:
        watched = Watched(sdk)
        await run(sdk, tmp_path)
        (row,) = await watched.ended()
        assert (row.type, row.state) == ("post", "completed")
        await probe.noted(1)
        seen[0].set()
        assert {one.type for one in await watched.ended(2)} == {"post", "mail"}


async def test_extensions_that_nobody_trusts_run_no_jobs(tmp_path: Path):
    ext = Extensions(tmp_path / ".codesdk" / "extensions")
    ext.write("helper", queues('{"type": "mail"}', "    pass"), actions=ACTIONS)
    options = ExtensionOptions(project=str(tmp_path))
    async with extended(ext, tmp_path, TALK, options=options) as sdk:
        await run(sdk, tmp_path)
        assert await sdk.jobs() == []
