"""Carries out actions on sessions: the only way to change one.

Access, the operator's permits and idempotency are checked here, once for all actions and callers;
`LiveSession` decides what an action does. Each handler returns the action's result and has already stored it
under the caller's idempotency key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from codesdk.contract import actions as act
from codesdk.contract.actions import Action, Caller, Equipment, messages_of
from codesdk.contract.errors import Busy, CodeSDKError, Conflict, Forbidden, InvalidRequest
from codesdk.contract.events import SessionCreated
from codesdk.contract.ids import is_task_id
from codesdk.contract.jobs import JobRow, canceled, retried
from codesdk.contract.records import Changes, KeyRow, SessionRow, SuggestRequest, Supplement, TaskRow
from codesdk.contract.settings import SessionConfig
from codesdk.contract.tools import UndoReport
from codesdk.contract.validation import check_key, checked, is_long
from codesdk.contract.workspace import Workspace
from codesdk.engine.calls.undo import undo
from codesdk.engine.log.acting import acting_for
from codesdk.engine.log.feed import unknown_session
from codesdk.engine.log.fold import session_row
from codesdk.engine.permits import Permits
from codesdk.engine.sessions.creation import check_project, default_runtime, first_event, settings_with
from codesdk.engine.sessions.equipping import SessionEquipping, equipment_of
from codesdk.engine.sessions.fork import forked_event, on_runtime
from codesdk.engine.sessions.jobs import change_job
from codesdk.engine.sessions.keys import Keys
from codesdk.engine.sessions.registry import SessionRegistry
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.sessions.suggestions import answer_suggest, request_suggestions
from codesdk.engine.sessions.supplements import supplement
from codesdk.engine.tasks.validation import MAX_OPTIONS_BYTES, check_settings, check_size
from codesdk.sandbox import PathRefused

R = TypeVar("R")
Handler = Callable[[Any, Caller, KeyRow | None], Awaitable[Any]]
JobChange = act.CancelJob | act.RetryJob

_UNSAID = ("secrets",)
"""Fields that an idempotency key does not cover: they hold secrets, and not even their hash is stored."""


class SessionActions:
    """Carries out actions on the sessions of one engine."""

    def __init__(
        self,
        registry: SessionRegistry,
        permits: Permits,
        settle_subscribers: Callable[[], Awaitable[None]],
        ready_runtimes: Callable[[str], Awaitable[Sequence[str]]],
    ) -> None:
        self.keys = Keys(registry.ports.log)
        self.closing = False
        self.on_answered: Callable[[LiveSession], None] = lambda live: None
        """Called for a session when something that it may wait for has changed."""
        self.on_job: Callable[[JobChange, Caller, JobRow], None] = lambda action, caller, row: None
        """Called when somebody has changed a job."""
        self.open_sessions = 0
        """How many sessions are not closed."""
        self._ports = registry.ports
        self._find_runtime = registry.find_runtime
        self._registry = registry
        self._secrets = registry.secrets
        self._equipping = SessionEquipping(registry.ports, registry.secrets)
        self._permits = permits
        self._settle_subscribers = settle_subscribers
        self._ready_runtimes = ready_runtimes
        self._handlers: dict[type[Action[Any]], Handler] = {
            act.CreateSession: self._create,
            act.EquipSession: self._equip,
            act.StartTask: self._start,
            act.ResumeSession: self._resume,
            act.SteerTask: self._steer,
            act.StopTask: self._stop,
            act.ApproveCall: self._answer,
            act.DenyCall: self._answer,
            act.AnswerQuestion: self._answer_question,
            act.RevokeGrant: self._revoke,
            act.UndoChanges: self._undo,
            act.ForkSession: self._fork,
            act.ChangeSettings: self._change_settings,
            act.MoveSession: self._move,
            act.CompactSession: self._compact,
            act.SupplementTranscript: self._supplement,
            act.RequestSuggestions: self._suggest,
            act.AnswerSuggestRequest: self._answer_suggest,
            act.CloseSession: self._close,
            act.DeleteSession: self._delete,
            act.CancelJob: self._change_job,
            act.RetryJob: self._change_job,
        }

    async def execute(self, action: Action[R], caller: Caller, key: str | None) -> R:
        """Carry out an action once per principal and key. Raise `Conflict` if the key is another action's."""
        kind = type(action)
        handler = self._handlers.get(kind)
        if handler is None:
            raise InvalidRequest(f"{kind.__name__} is not an action.")
        if not caller.may(action.needs):
            raise Forbidden(f"This needs the scope {action.needs}.")
        caller.check()
        check_key(key)
        action = await asyncio.to_thread(checked, action) if is_long(action) else checked(action)
        self._registry.learn_keys()
        if key is None:  # most actions have none, and need nothing that keys need
            return await self._act(handler, action, caller, None)
        answer = await self.keys.once(
            caller.principal,
            str(kind.__struct_config__.tag),
            key,
            _said(action),
            lambda row: self._act(handler, action, caller, row),
            passing=not kind.lasts,
        )
        # What was stored under a key comes back as plain data.
        return msgspec.convert(answer, type=kind.result_type()) if isinstance(answer, dict) else answer

    async def _act(self, handler: Handler, action: Action[Any], caller: Caller, key: KeyRow | None) -> Any:
        try:
            # Here and not in `execute`: under a key, the handler runs in an asyncio task of its own.
            with acting_for(caller):
                return await handler(action, caller, key)
        except CodeSDKError:
            raise
        except Exception as error:
            # A bug, or no memory: what it has written of the action must not be stored without the rest of it.
            live = self._registry.get(getattr(action, "session_id", ""))
            if live is not None:
                live.recorder.abandon(error)
            raise

    async def execute_alone(self, action: act.ResumeSession, caller: Caller) -> TaskRow:
        """Resume a session for the engine itself."""
        return await self.execute(action, caller, None)

    # --- sessions ---------------------------------------------------------------------------------------

    async def _create(self, action: act.CreateSession, caller: Caller, key: KeyRow | None) -> SessionRow:
        if action.native_tools != "off":
            _demand_admin(caller, "A session with native_tools")
        _check_equipment(action, caller)
        equipment, prepared = await self._equipping.prepare(equipment_of(action), caller.principal)
        settings = settings_with(action.settings, prepared)
        payer = self._permits.payer(caller.principal)
        config = SessionConfig(
            runtime=action.runtime
            or await default_runtime(self._ports.models, payer, settings.gateway, self._ready_runtimes),
            workspace=self._permits.resolve_workspace(action.workspace),
            title=action.title,
            model=action.model,
            permission_mode=action.permission_mode,
            interaction_mode=action.interaction_mode,
            native_tools=action.native_tools,
            budgets=action.budgets,
            isolation=action.isolation or self._permits.isolation[0],
            credential_namespace=action.credential_namespace,
            project_id=check_project(action.project_id),
            settings=settings,
        )
        check_size(settings.runtime_config, "The runtime_config", MAX_OPTIONS_BYTES)
        check_settings(config, "The settings of a session", self._ports.limits.max_message_bytes)
        runtime = self._find_runtime(config.runtime)
        self._permits.check(runtime.name, config.permission_mode, config.settings.runtime_config)
        self._permits.check_isolation(config.isolation)
        self._permits.check_namespace(config.credential_namespace, caller.principal)
        try:
            workspace = self._ports.identify(Workspace(config.workspace))
        except PathRefused:
            raise InvalidRequest(f"The workspace {action.workspace[:200]!r} is not a directory.") from None
        payload = first_event(config, runtime, caller.principal, equipment.kinds)
        self._refuse_if_full()
        session_id = self._ports.stamper.mint("ses")
        # Before anything is written: a server that does not start leaves no session behind.
        attached = await self._equipping.attach(prepared, session_id)
        try:
            row = await self._begin(session_id, payload, caller.principal, equipment, Changes(), key)
            live = await self._registry.acquire(session_id)
        except BaseException:
            if attached is not None:
                await attached.close()
            raise
        live.scope.workspace = workspace
        await self._equipping.give(live, attached)
        return row

    async def _equip(self, action: act.EquipSession, caller: Caller, _: KeyRow | None) -> SessionRow:
        _check_equipment(action, caller)
        live = await self._acquire(action.session_id, caller, equipped=False)
        await self._equipping.add(live, equipment_of(action), caller.actor)
        return session_row(live.state)

    async def _fork(self, action: act.ForkSession, caller: Caller, key: KeyRow | None) -> SessionRow:
        check_size(action.title, "The title", self._ports.limits.max_message_bytes)
        source = await self._acquire(action.session_id, caller)
        # The fork would work on what the operator may have forbidden since.
        self._check_session(source)
        if source.state.config.native_tools != "off":
            _demand_admin(caller, "A session with native_tools")
        # A fork is a new session with all that its parent is equipped with, so the rule for new ones holds.
        equipment = source.equipment.equipment
        _check_equipment(equipment, caller)
        await source.recorder.settle()  # a fork reads the store, so all that is shown must be there
        new_id, payload, changes = await forked_event(
            self._ports, self._secrets.own, source.state, action.seq, action.title
        )
        if payload.runtime != source.state.runtime_name:
            payload = on_runtime(payload, source.state, self._find_runtime(source.state.runtime_name))
        return await self._begin(new_id, payload, caller.principal, equipment, changes, key)

    async def _change_settings(
        self, action: act.ChangeSettings, caller: Caller, key: KeyRow | None
    ) -> SessionRow:
        live = await self._acquire(action.session_id, caller)
        if action.permission_mode is not msgspec.UNSET:
            self._permits.check_mode(action.permission_mode)
        row = await live.change_settings(action.change(), caller.actor, key)
        self.on_answered(live)
        return row

    async def _move(self, action: act.MoveSession, caller: Caller, key: KeyRow | None) -> SessionRow:
        live = await self._acquire(action.session_id, caller)
        if live.state.config.native_tools != "off":
            _demand_admin(caller, "A session with native_tools")
        self._check_session(live)
        self._permits.check_runtime(self._find_runtime(action.runtime).name)
        self._permits.check_script(action.runtime_config or {})
        self._permits.check_command(action.runtime_config or {})
        return await live.move(action.runtime, action.model, action.runtime_config, key)

    async def _compact(self, action: act.CompactSession, caller: Caller, key: KeyRow | None) -> SessionRow:
        writes = action.strategy == "summary"
        live = await (self._acquire_for_work if writes else self._acquire)(action.session_id, caller)
        task_id = self._ports.stamper.mint("task")
        return await live.compact(action.strategy, action.keep_tokens, caller.actor, task_id, key)

    async def _supplement(
        self, action: act.SupplementTranscript, caller: Caller, key: KeyRow | None
    ) -> Supplement:
        live = await self._acquire(action.session_id, caller)
        return await supplement(live, action, caller.actor, key)

    async def _suggest(
        self, action: act.RequestSuggestions, caller: Caller, key: KeyRow | None
    ) -> SuggestRequest:
        live = await self._acquire(action.session_id, caller)
        return await request_suggestions(live, action.text, caller.actor, key)

    async def _answer_suggest(
        self, action: act.AnswerSuggestRequest, caller: Caller, key: KeyRow | None
    ) -> None:
        live = await self._acquire(action.session_id, caller)
        await answer_suggest(live, action.suggest_id, action.results, caller.actor, key)

    async def _close(self, action: act.CloseSession, caller: Caller, key: KeyRow | None) -> SessionRow:
        live = await self._acquire(action.session_id, caller, equipped=False)
        was_open = not live.state.closed
        row = await live.close(action.reason, caller.actor, key)
        if was_open:
            self.open_sessions -= 1
        return row

    async def _delete(self, action: act.DeleteSession, caller: Caller, _: KeyRow | None) -> None:
        live = await self._acquire(action.session_id, caller, equipped=False)
        await live.queue.idling.ended()
        if not live.idle:
            raise Conflict(f"Session {action.session_id} is running. Close it first.")
        await self._settle_subscribers()  # they read the store, and would miss what is deleted before
        # Checked again: a task may have started while the subscribers caught up.
        if not live.idle:
            raise Conflict(f"Session {action.session_id} was started again. Close it first.")
        if not live.state.closed:
            self.open_sessions -= 1
        live.recorder.feed.close()
        self._registry.forget(action.session_id)
        self._registry.feeds.drop(action.session_id)
        self._secrets.forget(action.session_id)
        # The log first: after a crash in between, the next start finds what is left of the equipment, and the
        # garbage collection what is left of the undo store.
        await self._ports.log.delete(action.session_id)
        self._registry.feeds.end(action.session_id)
        await self._ports.equipment.forget(action.session_id)
        await self._ports.undo.drop(action.session_id)
        await live.resources.release()
        if self._ports.forget is not None:
            await self._ports.forget(caller, action.session_id)

    # --- work in a session ------------------------------------------------------------------------------

    async def _start(self, action: act.StartTask, caller: Caller, key: KeyRow | None) -> TaskRow:
        live = await self._acquire_for_work(action.session_id, caller)
        if action.task_id is not None:
            await self._check_task_id(action.task_id, live)
        task_id = action.task_id or self._ports.stamper.mint("task")
        return await live.start(
            messages_of(action.message),
            on_busy=action.on_busy,
            task_id=task_id,
            output_schema=action.output_schema,
            key=key,
        )

    async def _resume(self, action: act.ResumeSession, caller: Caller, key: KeyRow | None) -> TaskRow:
        live = await self._acquire_for_work(action.session_id, caller)
        messages = messages_of(action.message) if action.message else []
        return await live.resume(messages, self._ports.stamper.mint("task"), caller.actor, key)

    async def _steer(self, action: act.SteerTask, caller: Caller, key: KeyRow | None) -> TaskRow:
        live = await self._acquire(action.session_id, caller)
        # That a person speaks is what the message itself says; anybody else is named.
        by = None if caller.actor.kind == "user" else caller.actor
        return await live.steer(messages_of(action.message), by=by, task_id=action.task_id, key=key)

    async def _stop(self, action: act.StopTask, caller: Caller, key: KeyRow | None) -> TaskRow:
        if action.denies and not caller.may(act.DenyCall.needs):
            raise Forbidden(f"Denying with a stop needs the scope {act.DenyCall.needs}.")
        live = await self._acquire(action.session_id, caller)
        return await live.stop(action.task_id, caller.actor, action.reason, denies=action.denies, key=key)

    async def _answer(
        self, action: act.ApproveCall | act.DenyCall, caller: Caller, key: KeyRow | None
    ) -> None:
        live = await self._acquire(action.session_id, caller)
        approves = isinstance(action, act.ApproveCall)
        if caller.actor.kind == "extension":
            _check_extension(live, action)
        await live.answer(
            action.tool_call_id,
            "approve" if approves else "deny",
            by=caller.actor,
            scope=action.scope if approves else "once",
            reason=action.reason,
            task_id=action.task_id,
            attempt=action.attempt,
            input_hash=action.input_hash,
            key=key,
        )
        self.on_answered(live)

    async def _answer_question(self, action: act.AnswerQuestion, caller: Caller, key: KeyRow | None) -> None:
        if caller.actor.kind == "extension":
            raise Forbidden("Only people answer questions in words, not extensions.")
        live = await self._acquire(action.session_id, caller)
        await live.answer_question(
            action.approval_id, action.text, by=caller.actor, task_id=action.task_id, key=key
        )
        self.on_answered(live)

    async def _revoke(self, action: act.RevokeGrant, caller: Caller, key: KeyRow | None) -> None:
        live = await self._acquire(action.session_id, caller)
        await live.revoke(action.tool, caller.actor, key)

    async def _undo(self, action: act.UndoChanges, caller: Caller, key: KeyRow | None) -> UndoReport:
        live = await self._acquire(action.session_id, caller)
        self._permits.check_workspace(live.state.config.workspace)
        return await undo(live, caller.actor, action.tool_call_id, key)

    # --- jobs of extensions -----------------------------------------------------------------------------

    async def _change_job(self, action: JobChange, caller: Caller, _: KeyRow | None) -> JobRow:
        change = canceled if isinstance(action, act.CancelJob) else retried
        row = await change_job(self._ports.log, action.job_id, caller, change, self._ports.stamper.now)
        self.on_job(action, caller, row)
        return row

    # --- inside -----------------------------------------------------------------------------------------

    async def _acquire(self, session_id: str, caller: Caller, *, equipped: bool = True) -> LiveSession:
        """Return one of the caller's sessions. Another principal's is not found, and not acquired either.

        One whose equipment is lost can only be equipped again, closed or deleted.
        """
        live = self._registry.get(session_id)
        found = live.state if live is not None else await self._ports.log.session(session_id)
        if found is None or found.principal != caller.principal:
            raise unknown_session(session_id)
        live = await self._registry.acquire(session_id, found.principal)
        if equipped:
            live.equipment.require(session_id)
        return live

    async def _acquire_for_work(self, session_id: str, caller: Caller) -> LiveSession:
        self._refuse_if_closing()
        live = await self._acquire(session_id, caller)
        self._check_session(live)
        live.scope.hold_workspace()
        await self._equipping.restore(live)
        return live

    def _check_session(self, live: LiveSession) -> None:
        """Raise `Forbidden` if the operator no longer permits what a session uses."""
        config, used = live.state.config, live.scope.settings.runtime_config
        self._permits.check_workspace(config.workspace)
        self._permits.check(live.state.runtime_name, config.permission_mode, used)
        self._permits.check_isolation(config.isolation.level)
        self._permits.check_namespace(config.credential_namespace, live.state.principal)

    async def _begin(
        self,
        session_id: str,
        payload: SessionCreated,
        principal: str,
        equipment: Equipment,
        changes: Changes,
        key: KeyRow | None,
    ) -> SessionRow:
        """Write the first event of a session."""
        self._refuse_if_full()
        # Counted before the first await, so that creations at the same time cannot exceed the limit together.
        self.open_sessions += 1
        try:
            return await self._registry.create(session_id, payload, principal, equipment, changes, key)
        except Exception:
            self.open_sessions -= 1
            await self._registry.take_back(session_id)
            raise
        except BaseException:  # canceled; what is registered by now is stored all the same
            if session_id not in self._registry:
                self.open_sessions -= 1
            raise

    async def _check_task_id(self, task_id: str, live: LiveSession) -> None:
        if not is_task_id(task_id):
            raise InvalidRequest("A task id is `task_` and 1 to 64 letters, digits, `-` or `_`.")
        if await self._ports.log.task(task_id, live.state.principal) is not None:
            raise Conflict(f"There is already a task {task_id}.")
        if live.scope.redactor.text(task_id) != task_id:
            raise InvalidRequest("The task id contains a secret, and ids are shown. Choose another.")

    def _refuse_if_full(self) -> None:
        self._refuse_if_closing()
        if self.open_sessions >= self._ports.limits.max_sessions:
            raise Busy(
                f"There are {self.open_sessions} open sessions, which is the limit. Close some.",
                code="OVERLOADED",
            )

    def _refuse_if_closing(self) -> None:
        if self.closing:
            raise Busy("CodeSDK is shutting down.", code="OVERLOADED")


