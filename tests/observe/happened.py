"""Events as an observer hears them, made by hand: a task that asks a model twice and runs a tool."""

from typing import Any

from codesdk.contract import events as ev
from codesdk.contract.events import EVENT_OF, SCHEMA_VERSION, Event, RuntimeInfo, Trace
from codesdk.contract.messages import user
from codesdk.contract.tools import PolicySnapshot, SandboxSummary
from codesdk.engine.log.clock import iso

BEGIN_MS = 1_800_000_000_000
CALL: Any = {"tool_call_id": "call_1", "attempt": 1, "input_hash": "sha256:0"}
SANDBOX = SandboxSummary(network=False)
ALLOWED = PolicySnapshot(permission_mode="auto", decision="allow", sources=[])


def event(
    at_ms: int,
    payload: Any,
    *,
    task: str | None = "task_1",
    runtime: str = "codex-sdk",
    model: str | None = "gpt-5.2-codex",
    session: str = "ses_1",
) -> Event:
    """Return an event, so many milliseconds after the beginning."""
    return EVENT_OF[type(payload)](
        schema_version=SCHEMA_VERSION,
        seq=1,
        time=iso(BEGIN_MS + at_ms),
        trace=Trace(session_id=session, task_id=task),
        runtime=RuntimeInfo(name=runtime, model=model),
        payload=payload,
    )


def started(*, executed: bool = True) -> ev.TaskStarted:
    return ev.TaskStarted(messages=[user("What is in my notes?")], runtime_config={}, executed=executed)


def ended(duration_ms: int = 900, cost_usd: float | None = 0.5) -> ev.TaskCompleted:
    usage = ev.UsageTotals(input=30, output=12, cache_read=100, reasoning=4, cost_usd=cost_usd)
    return ev.TaskCompleted(text="Milk.", stop_reason="end_turn", usage=usage, duration_ms=duration_ms)


def said(text: str = "Milk.") -> ev.OutputDelta:
    return ev.OutputDelta(kind="text_delta", block_id="b", message_id="m", delta=text)


def used(source: Any = "gateway", model: str | None = "gpt-5.2-codex", **counts: Any) -> ev.UsageReported:
    zero = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "reasoning": 0, "cost_usd": None}
    return ev.UsageReported(model=model, source=source, **{**zero, **counts})


def ran(name: str = "workspace.exec", **options: Any) -> ev.ToolCallCompleted:
    given: dict[str, Any] = {
        "is_error": False,
        "outcome": "known",
        "duration_ms": 40,
        "execution_env": "codesdk_bubblewrap",
    }
    return ev.ToolCallCompleted(
        **CALL,
        name=name,
        executed_by="codesdk",
        policy_snapshot=ALLOWED,
        sandbox=SANDBOX,
        changes=[],
        **{**given, **options},
    )


def asked(request_id: str, purpose: str = "main") -> ev.RequestStarted:
    return ev.RequestStarted(request_id=request_id, purpose=purpose, model="gpt-5.2-codex")


def answered(request_id: str, **options: Any) -> ev.RequestCompleted:
    given: dict[str, Any] = {"status": "completed", "duration_ms": 100, "http_status": 200}
    return ev.RequestCompleted(request_id=request_id, **{**given, **options})


def whole_task() -> list[Event]:
    """Return a task from its start to its end."""
    begun = ev.ToolCallStarted(
        **CALL, name="workspace.exec", execution_env="codesdk_bubblewrap", sandbox=SANDBOX
    )
    first = used(request_id="req_1", input=10, output=5, cache_write=100, cost_usd=0.2)
    second = used(request_id="req_2", input=20, output=7, cache_read=100, reasoning=4, cost_usd=0.3)
    return [
        event(0, started()),
        event(10, asked("req_1")),
        event(60, said("Let me look.")),
        event(110, answered("req_1", time_to_first_byte_ms=45)),
        event(110, first),
        event(200, begun),
        event(240, ran(exit_code=0)),
        event(300, asked("req_2")),
        event(800, answered("req_2")),
        event(800, second),
        event(900, ended()),
    ]
