"""A session's events → the updates that an editor shows. Pure: what has to be read first is named, not read.

While the past is replayed, whole messages are shown; from then on, pieces as they come. A piece that is shown is
not shown again when its message is complete.
"""

from collections.abc import Sequence
from typing import Any

from acp.schema import (
    AgentPlanUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    PlanEntry,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
)
from msgspec import UNSET

from codesdk.acp_agent.chunks import (
    MAX_READ_BYTES,
    Update,
    Wanted,
    block_chunk,
    message_chunk,
    thought_chunk,
    user_chunks,
)
from codesdk.acp_agent.options import Chosen, Options
from codesdk.acp_agent.tool_calls import (
    Content,
    differences,
    kind_of,
    locations_of,
    paths_in,
    preview,
    result_content,
    text_content,
    title_of,
)
from codesdk.contract import events as ev, plans
from codesdk.contract.plans import plan_in
from codesdk.contract.tools import Actor

_TAIL_CHARS = 4096
"""How much of a running tool's output is shown; its end says most."""


class Translator:
    """One session's events, in order, as one editor sees them."""

    def __init__(self, workspace: str, chosen: Chosen, options: Options, *, live: bool) -> None:
        self.chosen = chosen
        self.own: set[str] = set()
        """The tasks that this editor started: it shows their prompts itself, and is told of their end."""
        self.calls: dict[str, ToolCallStart] = {}
        """The calls that are not over, as they were shown."""
        self._workspace = workspace
        self._options = options
        self._live = live
        self._shown: set[str] = set()
        self._held: dict[str, list[ev.OutputDelta]] = {}
        self._output: dict[str, str] = {}
        self._plan: AgentPlanUpdate | None = None
        self._used = 0
        self._size = 0
        self._cost: float | None = 0.0

    def go_live(self) -> list[Update]:
        """Show pieces from now on, first those of messages that were begun and are not complete."""
        self._live = True
        updates = [
            update for deltas in self._held.values() for delta in deltas for update in self._piece(delta)
        ]
        self._held.clear()
        plan: list[Update] = [] if self._plan is None else [self._plan]
        return [*updates, *plan, *self._titled()]

    def take(self, event: ev.Event) -> list[Update | Wanted]:
        """Return what an event shows."""
        for part in (self._model, self._call, self._task, self._session):
            found = part(event)
            if found is not None:
                return found
        return []

    # --- what the model says ----------------------------------------------------------------------------

    def _model(self, event: ev.Event) -> list[Update | Wanted] | None:
        match event.payload:
            case ev.OutputDelta() as delta:
                if not self._live:
                    self._held.setdefault(delta.message_id, []).append(delta)
                    return []
                return [*self._piece(delta)]
            case ev.OutputCompleted() as whole:
                self._held.pop(whole.message_id, None)
                if whole.message_id in self._shown:
                    self._shown.discard(whole.message_id)
                    return []
                return [block_chunk(block, whole.message_id) for block in whole.content]
            case ev.OutputRetracted() as gone:
                return (
                    [thought_chunk(f"(What was said above is taken back: {gone.reason})")]
                    if self._live
                    else []
                )
            case ev.RuntimeNotice() as notice if (plan := plan_in(notice)) is not None:
                self._plan = _plan_update(plan)
                return [self._plan] if self._live else []  # of those in the past, the last one counts
            case ev.ModelInput(context_window=window):
                self._used = window.estimated_tokens + (window.overhead_tokens or 0)
                self._size = max(window.budget_tokens, self._used)
                return [self._usage()]
            case _:
                return None

    def _piece(self, delta: ev.OutputDelta) -> list[Update]:
        if delta.kind not in ("text_delta", "code_delta", "reasoning_delta") or not delta.delta:
            return []
        self._shown.add(delta.message_id)
        if delta.kind == "reasoning_delta":
            return [thought_chunk(delta.delta, delta.message_id)]
        return [message_chunk(delta.delta, delta.message_id)]

    def _usage(self) -> UsageUpdate:
        cost = None if self._cost is None else Cost(amount=self._cost, currency="USD")
        return UsageUpdate(session_update="usage_update", used=self._used, size=self._size, cost=cost)

    # --- tool calls -------------------------------------------------------------------------------------

    def _call(self, event: ev.Event) -> list[Update | Wanted] | None:
        match event.payload:
            case ev.ToolCallRequested() as call:
                # A call is made while its message goes on; what was said before it is shown before it.
                said = self._held.pop(call.message_id or "", [])
                pieces = [update for delta in said for update in self._piece(delta)]
                self.calls[call.tool_call_id] = self._requested(call)
                return [*pieces, self.calls[call.tool_call_id]]
            case ev.ToolCallApproved(by=by, tool_call_id=call_id) if by.kind == "user":
                said = {"decision": "approve", "by": _who(by, event.trace)}
                return [_progress(call_id, meta=said)]
            case ev.ToolCallStarted(tool_call_id=call_id):
                return [_progress(call_id, status="in_progress")]
            case ev.ToolOutputDelta(tool_call_id=call_id, delta=delta):
                if not self._live:
                    return []
                tail = (self._output.get(call_id, "") + delta)[-_TAIL_CHARS:]
                self._output[call_id] = tail
                return [_progress(call_id, content=[text_content(tail)])]
            case ev.ToolCallDenied(carried=True, tool_call_id=call_id):
                return [
                    _progress(
                        call_id, status="pending", content=[text_content("Interrupted while it waited.")]
                    )
                ]
            case ev.ToolCallDenied() as call:
                said = {"decision": "deny", "by": _who(call.by, event.trace)}
                self.calls.pop(call.tool_call_id, None)
                why = text_content(f"Denied by {_name(call.by)}: {call.reason}")
                return [_progress(call.tool_call_id, status="failed", content=[why], meta=said)]
            case ev.ToolCallCompleted() as call:
                self._output.pop(call.tool_call_id, None)
                self.calls.pop(call.tool_call_id, None)
                return [self._completed(call)]
            case _:
                return None

    def _requested(self, call: ev.ToolCallRequested) -> ToolCallStart:
        given = None if call.input is UNSET else call.input
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=call.tool_call_id,
            title=title_of(call.name, given),
            kind=kind_of(call.name, call.tool_class),
            status="pending",
            content=preview(self._workspace, call.name, given) or None,
            locations=locations_of(self._workspace, paths_in(given)) or None,
            raw_input=given,
            field_meta=_meta({"tool": call.name, "class": call.tool_class, "attempt": call.attempt}),
        )

    def _completed(self, call: ev.ToolCallCompleted) -> Wanted:
        known = [change.diff_ref for change in call.changes if change.diff_ref is not None]
        refs = [ref.artifact_id for ref in known if ref.size_bytes <= MAX_READ_BYTES]

        def make(diffs: list[bytes | None]) -> list[Update]:
            content: list[Content] = []
            for diff in diffs:
                if diff is not None:
                    content += differences(self._workspace, diff.decode("utf-8", "replace"))
            content += result_content(call.result_preview)
            if call.outcome == "unknown":
                content.append(text_content("It started, and nobody saw how it ended."))
            well = not call.is_error and call.outcome == "known"
            changed = [change.path for change in call.changes]
            return [
                _progress(
                    call.tool_call_id,
                    status="completed" if well else "failed",
                    content=content,
                    locations=changed and locations_of(self._workspace, changed),
                    raw_output=call.result_preview,
                    meta={"durationMs": call.duration_ms, "env": call.execution_env, "changed": changed},
                )
            ]

        return Wanted(refs, make)

    # --- tasks ------------------------------------------------------------------------------------------

    def _task(self, event: ev.Event) -> list[Update | Wanted] | None:
        payload, task_id = event.payload, event.trace.task_id or ""
        match payload:
            case ev.TaskStarted():
                hidden = task_id in self.own or not payload.executed or payload.summarizes_before is not None
                return [] if hidden else user_chunks(payload.messages)
            case ev.TaskSteered():
                return _steered(payload)
            case ev.TaskCompleted() | ev.TaskFailed() | ev.TaskStopped():
                return self._ended(payload, shown=task_id not in self.own)
            case _:
                return None

    def _ended(
        self, payload: ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped, *, shown: bool
    ) -> list[Update | Wanted]:
        known = self._cost is not None and payload.usage.cost_usd is not None
        self._cost = (self._cost or 0.0) + (payload.usage.cost_usd or 0.0) if known else None
        updates: list[Update | Wanted] = [self._usage()] if self._size else []
        if isinstance(payload, ev.TaskFailed) and shown:
            updates.append(message_chunk(f"\n\n(The task failed: {payload.error.message})"))
        if isinstance(payload, ev.TaskStopped) and shown:
            updates.append(message_chunk(f"\n\n(Stopped by {_name(payload.by)}: {payload.reason})"))
        return updates

    # --- the session ------------------------------------------------------------------------------------

    def _session(self, event: ev.Event) -> list[Update | Wanted] | None:
        match event.payload:
            case ev.SettingsChanged() as changed:
                return self._settings(changed)
            case ev.SessionResumed(runtime=runtime) if runtime != self.chosen.runtime:
                self.chosen.runtime, self.chosen.model = runtime, event.runtime.model
                return [self._choices()] if self._live else []
            case ev.SessionCompacted() as compacted:
                before, after = compacted.tokens_before, compacted.tokens_after
                return [
                    thought_chunk(
                        f"(Compacted, from about {before:,} tokens to {after:,}: {compacted.reason})"
                    )
                ]
            case ev.TranscriptSupplemented(text=str(text)) as added:
                return [message_chunk(f"\n\n({_name(added.by)} adds: {text})")]
            case ev.FilesUndone() as undone:
                files = ", ".join(file.path for file in undone.restored)
                return [message_chunk(f"\n\n({_name(undone.by)} put back: {files})")]
            case ev.SessionClosed(reason=reason):
                return [message_chunk(f"\n\n(The session is closed: {reason})")]
            case _:
                return None

    def _settings(self, changed: ev.SettingsChanged) -> list[Update | Wanted]:
        self.chosen.change(changed)
        if not self._live:  # what was chosen once says nothing; what is chosen now is in the answer
            return []
        updates: list[Update | Wanted] = []
        if changed.permission_mode is not UNSET:
            mode = CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.chosen.mode)
            updates.append(mode)
        if changed.permission_mode is not UNSET or changed.model is not UNSET:
            updates.append(self._choices())
        if changed.title is not UNSET:
            updates += self._titled()
        return updates

    def _titled(self) -> list[Update]:
        title = self.chosen.title
        return [SessionInfoUpdate(session_update="session_info_update", title=title)] if title else []

    def _choices(self) -> ConfigOptionUpdate:
        options = self._options.options(self.chosen)
        return ConfigOptionUpdate(session_update="config_option_update", config_options=options)


