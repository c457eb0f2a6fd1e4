"""Extensions over an engine of this process: events from its log, actions through its `execute`, records in its audit."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from codesdk.contract.actions import Action, AnswerSuggestRequest, Caller
from codesdk.contract.entry import WRAPPED
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import CONTRACT_VERSION
from codesdk.contract.ports import AppServerSignal, EventLog, Stamper
from codesdk.contract.tools import Actor
from codesdk.engine import Engine, Subscription
from codesdk.extensions import (
    PAGES_AHEAD,
    ActionResult,
    AgentEventEmitResult,
    AgentRuntimeProfile,
    EngineActions,
    ExtensionHost,
    ExtensionOptions,
    JobQueue,
    Origin,
    Pins,
    Signal,
    outcomes_of,
)
from codesdk.runtimes import runtime_names
from codesdk.store import Audit, extension_entry

PROFILE_VERSION = f"{CONTRACT_VERSION}.0.0"
"""The version of every profile: that of the contract which all runtimes here are written against."""
CLOSE_S = 2.0
"""How long handlers may go on when the engine is closed. What they do not take by then they get at the next start."""

_ENGINE = Actor(kind="engine")
_log = logging.getLogger("codesdk.extensions")


class Extending:
    """The extensions of one engine: its `Listeners`. `subscription` must be among its observers."""

    def __init__(
        self,
        options: ExtensionOptions,
        log: EventLog,
        data_dir: Path | None,
        runtimes: Iterable[str],
        audit: Audit | None,
        stamper: Stamper,
    ) -> None:
        self._engine: Engine | None = None
        self._audit = audit
        self._log = log
        jobs = JobQueue(log, self._redact, stamper)
        actions = EngineActions(self._execute, self._values, self._note, jobs, options.actions)
        self.host = ExtensionHost(options, log, Pins(data_dir), profiles(runtimes), actions, jobs)
        self.subscription = Subscription(log, self.host, from_start=False, ahead=PAGES_AHEAD)
        self.host.settle = self.subscription.settle
        self.host.backlog = self._backlog
        self.host.suggested = self._suggested

    async def start(self, engine: Engine) -> None:
        """Load the extensions, and tell them of what is committed."""
        self._engine = engine
        await self.host.load()
        await self.subscription.place()
        await self.host.jobs.start()
        self.subscription.start()

    async def close(self) -> None:
        """End the extensions."""
        await self.subscription.close(CLOSE_S)
        await self.host.jobs.close(CLOSE_S)
        await self.host.app_server.close(CLOSE_S)
        await self.host.close()

    async def _execute(self, action: Action[Any], caller: Caller, key: str) -> Any:
        assert self._engine is not None, "nothing is dispatched before the start"
        return await self._engine.execute(action, caller, key)

    async def _values(self, principal: str, session_id: str) -> dict[str, Any]:
        assert self._engine is not None, "nothing is dispatched before the start"
        return await self._engine.archive.as_principal(principal).values(session_id)

    async def _redact(self, session_id: str, value: Any) -> Any:
        assert self._engine is not None, "nothing is queued before the start"
        return (await self._engine.redactor_of(session_id)).value(value)

    async def _backlog(self) -> int:
        """Return how far behind the log dispatch is. While nothing is dispatched, what is left concerns nobody."""
        if not self.host.figures.in_hand:
            return 0
        return max(0, await self._log.last_cursor() - (self.subscription.cursor or 0))

    def hears(self, event_type: str, runtime: str) -> bool:
        """Return whether some extension is told of an event of a type in a session of a runtime."""
        return self.host.hears(event_type, runtime)

    def wants(self, method: str | None, runtime: str, *, is_request: bool) -> bool:
        """Return whether some extension wants such messages of an app server."""
        return self.host.app_server.wants(method, runtime, is_request=is_request)

    def tell(self, signal: AppServerSignal) -> None:
        """Tell extensions of a message of an app server."""
        self.host.app_server.tell(signal)

    async def _suggested(self, signal: Signal, results: Sequence[AgentEventEmitResult]) -> None:
        """Put into the log what extensions answered to a request for suggestions."""
        origin, suggest_id = signal.origin, str(signal.origin.data["suggest_id"])
        action = AnswerSuggestRequest(
            session_id=origin.session_id, suggest_id=suggest_id, results=outcomes_of(results)
        )
        caller = Caller(principal=origin.principal, actor=_ENGINE, client_id="extensions")
        try:
            await self._execute(action, caller, f"extensions-{suggest_id}")
        except StorageFailure:
            raise  # the event comes again
        except CodeSDKError as error:  # the session is gone, or the event came twice
            _log.info("%s got no answer: %s", suggest_id, error.message)

    async def _note(self, extension: str, origin: Origin, result: ActionResult) -> None:
        if self._audit is None:
            return
        # The audit knows the engine's secrets, not the session's, and an extension may have put those anywhere.
        words = [result.action_type, result.request_id, result.message]
        try:
            action_type, request_id, message = await self._redact(origin.session_id, words)
        except CodeSDKError:
            action_type, request_id, message = "unknown", None, None  # nor does anybody know them now
        what = {
            "session_id": origin.session_id,
            "seq": origin.seq,
            "task_id": origin.task_id,
            "event_type": result.event_type,
            "request_id": request_id,
        }
        self._audit.note(
            extension_entry(origin.principal, extension, action_type, result.status, what, message)
        )


def profiles(others: Iterable[str] = ()) -> list[AgentRuntimeProfile]:
    """Return the runtimes that extensions can be bound to: those of this version, and some by name."""
    names = dict.fromkeys([*runtime_names(), WRAPPED, *others])
    return [
        AgentRuntimeProfile(runtime_profile_id=name, runtime_profile_version=PROFILE_VERSION)
        for name in names
    ]
