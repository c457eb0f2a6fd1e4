"""What a session can be told when it is created, and the limits of an engine."""

from typing import Any, Literal

import msgspec

from codesdk.contract.tools import InteractionMode, PermissionMode, Record

OnBusy = Literal["queue", "reject", "steer"]
GatewayMode = Literal["passthrough", "record", "replay", "scripted"]
"""Where a session's model requests are answered from: the provider (and kept, for `record`), a cassette, a script."""


ImplicitSources = Literal["off", "capture"]
"""Whether the workspace's own instruction files reach the model. Whatever could run something never does."""


class Budget(Record, frozen=True, kw_only=True):
    """What may be spent. None means that this is not limited."""

    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


class Budgets(Record, frozen=True, kw_only=True):
    """What each task of a session may spend, and all of them together."""

    task: Budget | None = None
    session: Budget | None = None


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing, context and capture of one session. Stored in `session.created`, so never a secret."""

    approval_timeout_s: float = 300.0
    stop_grace_s: float = 5.0
    end_grace_s: float = 10.0
    start_timeout_s: float = 60.0
    idle_timeout_s: float = 900.0
    context_budget_tokens: int = 100_000
    raw_capture: bool = True
    raw_inline_bytes: int = 4096
    input_inline_bytes: int = 16_384
    result_inline_bytes: int = 16_384
    runtime_config: dict[str, Any] = {}
    gateway: GatewayMode = "passthrough"
    mcp_servers: list[str] = []
    implicit_sources: ImplicitSources = "off"


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be created."""

    runtime: str
    workspace: str
    title: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "ask"
    interaction_mode: InteractionMode = "interactive"
    native_tools: Literal["off"] | list[str] = "off"
    budgets: Budgets | None = None
    settings: SessionSettings = SessionSettings()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one engine takes on. Over a limit a call is refused, never silently dropped."""

    max_sessions: int = 100_000
    max_tasks: int = 1_024
    max_tasks_per_runtime: int = 1_024
    max_queue: int = 64
    max_backlog_frames: int = 2_048
    max_message_bytes: int = 4 * 1024 * 1024
    max_event_bytes: int = 8 * 1024 * 1024
    max_artifact_bytes: int = 256 * 1024 * 1024
    principal_budget: Budget | None = None
    """What all stored sessions of one principal together may spend."""
    max_same_requests: int = 20
    """How often a runtime may ask the same of a model within a minute; then it is taken to be in a loop."""
