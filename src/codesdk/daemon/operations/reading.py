"""Operations that only read: sessions, tasks, events, transcripts, approvals, grants, usage, log checks."""

from typing import Annotated, Literal

import msgspec

from codesdk.contract.api import (
    ApprovalPage,
    CheckReport,
    EventPage,
    Finding,
    GrantPage,
    JobPage,
    SessionPage,
    TaskPage,
    Transcript,
    UsageAnswer,
)
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.jobs import JobDetail, JobState
from codesdk.contract.records import SessionRow, SessionStatus, Spent, TaskRow
from codesdk.daemon.operations.operation import Call, NoQuery, get
from codesdk.daemon.responses import Whole
from codesdk.daemon.sse import EventStream, chosen_types, passes

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000, description="How many at most.")]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53, description="Only events after the one with this seq.")]
After = Annotated[str | None, msgspec.Meta(description="The last id of the page before.")]
_PAGE = 500
_STREAM = "text/event-stream"


class SessionQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which sessions: those older than the id `after`, `limit` of them."""

    after: After = None
    limit: Limit = 100
    status: Annotated[SessionStatus | None, msgspec.Meta(description="Only sessions with this status.")] = (
        None
    )


class TaskQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many tasks."""

    limit: Limit = 100


class EventQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which events: those after a seq, of these types (`task.*,tool.call.completed`), `limit` of them a page."""

    after_seq: Seq = 0
    limit: Limit = 100
    types: Annotated[
        str | None,
        msgspec.Meta(
            description="Only events of these types, with commas between them: `task.*,tool.call.completed`."
        ),
    ] = None
    stream: Annotated[
        Literal["sse", "page"] | None,
        msgspec.Meta(description="A stream or a page. If not given, the Accept header says it."),
    ] = None


class JobQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs: those older than the id `after`, `limit` of them."""

    after: After = None
    limit: Limit = 100
    state: Annotated[JobState | None, msgspec.Meta(description="Only jobs in this state.")] = None
    type: Annotated[str | None, msgspec.Meta(description="Only jobs of this type.")] = None
    session_id: Annotated[str | None, msgspec.Meta(description="Only jobs of this session.")] = None


async def list_sessions(call: Call) -> SessionPage:
    """List sessions, newest first."""
    query: SessionQuery = call.query
    rows = await call.sdk.sessions(after=query.after, limit=query.limit, status=query.status)
    more = len(rows) == query.limit
    return SessionPage(sessions=rows, next=rows[-1].session_id if more else None)


async def get_session(call: Call) -> SessionRow:
    """Look at a session."""
    return await call.sdk.service.session(call.path["session_id"])


async def list_tasks(call: Call) -> TaskPage:
    """List a session's tasks, newest first."""
    query: TaskQuery = call.query
    return TaskPage(tasks=await call.sdk.service.tasks(call.path["session_id"], limit=query.limit))


async def get_task(call: Call) -> TaskRow:
    """Look at a task."""
    return await call.sdk.service.task(call.path["task_id"])


async def read_events(call: Call) -> Whole | EventStream:
    """Read events page by page, or as a stream of server-sent events that Last-Event-ID resumes."""
    query: EventQuery = call.query
    types = chosen_types(query.types)
    wants_stream = _STREAM in call.headers.get(b"accept", b"").decode("latin-1")
    if query.stream == "sse" or (query.stream is None and wants_stream):
        feed = await call.sdk.engine.feed(call.path["session_id"], principal=call.caller.principal)
        return EventStream(
            feed,
            _last_seen(call) if b"last-event-id" in call.headers else query.after_seq,
            types,
            heartbeat_s=call.settings.heartbeat_s,
            welcome=lambda: call.guard.still(call.caller),
        )
    return await _page(call, query, types)


async def _page(call: Call, query: EventQuery, types: frozenset[str] | None) -> Whole:
    """Return stored frames as they are, joined without decoding them."""
    session = await get_session(call)
    frames = await call.sdk.archive.log.read(session.session_id, query.after_seq, query.limit)
    wanted = [frame.data for frame in frames if frame.damage is None and passes(frame.data, types)]
    full = len(frames) == query.limit
    tail = EventPage(
        events=[],
        next_after_seq=frames[-1].seq if full else None,
        damaged=[frame.seq for frame in frames if frame.damage is not None],
        head=await call.sdk.archive.log.head(session.session_id),
    )
    rest = msgspec.json.encode(tail)
    head = b'{"events":['
    body = head + b",".join(wanted) + rest[len(head) :]
    return Whole(200, body, ((b"content-type", b"application/json"),))


