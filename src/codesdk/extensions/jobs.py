"""`JobQueue`: what a handler wants done later → a stored job, once for its identity.

A job belongs to the principal, the session and the project of the event that it was queued for, and to nobody else.
Secrets are taken out before it is stored. `running` runs what is here.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.jobs import MAX_PAYLOAD_BYTES, JobRow, JobStore, too_large
from codesdk.contract.ports import Stamper
from codesdk.extensions.loading import Place
from codesdk.extensions.outcomes import EnqueueResult, Job
from codesdk.extensions.signals import Origin

QUEUE = "queue.enqueue"
"""The action of queueing a job. The tool that does it has to be declared by this name, too."""
_IDENTITY_CHARS = 200

Redact = Callable[[str, Any], Awaitable[Any]]
"""Returns a value without the secrets of a session."""


class _Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as a handler asks for it."""

    type: str
    payload: dict[str, Any] = {}
    identity: str | None = None
    project_id: str | None = None
    source_session_id: str | None = None


class JobQueue:
    """Takes jobs."""

    def __init__(self, store: JobStore, redact: Redact, stamper: Stamper) -> None:
        self.store = store
        self.redact = redact
        self.stamper = stamper
        self.types: frozenset[str] = frozenset()
        """The types that somebody runs. Others are refused."""
        self.woken = asyncio.Event()
        """Set when there may be something to run."""

    async def enqueue(
        self, place: Place, origin: Origin, wanted: object, identity: str | None = None
    ) -> EnqueueResult:
        """Queue a job, or find the one with its identity: its own, else the given one, else one of the event.

        Raise `InvalidRequest`, `Forbidden` if it reaches beyond its event, or what the store raises.
        """
        job = _read(wanted)
        _lock(job, origin)
        if job.type not in self.types:
            raise InvalidRequest(
                f"No extension here runs jobs of the type {job.type[:100]}. Register one: registry.job(type, handler)."
            )
        # Looked at before, too: how long it takes to search it for secrets depends on its size.
        _check_size(msgspec.json.encode(job.payload))
        clean = await self.redact(origin.session_id, job.payload)
        payload = _check_size(msgspec.json.encode(clean))
        now = self.stamper.now()
        row = JobRow(
            job_id=self.stamper.mint("job"),
            type=job.type,
            state="queued",
            identity=await self._identity(job.identity, origin)
            or identity
            or _of_event(place, origin, clean),
            principal=origin.principal,
            project_id=origin.project_id,
            source_session_id=origin.session_id,
            extension=place.extension.manifest.name,
            created_at=now,
            run_at=now,
        )
        stored = await self.store.add_job(row, payload)
        is_new = stored.job_id == row.job_id
        if is_new:
            self.woken.set()
        return EnqueueResult(
            module_name=place.registration.module_name,
            event_type=place.registration.event_type,
            status="enqueued" if is_new else "already_queued",
            job=Job(
                id=stored.job_id,
                type=stored.type,
                state=stored.state,
                project_id=stored.project_id,
                source_session_id=stored.source_session_id,
            ),
        )

    async def _identity(self, given: str | None, origin: Origin) -> str | None:
        if given is None:
            return None
        if not 0 < len(given) <= _IDENTITY_CHARS:
            raise InvalidRequest(f"The identity of a job has 1 to {_IDENTITY_CHARS} characters.")
        if await self.redact(origin.session_id, given) != given:
            raise InvalidRequest(
                "The identity of a job is shown, and this one contains a secret. Choose another."
            )
        return given


def _read(wanted: object) -> _Wanted:
    try:
        return msgspec.convert(wanted, type=_Wanted)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The job is not valid: {error}.") from None


def _check_size(payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise too_large(len(payload))
    return payload


def _lock(job: _Wanted, origin: Origin) -> None:
    """Raise `Forbidden` for a job that names another project or session than its event's."""
    named = {"project_id": (job.project_id, origin.project_id)}
    named["source_session_id"] = (job.source_session_id, origin.session_id)
    for name, (given, own) in named.items():
        if given not in (None, own):
            raise Forbidden(f"The {name} is not that of the event. A job reaches no further than its event.")


def _of_event(place: Place, origin: Origin, clean: object) -> str:
    """Return the identity of a job that has none: the same when the same event is dispatched again after a crash.

    `clean` is its payload as it is stored: a stored hash of a secret could be guessed at.
    """
    parts = [
        place.extension.manifest.name,
        place.registration.label,
        origin.session_id,
        origin.seq,
        origin.data.get("job_id"),
        clean,
    ]
    return f"event-{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()}"
