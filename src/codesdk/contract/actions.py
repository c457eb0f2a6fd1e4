"""Everything that can be asked of a session: one frozen struct per verb, with the type of its result.

The engine executes actions, an HTTP body is one (without the fields that are in the path), the control socket
carries them, and handles and the command line send them. `SessionService.execute` takes any of them.
"""

import secrets
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import msgspec

from codesdk.contract.bounds import Count
from codesdk.contract.capabilities import IsolationLevel
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.jobs import JobRow
from codesdk.contract.messages import Message, user
from codesdk.contract.payloads import HandlerOutcome
from codesdk.contract.records import SessionRow, SuggestRequest, Supplement, TaskRow
from codesdk.contract.sender import CLIENT_ID_CHARS, Sender
from codesdk.contract.settings import (
    Budgets,
    CompactStrategy,
    GatewayMode,
    OnBusy,
    SessionSettings,
    SettingsChange,
)
from codesdk.contract.tools import Actor, InteractionMode, PermissionMode, Scope, UndoReport

LOCAL = "local"
"""The principal of the process's owner. Events leave it out."""

TokenScope = Literal["read", "run", "approve", "admin"]
"""What a caller may do with its principal's sessions: read them, work, answer questions; `admin` runs the daemon."""
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
PLAYED: dict[GatewayMode, str] = {"scripted": "a script", "replay": "a recording"}
"""What sessions play in place of a provider's model, by the mode of their gateway, in words."""
INCLUDED: dict[TokenScope, tuple[TokenScope, ...]] = {
    "read": (),
    "run": ("read",),
    "approve": ("read",),
    "admin": ("read", "run", "approve"),
}
"""What a scope brings along: whoever works or answers must be able to see what comes of it."""

Words = str | list[Message]
"""What a user says: a text, or messages."""

_LABEL_CHARS = 24
"""How much of a token's label comes before the name that a client gives itself."""

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

    def called(self, client: str, name: str | None = None) -> "Caller":
        """Return the same caller with the name that a client gives itself, as its `name` where nobody else is named.

        What a token says of it is not for the client to change: its label comes first, and its principal stays.
        """
        label = client if self.client_id is None else f"{self.client_id[:_LABEL_CHARS]}/{client}"
        actor = self.actor if self.actor.id is not None else Actor(kind=self.actor.kind, id=name or client)
        return msgspec.structs.replace(self, actor=actor, client_id=label[:CLIENT_ID_CHARS])

    def may(self, scope: TokenScope) -> bool:
        """Return whether the caller has a scope, or one that includes it."""
        return scope in self.scopes or any(scope in INCLUDED[own] for own in self.scopes)


class Action(
    msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="action"
):
    """Something to do to a session. `R` is the type of its result."""

    needs: ClassVar[TokenScope] = "run"
    """The scope that a caller needs."""
    route: ClassVar[str]
    """How it is requested over HTTP: `METHOD /path/{field}`."""
    lasts: ClassVar[bool] = True
    """Whether its idempotency key is stored. Else it is remembered while the process runs: the effect ends with it as
    well, or leaves no session to store a key in."""

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
    """Values that never reach an event, a log or an artifact: 256 at most, of 8,192 characters each and 65,536 in all."""

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

    runtime: str | None = None
    """What runs its tasks; if not given, `minicode`, which needs a key, or something to play in place of a model."""
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
    project_id: str | None = None
    """The application's name for the project, for extensions. Without one, it follows from the workspace's path."""
    settings: SessionSettings = SessionSettings()


def mode_to_play(chosen: GatewayMode, plays: GatewayMode | None) -> GatewayMode:
    """Return the mode of a new session's gateway, given what it plays. Raise `InvalidRequest` if its settings say another."""
    if plays is None or chosen in ("passthrough", plays):
        return plays or chosen
    if chosen == "record":
        raise InvalidRequest(
            "The settings say to record a model's answers, but the session plays a script or a recording, and no"
            " model is asked. Leave out one of the two."
        )
    raise InvalidRequest(
        f"The settings say gateway {chosen}, but what the session is given to play needs {plays}. Leave out gateway."
    )


def check_plays(session_id: str, mode: GatewayMode, plays: GatewayMode | None) -> None:
    """Raise `InvalidRequest` if a session that exists is given something to play that it would never ask for."""
    if plays is None or plays == mode:
        return
    now = f"plays {PLAYED[mode]}" if mode in PLAYED else "asks its provider's model"
    raise InvalidRequest(
        f"Session {session_id} {now}, so {PLAYED[plays]} that it is given would not be played: a session plays what it"
        " was created to play. Create a session with it, or leave it out."
    )


