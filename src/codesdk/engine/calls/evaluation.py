"""Questions about a tool call that are answered without waiting: is it sound, may it run, is it the one meant."""

from collections.abc import Mapping
from typing import Any

import msgspec

from codesdk.contract.errors import Conflict
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.runtime import ToolAnnouncement
from codesdk.contract.tools import Actor, Evaluation, Subjects, ToolIdentity, ToolSpec, Verdict
from codesdk.engine.log.state import CallState, Carried
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.validation import is_text
from codesdk.policy import MODE, all_opinions

MAX_NAME_CHARS = 256
POLICY = Actor(kind="policy")
LISTED = f"{MODE}native_tools"
"""What the session's list of native tools says. A part of its mode: a rule outweighs it."""


def is_sound(item: ToolAnnouncement) -> bool:
    """Check what the types promise: an adapter may pass on what a program of others said."""
    name: Any = item.name
    index: Any = item.index
    texts: tuple[Any, ...] = (item.runtime_tool_call_id, item.message_id)
    return (
        is_text(name)
        and 0 < len(name) <= MAX_NAME_CHARS
        and all(text is None or is_text(text) for text in texts)
        and isinstance(index, int | None)
    )


def judge(
    scope: SessionScope, specs: Mapping[str, ToolSpec], call: CallState, arguments: Any
) -> list[Evaluation]:
    """Return CodeSDK's opinions on a call: that it cannot be, or the mode's, the policy's and the grants'."""
    if call.name not in specs:
        known = ", ".join(sorted(specs)) or "none"
        return [_opinion("deny", "tool:unknown", f"There is no tool {call.name}. On offer: {known}.")]
    problem = scope.tools.check(call.name, arguments)
    if problem is not None:
        return [_opinion("deny", "input:invalid", problem)]
    return _opinions(scope, call, arguments, scope.tools.subjects(call.name, arguments))


def judge_native(
    scope: SessionScope, call: CallState, arguments: Any, subjects: Subjects | None
) -> list[Evaluation]:
    """Return CodeSDK's opinions on a call of the runtime's own tool. Being listed makes nothing looser than the mode."""
    enabled = scope.state.config.native_tools
    if enabled == "off" or call.name not in enabled:
        reason = f"The runtime's own tool {call.name} is not enabled in this session. Do the work without it."
        return [_opinion("deny", "native:off", reason)]
    listed = _opinion("allow", LISTED, f"The session's native_tools name {call.name}.")
    return [listed, *_opinions(scope, call, arguments, subjects or Subjects())]


def _opinions(scope: SessionScope, call: CallState, arguments: Any, subjects: Subjects) -> list[Evaluation]:
    question = PolicyQuestion(
        session_id=scope.state.session_id,
        name=call.name,
        tool_class=call.tool_class,
        input=arguments,
        permission_mode=scope.state.config.permission_mode,
        subjects=subjects,
    )
    ruled = scope.ports.policy.evaluate(question)
    redact = scope.redactor.value  # a policy may quote the input, and a rule is compared with those granted
    ruled = msgspec.structs.replace(ruled, rule=redact(ruled.rule), reason=redact(ruled.reason))
    granted = {grant.rule for grant in scope.state.grants if grant.tool == call.name}
    return all_opinions(question, ruled, granted)


def unfit_to_run(specs: Mapping[str, ToolSpec], carried: Carried, call: CallState) -> str | None:
    """Return why an approved call of an interrupted task cannot be run from the store, or None."""
    if carried.input_redacted:
        return "Its input held a secret, which is not stored, so it cannot be run again."
    if call.identity.input_hash != carried.input_hash:
        return "Its stored input is not the one that was approved."
    if carried.name not in specs:
        return f"There is no tool {carried.name} any more."
    return None


def check_identity(identity: ToolIdentity, attempt: int | None, input_hash: str | None) -> None:
    """Raise `Conflict` if an answer was meant for another attempt or another input."""
    if attempt is not None and attempt != identity.attempt:
        raise Conflict(
            f"Call {identity.tool_call_id} is at attempt {identity.attempt}, not {attempt}. Look again."
        )
    if input_hash is not None and input_hash != identity.input_hash:
        raise Conflict(f"Call {identity.tool_call_id} has another input than the one answered. Look again.")


def _opinion(result: Verdict, rule: str, reason: str) -> Evaluation:
    return Evaluation(source="codesdk", result=result, rule=rule, reason=reason)
