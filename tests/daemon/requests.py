"""One request for every operation, as small as it can be: the tests that walk the whole table send these."""

from typing import Any, NamedTuple

from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.operations.operation import Operation

UNKNOWN = {
    "session_id": "ses_00000000000000000000000000",
    "task_id": "task_00000000000000000000000000",
    "tool_call_id": "call_00000000000000000000000000",
    "approval_id": "apr_00000000000000000000000000",
    "suggest_id": "sug_00000000000000000000000000",
    "artifact_id": "art_00000000000000000000000000",
    "job_id": "job_00000000000000000000000000",
    "tool": "workspace.write",
    "runtime": "scripted",
    "login_id": "login_0000000000000000",
    "provider": "openai",
}


class Sample(NamedTuple):
    """What an operation is sent, and the status it answers with if nothing that the path names is there."""

    status: int
    body: Any = None
    query: str = ""


SAMPLES = {
    "health": Sample(200),
    "ready": Sample(200),
    "openapi": Sample(200),
    "whoami": Sample(200),
    "listRuntimes": Sample(200),
    "runtimeAuth": Sample(200),
    "beginLogin": Sample(403, {}),
    "readLogin": Sample(404),
    "answerLogin": Sample(404, {"text": "code"}),
    "cancelLogin": Sample(404),
    "listKeys": Sample(200),
    "addKey": Sample(201, {"provider": "gemini", "key": "a-key-of-nobody-0123456789"}),
    "removeKey": Sample(404),
    "listSessions": Sample(200),
    "getSession": Sample(404),
    "readEvents": Sample(404),
    "readTranscript": Sample(404),
    "verifySession": Sample(404),
    "replaySession": Sample(404),
    "listTasks": Sample(404),
    "getTask": Sample(404),
    "listApprovals": Sample(200),
    "listSessionApprovals": Sample(404),
    "listGrants": Sample(404),
    "listJobs": Sample(200),
    "getJob": Sample(404),
    "cancelJob": Sample(404, {}),
    "retryJob": Sample(404, {}),
    "readUsage": Sample(200),
    "readMetrics": Sample(200),
    "readAudit": Sample(200),
    "readSessionAudit": Sample(404),
    "supportBundle": Sample(404),
    "checkAudit": Sample(200),
    "collectGarbage": Sample(200, {"dry_run": True}),
    "listExtensions": Sample(404),  # none are switched on
    "reloadExtensions": Sample(404, {}),
    "createSession": Sample(400, {}),
    "equipSession": Sample(404, {}),
    "forkSession": Sample(404, {}),
    "resumeSession": Sample(404, {}),
    "changeSettings": Sample(404, {"title": "other"}),
    "moveSession": Sample(404, {"runtime": "scripted"}),
    "compactSession": Sample(404, {"strategy": "window", "keep_tokens": 100}),
    "supplementTranscript": Sample(404, {"supplement_id": "a", "text": "Beside it."}),
    "requestSuggestions": Sample(404, {}),
    "answerSuggestRequest": Sample(404, {"results": []}),
    "closeSession": Sample(404, {}),
    "deleteSession": Sample(404),
    "undoChanges": Sample(404, {}),
    "startTask": Sample(404, {"message": "Go."}),
    "stopTask": Sample(404, {}),
    "steerTask": Sample(404, {"message": "Rather this."}),
    "approveCall": Sample(404, {}),
    "denyCall": Sample(404, {}),
    "answerQuestion": Sample(404, {"text": "yes"}),
    "revokeGrant": Sample(404),
    "uploadArtifact": Sample(201, b"bytes", "?name=a.bin"),
    "listArtifacts": Sample(404),
    "getArtifact": Sample(404),
    "readArtifact": Sample(404),
}
"""An operation without a line here fails the tests: somebody has to think about who may use it."""

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def path_of(operation: Operation, ids: dict[str, str] = UNKNOWN) -> str:
    """Return the path of an operation with names filled in."""
    return operation.path.format(**UNKNOWN | ids) + SAMPLES[operation.name].query


def content_of(operation: Operation) -> dict[str, Any]:
    """Return the body of an operation as httpx takes it."""
    body = SAMPLES[operation.name].body
    if isinstance(body, bytes):
        return {"content": body, "headers": {"content-type": "application/octet-stream"}}
    return {} if body is None else {"json": body}
