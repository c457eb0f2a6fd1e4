"""Finds out what another policy would have decided on each call of a stored log. Read-only.

Behind `codesdk policy replay`. Compares what policies say before a person is asked: a person's answer does
not come from a policy.
"""

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.ports import Blobs, EventLog, PolicyQuestion, ToolRunner
from codesdk.contract.records import Changes
from codesdk.contract.tools import Evaluation, Subjects
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import ANSWER, QUESTION
from codesdk.engine.log.feed import read_events
from codesdk.engine.log.fold import fold
from codesdk.engine.log.fold_calls import WIRE
from codesdk.engine.log.state import CallState, SessionState, call_key
from codesdk.policy import RulePolicy, all_opinions, decide

_TOUCHED = ("path", "host", "argv")
_NOT_OURS = ("tool:unknown", "input:invalid", WIRE, ANSWER)
"""Rules of decisions that no policy could have changed."""


class ReplayedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A past call: what was decided, and what would be. `unsure` says why the latter may be wrong."""

    seq: int
    tool_call_id: str
    attempt: int
    tool: str
    summary: str
    before: Evaluation
    after: Evaluation
    unsure: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the decision would be different."""
        return self.before.result != self.after.result


async def replay_policy(
    log: EventLog, blobs: Blobs, session_id: str, policy: RulePolicy, tools: ToolRunner
) -> list[ReplayedDecision]:
    """Return what a policy decides on the calls of a stored session, in order. Damaged events are skipped."""
    state = SessionState(session_id=session_id, principal="")
    replay = _Replay(blobs, policy, tools)
    found: list[ReplayedDecision] = []
    async for event in read_events(log, session_id):
        payload = event.payload
        if isinstance(payload, ev.ToolCallApproved | ev.ToolCallDenied | ev.ApprovalRequested):
            call = _open_call(state, payload)
            if call is not None:
                found += await replay.decide_again(event.seq, state, call)
        fold(state, event, Changes())
    return found


def _open_call(
    state: SessionState, payload: ev.ToolCallApproved | ev.ToolCallDenied | ev.ApprovalRequested
) -> CallState | None:
    """Return the call that is decided or asked about here, unless it was asked about before."""
    if state.task is None or payload.tool_call_id is None:
        return None
    call = state.task.calls.get(call_key(payload.tool_call_id, payload.attempt or 1))
    return None if call is None or call.approval_id is not None else call


class _Replay:
    """A policy, and what it needs to know about a call."""

    def __init__(self, blobs: Blobs, policy: RulePolicy, tools: ToolRunner) -> None:
        self._blobs = blobs
        self._policy = policy
        self._tools = tools
        self._known = {spec.name for spec in tools.specs()}

    async def decide_again(self, seq: int, state: SessionState, call: CallState) -> list[ReplayedDecision]:
        said = [one for one in call.evaluations if one.source != "user" and one.rule != "non_interactive"]
        if not said or any(one.rule in _NOT_OURS for one in said):
            return []
        subjects, unsure = await self._subjects(call)
        question = PolicyQuestion(
            session_id="",
            name=call.name,
            tool_class=call.tool_class,
            input=call.input,
            permission_mode=call.permission_mode,
            subjects=subjects,
        )
        granted = {grant.rule for grant in state.grants if grant.tool == call.name}
        opinions = all_opinions(question, self._policy.evaluate(question), granted)
        opinions += [one for one in said if one.rule == QUESTION.rule]  # it asks, whatever the policy
        return [
            ReplayedDecision(
                seq=seq,
                tool_call_id=call.identity.tool_call_id,
                attempt=call.identity.attempt,
                tool=call.name,
                summary=call.name if call.input_ref else ledger.summarize(call.name, call.input),
                before=decide(said),
                after=decide(opinions),
                unsure=unsure if unsure and self._depends(question) else None,
            )
        ]

    def _depends(self, question: PolicyQuestion) -> bool:
        """Return whether the policy's answer depends on what the call touches."""
        looked = self._policy.look(question)
        used = self._policy.rules[: len(looked)]
        return any(
            one.missed in _TOUCHED or (one.missed is None and (rule.path or rule.host or rule.argv))
            for one, rule in zip(looked, used, strict=True)
        )

    async def _subjects(self, call: CallState) -> tuple[Subjects, str | None]:
        """Return what a call touched, and why that may be wrong."""
        if call.name not in self._known:
            return Subjects(), f"the tool {call.name} is not known here, nor what it touches"
        value = call.input
        if call.input_ref is not None:
            try:
                value = msgspec.json.decode(await self._blobs.get(call.input_ref.content_hash))
            except (CodeSDKError, ValueError):
                return Subjects(), "its stored input cannot be read"
        prepared = self._tools.prepare(call.name, value)
        if isinstance(prepared, str):
            return Subjects(), "its stored input is not what the tool takes now"
        unsure = "its input is stored without the secrets that were in it" if call.input_redacted else None
        return prepared.subjects, unsure
