"""Tool calls: their identity, the policy's verdicts, and what a run of one yields."""

from typing import Any, Literal

import msgspec

from codesdk.contract.messages import ArtifactRef

ToolClass = Literal["read_only", "write", "network", "dangerous"]
PermissionMode = Literal["ask", "auto", "yolo"]
InteractionMode = Literal["interactive", "non_interactive"]
Verdict = Literal["allow", "ask", "deny"]
PolicySource = Literal["runtime", "codesdk", "extension", "user"]
ExecutedBy = Literal["codesdk", "runtime"]
ExecutionEnv = Literal["codesdk_bubblewrap", "codesdk_docker", "codesdk_host", "runtime_internal", "unknown"]
OutputStream = Literal["stdout", "stderr", "progress"]
Outcome = Literal["known", "unknown"]
Scope = Literal["once", "session"]
Decision = Literal["approve", "deny"]
ANSWER_TOOL = "task.answer"
"""The owned tool that takes the result of a task with an output schema. Offered in such tasks only."""
ToolOrigin = Literal["stream", "mcp", "native", "wire"]
"""How a call reaches us: handed over in the runtime's stream, made at our MCP server, run by it itself, or seen in a
model's answer and kept from the runtime, so that it never runs."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The parent of all wire records: frozen, keyword-only, defaults left out.

    They hold JSON-like values only, never a cycle, so the garbage collector need not look at them.
    """


class Actor(Record, frozen=True, kw_only=True):
    """Who decided: a person, the policy, the engine itself, a runtime or an extension."""

    kind: Literal["user", "policy", "engine", "runtime", "extension"]
    id: str | None = None


Expects = Literal["text", "choice", "boolean", "number", "integer"]
"""What an answer must be: any text, one of the options, `true` or `false`, or a number."""


class Question(Record, frozen=True, kw_only=True):
    """Something that only a person can answer, in words. `options` are suggestions unless a `choice` is expected."""

    text: str
    options: list[str] = []
    expects: Expects = "text"
    optional: bool = False
    """Whether the answer may be empty."""
    asker: str | None = None
    """The MCP server that asks; otherwise the model does."""


class ToolIdentity(Record, frozen=True, kw_only=True):
    """Which attempt of which call, over which input."""

    tool_call_id: str
    attempt: int
    input_hash: str
    runtime_tool_call_id: str | None = None


class Evaluation(Record, frozen=True, kw_only=True):
    """One opinion on a call."""

    source: PolicySource
    result: Verdict
    rule: str | None = None
    reason: str | None = None
    answer_by: list[str] = []
    """Who, besides people, may answer what it asks: `extension:NAME`."""


class PolicySnapshot(Record, frozen=True, kw_only=True):
    """The effective decision on a call and the opinions that led to it."""

    permission_mode: PermissionMode
    decision: Literal["allow", "deny"]
    sources: list[Evaluation]


class Grant(Record, frozen=True, kw_only=True):
    """An answer for the whole session: this tool is not asked about again by the `rule` that asked."""

    tool: str
    rule: str
    by: Actor
    granted_at: str
    reason: str | None = None


class SandboxSummary(Record, frozen=True, kw_only=True):
    """What the tool could reach while it ran."""

    network: bool
    timeout_ms: int | None = None
    mounts: list[str] | None = None


class Change(Record, frozen=True, kw_only=True):
    """A file that a tool changed. `undo` names what the undo store keeps, or is null."""

    path: str
    diff_ref: ArtifactRef | None
    undo: str | None


class UndoneFile(Record, frozen=True, kw_only=True):
    """A file that was restored to what it was before a call changed it."""

    path: str
    tool_call_id: str
    attempt: int
    removed: bool = False
    """Whether the call had created it, so that it is removed again."""


class UndoRefusal(Record, frozen=True, kw_only=True):
    """A call whose changes were not undone, and why."""

    tool_call_id: str
    attempt: int
    reason: str


class UndoReport(Record, frozen=True, kw_only=True):
    """What an undo restored, the newest change first, and what it refused."""

    restored: list[UndoneFile]
    refused: list[UndoRefusal]


UNKNOWN_SUBJECT = "<unknown>"
"""Stands among a call's subjects for those that nobody could read or count. No rule about paths, hosts or commands allows
it, and each that asks or denies applies: it may be the one that the rule means."""


class Subjects(Record, frozen=True, kw_only=True):
    """What a call would touch, in the terms that policy rules are written in. Paths are relative to the workspace."""

    paths: list[str] = []
    hosts: list[str] = []
    argv: list[str] = []


class ToolAnnotations(Record, frozen=True, kw_only=True):
    """What a client may tell people about a tool. The class says what it may do; these only describe it."""

    title: str | None = None
    destructive: bool = False
    """Whether it may overwrite or remove existing data."""
    idempotent: bool = False
    """Whether the same call again changes nothing more."""


class ToolSpec(Record, frozen=True, kw_only=True):
    """A tool as it is offered to a runtime."""

    name: str
    description: str
    input_schema: dict[str, Any]
    tool_class: ToolClass = msgspec.field(name="class")
    safe_replay: bool = False
    output_schema: dict[str, Any] | None = None
    """The schema of the result, if it is an object and not text."""
    interactive: bool = False
    """Whether it is offered only where somebody can be asked."""
    annotations: ToolAnnotations = ToolAnnotations()


class ManifestEntry(Record, frozen=True, kw_only=True):
    """A tool in a record of what was offered: its name and the hash of its schema."""

    name: str
    schema_hash: str
