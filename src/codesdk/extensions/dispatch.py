"""`Dispatcher`: one event → every handler that subscribes to it, in order, and what came of each.

Handlers are called one after the other, each for at most its own time. What one asks for is carried out when it
returns; once an action was performed, later requests of the same event are not carried out any more.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from codesdk.contract.errors import Forbidden
from codesdk.extensions.figures import Figures
from codesdk.extensions.jobs import QUEUE
from codesdk.extensions.loading import ExtensionSet, Place, TrustMode
from codesdk.extensions.outcomes import (
    ActionRequest,
    ActionResult,
    AgentEventEmitResult,
    AgentRuntimeEvent,
    EnqueueResult,
    HandlerError,
    is_action_request,
    to_action_request,
    to_emit_result,
    to_handler_error,
)
from codesdk.extensions.reconciliation import select_action_execution_plan
from codesdk.extensions.signals import Origin, Signal

_log = logging.getLogger("codesdk.extensions")
_OWN_RESULT = "A handler does not execute actions: return an action_request, not an action_result."


class ActionExecutor(Protocol):
    """Carries out what handlers ask for, and serves their tools."""

    async def execute(self, place: Place, origin: Origin, request: ActionRequest) -> ActionResult:
        """Carry an action out within the origin of its event. Must not raise: the status says how it went."""
        ...

    async def note(self, place: Place, origin: Origin, result: ActionResult) -> None:
        """Record what became of an action."""
        ...

    async def enqueue(self, place: Place, origin: Origin, job: dict[str, Any]) -> EnqueueResult:
        """Queue a job for a handler."""
        ...

    async def settings_of(self, origin: Origin, session_id: str) -> dict[str, Any]:
        """Return the values of a session that has the origin's principal."""
        ...


class _Ports(NamedTuple):
    """The tools of one handler, as far as its event reaches."""

    executor: ActionExecutor
    place: Place
    origin: Origin
    refusal: Callable[[Place, ActionRequest, bool], ActionResult | None]

    async def enqueue(self, job: dict[str, Any]) -> EnqueueResult:
        # The tool and the action do the same, so the same has to be declared for both.
        refused = self.refusal(self.place, ActionRequest(action_type=QUEUE), False)
        if refused is not None:
            await self.executor.note(self.place, self.origin, refused)
            raise Forbidden(refused.message or "")
        return await self.executor.enqueue(self.place, self.origin, job)

    async def settings_of(self, session_id: str) -> dict[str, Any]:
        return await self.executor.settings_of(self.origin, session_id)


class Dispatcher:
    """Calls handlers."""

    def __init__(self, executor: ActionExecutor, trust: TrustMode) -> None:
        self.figures = Figures()
        self._executor = executor
        self._trust: TrustMode = trust

    async def emit(self, loaded: ExtensionSet, signal: Signal) -> list[AgentEventEmitResult]:
        """Call the handlers of an event. Must not raise; return what came of each, in order."""
        places = [
            place
            for place in loaded.handlers.get(signal.event.type, ())
            if not place.extension.runtimes or signal.runtime in place.extension.runtimes
        ]
        if not places:
            return []
        started = time.monotonic()
        results: list[AgentEventEmitResult] = []
        won = False
        for place in places:
            result = await self._call(place, signal, won)
            won = won or (isinstance(result, ActionResult) and result.status == "performed")
            results.append(result)
        took_s = time.monotonic() - started
        self.figures.dispatched(results, took_s)
        _report(signal, results, took_s)
        return results

    async def call(self, place: Place, event: AgentRuntimeEvent, origin: Origin) -> object:
        """Call one handler, for at most its time, with tools that are dead afterwards. Raise what it raises."""
        ports = _Ports(self._executor, place, origin, self._refusal)
        return await place.extension.worker.handle(place.registration, event, ports)

    async def _call(self, place: Place, signal: Signal, won: bool) -> AgentEventEmitResult:
        one, event = place.registration, signal.event
        try:
            raw = await self.call(place, event, signal.origin)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is its result
            return to_handler_error(one.module_name, event.type, error)
        if is_action_request(raw):
            return await self._act(place, signal, raw, won)
        result = to_emit_result(one.module_name, event.type, raw)
        if isinstance(result, ActionResult):
            return HandlerError(module_name=one.module_name, event_type=event.type, message=_OWN_RESULT)
        return result

    async def _act(self, place: Place, signal: Signal, raw: object, won: bool) -> ActionResult:
        one, kind = place.registration, signal.event.type
        try:
            request = to_action_request(raw)
        except ValueError as error:
            result = ActionResult(
                module_name=one.module_name,
                event_type=kind,
                action_type="unknown",
                status="invalid",
                message=str(error),
            )
        else:
            refused = self._refusal(place, request, won)
            result = refused or await self._executor.execute(place, signal.origin, request)
        await self._executor.note(place, signal.origin, result)
        return result

    def _refusal(self, place: Place, request: ActionRequest, won: bool) -> ActionResult | None:
        """Return why a request is not even tried, or None."""
        one, manifest = place.registration, place.extension.manifest
        undeclared = request.action_type not in manifest.capabilities.actions
        if undeclared and self._trust == "warn":
            _log.warning("%s asks for the undeclared action %s", manifest.name, request.action_type)
        answer = ActionResult(
            module_name=one.module_name,
            event_type=one.event_type,
            action_type=request.action_type,
            status="forbidden",
            request_id=request.request_id,
            message=f"{manifest.name} does not declare the action {request.action_type} in its manifest.",
        )
        if undeclared and self._trust == "enforced":
            return answer
        if won:
            words = "Another handler's action was performed for this event."
            return msgspec.structs.replace(answer, status="not_eligible", message=words)
        return None


def _report(signal: Signal, results: Sequence[AgentEventEmitResult], took_s: float) -> None:
    """Write one line about a dispatch: its handlers, its winner, its losers, its errors, its time."""
    plan = select_action_execution_plan(results)
    errors = [one for one in results if isinstance(one, HandlerError)]
    fields = {
        "session_id": signal.origin.session_id,
        "task_id": signal.origin.task_id,
        "event_type": signal.event.type,
        "seq": signal.origin.seq,
        "handlers": len(results),
        "outcomes": [str(type(one).__struct_config__.tag) for one in results],
        "winner": plan.winner.module_name if plan.winner else None,
        "losers": [f"{one.module_name}: {one.status}" for one in (*plan.reconciled, *plan.failed)],
        "errors": [f"{one.module_name}: {one.message}" for one in errors],
        "took_ms": round(took_s * 1000, 1),
    }
    level = logging.WARNING if errors or plan.failed else logging.DEBUG
    _log.log(level, "dispatched %s to %d handlers", signal.event.type, len(results), extra=fields)
