"""A session that gives the audit something of every kind, and what the audit must then say.

For whoever opens sessions: the library here, the daemon in its own tests.
"""

from typing import Any

from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.store.audit.chain import AuditRecord

SECRET = "canary-7f3a91"
"""Must be given to the SDK as a secret, and must not come back."""

SANDBOX = {"network": False, "mounts": ["workspace"]}


def story_runtime() -> ScriptedRuntime:
    """Return a runtime whose one task writes a file twice, says a secret, and runs into a rate limit."""
    write = {"tool": "workspace.write", "input": {"path": "a.txt", "content": f"the key is {SECRET}"}}
    steps: list[dict[str, Any]] = [
        {"call": write},
        {"call": {"tool": "workspace.write", "input": {"path": "b.txt", "content": "no"}}},
        {"fail": {"code": "RATE_LIMITED", "message": f"Slow down, {SECRET}.", "retryable": True}},
    ]
    return ScriptedRuntime(parse_object({"turns": [{"steps": [step]} for step in steps]}, "story"))


def story_of(records: list[AuditRecord]) -> list[tuple[str, str, str, str | None]]:
    """Return category, action, outcome and tool, of each record that comes from the session's events."""
    return [
        (record.category, record.action, record.outcome, record.what.get("tool"))
        for record in records
        if "seq" in record.what
    ]


TOLD = [
    ("request", "session.create", "ok", None),
    ("request", "task.start", "ok", None),
    ("request", "approval.answer", "approved", None),
    ("request", "tool.decision", "allowed", "workspace.write"),
    ("tool", "tool.start", "started", "workspace.write"),
    ("tool", "tool.end", "ok", "workspace.write"),
    ("request", "approval.answer", "denied", None),
    ("request", "tool.decision", "denied", "workspace.write"),
    ("runtime", "task.fail", "failed", None),
]
"""The story: the first call is approved, the second denied, then the task fails."""
