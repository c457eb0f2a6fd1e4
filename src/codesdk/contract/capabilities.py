"""What a runtime can do, so that nobody has to guess. A flag is true only when it was shown."""

from typing import Any, Literal

import msgspec

from codesdk.contract.tools import Record, ToolClass

AuthModel = Literal["oauth_local", "api_key", "both", "none", "unknown"]
ToolExecutionModel = Literal["external_mcp", "runtime_internal", "hybrid", "stream"]
PermissionModel = Literal["codesdk", "runtime", "hybrid"]
StateModel = Literal["in_process", "local_disk", "server_side", "hybrid", "unknown"]
ResumeModel = Literal["native", "reconstruct", "none"]
ReplaySafety = Literal["safe_replay", "requires_reapproval", "unknown"]
McpSupport = Literal["none", "client_only", "server_only", "both"]
McpTransport = Literal["stdio", "sse", "http"]
CancellationModel = Literal["best_effort", "guaranteed", "unknown"]
IsolationMode = Literal["in_process", "subprocess", "server_side"]
IsolationLevel = Literal["shared", "namespaced", "ephemeral"]
InputCapture = Literal["exact", "compiled"]


class Capabilities(Record, frozen=True, kw_only=True):
    """The honest description of one runtime adapter."""

    supports_streaming: bool
    supports_tool_calls: bool
    supports_parallel_tool_calls: bool
    supports_stop: bool
    supports_artifacts: bool
    supports_session_create: bool
    supports_session_resume: bool
    supports_usage_reporting: bool
    supports_non_interactive: bool
    supports_steer: bool
    supports_fork: bool
    supports_reasoning: bool
    supports_images: bool
    input_capture: InputCapture
    auth_model: AuthModel
    tool_execution_model: ToolExecutionModel
    permission_model: PermissionModel
    state_model: StateModel
    resume_model: ResumeModel
    tool_replay_safety: ReplaySafety
    mcp_support: McpSupport
    mcp_transports: list[McpTransport]
    cancellation_model: CancellationModel
    supported_isolation_modes: list[IsolationMode]
    recommended_isolation_mode: IsolationMode
    max_outstanding_tool_calls: int | None = None
    native_tools: dict[str, ToolClass] = msgspec.field(default_factory=dict[str, ToolClass])
    """Those of its own tools that a session may enable, by the runtime's names, and what they may do."""
    instruction_files: list[str] = msgspec.field(default_factory=list[str])
    """The instruction files of a workspace that are its own, which a session may have captured."""


class Isolation(Record, frozen=True, kw_only=True):
    """Where a runtime's own state lives and how it is hosted."""

    level: IsolationLevel
    mode: IsolationMode


class AuthStatus(Record, frozen=True, kw_only=True):
    """Whether a runtime is ready to talk to its model. Never holds a secret."""

    ok: bool
    logged_in: bool
    auth_model: AuthModel
    account_label: str | None = None
    details: dict[str, Any] | None = None