def _last_seen(call: Call) -> int:
    given = call.headers[b"last-event-id"].decode("latin-1").strip()
    if not given.isascii() or not given.isdigit() or len(given) > 16:
        raise InvalidRequest("Last-Event-ID must be the id of an event of this stream: a number.")
    return int(given)


async def read_transcript(call: Call) -> Transcript:
    """Read a session's messages, and what stands beside them."""
    service, session_id = call.sdk.service, call.path["session_id"]
    return Transcript(
        messages=await service.transcript(session_id), supplements=await service.supplements(session_id)
    )


async def list_approvals(call: Call) -> ApprovalPage:
    """List what waits for an answer, over all sessions."""
    return ApprovalPage(approvals=await call.sdk.approvals())


async def list_session_approvals(call: Call) -> ApprovalPage:
    """List what waits for an answer in a session."""
    session = await get_session(call)
    return ApprovalPage(approvals=await call.sdk.service.approvals(session_id=session.session_id))


async def list_grants(call: Call) -> GrantPage:
    """List the tools that are approved for the session."""
    return GrantPage(grants=await call.sdk.service.grants(call.path["session_id"]))


async def list_jobs(call: Call) -> JobPage:
    """List the jobs that extensions queued, newest first."""
    query: JobQuery = call.query
    rows = await call.sdk.jobs(
        state=query.state,
        job_type=query.type,
        session_id=query.session_id,
        after=query.after,
        limit=query.limit,
    )
    return JobPage(jobs=rows, next=rows[-1].job_id if len(rows) == query.limit else None)


async def get_job(call: Call) -> JobDetail:
    """Look at a job."""
    return await call.sdk.service.job(call.path["job_id"])


async def read_usage(call: Call) -> UsageAnswer:
    """Sum up what all sessions have spent."""
    total, count, after = Spent(), 0, None
    while page := await call.sdk.sessions(after=after, limit=_PAGE):
        for row in page:
            total = total.plus(row.spent or Spent())
        count += len(page)
        after = page[-1].session_id
    return UsageAnswer(spent=total, sessions=count)


async def verify_session(call: Call) -> CheckReport:
    """Check a stored log against the contract."""
    from codesdk.local import verify_stored

    session, archive = await get_session(call), call.sdk.archive
    head = await archive.log.head(session.session_id)
    findings, interrupted = await verify_stored(
        archive.log, archive.blobs, call.settings.data_dir, session.session_id
    )
    if interrupted:  # unless it runs here, or has ended while the log was read
        runs = call.sdk.engine.is_running(session.session_id)
        interrupted = not runs and (await get_session(call)).active_task_id is not None
    return CheckReport(ok=not findings, events=head, findings=findings, interrupted=interrupted)


async def replay_session(call: Call) -> CheckReport:
    """Play a stored log through a fresh engine and compare."""
    from codesdk.engine import replay_session as play

    session, archive = await get_session(call), call.sdk.archive
    count, differences = await play(archive.log, archive.blobs, session.session_id)
    findings = [
        Finding(invariant="replay", message=difference.message, seq=difference.seq)
        for difference in differences
    ]
    return CheckReport(ok=not findings, events=count, findings=findings)


OPERATIONS = (
    get("/v1/sessions", list_sessions, query=SessionQuery),
    get("/v1/sessions/{session_id}", get_session),
    get("/v1/sessions/{session_id}/events", read_events, query=EventQuery, answer=EventPage, group="events"),
    get("/v1/sessions/{session_id}/transcript", read_transcript),
    get("/v1/sessions/{session_id}/verify", verify_session),
    get("/v1/sessions/{session_id}/replay", replay_session),
    get("/v1/sessions/{session_id}/tasks", list_tasks, query=TaskQuery, group="tasks"),
    get("/v1/tasks/{task_id}", get_task, group="tasks"),
    get("/v1/approvals", list_approvals, group="approvals"),
    get("/v1/sessions/{session_id}/approvals", list_session_approvals, group="approvals"),
    get("/v1/sessions/{session_id}/grants", list_grants, group="approvals"),
    get("/v1/jobs", list_jobs, query=JobQuery, group="jobs"),
    get("/v1/jobs/{job_id}", get_job, group="jobs"),
    get("/v1/usage", read_usage, group="daemon"),
)
