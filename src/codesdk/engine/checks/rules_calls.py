"""Tool-call attempts and approvals of a stored log, checked event by event.

Covers invariants 5 and 6, and what 7 and 8 say about calls. `rules_log` passes every event whose place in the
log is sound. After a finding the check goes on as if the event had been right, so that one fault is reported
once.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.events import Event
from codesdk.contract.tools import ANSWER_TOOL, PermissionMode, ToolIdentity
from codesdk.engine.calls.ledger import NATIVE, extension_name
from codesdk.engine.checks.rules_state import (
    Attempt,
    CarriedQuestion,
    Report,
    TaskCheck,
    asked_about,
    elapsed_ms,
    hash_or_none,
    whereabouts,
)
from codesdk.engine.log.fold_calls import opinion_of
from codesdk.engine.log.state import call_key
from codesdk.policy import granted_rule, may_answer, open_questions


class CallChecks:
    """The calls and approvals of one session. `whole` is false once a part of the log could not be read."""

    def __init__(self, report: Report) -> None:
        self.whole = True
        self.owed: dict[str, Attempt] = {}
        self._report = report
        self._attempts: dict[str, int] = {}
        self._carried: dict[str, CarriedQuestion] = {}
        self._budgets: set[str] = set()
        self._questions: set[str] = set()
        self._granted: set[tuple[str, str]] = set()
        self._mode: PermissionMode | None = None
        self._handlers: dict[type, Callable[[Event, Any, Any], None]] = {
            ev.ToolCallRequested: self._requested,
            ev.ToolCallAnnounced: self._announced,
            ev.ToolCallPolicyEvaluated: self._evaluated,
            ev.ApprovalRequested: self._asked,
            ev.ApprovalAnswered: self._answered,
            ev.ApprovalCarried: self._carry,
            ev.GrantRevoked: self._revoked,
            ev.SessionCreated: self._set_mode,
            ev.SettingsChanged: self._set_mode,
            ev.ToolCallApproved: self._approved,
            ev.ToolCallDenied: self._denied,
            ev.ToolCallStarted: self._started,
            ev.ToolOutputDelta: self._output,
            ev.ToolOutputCompleted: self._output,
            ev.ToolCallCompleted: self._completed,
        }

    def take(self, event: Event, payload: Any, task: TaskCheck | None) -> None:
        """Check an event that is about calls or approvals; ignore any other."""
        source: object = payload
        handler = self._handlers.get(type(source))
        if handler is not None:
            handler(event, payload, task)

    def check_undone(self, payload: ev.FilesUndone) -> None:
        """Check that what was undone, or refused, are calls of this session."""
        for undone in (*payload.restored, *payload.refused):
            if self.whole and undone.attempt > self._attempts.get(undone.tool_call_id, 0):
                key = call_key(undone.tool_call_id, undone.attempt)
                self._report(5, f"files.undone names {key}, which was never requested")

    def _revoked(self, event: Event, payload: ev.GrantRevoked, task: TaskCheck | None) -> None:
        left = {grant for grant in self._granted if grant[0] != payload.tool}
        if self.whole and left == self._granted:
            self._report(6, f"grant.revoked for {payload.tool}, which was not approved for the session")
        self._granted = left

    def close(self, event: Event, task: TaskCheck) -> None:
        """Check that nothing is open when a task ends."""
        for attempt in task.calls.values():
            self._report(5, f"{event.type} of {task.task_id}, while {attempt.key} is still {attempt.phase}")
        for approval_id, attempt in task.questions.items():
            if attempt is None and not task.recovered:
                law = 7 if task.stop else 3
                self._report(law, f"{event.type} of {task.task_id}, while {approval_id} was never answered")

    def _set_mode(self, event: Event, payload: ev.SessionCreated | ev.SettingsChanged, _: Any) -> None:
        if payload.permission_mode is not msgspec.UNSET:
            self._mode = payload.permission_mode

    def _requested(self, event: Event, payload: ev.ToolCallRequested, task: TaskCheck) -> None:
        key = call_key(payload.tool_call_id, payload.attempt)
        attempt = Attempt(key=key, request=payload, mode=self._mode)
        before = self._attempts.get(payload.tool_call_id, 0)
        if payload.attempt > 1:
            self._check_again(payload, attempt, task, before)
        elif before:
            self._report(5, f"tool.call.requested for {key}, which was requested before")
        if payload.input is msgspec.UNSET:
            if payload.input_ref is None:
                self._report(5, f"tool.call.requested for {key} has no input")
        elif hash_or_none(payload.input) != payload.input_hash:
            self._report(5, f"tool.call.requested for {key}: the input_hash is not that of the input")
        self._attempts[payload.tool_call_id] = max(before, payload.attempt)
        task.calls[key] = attempt
        if payload.early:
            task.early[key] = attempt
            if payload.message_id is not None:
                self._report(5, f"tool.call.requested for {key} is early, and yet has a place")

    def _announced(self, event: Event, payload: ev.ToolCallAnnounced, task: TaskCheck) -> None:
        key = call_key(payload.tool_call_id, payload.attempt)
        attempt = task.early.pop(key, None)
        if attempt is None:
            self._report(5, f"tool.call.announced for {key}, which nobody waited to be told of")
            return
        request, runtime_id = attempt.request, payload.runtime_tool_call_id
        if payload.input_hash != request.input_hash:
            self._report(5, f"tool.call.announced for {key} speaks of another input than was requested")
        if request.runtime_tool_call_id not in (None, runtime_id):
            self._report(
                5, f"tool.call.announced for {key} has another runtime_tool_call_id than was requested"
            )
        attempt.request = msgspec.structs.replace(request, runtime_tool_call_id=runtime_id)

    def _check_again(
        self, payload: ev.ToolCallRequested, attempt: Attempt, task: TaskCheck, before: int
    ) -> None:
        """Check that a call is issued again only when it is over, and approved again unless it only reads."""
        previous = call_key(payload.tool_call_id, payload.attempt - 1)
        if previous in task.calls:
            self._report(5, f"tool.call.requested for {attempt.key}, while {previous} is not over")
        elif self.whole and before != payload.attempt - 1:
            self._report(5, f"tool.call.requested for {attempt.key}, which does not follow attempt {before}")
        kept = next(
            (
                approval_id
                for approval_id, entry in self._carried.items()
                if entry.payload.tool_call_id == payload.tool_call_id
            ),
            None,
        )
        entry = self._carried.pop(kept) if kept is not None else None
        attempt.carried = entry.payload if entry else None
        approved = entry.answer == "approve" if entry else payload.tool_class == "read_only"
        if self.whole and not approved:
            self._report(5, f"tool.call.requested for {attempt.key}, which nobody approved to run again")

    def _evaluated(self, event: Event, payload: ev.ToolCallPolicyEvaluated, task: TaskCheck) -> None:
        attempt = self._find(event, payload, task, law=6)
        if attempt is None:
            return
        if attempt.phase != "requested":
            self._report(6, f"tool.call.policy_evaluated for {attempt.key}, which was already approved")
        opinion = opinion_of(payload)
        rule = granted_rule(opinion)
        if rule is not None and self.whole and (attempt.request.name, rule) not in self._granted:
            self._report(6, f"tool.call.policy_evaluated for {attempt.key} names a grant that nobody gave")
        attempt.opinions.append(opinion)

    def _asked(self, event: Event, payload: ev.ApprovalRequested, task: TaskCheck | None) -> None:
        if payload.question is not None:
            self._questions.add(payload.approval_id)
        if task is None:
            self._asked_outside(payload)
            return
        if payload.approval_id in task.questions:
            self._report(8, f"approval.requested {payload.approval_id}, which was already asked")
        if task.stop is not None:
            self._report(7, f"approval.requested {payload.approval_id} after a stop was asked for")
        attempt: Attempt | None = None
        if payload.tool_call_id is not None:
            key = call_key(payload.tool_call_id, payload.attempt or 1)
            attempt = task.calls.get(key)
            if attempt is None:
                self._report(5, f"approval.requested for {key}, which {whereabouts(task, key)}")
                return
            if attempt.phase != "requested":
                self._report(6, f"approval.requested for {key}, which was already approved")
            if payload.input_hash != attempt.request.input_hash:
                self._report(5, f"approval.requested for {key} speaks of another input than was requested")
        task.questions[payload.approval_id] = attempt

    def _asked_outside(self, payload: ev.ApprovalRequested) -> None:
        """Check a question outside of a task: only one about a used-up budget may be."""
        if payload.budget is None:
            self._report(3, f"approval.requested {payload.approval_id} belongs to no task")
        if payload.approval_id in self._budgets:
            self._report(8, f"approval.requested {payload.approval_id}, which was already asked")
        self._budgets.add(payload.approval_id)

    def _answered(self, event: Event, payload: ev.ApprovalAnswered, task: TaskCheck | None) -> None:
        name = payload.approval_id
        said = payload.answer is not None
        if self.whole and said != (name in self._questions and payload.decision == "approve"):
            self._report(6, f"approval.answered for {name} has {'an' if said else 'no'} answer in words")
        if task is not None and name in task.questions:
            attempt = task.questions.pop(name)
            self._check_extension(name, payload, attempt)
            if attempt is not None:
                attempt.answer = payload.decision
                if payload.scope == "session" and payload.decision == "approve":
                    rules = open_questions(attempt.opinions)
                    self._granted.update((attempt.request.name, rule) for rule in rules)
            if task.stop is not None and payload.decision == "approve":
                self._report(7, f"approval.answered grants {name} after a stop was asked for")
            return
        self._check_extension(name, payload, None)
        if name in self._budgets:
            self._budgets.remove(name)
            return
        entry = self._carried.get(name)
        if entry is None:
            if self.whole:
                self._report(8, f"approval.answered for {name}, which waits for no answer here")
        elif entry.answer is not None:
            self._report(8, f"approval.answered for {name}, which was already answered")
        else:
            entry.answer = payload.decision
            if task is not None:
                self._report(8, f"approval.answered for {name} has a task_id, but its task is over")

    def _check_extension(self, name: str, payload: ev.ApprovalAnswered, attempt: Attempt | None) -> None:
        """Check that an extension answered only what a rule lets it answer, and for this one call."""
        if payload.by.kind != "extension":
            return
        if payload.scope == "session":
            self._report(6, f"approval.answered for {name}: an extension cannot answer for the session")
        if attempt is None or not may_answer(extension_name(payload.by), attempt.opinions):
            self._report(6, f"approval.answered for {name} by an extension that no rule lets answer it")

    def _carry(self, event: Event, payload: ev.ApprovalCarried, _: TaskCheck | None) -> None:
        attempt = self.owed.pop(payload.approval_id, None)
        name = payload.approval_id
        if attempt is None:
            if self.whole:
                self._report(8, f"approval.carried for {name}, which no interrupted task left open")
        elif asked_about(payload) != asked_about(attempt.request):
            self._report(8, f"approval.carried for {name} speaks of another call than {attempt.key}")
        self._carried[name] = CarriedQuestion(payload)

    def _approved(self, event: Event, payload: ev.ToolCallApproved, task: TaskCheck) -> None:
        attempt = self._decide(event, payload, task)
        if attempt is None:
            return
        if task.stop is not None:
            self._report(7, f"tool.call.approved for {attempt.key} after a stop was asked for")
        if task.gave_up:
            self._report(8, f"tool.call.approved for {attempt.key} after a call of the task was given up")
        if attempt.carried is not None and attempt.carried.input_hash != payload.input_hash:
            self._report(5, f"tool.call.approved for {attempt.key}, but another input was approved")
        verdicts = {opinion.result for opinion in payload.policy_snapshot.sources}
        if "allow" not in verdicts:
            self._report(
                6, f"tool.call.approved for {attempt.key}, although no opinion in it allows the call"
            )
        if "deny" in verdicts:
            self._report(
                6, f"tool.call.approved for {attempt.key}, although an opinion in it denies the call"
            )
        attempt.phase = "approved"
        attempt.policy = payload.policy_snapshot

    def _denied(self, event: Event, payload: ev.ToolCallDenied, task: TaskCheck) -> None:
        attempt = self._decide(event, payload, task)
        if attempt is None:
            return
        if payload.carried and not task.recovered:
            self._report(8, f"tool.call.denied for {attempt.key} is carried, but no crash ended the task")
        if task.recovered and not payload.carried:
            self._report(8, f"tool.call.denied for {attempt.key} is not carried, but a crash ended the task")
        self._end(task, attempt, "denied")

    def _decide(
        self, event: Event, payload: ev.ToolCallApproved | ev.ToolCallDenied, task: TaskCheck
    ) -> Attempt | None:
        """Check what approvals and denials have in common."""
        attempt = self._find(event, payload, task)
        if attempt is None:
            return None
        what, snapshot = f"{event.type} for {attempt.key}", payload.policy_snapshot
        if attempt.phase != "requested":
            self._report(5, f"{what}, which was already approved")
        allows = isinstance(payload, ev.ToolCallApproved)
        if snapshot.decision != ("allow" if allows else "deny"):
            self._report(6, f"{what}, but its policy_snapshot says {snapshot.decision}")
        if self.whole and attempt.mode not in (None, snapshot.permission_mode):
            self._report(6, f"{what} under the mode {snapshot.permission_mode}, which did not hold")
        if any(opinion not in snapshot.sources for opinion in attempt.opinions):
            self._report(6, f"{what}: its policy_snapshot leaves out an opinion that was recorded before")
        if attempt.answer is not None and allows != (attempt.answer == "approve"):
            self._report(6, f"{what}, although the answer was {attempt.answer}")
        carried = isinstance(payload, ev.ToolCallDenied) and (payload.carried or task.recovered)
        for name in [name for name, asked in task.questions.items() if asked is attempt]:
            del task.questions[name]
            if carried:
                self.owed[name] = attempt
            else:
                self._report(7 if task.stop else 6, f"{what}, while {name} waits for an answer")
        return attempt

    def _started(self, event: Event, payload: ev.ToolCallStarted, task: TaskCheck) -> None:
        attempt = self._find(event, payload, task)
        if attempt is None:
            return
        if attempt.phase != "approved":
            why = "was never approved" if attempt.phase == "requested" else "had already started"
            self._report(5, f"tool.call.started for {attempt.key}, which {why}")
        attempt.phase = "running"
        attempt.unrun = bool(task.recovered or task.stop)
        attempt.started = payload
        attempt.started_at = event.time

    def _output(
        self, event: Event, payload: ev.ToolOutputDelta | ev.ToolOutputCompleted, task: TaskCheck
    ) -> None:
        attempt = self._find(event, payload, task)
        if attempt is None:
            return
        if attempt.phase != "running":
            self._report(5, f"{event.type} for {attempt.key}, which had not started")
        elif attempt.output_ended:
            self._report(5, f"{event.type} for {attempt.key}, whose output had ended")
        if attempt.unrun:
            self._report(7, f"{event.type} for {attempt.key}, which must not run after a stop")
        attempt.output_ended = isinstance(payload, ev.ToolOutputCompleted)

    def _completed(self, event: Event, payload: ev.ToolCallCompleted, task: TaskCheck) -> None:
        attempt = self._find(event, payload, task)
        if attempt is None:
            return
        what, started = f"tool.call.completed for {attempt.key}", attempt.started
        if started is None:
            self._report(5, f"{what}, which never started")
        elif (started.execution_env, started.sandbox) != (payload.execution_env, payload.sandbox):
            self._report(5, f"{what} ran in another environment than it started in")
        elif elapsed_ms(attempt.started_at, event.time) not in (None, payload.duration_ms):
            self._report(9, f"{what}: duration_ms is not the time since it started")
        if (payload.executed_by == "runtime") != (payload.execution_env == NATIVE):
            self._report(5, f"{what} is by {payload.executed_by}, but ran in {payload.execution_env}")
        if attempt.policy is not None and attempt.policy != payload.policy_snapshot:
            self._report(6, f"{what} has another policy_snapshot than its approval")
        self._check_outcome(what, payload, attempt, task)
        if attempt.request.name == ANSWER_TOOL and task.output_way == "tool" and not payload.is_error:
            task.answer = attempt.request
        self._end(task, attempt, "completed")

    def _check_outcome(
        self, what: str, payload: ev.ToolCallCompleted, attempt: Attempt, task: TaskCheck
    ) -> None:
        """Check the outcome. An unknown one, left by a crash or a tool that outlived its task, is an error."""
        lost = payload.outcome == "unknown"
        if not payload.is_error and (lost or task.recovered):
            self._report(8, f"{what} is no error, although nobody saw how it ended")
        elif task.recovered and lost == attempt.unrun:
            outcome = "known" if attempt.unrun else "unknown"
            self._report(8, f"{what} must have the outcome {outcome} after a crash")
        elif attempt.unrun and (lost or not payload.is_error):
            self._report(7, f"{what} must be a known error: a call that starts after a stop must not run")
        task.gave_up = task.gave_up or lost

    def _find(self, event: Event, payload: ToolIdentity, task: TaskCheck, law: int = 5) -> Attempt | None:
        """Return the open attempt that an event is about. Report an event about a closed one."""
        key = call_key(payload.tool_call_id, payload.attempt)
        attempt = task.calls.get(key)
        if attempt is None:
            number = law if key in task.ended else 5
            self._report(number, f"{event.type} for {key}, which {whereabouts(task, key)}")
            return None
        request = attempt.request
        if payload.input_hash != request.input_hash:
            self._report(5, f"{event.type} for {key} speaks of another input than was requested")
        if getattr(payload, "name", request.name) != request.name:
            self._report(5, f"{event.type} for {key} speaks of another tool than {request.name}")
        if payload.runtime_tool_call_id != request.runtime_tool_call_id:
            self._report(5, f"{event.type} for {key} has another runtime_tool_call_id than was requested")
        return attempt

    def _end(self, task: TaskCheck, attempt: Attempt, how: str) -> None:
        del task.calls[attempt.key]
        task.ended[attempt.key] = how
