"""Collects CodeSDK's opinions on a call, whatever its origin. Waits for nobody.

The input is validated here, once; the prepared tool is kept in the call, ready to run.
"""

from collections.abc import Mapping, Sequence

import msgspec

from codesdk.contract.errors import Conflict
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import (
    ANSWER_TOOL,
    Evaluation,
    Subjects,
    ToolClass,
    ToolIdentity,
    ToolSpec,
    Verdict,
)
from codesdk.engine.calls.inputs import LiveCall
from codesdk.engine.sessions.scope import SessionScope
from codesdk.foreign import Contained
from codesdk.policy import MODE, all_opinions, decide

LISTED = f"{MODE}native_tools"
"""The rule for a tool in the session's native_tools. Part of the mode: a policy rule outweighs it."""
UNDECLARED = f"{MODE}native_tools:undeclared"
"""The rule for a native tool that its runtime did not declare."""

ANSWER = "output_schema"
"""The rule for a valid result. No policy is asked about it."""

NOBODY_TO_ASK = Evaluation(
    source="codesdk",
    result="deny",
    rule="non_interactive",
    reason="Nobody can be asked in a non-interactive session, and this call needs an answer. "
    "Go on without it, or say in your answer what you would have done.",
)


QUESTION = Evaluation(
    source="codesdk",
    result="ask",
    rule="question",
    reason="The call asks the user. The answer is its result.",
)
NOBODY_ANSWERS = Evaluation(
    source="codesdk",
    result="deny",
    rule="non_interactive",
    reason="Nobody can answer questions in a non-interactive session. Decide by yourself what is most likely wanted, "
    "go on, and say in your final answer what you assumed.",
)


class KnownTools(msgspec.Struct, frozen=True):
    """The tools of one task: those that CodeSDK runs, and the runtime's own that it declared."""

    owned: frozenset[str]
    native: frozenset[str]
    classes: Mapping[str, ToolClass]
    """A tool that is missing here counts as dangerous."""


def known_tools(owned: Sequence[ToolSpec], native: Mapping[str, ToolClass]) -> KnownTools:
    """Return the tools of a task: those offered, and those that its runtime declares."""
    classes: dict[str, ToolClass] = {**native, **{spec.name: spec.tool_class for spec in owned}}
    return KnownTools(frozenset(spec.name for spec in owned), frozenset(native), classes)


def judge(scope: SessionScope, tools: KnownTools, call: LiveCall) -> list[Evaluation]:
    """Return the opinions on a call: why it is impossible, or the mode's, the policy's and the grants'."""
    task = scope.state.task
    if task is not None and task.summarizes_before is not None:
        return [_opinion("deny", "summary", "No tools are used while the conversation is summed up.")]
    if call.origin == "native":
        return _judge_native(scope, tools, call)
    name = call.state.name
    if name not in tools.owned:
        known = ", ".join(sorted(tools.owned)) or "none"
        return [_opinion("deny", "tool:unknown", f"There is no tool {name}. On offer: {known}.")]
    with Contained():
        prepared = scope.tools.prepare(name, call.input.value)
    if isinstance(prepared, str):
        return [_opinion("deny", "input:invalid", prepared)]
    call.prepared = prepared
    if name == ANSWER_TOOL:  # it changes nothing and reaches nothing, so there is nothing to decide
        return [_opinion("allow", ANSWER, "The call only gives the result that the task asks for.")]
    return [*_own_word(scope, call), *_opinions(scope, call, prepared.subjects), *_asks(call)]


def _own_word(scope: SessionScope, call: LiveCall) -> list[Evaluation]:
    """Return what the runtime's own policy says, as it is: the strictest opinion counts, whoever has it."""
    if call.opinion is None:
        return []
    reason = f"The policy of {scope.state.runtime_name} says so."
    return [Evaluation(source="runtime", result=call.opinion, rule="runtime:policy", reason=reason)]


def _judge_native(scope: SessionScope, tools: KnownTools, call: LiveCall) -> list[Evaluation]:
    """Judge a native call. A listed tool still follows the mode; an undeclared one is always asked about."""
    name, enabled = call.counts_as or call.state.name, scope.state.config.native_tools
    if name not in tools.native:
        reason = f"Nobody declared the runtime's own tool {name}, so it counts as dangerous."
        first = _opinion("ask", UNDECLARED, reason)
    elif enabled == "off" or name not in enabled:
        reason = f"The runtime's own tool {name} is not enabled in this session. Do the work without it."
        return [_opinion("deny", "native:off", reason)]
    else:
        first = _opinion("allow", LISTED, f"The session's native_tools name {name}.")
    return [first, *_opinions(scope, call, call.subjects or Subjects()), *_asks(call)]


def _asks(call: LiveCall) -> list[Evaluation]:
    """Return the opinion that a person must be asked, for a call that does nothing else."""
    return [] if call.prepared is None or call.prepared.question is None else [QUESTION]


def _opinions(scope: SessionScope, call: LiveCall, subjects: Subjects) -> list[Evaluation]:
    question = PolicyQuestion(
        session_id=scope.state.session_id,
        name=call.state.name,
        tool_class=call.state.tool_class,
        input=call.input.value,
        permission_mode=call.state.permission_mode,
        subjects=subjects,
    )
    with Contained():
        ruled = scope.ports.policy.evaluate(question)
    redact = scope.redactor.value  # a policy may quote the input; grants hold redacted rules, too
    ruled = msgspec.structs.replace(ruled, rule=redact(ruled.rule), reason=redact(ruled.reason))
    granted = {grant.rule for grant in scope.state.grants if grant.tool == call.state.name}
    return all_opinions(question, ruled, granted)


def nobody_to_ask(call: LiveCall) -> Evaluation:
    """Return the opinion on a call that needs a person where there is none."""
    return NOBODY_ANSWERS if _asks(call) else NOBODY_TO_ASK


def check_identity(identity: ToolIdentity, attempt: int | None, input_hash: str | None) -> None:
    """Raise `Conflict` if an answer was meant for another attempt or another input."""
    if attempt is not None and attempt != identity.attempt:
        raise Conflict(
            f"Call {identity.tool_call_id} is at attempt {identity.attempt}, not {attempt}. Read the question again."
        )
    if input_hash is not None and input_hash != identity.input_hash:
        raise Conflict(
            f"Call {identity.tool_call_id} has another input than the one that was answered. Read the question again."
        )


def rule_behind(call: LiveCall, result: Verdict) -> str | None:
    """Return the rule that decided a call in this way, if one did: neither a person nor the end of a task is a rule."""
    opinions = call.state.evaluations
    decided = decide(opinions) if opinions else None
    return decided.rule if decided is not None and decided.result == result else None


def _opinion(result: Verdict, rule: str, reason: str) -> Evaluation:
    return Evaluation(source="codesdk", result=result, rule=rule, reason=reason)
