"""What handlers ask for → actions on sessions, carried out by the engine like anybody else's.

An action reaches the session, the task and the project of the event that it answers, and nothing else. Its status
follows from how the engine took it; the caller, and so the log, names the extension.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from codesdk.contract import actions as act
from codesdk.contract.actions import Action, Caller
from codesdk.contract.errors import SETTLED, CodeSDKError, Conflict, Forbidden, InvalidRequest, NotFound
from codesdk.contract.tools import Actor
from codesdk.extensions.jobs import QUEUE, JobQueue
from codesdk.extensions.loading import AppAction, Place
from codesdk.extensions.outcomes import ActionRequest, ActionResult, ActionStatus, EnqueueResult
from codesdk.extensions.signals import Origin
from codesdk.foreign import call, name_of

_SCOPES: frozenset[act.TokenScope] = frozenset({"run", "approve"})

Execute = Callable[[Action[Any], Caller, str], Awaitable[Any]]
Note = Callable[[str, Origin, ActionResult], Awaitable[None]]


class Values(Protocol):
    """Reads the values of a session."""

    async def __call__(self, principal: str, session_id: str) -> dict[str, Any]: ...


class _Scoped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every payload may name, if only to say that it means where the event came from."""

    session_id: str | None = None
    task_id: str | None = None
    project_id: str | None = None


class _Decide(_Scoped, frozen=True, kw_only=True):
    decision: Literal["approve", "deny"]
    tool_call_id: str | None = None
    reason: str | None = None
    attempt: int | None = None
    input_hash: str | None = None


class _Steer(_Scoped, frozen=True, kw_only=True):
    message: str


class _Upsert(_Scoped, frozen=True, kw_only=True):
    id: str
    text: str | None = None
    data: Any = None


_P = TypeVar("_P", bound=_Scoped)


class EngineActions:
    """An `ActionExecutor` over an engine's `execute`. `own` are an application's actions, by type."""

    def __init__(
        self,
        execute: Execute,
        values: Values,
        note: Note,
        jobs: JobQueue,
        own: Mapping[str, AppAction] | None = None,
    ) -> None:
        self._execute = execute
        self._values = values
        self._note = note
        self._jobs = jobs
        self._own = own or {}

    async def execute(self, place: Place, origin: Origin, request: ActionRequest) -> ActionResult:
        """Carry an action out. Must not raise."""
        status: ActionStatus
        message: str | None = None
        try:
            if request.action_type == QUEUE:
                key = key_of(place, origin, request)
                found = await self._jobs.enqueue(place, origin, request.payload, key)
                # Found under its own key, it is this very request that came again, and it has won before.
                status, message = _queued(found, again="identity" not in request.payload)
            else:
                status = await self._carry_out(place, origin, request)
        except NotFound as error:
            # That there was such a question the event shows; so somebody was faster, or its task has ended.
            asked = request.action_type == "approval.decide" and "tool_call_id" in origin.data
            status, message = "already_resolved" if asked else "not_eligible", error.message
        except CodeSDKError as error:
            status, message = status_of(error), error.message
        except Exception as error:  # noqa: BLE001 - an application's own action may raise anything
            status, message = "failed", name_of(error)
        return _result(place, request.action_type, status, message, request.request_id)

    async def note(self, place: Place, origin: Origin, result: ActionResult) -> None:
        """Record what became of an action."""
        await self._note(place.extension.manifest.name, origin, result)

    async def enqueue(self, place: Place, origin: Origin, job: dict[str, Any]) -> EnqueueResult:
        """Queue a job, and record it as the action that it is. Raise what the queue raises."""
        try:
            found = await self._jobs.enqueue(place, origin, job)
        except CodeSDKError as error:
            await self.note(place, origin, _result(place, QUEUE, status_of(error), error.message))
            raise
        await self.note(place, origin, _result(place, QUEUE, *_queued(found)))
        return found

    async def settings_of(self, origin: Origin, session_id: str) -> dict[str, Any]:
        """Return the values of a session of the event's principal."""
        return await self._values(origin.principal, session_id)

    async def _carry_out(self, place: Place, origin: Origin, request: ActionRequest) -> ActionStatus:
        own = self._own.get(request.action_type)
        if own is not None:
            named = {name: request.payload.get(name) for name in _Scoped.__struct_fields__}
            _lock(msgspec.convert(named, type=_Scoped), origin)
            return msgspec.convert(await call(own, request.payload, origin), type=ActionStatus)
        action = action_of(request, origin)
        name = place.extension.manifest.name
        caller = Caller(
            principal=origin.principal,
            actor=Actor(kind="extension", id=name),
            scopes=_SCOPES,
            client_id=f"extension:{name}",
        )
        await self._execute(action, caller, key_of(place, origin, request))
        return "performed"


