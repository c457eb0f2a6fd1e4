"""What a runtime can do, so that nobody has to guess. A flag is true only if a test has shown it."""

from typing import Literal

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
OutputWay = Literal["native", "tool"]
"""How a task with an output schema gives its result: as the model's last answer, or in a call of `task.answer`."""
LoginTraffic = Literal["through", "beside"]
"""How the requests of a logged-in program reach its provider: `through` the gateway, or `beside` it."""


class Capabilities(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one runtime adapter can do. It states what differs from the defaults.

    The defaults are those of a runtime in this process that can do everything in the contract; the
    conformance run fails one that promises more than it does. Encoded in full, so that a reader needs no
    defaults.
    """

    supports_streaming: bool = True
    supports_tool_calls: bool = True
    supports_parallel_tool_calls: bool = True
    supports_stop: bool = True
    supports_artifacts: bool = True
    supports_session_create: bool = True
    supports_session_resume: bool = True
    supports_usage_reporting: bool = True
    supports_non_interactive: bool = True
    supports_steer: bool = True
    supports_fork: bool = True
    supports_reasoning: bool = True
    supports_images: bool = True
    output_schema: OutputWay = "tool"
    """How it gives the result of a task with an output schema. `native`: it passes the schema to its model. A schema
    that is not strict is answered with the tool even then: providers refuse it."""
    input_capture: InputCapture = "compiled"
    """How well the log knows what its model was given. Only `compiled` for a task whose login goes beside the gateway."""
    login_traffic: list[LoginTraffic] = msgspec.field(default_factory=list[LoginTraffic])
    """How the requests of an account of its own can go, the default first; empty if it has no such logins."""
    auth_model: AuthModel = "none"
    tool_execution_model: ToolExecutionModel = "stream"
    permission_model: PermissionModel = "codesdk"
    state_model: StateModel = "in_process"
    resume_model: ResumeModel = "reconstruct"
    tool_replay_safety: ReplaySafety = "requires_reapproval"
    mcp_support: McpSupport = "none"
    mcp_transports: list[McpTransport] = msgspec.field(default_factory=list[McpTransport])
    cancellation_model: CancellationModel = "guaranteed"
    supported_isolation_modes: list[IsolationMode] = msgspec.field(default_factory=lambda: ["in_process"])
    recommended_isolation_mode: IsolationMode = "in_process"
    native_tools: dict[str, ToolClass] = msgspec.field(default_factory=dict[str, ToolClass])
    """Its own tools that a session may enable, by the runtime's names, and what they may do."""
    instruction_files: list[str] = msgspec.field(default_factory=list[str])
    """The instruction files that it reads in a workspace and that a session may capture."""


OF_WRAPPED = Capabilities(
    supports_streaming=False,
    supports_artifacts=False,
    supports_session_resume=False,
    supports_usage_reporting=False,
    supports_steer=False,
    supports_fork=False,
    supports_reasoning=False,
    supports_images=False,
    tool_execution_model="runtime_internal",
    state_model="in_process",
    resume_model="none",
    cancellation_model="guaranteed",
    supported_isolation_modes=["subprocess"],
    recommended_isolation_mode="subprocess",
    native_tools={"read": "read_only", "write": "write", "net": "network", "exec": "dangerous"},
)
"""What a wrapped program can do. Its tools are the four actions: what it calls its own is known when it asks."""


class Isolation(Record, frozen=True, kw_only=True):
    """Where a runtime's own state lives and how it is hosted."""

    level: IsolationLevel
    mode: IsolationMode
