"""Everything that can be asked of a session: one frozen struct per verb, with the type of its result.

The engine executes actions, an HTTP body is one (without the fields that are in the path), the control socket
carries them, and handles and the command line send them. `SessionService.execute` takes any of them.
"""

import secrets
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import msgspec

from codesdk.contract.bounds import Count
from codesdk.contract.capabilities import IsolationLevel
from codesdk.contract.messages import Message, user
from codesdk.contract.records import SessionRow, TaskRow
from codesdk.contract.sender import Sender
from codesdk.contract.settings import Budgets, CompactStrategy, OnBusy, SessionSettings, SettingsChange
from codesdk.contract.tools import Actor, InteractionMode, PermissionMode, Scope, UndoReport

LOCAL = "local"
"""The principal of the process's owner. Events leave it out."""

TokenScope = Literal["read", "run", "approve", "admin"]
"""What a caller may do: read, work, answer questions, run the daemon. `admin` includes the others."""
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)

Words = str | list[Message]
"""What a user says: a text, or messages."""

R = TypeVar("R", covariant=True)


class Caller(Sender, frozen=True, kw_only=True):
    """Who requests an action: whose sessions it may reach, its name in the log, and what it may do."""

    principal: str = LOCAL
    actor: Actor = Actor(kind="user")
    scopes: frozenset[TokenScope] = frozenset(SCOPES)

    @classmethod
    def of(cls, principal: str) -> "Caller":
        """Return a person who may do everything with the sessions of a principal."""
        return cls(
            principal=principal, actor=Actor(kind="user", id=None if principal == LOCAL else principal)
        )

    def may(self, scope: TokenScope) -> bool:
        """Return whether the caller has a scope."""
        return scope in self.scopes or "admin" in self.scopes


class Action(
    msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="action"
):
    """Something to do to a session. `R` is the type of its result."""

    needs: ClassVar[TokenScope] = "run"
    """The scope that a caller needs."""
    route: ClassVar[str]
    """How it is requested over HTTP: `METHOD /path/{field}`."""
    lasts: ClassVar[bool] = True
    """Whether its idempotency key is stored; else the key ends with the process, as the effect does."""

    @classmethod
    def result_type(cls) -> Any:
        """Return the type of its result."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """What a session needs and its log must not hold. It is kept sealed beside the log."""

    script: dict[str, Any] | None = None
    """Played by the model gateway in place of a provider."""
    recording: str | None = None
    """A recorded session whose model answers are replayed in place of a provider's."""
    mcp_servers: dict[str, Any] = {}
    """MCP servers whose tools the session offers. Needs the scope admin: they run outside of any sandbox."""
    secrets: list[str] = []
    """Values that never reach an event, a log or an artifact."""

    def __repr__(self) -> str:
        """Name only what is given: a repr ends up in logs and tracebacks."""
        return f"{type(self).__name__}({', '.join(self.kinds)})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of what is given. They are no secret."""
        return tuple(name for name in Equipment.__struct_fields__ if getattr(self, name))


class CreateSession(Action[SessionRow], Equipment, frozen=True, kw_only=True, tag="create"):
    """Create a session of a runtime on a workspace directory."""

    route: ClassVar[str] = "POST /v1/sessions"

    runtime: str
    workspace: str
    title: str | None = None
    model: str | None = None
    permission_mode: PermissionMode = "ask"
    interaction_mode: InteractionMode = "interactive"
    native_tools: Literal["off"] | list[str] = "off"
    """The runtime's own tools that it may use. Needs the scope admin: they run outside of any sandbox."""
    budgets: Budgets | None = None
    isolation: IsolationLevel | None = None
    """Where the runtime's own state lives, among the levels that the operator allows."""
    credential_namespace: str | None = None
    """Whose logins and runtime state it uses: the principal's own, or another namespace that the operator allows."""
    settings: SessionSettings = SessionSettings()


PLAYS_AND_RECORDS = (
    "The settings say to record a model's answers, but the session plays a script or a recording, and no model is"
    " asked. Leave out one of the two."
)


class EquipSession(Action[SessionRow], Equipment, frozen=True, kw_only=True, tag="equip"):
    """Equip a session: secrets are added; servers, a script or a recording replace those it had."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/equipment"
    lasts: ClassVar[bool] = False

    session_id: str


class StartTask(Action[TaskRow], frozen=True, kw_only=True, tag="start"):
    """Start a task. While another one runs, queue it, or do what `on_busy` says."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/tasks"

    session_id: str
    message: Words
    on_busy: OnBusy = "queue"
    task_id: str | None = None


