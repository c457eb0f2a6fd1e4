"""One event of each type, as the engine would write it: the examples of docs/contract.md and the golden lines.

They are moments of one session, told in order of `seq`, with the events between them left out.
Ids, hashes and sizes are computed, not made up.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.canonical import content_hash, hash_json
from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.ids import Prefix, artifact_id, ulid
from codesdk.contract.messages import (
    ArtifactRef,
    Code,
    Message,
    Reasoning,
    Span,
    Text,
    ToolResult,
    ToolUse,
    user,
)
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import (
    Actor,
    Change,
    Evaluation,
    ManifestEntry,
    PolicySnapshot,
    SandboxSummary,
    UndoneFile,
    UndoRefusal,
)

START = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)
RUNTIME = "claude-agent-sdk"
MODEL = "claude-sonnet-4-5"
NO_MESSAGES = "sha256:" + "0" * 64


def _at(seconds: float) -> str:
    moment = START + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _id(prefix: Prefix, seconds: float, random: int = 0x1D0C5) -> str:
    milliseconds = int((START + timedelta(seconds=seconds)).timestamp() * 1000)
    return f"{prefix}_{ulid(milliseconds, random * 0x9E3779B97F4A7C15)}"


SESSION = _id("ses", 0)
FIRST, SECOND, THIRD = _id("task", 1), _id("task", 24), _id("task", 300)
READ, EDIT, SCALE = _id("call", 4), _id("call", 6), _id("call", 302)
ASKED, CARRIED = _id("apr", 6), _id("apr", 302)
REQUEST = _id("req", 1.1)
SUGGEST = _id("sug", 399.2)


def _artifact(data: bytes, content_type: str, name: str) -> ArtifactRef:
    digest = content_hash(data)
    return ArtifactRef(
        artifact_id=artifact_id(SESSION, digest, content_type, name),
        content_hash=digest,
        content_type=content_type,
        size_bytes=len(data),
        name=name,
    )


def _json_artifact(value: Any, name: str) -> ArtifactRef:
    return _artifact(msgspec.json.encode(value), "application/json", name)


def _event(
    seq: int,
    seconds: float,
    payload: Any,
    *,
    task: str | None = FIRST,
    identified: bool = True,
    raw: Any = None,
) -> ev.Event:
    return ev.EVENT_OF[type(payload)](
        schema_version=ev.SCHEMA_VERSION,
        seq=seq,
        time=_at(seconds),
        trace=ev.Trace(session_id=SESSION, task_id=task),
        runtime=ev.RuntimeInfo(
            name=RUNTIME,
            model=MODEL,
            runtime_session_id="2b6f0c1e" if identified else None,
            raw=raw,
        ),
        payload=payload,
    )


def _call(tool_call_id: str, arguments: Any, runtime_id: str, attempt: int = 1) -> dict[str, Any]:
    return {
        "tool_call_id": tool_call_id,
        "attempt": attempt,
        "input_hash": hash_json(arguments),
        "runtime_tool_call_id": runtime_id,
    }


PROMPT = user("Fix the typo in the greeting.")
READ_INPUT = {"path": "hello.txt"}
EDIT_INPUT = {"path": "hello.txt", "old": "Helo", "new": "Hello"}
SCALE_INPUT = {"path": "deploy.yaml", "old": "replicas: 2", "new": "replicas: 3"}
DIFF = b"--- a/hello.txt\n+++ b/hello.txt\n@@ -1 +1 @@\n-Helo, world\n+Hello, world\n"
ADA = Actor(kind="user", id="ada")
ON_WORKSPACE = SandboxSummary(network=False, mounts=["workspace"])
ASKS = Evaluation(
    source="codesdk",
    result="ask",
    rule="mode:auto:write",
    reason="The permission mode auto asks before a tool of the class write runs.",
)
ALLOWED = PolicySnapshot(
    permission_mode="auto", decision="allow", sources=[ASKS, Evaluation(source="user", result="allow")]
)
EDIT_CALL = _call(EDIT, EDIT_INPUT, "toolu_01B")
SCALE_CALL = _call(SCALE, SCALE_INPUT, "toolu_01D")
USAGE = ev.UsageTotals(input=1840, output=96, cache_read=1200, cost_usd=0.0042)
TOOLS = [
    ManifestEntry(name="workspace.read", schema_hash=hash_json({"type": "object", "required": ["path"]})),
    ManifestEntry(
        name="workspace.edit", schema_hash=hash_json({"type": "object", "required": ["path", "old", "new"]})
    ),
]
WINDOW = ev.ContextWindow(
    strategy="full", budget_tokens=100_000, estimated_tokens=21, omitted=[], replaced=[]
)
CHAIN = content_hash(f"{NO_MESSAGES}\n{hash_json(PROMPT)}".encode())

COMPILED_INPUT: dict[str, Any] = {
    "format": "codesdk.compiled_input/1",
    "messages": {"first": 0, "last": 0, "chain_through": CHAIN},
    "tools": msgspec.to_builtins(TOOLS),
    "runtime_config": {"effort": "high"},
    "context_window": msgspec.to_builtins(WINDOW),
}
NO_SOURCES = {
    "disabled": True,
    "reason": "This runtime reads nothing that CodeSDK did not hand to it.",
}

TRANSCRIPT = [
    PROMPT,
    Message(
        role="assistant",
        message_id="msg_01",
        content=[
            Reasoning(text="I should look at the file first."),
            Text(text="Let me read it."),
            ToolUse(tool_call_id=READ, name="workspace.read", input=READ_INPUT),
        ],
    ),
    Message(
        role="tool",
        message_id="msg_01",
        content=[ToolResult(tool_call_id=READ, result="     1\tHelo, world")],
    ),
    Message(
        role="assistant",
        message_id="msg_02",
        content=[
            Text(text="There is a typo: "),
            Code(code="Helo", language="text"),
            ToolUse(tool_call_id=EDIT, name="workspace.edit", input=EDIT_INPUT),
        ],
    ),
    Message(
        role="tool",
        message_id="msg_02",
        content=[ToolResult(tool_call_id=EDIT, result="Edited hello.txt at line 1.")],
    ),
    Message(role="assistant", message_id="msg_03", content=[Text(text="I fixed the greeting.")]),
]

ERROR = ErrorInfo(
    code="INTERRUPTED",
    message="The process ended while this task ran. Resume the session to continue.",
    retryable=True,
)

_EVENTS = [
    _event(
        1,
        0,
        ev.SessionCreated(
            contract_version=ev.CONTRACT_VERSION,
            runtime=RUNTIME,
            workspace="/srv/shop",
            permission_mode="auto",
            interaction_mode="interactive",
            native_tools="off",
            isolation=Isolation(level="namespaced", mode="subprocess"),
            credential_namespace="local",
            settings=msgspec.to_builtins(SessionSettings(runtime_config={"effort": "high"})),
            title="Greeting",
            model=MODEL,
        ),
        task=None,
        identified=False,
    ),
    _event(
        2,
        1,
        ev.TaskStarted(messages=[PROMPT], runtime_config={"effort": "high"}, executed=True),
        identified=False,
    ),
    _event(
        3,
        1.004,
        ev.ModelInput(
            capture="compiled",
            input_ref=_json_artifact(COMPILED_INPUT, "compiled input"),
            input_hash=hash_json(COMPILED_INPUT),
            implicit_sources_ref=_json_artifact(NO_SOURCES, "implicit sources"),
            tool_manifest=TOOLS,
            runtime_config={"effort": "high"},
            context_window=WINDOW,
        ),
        identified=False,
    ),
    _event(4, 1.1, ev.RequestStarted(request_id=REQUEST, purpose="main", model=MODEL)),
    _event(
        5,
        2.45,
        ev.OutputDelta(kind="text_delta", block_id="msg_01/1", message_id="msg_01", delta="Let me "),
        raw={"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Let me "}},
    ),
    _event(
        7,
        2.9,
        ev.OutputRetracted(
            block_ids=["msg_00/0"], reason="The stream broke; the runtime sends the message again."
        ),
    ),
    _event(
        8,
        4,
        ev.ToolCallRequested(
            **_call(READ, READ_INPUT, "toolu_01A"),
            name="workspace.read",
            tool_class="read_only",
            input=READ_INPUT,
            message_id="msg_01",
            index=2,
        ),
    ),
    _event(
        13,
        4.2,
        ev.OutputCompleted(
            message_id="msg_01",
            content=[Reasoning(text="I should look at the file first."), Text(text="Let me read it.")],
            stop_reason="tool_use",
        ),
    ),
    _event(
        14,
        4.21,
        ev.RequestCompleted(
            request_id=REQUEST, status="ok", duration_ms=3110, http_status=200, time_to_first_byte_ms=1240
        ),
    ),
    _event(
        15,
        4.22,
        ev.UsageReported(
            model=MODEL,
            input=920,
            output=48,
            cache_read=600,
            cache_write=0,
            reasoning=0,
            cost_usd=0.0021,
            source="runtime",
            request_id=REQUEST,
        ),
    ),
    _event(16, 5, ev.ToolCallAnnounced(**_call(READ, READ_INPUT, "toolu_01A"), message_id="msg_01", index=2)),
    _event(18, 6.001, ev.ToolCallPolicyEvaluated(**EDIT_CALL, **msgspec.structs.asdict(ASKS))),
    _event(
        19,
        6.002,
        ev.ApprovalRequested(
            approval_id=ASKED,
            kind="tool",
            summary=f"workspace.edit {msgspec.json.encode(EDIT_INPUT).decode()}",
            expires_at=_at(306.002),
            tool_call_id=EDIT,
            attempt=1,
            input_hash=hash_json(EDIT_INPUT),
        ),
    ),
    _event(20, 21.5, ev.ApprovalAnswered(approval_id=ASKED, decision="approve", by=ADA, scope="once")),
    _event(
        21,
        21.5,
        ev.ToolCallApproved(**EDIT_CALL, name="workspace.edit", by=ADA, policy_snapshot=ALLOWED),
    ),
    _event(
        22,
        21.501,
        ev.ToolCallStarted(
            **EDIT_CALL, name="workspace.edit", execution_env="codesdk_host", sandbox=ON_WORKSPACE
        ),
    ),
    _event(23, 21.51, ev.ToolOutputDelta(**EDIT_CALL, stream="progress", delta="1 of 1 files\n")),
    _event(
        24,
        21.515,
        ev.ToolOutputCompleted(
            **EDIT_CALL,
            bytes=13,
            truncated=False,
            refs=[_artifact(b"1 of 1 files\n", "text/plain; charset=utf-8", "progress")],
        ),
    ),
    _event(
        25,
        21.516,
        ev.ToolCallCompleted(
            **EDIT_CALL,
            name="workspace.edit",
            executed_by="codesdk",
            execution_env="codesdk_host",
            policy_snapshot=ALLOWED,
            sandbox=ON_WORKSPACE,
            is_error=False,
            outcome="known",
            duration_ms=15,
            changes=[
                Change(
                    path="hello.txt",
                    diff_ref=_artifact(DIFF, "text/x-diff; charset=utf-8", "hello.txt"),
                    undo=None,
                )
            ],
            result_preview="Edited hello.txt at line 1.",
        ),
    ),
    _event(
        26,
        23,
        ev.TaskSteered(messages=[user("Keep the comma.")]),
    ),
    _event(
        27,
        24,
        ev.TaskQueued(task_id=SECOND, messages=[user("Now translate it to French.")]),
        task=None,
    ),
    _event(
        32,
        25,
        ev.TaskCompleted(
            text="I fixed the greeting.", stop_reason="end_turn", usage=USAGE, duration_ms=24_000
        ),
    ),
    _event(
        35,
        69,
        ev.RuntimeNotice(
            kind="compaction",
            message="The runtime summarized the conversation so far.",
            details={"trigger": "auto", "pre_tokens": 91_200},
        ),
        task=SECOND,
        raw={"type": "system", "subtype": "compact_boundary"},
    ),
    _event(
        36,
        70,
        ev.TaskStopRequested(reason="French is not needed after all.", by=ADA),
        task=SECOND,
    ),
    _event(
        38,
        70.3,
        ev.TaskStopped(
            reason="French is not needed after all.",
            by=ADA,
            usage=ev.UsageTotals(input=410, output=7, cost_usd=0.0008),
            duration_ms=45_298,
        ),
        task=SECOND,
    ),
    _event(
        39,
        80,
        ev.ArtifactCreated(
            artifact=_artifact(b"Hello, world\n", "text/plain; charset=utf-8", "hello.txt"),
            reason="A task of the runtime stored it.",
        ),
        task=None,
    ),
    _event(
        45,
        310,
        ev.SessionRecovered(task_id=THIRD, cause="INTERRUPTED", open_calls=[f"{SCALE}#1"]),
        task=None,
    ),
    _event(
        46,
        310,
        ev.ToolCallDenied(
            **SCALE_CALL,
            name="workspace.edit",
            by=Actor(kind="engine"),
            policy_snapshot=PolicySnapshot(permission_mode="auto", decision="deny", sources=[ASKS]),
            reason="The process ended before anyone answered; the question is kept for a resume.",
            carried=True,
        ),
        task=THIRD,
    ),
    _event(
        47,
        310.001,
        ev.TaskFailed(
            error=ERROR, usage=ev.UsageTotals(input=905, output=31, cost_usd=0.0019), duration_ms=10_001
        ),
        task=THIRD,
    ),
    _event(
        48,
        310.002,
        ev.ApprovalCarried(
            approval_id=CARRIED,
            tool_call_id=SCALE,
            attempt=1,
            name="workspace.edit",
            tool_class="write",
            summary=f"workspace.edit {msgspec.json.encode(SCALE_INPUT).decode()}",
            input_ref=_json_artifact(SCALE_INPUT, "input"),
            input_hash=hash_json(SCALE_INPUT),
        ),
        task=None,
    ),
    _event(
        49,
        311,
        ev.SessionNotResumed(
            task_id=THIRD,
            cause="attempts",
            message="It continued by itself 3 times in a row and was interrupted each time. Look at why, then resume it.",
            attempts=3,
        ),
        task=None,
    ),
    _event(
        50,
        340,
        ev.SessionResumed(resume_model="reconstruct", from_seq=49, runtime=RUNTIME, lost=[]),
        task=None,
    ),
    _event(
        56,
        370,
        ev.SettingsChanged(title="Greeting and scale", permission_mode="ask", values={"ticket": 12}, by=ADA),
        task=None,
    ),
    _event(57, 380, ev.GrantRevoked(tool="workspace.edit", by=ADA), task=None),
    _event(
        58,
        390,
        ev.FilesUndone(
            restored=[UndoneFile(path="hello.txt", tool_call_id=EDIT, attempt=1)],
            refused=[
                UndoRefusal(
                    tool_call_id=SCALE,
                    attempt=2,
                    reason="deploy.yaml is not as the tool left it; what was done since then would be lost",
                )
            ],
            by=ADA,
        ),
        task=None,
    ),
    _event(
        60,
        395,
        ev.ClockChanged(before="2026-01-15T10:06:35.000Z", after="2026-01-15T09:36:35.000Z"),
        task=None,
    ),
    _event(
        61,
        398,
        ev.SessionCompacted(
            by=ADA,
            strategy="summary",
            reason="Somebody asked for it.",
            first=4,
            previews_before=0,
            tokens_before=1240,
            tokens_after=310,
            summary=Message(
                role="user",
                content=[
                    Text(
                        text="This is a summary of the conversation before the messages that follow:\n\nThe typo is fixed."
                    )
                ],
                message_id="summary:task_01kf0g6b2h3wz4tm72eqtkf319",
                summary_of=Span(first=0, last=3),
            ),
            summary_ref=ArtifactRef(
                artifact_id="art_01kf0fv2e1x4938dedh00w9f9z",
                content_hash=content_hash(b"The typo is fixed."),
                content_type="text/markdown; charset=utf-8",
                size_bytes=18,
                name="summary",
            ),
            task_id="task_01kf0g6b2h3wz4tm72eqtkf319",
        ),
        task=None,
    ),
    _event(
        62,
        399,
        ev.TranscriptSupplemented(
            supplement_id="review",
            by=Actor(kind="extension", id="reviewer"),
            text="The greeting is right; the scale was not changed.",
            data={"score": 0.8},
            task_id=FIRST,
        ),
        task=None,
    ),
    _event(63, 399.2, ev.SuggestRequested(suggest_id=SUGGEST, by=ADA, text="What is left to do?"), task=None),
    _event(
        64,
        399.4,
        ev.SuggestAnswered(
            suggest_id=SUGGEST,
            by=Actor(kind="engine"),
            results=[
                ev.HandlerOutcome(
                    kind="handler_result",
                    module_name="reviewer",
                    event_type="suggest_request.requested",
                    value={"message": "Scale the deployment to three."},
                )
            ],
        ),
        task=None,
    ),
    _event(65, 400, ev.SessionClosed(reason="Done for today."), task=None),
]

EVENTS: dict[str, ev.Event] = {event.type: event for event in _EVENTS}
"""The example of each type."""
