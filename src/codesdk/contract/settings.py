"""Settings of a session, at its creation and later, and the limits of an engine."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from codesdk.contract.bounds import Attempts, Bytes, Count, Dollars, InlineBytes, Seconds
from codesdk.contract.capabilities import IsolationLevel
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import InteractionMode, PermissionMode, Record

OnBusy = Literal["queue", "reject", "steer"]
GatewayMode = Literal["passthrough", "record", "replay", "scripted"]
"""Who answers a session's model requests: the provider (recorded, for `record`), a cassette or a script."""


ImplicitSources = Literal["off", "capture"]
"""Whether the workspace's own instruction files reach the model. Whatever could run something never does."""


OnInterrupt = Literal["wait", "resume"]
"""What becomes of a task that a crash or a restart interrupted: it waits for a resume, or goes on by itself."""
CompactStrategy = Literal["window", "summary"]
"""How a conversation is made smaller: its oldest turns are left out, or its runtime sums them up first."""
AutoCompact = Literal["off", "window", "summary"]


class Budget(Record, frozen=True, kw_only=True):
    """What may be spent. None means not limited."""

    requests: Count | None = None
    tokens: Count | None = None
    cost_usd: Dollars | None = None


class Budgets(Record, frozen=True, kw_only=True):
    """What each task of a session may spend, and all of them together."""

    task: Budget | None = None
    session: Budget | None = None


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing, context and capture of one session. Stored in `session.created`, so never a secret."""

    approval_timeout_s: Seconds = 300.0
    stop_grace_s: Seconds = 5.0
    end_grace_s: Seconds = 10.0
    start_timeout_s: Seconds = 60.0
    idle_timeout_s: Seconds = 900.0
    context_budget_tokens: Count = 100_000
    auto_compact: AutoCompact = "off"
    """Whether a session compacts itself once its model or its budget finds the conversation too large."""
    raw_capture: bool = True
    raw_inline_bytes: InlineBytes = 4096
    input_inline_bytes: InlineBytes = 16_384
    result_inline_bytes: InlineBytes = 16_384
    runtime_config: dict[str, Any] = {}
    gateway: GatewayMode = "passthrough"
    mcp_servers: list[str] = []
    implicit_sources: ImplicitSources = "off"
    on_interrupt: OnInterrupt = "wait"
    max_resumes: Attempts = 3
    """How often in a row a task goes on by itself; a shutdown does not count."""
    resume_backoff_s: Seconds = 1.0
    """How long to wait before the second time. It doubles each time after that, up to five minutes."""


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a new session."""

    runtime: str
    workspace: str
    title: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "ask"
    interaction_mode: InteractionMode = "interactive"
    native_tools: Literal["off"] | list[str] = "off"
    budgets: Budgets | None = None
    isolation: IsolationLevel = "namespaced"
    credential_namespace: str | None = None
    project_id: str | None = None
    settings: SessionSettings = SessionSettings()


class SettingsChange(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change to an existing session's settings; what is not given stays. All else is fixed at its creation.

    It applies from the next decision on: the mode to calls requested from now on, the model to the next task.
    """

    title: str | UnsetType | None = UNSET
    model: str | UnsetType = UNSET
    permission_mode: PermissionMode | UnsetType = UNSET
    budgets: Budgets | UnsetType | None = UNSET
    """Replaces all budgets; null removes them."""
    approval_timeout_s: Seconds | UnsetType = UNSET
    stop_grace_s: Seconds | UnsetType = UNSET
    end_grace_s: Seconds | UnsetType = UNSET
    start_timeout_s: Seconds | UnsetType = UNSET
    idle_timeout_s: Seconds | UnsetType = UNSET
    on_interrupt: OnInterrupt | UnsetType = UNSET
    max_resumes: Attempts | UnsetType = UNSET
    resume_backoff_s: Seconds | UnsetType = UNSET
    context_budget_tokens: Count | UnsetType = UNSET
    auto_compact: AutoCompact | UnsetType = UNSET
    values: dict[str, Any] | UnsetType = UNSET
    """For apps and extensions: these keys are set, null ones removed, all others stay."""

    @staticmethod
    def of(fields: Mapping[str, Any]) -> "SettingsChange":
        """Return the change that these fields request. Raise `InvalidRequest` for what cannot be changed."""
        fixed = [name for name in fields if name not in CHANGEABLE]
        if fixed:
            raise InvalidRequest(
                f"{', '.join(fixed)} cannot be changed in an existing session. These can: {', '.join(CHANGEABLE)}."
            )
        try:
            return msgspec.convert(dict(fields), SettingsChange)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"The settings cannot be changed like this: {error}.") from None

    def given(self) -> dict[str, Any]:
        """Return the fields to change, by name."""
        return {name: value for name in CHANGEABLE if (value := getattr(self, name)) is not UNSET}


CHANGEABLE = SettingsChange.__struct_fields__


def merge_values(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an app's values with these keys set, and those that are null removed."""
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one engine takes on. Over a limit a call is refused, never silently dropped."""

    max_sessions: Count = 100_000
    max_tasks: Count = 1_024
    max_tasks_per_runtime: Count = 1_024
    max_queue: Count = 64
    max_backlog_frames: Count = 2_048
    max_message_bytes: Bytes = 4 * 1024 * 1024
    max_event_bytes: Bytes = 8 * 1024 * 1024
    max_artifact_bytes: Bytes = 256 * 1024 * 1024
    principal_budget: Budget | None = None
    """What all stored sessions of one principal together may spend."""
    max_same_requests: Count = 20
    """How often a runtime may send a model the same request within a minute; more counts as a loop."""
    max_same_calls: Count = 100
    """How often in a row a task may make the same call with the same result; more counts as a loop."""
    max_calls: Count = 10_000
    """How many tool calls a task may make, whatever they are; more counts as a loop."""
    max_output_chars: Count = 64_000_000
    """How much a runtime may say in one task. One that talks without end would fill memory and disk.

    Streamed text counts by its characters; 16 bytes of all else that is kept of it (its own messages, notices, whole
    messages, inputs of calls) count as one.
    """
    runtime_idle_s: Seconds | None = 600.0
    """After this time without a task, a session's runtime process is ended. The next task starts it again. Null: never."""