class ResumeSession(Action[TaskRow], frozen=True, kw_only=True, tag="resume"):
    """Continue after an interruption, first running the calls approved meanwhile."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/resume"

    session_id: str
    message: Words | None = None


class SteerTask(Action[TaskRow], frozen=True, kw_only=True, tag="steer"):
    """Add user input to the running task. If a task is named, it must be that one."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/steer"

    session_id: str
    message: Words
    task_id: str | None = None


class StopTask(Action[TaskRow], frozen=True, kw_only=True, tag="stop"):
    """Stop the running task, or the named one, which may still be queued."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/stop"

    session_id: str
    task_id: str | None = None
    reason: str = "stopped by the user"


class ApproveCall(Action[None], frozen=True, kw_only=True, tag="approve"):
    """Let a waiting tool call run, once or for the session; or raise a budget, named by its approval.

    `attempt` and `input_hash` are those that the person has seen. If they have changed, this is refused.
    """

    needs: ClassVar[TokenScope] = "approve"
    route: ClassVar[str] = "POST /v1/sessions/{session_id}/calls/{tool_call_id}/approve"

    session_id: str
    tool_call_id: str
    attempt: Count | None = None
    input_hash: str | None = None
    scope: Scope = "once"
    reason: str | None = None


class DenyCall(Action[None], frozen=True, kw_only=True, tag="deny"):
    """Refuse a waiting tool call. The reason is told to the model."""

    needs: ClassVar[TokenScope] = "approve"
    route: ClassVar[str] = "POST /v1/sessions/{session_id}/calls/{tool_call_id}/deny"

    session_id: str
    tool_call_id: str
    reason: str = "denied by the user"
    attempt: Count | None = None
    input_hash: str | None = None


class RevokeGrant(Action[None], frozen=True, kw_only=True, tag="revoke"):
    """Revoke the approval of a tool for the session: ask about it again."""

    needs: ClassVar[TokenScope] = "approve"
    route: ClassVar[str] = "DELETE /v1/sessions/{session_id}/grants/{tool}"

    session_id: str
    tool: str


class UndoChanges(Action[UndoReport], frozen=True, kw_only=True, tag="undo"):
    """Restore files to what they were before one tool call, or before all calls of the session."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/undo"

    session_id: str
    tool_call_id: str | None = None


class ForkSession(Action[SessionRow], frozen=True, kw_only=True, tag="fork"):
    """Create a session that starts from this one's transcript at a seq (default: the end)."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/fork"

    session_id: str
    seq: Count | None = None
    title: str | None = None


class ChangeSettings(Action[SessionRow], SettingsChange, frozen=True, kw_only=True, tag="set"):
    """Change a session's title, model, permission mode, budgets, timeouts or values. The rest is fixed."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/settings"

    session_id: str

    def change(self) -> SettingsChange:
        """Return the requested change."""
        return SettingsChange(**self.given())


class MoveSession(Action[SessionRow], frozen=True, kw_only=True, tag="move"):
    """Continue with another runtime, from the transcript."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/move"

    session_id: str
    runtime: str
    model: str | None = None


class CompactSession(Action[SessionRow], frozen=True, kw_only=True, tag="compact"):
    """Give the runtime less of the conversation from the next task on; the transcript keeps everything.

    `window` leaves out the oldest turns at once. `summary` starts a task in which the session's own runtime
    sums them up; it is the row's active task.
    """

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/compact"

    session_id: str
    strategy: CompactStrategy = "window"
    keep_tokens: Count | None = None
    """About how many tokens of the newest turns stay as they are. Default: half of what there is."""


class CloseSession(Action[SessionRow], frozen=True, kw_only=True, tag="close"):
    """End a session; its log stays."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/close"

    session_id: str
    reason: str = "closed by the user"


class DeleteSession(Action[None], frozen=True, kw_only=True, tag="delete"):
    """Remove a session and everything stored of it, including its runtime's own state."""

    route: ClassVar[str] = "DELETE /v1/sessions/{session_id}"

    session_id: str


AnyAction = (
    CreateSession
    | EquipSession
    | StartTask
    | ResumeSession
    | SteerTask
    | StopTask
    | ApproveCall
    | DenyCall
    | RevokeGrant
    | UndoChanges
    | ForkSession
    | ChangeSettings
    | MoveSession
    | CompactSession
    | CloseSession
    | DeleteSession
)
ACTIONS: tuple[type[Action[Any]], ...] = get_args(AnyAction)


def new_key() -> str:
    """Return an idempotency key: under one key, an action is carried out once."""
    return secrets.token_urlsafe(18)


def messages_of(words: Words) -> list[Message]:
    """Return what a user says as messages."""
    return [user(words)] if isinstance(words, str) else words
