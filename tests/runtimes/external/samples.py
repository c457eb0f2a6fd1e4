"""One good message of each kind, in both directions: seeds for fuzzing, and what the schema is tried on."""

from typing import Any

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginOutcome, LoginPrompt
from codesdk.contract.capabilities import Capabilities, Isolation
from codesdk.contract.entry import McpClient
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.messages import ArtifactRef, user
from codesdk.contract.models import InstructionSources, ModelAnswered
from codesdk.contract.ownership import SideMark, ToolNaming, WireRules
from codesdk.contract.runtime import (
    AppServerMessage,
    Instructions,
    Ruling,
    RuntimeEnv,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import Question, Subjects, ToolIdentity, ToolSpec
from codesdk.runtimes.external import messages as m

ENV = RuntimeEnv(
    cwd="/",
    env={},
    credential_namespace="ada",
    isolation=Isolation(level="namespaced", mode="subprocess"),
    identity=(1, 2),
)
TASK = TaskInput(
    session_id="ses_1",
    task_id="TASK",
    env=ENV,
    messages=[user("Say hello.")],
    model_messages=0,
    tools=[ToolSpec(name="fake.read", description="Reads.", input_schema={"type": "object"}, tool_class="read_only")],
    permission_mode="ask",
    interaction_mode="interactive",
    runtime_config={},
    instructions=[Instructions("AGENTS.md", "Be brief.")],
)  # fmt: skip
CALL = ToolAnnouncement(name="own.run", input={"command": "ls"}, runtime_tool_call_id="c1", subjects=Subjects(argv=["ls"]))  # fmt: skip
IDENTITY = ToolIdentity(tool_call_id="call_1", attempt=1, input_hash="sha256:0", runtime_tool_call_id="c1")
PROMPT = LoginPrompt(message="Open this page.", url="http://127.0.0.1/")
ITEMS: list[dict[str, Any]] = [
    {"type": "identified", "runtime_session_id": "own-1", "model": "m"},
    {"type": "runtime.notice", "payload": {"kind": "hint", "message": "Slow today.", "details": {"a": 1}}},
    {"type": "runtime.request.started", "payload": {"request_id": "r1", "model": "m", "purpose": "main"}},
    {"type": "model.output.delta", "payload": {"kind": "text_delta", "block_id": "b", "message_id": "m1", "delta": "Hel"}, "raw": {"x": [1, 2]}},
    {"type": "model.output.retracted", "payload": {"block_ids": ["b"], "reason": "It broke off."}},
    {"type": "model.output.completed", "payload": {"message_id": "m1", "content": [{"type": "text", "text": "Hello."}]}},
    {"type": "usage.reported", "payload": {"model": "m", "input": 1, "output": 2, "cache_read": 0, "cache_write": 0, "reasoning": 0, "cost_usd": None, "source": "runtime"}},
    {"type": "runtime.request.completed", "payload": {"request_id": "r1", "status": "completed", "duration_ms": 5}},
    {"type": "tool.announced", "name": "fake.read", "input": {"path": "a"}, "runtime_tool_call_id": "c1", "message_id": "m1", "index": 0, "opinion": "ask"},
    {"type": "tool.dropped", "runtime_tool_call_id": "c1", "reason": "Bad arguments."},
    {"type": "tool.ended", "runtime_tool_call_id": "c1", "result": "done"},
    {"type": "finished", "stop_reason": "end_turn"},
    {"type": "failed", "error": {"code": "MODEL_ERROR", "message": "No answer.", "retryable": True}},
]  # fmt: skip
PARAMS: dict[str, list[Any]] = {
    "initialize": [m.Initialize(protocol_versions=[1], runtime="external:x", engine_version="1", max_frame_bytes=9)],
    "check_available": [m.InEnv(env=ENV)],
    "auth_status": [m.InEnv(env=ENV)],
    "ensure_login": [m.InEnv(env=ENV)],
    "recall": [m.Recall(task=TASK, tail=[user("Hello.")])],
    "start_task": [m.StartTask(task=TASK, items=256)],
    "pull": [m.Pull(task_id="TASK", items=128)],
    "send_tool_result": [m.SendToolResult(task_id="TASK", call=IDENTITY, reply=ToolReply(result="x", is_error=False))],
    "send_tool_denied": [m.SendToolDenied(task_id="TASK", call=IDENTITY, reason="No.")],
    "steer": [m.Steer(task_id="TASK", messages=[user("Left.")])],
    "stop": [m.Stop(task_id="TASK", reason="enough")],
    "close": [m.OfTask(task_id="TASK")],
    "close_session": [m.OfSession(session_id="ses_1")],
    "item": [{"task_id": "TASK", "item": item} for item in ITEMS],
    "model_endpoint": [
        m.ModelEndpoint(
            task_id="TASK",
            sources=InstructionSources(names=["AGENTS.md"], outside={"home": "/"}),
            rules=WireRules(naming=ToolNaming(prefix="x__"), side=(SideMark(text="title"),)),
        )
    ],
    "tool_endpoint": [m.ToolEndpoint(task_id="TASK", client=McpClient(call_id_key="k"))],
    "tools_read": [m.ToolsRead(task_id="TASK", after=-1), m.ToolsRead(task_id="TASK", after=0)],
    "last_answer": [m.OfTask(task_id="TASK")],
    "may_run": [m.MayRun(task_id="TASK", call=CALL)],
    "ask_user": [m.AskUser(task_id="TASK", call=CALL, question=Question(text="Left or right?", options=["l", "r"]))],
    "put_artifact": [m.PutArtifact(task_id="TASK", data=b"abc", content_type="text/plain")],
    "read_artifact": [m.ReadArtifact(task_id="TASK", artifact_id="art_1")],
    "learn": [m.Learn(task_id="TASK", secrets=["a-secret-of-the-runtime"])],
    "app_server": [
        m.AppServer(
            task_id="TASK",
            message=AppServerMessage(method="turn/started", params={"a": 1}, thread_id="t", request_id=1),
        )
    ],
    "show": [m.Prompt(prompt=PROMPT)],
    "ask": [m.Prompt(prompt=PROMPT)],
    "$/cancel": [m.Cancel(id=1)],
}  # fmt: skip
RESULTS: dict[str, Any] = {
    "initialize": m.Description(
        protocol_version=1,
        name="x",
        version="1",
        capabilities=Capabilities(),
        wire="chat",
        options={"a": "b"},
    ),
    "check_available": Availability(ok=True),
    "auth_status": AuthStatus(ok=True, logged_in=False, auth_model="none"),
    "ensure_login": LoginOutcome(logged_in=True, account_label="ada"),
    "recall": m.Recalled(known=1),
    "model_endpoint": m.Endpoint(url="http://127.0.0.1:1/t"),
    "tool_endpoint": m.Endpoint(url="http://127.0.0.1:1/t"),
    "tools_read": m.Listings(count=1),
    "last_answer": m.LastAnswer(
        answer=ModelAnswered(status="failed", duration_ms=5, http_status=529, error="Busy.")
    ),
    "may_run": Ruling(denied="No.", rule="no-shell"),
    "ask_user": ToolReply(result="l", is_error=False),
    "put_artifact": ArtifactRef(artifact_id="a", content_hash="sha256:0", content_type="t", size_bytes=1),
    "read_artifact": m.Data(data=b"abc"),
    "ask": m.PromptAnswer(answer="1234"),
}
"""All others have the result `Nothing`."""
ERROR = ErrorInfo(code="MODEL_ERROR", message="No answer.", retryable=True)


def frames(caller: str) -> list[bytes]:
    """Return every message that one side sends by itself, as lines."""
    found: list[bytes] = []
    for method in m.METHODS:
        if method.caller not in (caller, "both"):
            continue
        for params in PARAMS[method.name]:
            head: dict[str, Any] = {"jsonrpc": "2.0", "method": method.name}
            if method.result is not None:
                head["id"] = 100 + len(found)
            found.append(msgspec.json.encode(head | {"params": params}) + b"\n")
    return found
