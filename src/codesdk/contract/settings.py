"""What a session can be told when it is created, and the limits of an engine."""

from typing import Any, Literal

import msgspec

from codesdk.contract.tools import InteractionMode, PermissionMode

OnBusy = Literal["queue", "reject", "steer"]


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


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be created."""

    runtime: str
    workspace: str
    title: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "ask"
    interaction_mode: InteractionMode = "interactive"
    native_tools: Literal["off"] | list[str] = "off"
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