def _plan_update(plan: Sequence[plans.PlanEntry]) -> AgentPlanUpdate:
    entries = [
        PlanEntry(content=entry.content, priority=entry.priority, status=entry.status) for entry in plan
    ]
    return AgentPlanUpdate(session_update="plan", entries=entries)


def _progress(call_id: str, *, meta: dict[str, Any] | None = None, **fields: Any) -> ToolCallProgress:
    given = {name: value for name, value in fields.items() if value not in (None, [])}
    return ToolCallProgress(
        session_update="tool_call_update", tool_call_id=call_id, field_meta=_meta(meta), **given
    )


def _meta(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if fields is None else {"codesdk": fields}


def _who(by: Actor, trace: ev.Trace) -> dict[str, str]:
    """Return who did something, and through which client."""
    found = {"kind": by.kind, "id": by.id, "client": trace.client_id}
    return {name: value for name, value in found.items() if value is not None}


def _steered(payload: ev.TaskSteered) -> list[Update | Wanted]:
    """Return what was added to a task. What the engine adds nobody said; an extension is named."""
    by = payload.by
    if by is not None and by.kind == "engine":
        return []
    told: list[Update | Wanted] = [] if by is None else [message_chunk(f"\n\n({_name(by)} adds:)\n\n")]
    return [*told, *user_chunks(payload.messages)]


def _name(by: Actor) -> str:
    return by.id or by.kind