class EquipSession(Action[SessionRow], Equipment, frozen=True, kw_only=True, tag="equip"):
    """Equip a session: secrets are added; servers, a script or a recording replace those it had.

    One that asks its provider's model takes nothing to play.
    """

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
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of an object that the task must end with: its result has it as `data`."""


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
    denies: list[str] = []
    """Approvals that the caller was asked for and denies with it, in its own name. Needs the scope approve. What else
    waits for an answer the engine denies, and nobody is said to have answered."""


class ApproveCall(Action[None], frozen=True, kw_only=True, tag="approve"):
    """Let a waiting tool call run, once or for the session; or raise a budget, named by its approval.

    `task_id`, `attempt` and `input_hash` are those that the person has seen. If they have changed, this is refused.
    """

    needs: ClassVar[TokenScope] = "approve"
    route: ClassVar[str] = "POST /v1/sessions/{session_id}/calls/{tool_call_id}/approve"

    session_id: str
    tool_call_id: str
    task_id: str | None = None
    attempt: Count | None = None
    input_hash: str | None = None
    scope: Scope = "once"
    reason: str | None = None


class DenyCall(Action[None], frozen=True, kw_only=True, tag="deny"):
    """Refuse a waiting tool call, or decline a question. The reason is told to the model."""

    needs: ClassVar[TokenScope] = "approve"
    route: ClassVar[str] = "POST /v1/sessions/{session_id}/calls/{tool_call_id}/deny"

    session_id: str
    tool_call_id: str
    reason: str = "denied by the user"
    task_id: str | None = None
    attempt: Count | None = None
    input_hash: str | None = None


class AnswerQuestion(Action[None], frozen=True, kw_only=True, tag="answer"):
    """Answer a question with text. The first answer counts. To decline one, deny it.

    With a `task_id`, it is refused unless that task asks.
    """

    needs: ClassVar[TokenScope] = "approve"
    route: ClassVar[str] = "POST /v1/sessions/{session_id}/questions/{approval_id}/answer"

    session_id: str
    approval_id: str
    text: str
    task_id: str | None = None


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
    runtime_config: dict[str, Any] | None = None
    """The new runtime's options; if not given, those of the session that it takes."""


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


class SupplementTranscript(Action[Supplement], frozen=True, kw_only=True, tag="supplement"):
    """Put a text or data beside the transcript, in place of what the caller had there under the same id.

    It is shown with the transcript, and no model is ever given it.
    """

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/supplements"

    session_id: str
    supplement_id: str
    text: str | None = None
    data: Any = None
    task_id: str | None = None
    """The task that it is about."""


class RequestSuggestions(Action[SuggestRequest], frozen=True, kw_only=True, tag="suggest"):
    """Ask extensions what to ask the session for next. The event `suggest_request.answered` has what they say."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/suggestions"

    session_id: str
    text: str | None = None
    """What the suggestions are to be about."""


class AnswerSuggestRequest(Action[None], frozen=True, kw_only=True, tag="answer_suggest"):
    """Answer a request for suggestions, as CodeSDK does once its extensions were asked. The first answer counts."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/suggestions/{suggest_id}/answer"

    session_id: str
    suggest_id: str
    results: list[HandlerOutcome]


class CloseSession(Action[SessionRow], frozen=True, kw_only=True, tag="close"):
    """End a session; its log stays."""

    route: ClassVar[str] = "POST /v1/sessions/{session_id}/close"

    session_id: str
    reason: str = "closed by the user"


class DeleteSession(Action[None], frozen=True, kw_only=True, tag="delete"):
    """Remove a session and everything stored of it, including its runtime's own state."""

    route: ClassVar[str] = "DELETE /v1/sessions/{session_id}"
    lasts: ClassVar[bool] = False

    session_id: str


class CancelJob(Action[JobRow], frozen=True, kw_only=True, tag="cancel_job"):
    """Call off a job that is queued or runs."""

    route: ClassVar[str] = "POST /v1/jobs/{job_id}/cancel"
    lasts: ClassVar[bool] = False

    job_id: str


class RetryJob(Action[JobRow], frozen=True, kw_only=True, tag="retry_job"):
    """Run a waiting, failed or canceled job now, with all its attempts."""

    route: ClassVar[str] = "POST /v1/jobs/{job_id}/retry"
    lasts: ClassVar[bool] = False

    job_id: str


AnyAction = (
    CreateSession
    | EquipSession
    | StartTask
    | ResumeSession
    | SteerTask
    | StopTask
    | ApproveCall
    | DenyCall
    | AnswerQuestion
    | RevokeGrant
    | UndoChanges
    | ForkSession
    | ChangeSettings
    | MoveSession
    | CompactSession
    | SupplementTranscript
    | RequestSuggestions
    | AnswerSuggestRequest
    | CloseSession
    | DeleteSession
    | CancelJob
    | RetryJob
)
ACTIONS: tuple[type[Action[Any]], ...] = get_args(AnyAction)


def new_key() -> str:
    """Return an idempotency key: under one key, an action is carried out once."""
    return secrets.token_urlsafe(18)


def messages_of(words: Words) -> list[Message]:
    """Return what a user says as messages."""
    return [user(words)] if isinstance(words, str) else words
