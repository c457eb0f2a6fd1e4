"""Records what a runtime reports about its calls: it ran one itself, drops one, or announced one twice.

CodeSDK does not run native calls and cannot confine them. It decides a runtime's question like any other
call, records what the runtime reports, and ends a task whose runtime did not ask.
"""

from codesdk.contract.ports import ToolRun
from codesdk.contract.runtime import ToolEnded
from codesdk.contract.tools import Actor, Evaluation, SandboxSummary, ToolIdentity
from codesdk.engine.calls import ledger
from codesdk.engine.calls.evaluation import KnownTools, judge
from codesdk.engine.calls.execution import record_run
from codesdk.engine.calls.inputs import LiveCall
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle
from codesdk.engine.tasks.drafts import Intake
from codesdk.policy import decide

RUNTIME = Actor(kind="runtime")
UNCONFINED = SandboxSummary(network=True)
MAX_REASON_CHARS = 2_000
"""How much is recorded of why a runtime did not make a call."""
UNASKED = "The runtime ran this itself, without asking."


async def record_end(
    scope: SessionScope, intake: Intake, tools: KnownTools, call: LiveCall, item: ToolEnded
) -> bool:
    """Record how an open call ended. Return false if it ran without a permission that it needed."""
    asked = call.state.phase != "waiting"
    allowed = asked or _admit(scope, tools, call)
    run = ToolRun(result=item.result, is_error=item.is_error, exit_code=item.exit_code)
    intake.admit(await record_run(scope, call.state, run, item.outcome))
    return allowed


def drop(scope: SessionScope, call: LiveCall, reason: str) -> None:
    """Deny a call that the runtime did not go through with."""
    if scope.state.is_open(call.state) and call.state.phase == "waiting":
        reason = scope.redactor.text(reason)  # first: a secret that is cut in two is not found any more
        if len(reason) > MAX_REASON_CHARS:
            reason = reason[: MAX_REASON_CHARS - 1] + "…"
        opinion = Evaluation(source="runtime", result="deny", reason=reason)
        ledger.evaluate(scope.journal, call.state, opinion)
        ledger.deny(scope.journal, call.state, RUNTIME, reason)


def note_repeat(scope: SessionScope, seen: ToolIdentity, digest: str) -> bool:
    """Note a call that was announced before. Return whether it is the same call."""
    same, runtime_id = seen.input_hash == digest, seen.runtime_tool_call_id
    lifecycle.notice(
        scope.journal,
        "warning" if same else "violation",
        f"The runtime announced call {runtime_id} twice"
        + ("; it was joined to the first." if same else " with different inputs; both are kept apart."),
        {"runtime_tool_call_id": runtime_id, "tool_call_id": seen.tool_call_id},
    )
    return same


def _admit(scope: SessionScope, tools: KnownTools, call: LiveCall) -> bool:
    """Record that a call ran without being asked about. Return whether it would have been allowed."""
    opinions = judge(scope, tools, call) if call.origin == "native" else []
    verdict = decide(opinions) if opinions else None
    allowed = verdict is not None and verdict.result == "allow"
    if not allowed:
        # What ran was not denied, whatever we would have said: that is said in the reason.
        would = "" if verdict is None else f" CodeSDK would have said {verdict.result}: {verdict.reason}"
        opinions = [Evaluation(source="runtime", result="allow", reason=UNASKED + would)]
    for opinion in opinions:
        ledger.evaluate(scope.journal, call.state, opinion)
    ledger.approve(scope.journal, call.state, ledger.POLICY if allowed else RUNTIME, UNASKED)
    ledger.started(scope.journal, call.state, ledger.NATIVE, UNCONFINED)
    return allowed
