"""Keeps an interrupted task's open questions, and runs the calls that a person has approved since in another attempt.

The stored input is run again only if it is exactly the one that the person saw.
"""

import asyncio
from typing import Any

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.errors import NotFound, StorageFailure
from codesdk.contract.events import RecoveryCause, ToolCallRequested
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.tools import Evaluation
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import KnownTools, judge
from codesdk.engine.calls.inputs import CallInput, LiveCall
from codesdk.engine.calls.questions import answered, asking
from codesdk.engine.calls.reported import UNCONFINED
from codesdk.engine.log.acting import acting_for
from codesdk.engine.log.state import Carried
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.policy import decide


async def issue_again(scope: SessionScope, tools: KnownTools, carried: Carried) -> LiveCall:
    """Open the next attempt and decide it: approved if it can run."""
    # The input may be gone or changed: the attempt is opened all the same, and the log says why it does not run.
    given = await _stored_input(scope, carried)
    inline: Any = msgspec.UNSET
    ref = carried.input_ref
    if given.data and len(given.data) <= scope.settings.input_inline_bytes:
        inline, ref = given.stored, None
    elif given.data:
        ref = await scope.put_artifact(given.data, "application/json", "input")
    payload = ToolCallRequested(
        tool_call_id=carried.tool_call_id,
        attempt=carried.attempt + 1,
        input_hash=given.digest,
        name=carried.name,
        tool_class=carried.tool_class,
        input=inline,
        input_ref=ref,
        input_redacted=carried.input_redacted,
    )
    state = ledger.request(scope.journal, payload)
    judged = asyncio.get_running_loop().create_future()
    judged.set_result(None)
    # What a tool of the runtime's own asked is answered here, too: the tool itself is not needed for that.
    native = carried.question is not None and carried.name not in tools.owned
    call = LiveCall(state=state, origin="native" if native else "stream", input=given, judged=judged)
    if native and carried.question is not None:
        call.prepared = asking(carried.question, UNCONFINED)
    problem = _unfit_to_run(tools, carried, given)
    if problem is not None:
        ledger.evaluate(scope.journal, state, Evaluation(source="codesdk", result="deny", reason=problem))
        ledger.deny(scope.journal, state, ledger.ENGINE, problem)
    else:
        _decide_again(scope, tools, carried, call)
        call.prepared = answered(call.prepared, carried.answer)
    return call


def _unfit_to_run(tools: KnownTools, carried: Carried, given: CallInput) -> str | None:
    """Return why an approved call of an interrupted task cannot be run from the store, or None."""
    if not given.data:
        return "Its stored input is gone."
    if carried.input_redacted:
        return "Its input held a secret, which is not stored, so it cannot be run again."
    if given.digest != carried.input_hash:
        return "Its stored input is not the one that was approved."
    if carried.name not in tools.owned and carried.question is None:
        return f"There is no tool {carried.name} any more."
    return None


def _decide_again(scope: SessionScope, tools: KnownTools, carried: Carried, call: LiveCall) -> None:
    """Approve a call that a person approved, unless today's policy forbids it."""
    answer = Evaluation(source="user", result="allow", rule="carried", reason=carried.reason)
    opinions = [*judge(scope, tools, call), answer]
    for opinion in opinions:
        ledger.evaluate(scope.journal, call.state, opinion)
    decided = decide(opinions)
    if decided.result == "deny":
        reason = decided.reason or f"Denied by {decided.rule}."
        ledger.deny(scope.journal, call.state, ledger.POLICY, reason)
    else:
        ledger.approve(scope.journal, call.state, carried.by or ledger.ENGINE, carried.reason)


async def _stored_input(scope: SessionScope, carried: Carried) -> CallInput:
    """Return the input as it was stored, or one without data if it is gone."""
    redacted = carried.input_redacted
    try:
        data = await scope.ports.blobs.get(carried.input_ref.content_hash)
        value = msgspec.json.decode(data)
    except (NotFound, StorageFailure, ValueError):
        return CallInput(value=None, stored=None, data=b"", digest=carried.input_hash, redacted=redacted)
    data = msgspec.json.encode(value)
    return CallInput(value=value, stored=value, data=data, digest=hash_json(value), redacted=redacted)


async def close_interrupted(scope: SessionScope, cause: RecoveryCause) -> None:
    """Close the task that a crash, a failed write or a shutdown left open, and keep its open questions for a resume."""
    task = scope.state.task
    if task is None:
        return
    inputs: dict[str, ArtifactRef] = {}
    for call in task.calls.values():
        if call.phase == "waiting" and call.approval_id is not None:
            inputs[call.key] = call.input_ref or await scope.put_json(call.input, "input")
    with acting_for(None):  # whoever asked for the session did not ask for this
        lifecycle.recover(scope.journal, inputs, cause)
    await scope.recorder.settle()