def _said(action: Action[Any]) -> Any:
    """Return the part of an action that must be equal under the same idempotency key."""
    plain: dict[str, Any] = msgspec.to_builtins(action)
    if "mcp_servers" in plain:  # how they are reached is secret: only their names count
        plain["mcp_servers"] = sorted(plain["mcp_servers"])
    return {name: value for name, value in plain.items() if name not in _UNSAID}


def _check_equipment(equipment: Equipment, caller: Caller) -> None:
    if equipment.mcp_servers:
        _demand_admin(caller, "A session with mcp_servers")


def _check_extension(live: LiveSession, action: act.ApproveCall | act.DenyCall) -> None:
    """Raise `Forbidden` for all but one call that waits now. Whether a rule lets the extension, `Approvals` knows."""
    state, asked = live.state, action.tool_call_id
    wide = isinstance(action, act.ApproveCall) and action.scope == "session"
    others = (*state.budget_questions, *state.server_questions, *(one.tool_call_id for one in state.carried))
    if wide or asked in others:
        raise Forbidden(
            "An extension may answer for one waiting call only: not for the session, and no other question."
        )


def _demand_admin(caller: Caller, what: str) -> None:
    if not caller.may("admin"):
        raise Forbidden(f"{what} needs a token with the scope admin.")