def _queued(found: EnqueueResult, *, again: bool = False) -> tuple[ActionStatus, str]:
    """Return what queueing is as an action: a job that was there already leaves nothing to do."""
    job = found.job
    if found.status == "enqueued" or again:
        return "performed", f"The job is {job.id}."
    return "already_resolved", f"The job is {job.id}, which is {job.state}."


def _result(
    place: Place,
    action_type: str,
    status: ActionStatus,
    message: str | None,
    request_id: str | None = None,
) -> ActionResult:
    return ActionResult(
        module_name=place.registration.module_name,
        event_type=place.registration.event_type,
        action_type=action_type,
        status=status,
        request_id=request_id,
        message=message,
    )


def action_of(request: ActionRequest, origin: Origin) -> Action[Any]:
    """Return the action that a request means. Raise `InvalidRequest`, or `Forbidden` if it reaches beyond its event."""
    match request.action_type:
        case "approval.decide":
            return _decision(_payload(request, _Decide, origin), origin)
        case "turn.steer.create":
            steer = _payload(request, _Steer, origin)
            if origin.task_id is None:
                raise InvalidRequest("The event belongs to no task, so there is none to steer.")
            return act.SteerTask(session_id=origin.session_id, message=steer.message, task_id=origin.task_id)
        case "transcript.upsert":
            return _supplement(_payload(request, _Upsert, origin), origin)
        case _:
            raise InvalidRequest(f"There is no action {request.action_type} here.")


def key_of(place: Place, origin: Origin, request: ActionRequest) -> str:
    """Return the idempotency key of a request: an extension's own, or one for the handler and the event."""
    name = place.extension.manifest.name
    parts = [name, "given", request.idempotency_key]
    if request.idempotency_key is None:
        parts = [name, place.registration.label, origin.session_id, origin.signal_id or origin.seq]
    # Hashed, and with the name of the extension in it: none can use another's key, or a person's.
    return f"extension-{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()}"


def status_of(error: CodeSDKError) -> ActionStatus:
    """Return how an action went that was refused with this error."""
    match error:
        case Conflict() if (error.details or {}).get(SETTLED):
            return "already_resolved"
        case Conflict():
            return "conflict"
        case Forbidden():
            return "forbidden"
        case InvalidRequest():
            return "invalid"
        case _:
            return "failed"


def _decision(wanted: _Decide, origin: Origin) -> Action[Any]:
    call_id = wanted.tool_call_id or origin.data.get("tool_call_id")
    if not isinstance(call_id, str):
        raise InvalidRequest("The event is about no call, so the payload must name its tool_call_id.")
    # What the handler has seen: if the call has changed since, the answer is not for it.
    same = call_id == origin.data.get("tool_call_id")
    attempt = wanted.attempt if wanted.attempt is not None or not same else origin.data.get("attempt")
    input_hash = wanted.input_hash or (origin.data.get("input_hash") if same else None)
    if wanted.decision == "approve":
        return act.ApproveCall(
            session_id=origin.session_id,
            tool_call_id=call_id,
            task_id=origin.task_id,
            attempt=attempt,
            input_hash=input_hash,
            reason=wanted.reason,
        )
    return act.DenyCall(
        session_id=origin.session_id,
        tool_call_id=call_id,
        task_id=origin.task_id,
        attempt=attempt,
        input_hash=input_hash,
        reason=wanted.reason or "denied by an extension",
    )


def _supplement(wanted: _Upsert, origin: Origin) -> Action[Any]:
    # Each is an event of its own, so an extension that answered those with more of them would never come to an end.
    if "supplement_id" in origin.data:
        raise InvalidRequest("A supplement cannot be answered with another one.")
    return act.SupplementTranscript(
        session_id=origin.session_id,
        supplement_id=wanted.id,
        text=wanted.text,
        data=wanted.data,
        task_id=origin.task_id,
    )


def _payload(request: ActionRequest, kind: type[_P], origin: Origin) -> _P:
    try:
        wanted = msgspec.convert(request.payload, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The payload of {request.action_type} is not valid: {error}.") from None
    _lock(wanted, origin)
    return wanted


def _lock(wanted: _Scoped, origin: Origin) -> None:
    """Raise `Forbidden` for a payload that names another session, task or project than its event's."""
    for name in _Scoped.__struct_fields__:
        named = getattr(wanted, name)
        if named is not None and named != getattr(origin, name):
            raise Forbidden(
                f"The {name} is not that of the event. An action reaches no further than its event."
            )
