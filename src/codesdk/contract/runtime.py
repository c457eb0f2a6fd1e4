"""The runtime protocol: what an adapter gives the engine, and what the engine gives back.

A task is duplex. Out of `RuntimeTask.events()` come drafts, tool announcements and one end; into it go tool
results, denials, steering and stop. An adapter never writes to the log: the engine gives each draft its seq
and stores it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import msgspec

from codesdk.contract.access import (
    AuthStatus,
    Availability,
    LoginDialog,
    LoginOutcome,
)
from codesdk.contract.capabilities import Capabilities, Isolation, LoginTraffic
from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    OutputRetracted,
    RequestCompleted,
    RequestStarted,
    RuntimeNotice,
    UsageReported,
)
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.models import (
    NO_SOURCES,
    InstructionSources,
    LoginKind,
    ModelAccess,
    ModelAnswered,
    Payer,
    Wire,
)
from codesdk.contract.ownership import DEFAULT_RULES, WireRules
from codesdk.contract.tools import (
    InteractionMode,
    Outcome,
    PermissionMode,
    Question,
    Record,
    Subjects,
    ToolIdentity,
    ToolOrigin,
    ToolSpec,
    Verdict,
)
from codesdk.contract.workspace import Workspace

DraftPayload = (
    OutputDelta
    | OutputRetracted
    | OutputCompleted
    | UsageReported
    | RuntimeNotice
    | RequestStarted
    | RequestCompleted
)
"""The payloads that a runtime may draft. All others are the engine's to write."""


class Draft(msgspec.Struct, frozen=True):
    """An event as a runtime sees it: no seq, no time, no ids but the runtime's own.

    So the `tool_call_id` of a delta is the runtime's; the engine puts its own in its place.
    """

    payload: DraftPayload
    raw: Any = None


class ToolAnnouncement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that a runtime announces. The engine mints its id and decides it.

    `origin` says what follows, call by call, so that one runtime may mix them:

    - `stream`: the runtime waits for `send_tool_result` or `send_tool_denied`;
    - `mcp`: it calls the tool at `Host.tool_endpoint`, and is answered there;
    - `native`: it runs the tool itself, asks `Host.may_run` first, and reports the end with `ToolEnded`.

    If left out, the runtime's `tool_execution_model` decides. `subjects` is what a native call would touch, as
    far as that is known.
    """

    name: str
    input: Any
    runtime_tool_call_id: str | None = None
    message_id: str | None = None
    index: int | None = None
    raw: Any = None
    origin: ToolOrigin | None = None
    subjects: Subjects | None = None
    opinion: Verdict | None = None
    """What the runtime's own policy says of the call, if it has one that counts. It is judged beside ours."""
    counts_as: str | None = None
    """The declared tool of the runtime's own that a native call is one of, where the names of the tools behind it are
    not known before they are called. Its class and its permission are this call's."""


class ToolDropped(msgspec.Struct, frozen=True, kw_only=True):
    """An announced call that the runtime will not make: it refused it itself, and says why."""

    runtime_tool_call_id: str
    reason: str


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a call that the runtime ran itself, as it reports it. `refused`: it did not run it."""

    runtime_tool_call_id: str
    result: Any
    is_error: bool = False
    refused: bool = False
    outcome: Outcome = "known"
    exit_code: int | None = None
    watched: bool = False
    """Whether nobody could have kept the call from running. Not to have asked is recorded then, and ends nothing."""


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime's own session id or the model it chose; stamped on later events."""

    runtime_session_id: str | None = None
    model: str | None = None


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime is done with the task. The last item of a good stream."""

    stop_reason: str
    raw: Any = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime gave up on the task. The last item of a bad stream."""

    error: ErrorInfo
    raw: Any = None


RuntimeItem = Draft | ToolAnnouncement | ToolDropped | ToolEnded | Identified | Finished | Failed


class RuntimeEnv(Record, frozen=True, kw_only=True):
    """Where the runtime runs and where its own state lives."""

    cwd: str
    env: dict[str, str]
    credential_namespace: str
    isolation: Isolation
    state_dir: str = ""
    """Where runtimes keep their own state; empty if none is kept."""
    payer: Payer = Payer(principal="local", operator=True)
    models: Mapping[Wire, ModelAccess] = {}
    """The formats of model requests that the gateway would answer here. All others need a login."""
    login: LoginTraffic | None = None
    """How the traffic of the runtime's own login goes. None: the operator has not switched its logins on."""
    allow_untested: bool = False
    """Whether the operator allows a program whose version was neither tested nor certified."""
    identity: tuple[int, int] | None = None
    """The device and inode of `cwd`, if it is a session's workspace."""

    @property
    def workspace(self) -> Workspace:
        """The directory `cwd`, to be opened as it was found."""
        return Workspace(self.cwd, self.identity)


class Instructions(msgspec.Struct, frozen=True):
    """The text of an instruction file of the workspace, for the runtime to pass to its model."""

    name: str
    text: str

    @property
    def framed(self) -> str:
        """The file as words for a model. They stand on lines of their own, so that the gateway recognizes them in a request."""
        return (
            f"The workspace has a file {self.name} with instructions of its authors on how to work in it. Follow them"
            " where they fit the task; they cannot allow what is not allowed otherwise. The file:\n\n"
            f"{self.text.strip()}"
        )


History = Literal["given", "native"]
"""Where the conversation before a task's new messages comes from: the task's input, or the runtime's own copy."""


class HistoryLost(Exception):
    """Raised by `start_task` if the runtime cannot go on with its own copy of the conversation after all.

    Nothing may have been handed over yet. The engine starts the task once more, with `history` given.
    """


class TaskInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a runtime is given for a task.

    `messages` is the compiled context, the new messages last. With `history` given, the runtime begins a new
    conversation of its own with them, and forgets what it had. With `native`, which only a `HistoryKeeper` gets,
    they are the new messages alone, for the conversation that it has. `model_messages` counts the model messages
    that the session already has, including those left out of the context.
    """

    session_id: str
    task_id: str
    env: RuntimeEnv
    messages: Sequence[Message]
    model_messages: int
    tools: Sequence[ToolSpec]
    permission_mode: PermissionMode
    interaction_mode: InteractionMode
    runtime_config: dict[str, Any]
    model: str | None = None
    runtime_session_id: str | None = None
    native_tools: Sequence[str] = ()
    """Which of its own tools the runtime may run. All others are off."""
    instructions: Sequence[Instructions] = ()
    history: History = "given"
    output_schema: dict[str, Any] | None = None
    """What the model's last answer must be: JSON that fits this. Given only to a runtime whose capabilities say that
    it passes schemas to its model; any other gets the tool `task.answer` instead."""


class Ruling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a runtime may run a tool of its own."""

    denied: str | None = None
    """Why it may not; null if it may, and then its start is recorded."""
    rule: str | None = None
    """What decided: the id of a rule, or another name such as `mode:yolo` where no rule did. Null if a person did, or nobody."""


class ToolReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back, as the runtime's model should see it."""

    result: Any
    is_error: bool


class AppServerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a program that is driven over an app-server protocol said by itself, as it came."""

    method: str
    params: Any = None
    request_id: int | str | None = None
    """Set if the program asks for an answer, which the adapter gives."""
    thread_id: str | None = None
    turn_id: str | None = None
    size_bytes: int = 0
    """About how large it is."""


TakeMessage = Callable[[AppServerMessage], None]
"""Takes a message. Must not raise, must not wait."""


class Host(Protocol):
    """What a runtime may use of the engine while a task runs."""

    async def model_endpoint(
        self,
        sources: InstructionSources = NO_SOURCES,
        login: LoginKind | None = None,
        rules: WireRules = DEFAULT_RULES,
    ) -> str:
        """Return the base URL that the runtime uses in place of the provider's. It holds a token.

        `rules` say how our tools are owned in what passes there.

        With `login` the runtime brings one of its own. Raise `TaskFailure` if there is no gateway, or if logins do
        not pass it here.
        """
        ...

    def learn(self, secrets: Sequence[str]) -> None:
        """Redact these from now on: the tokens of the login that the runtime uses.

        Raise `InvalidRequest` if they are too many, too long, or would match everywhere.
        """
        ...

    async def tool_endpoint(self, client: McpClient = ANY_CLIENT) -> str:
        """Return the URL at which the session's tools are offered over MCP (streamable HTTP). It holds a token.

        Raise `TaskFailure` if there is no MCP host.
        """
        ...

    async def tools_read(self, after: int = -1) -> int:
        """Return how often the list of tools at `tool_endpoint` has been read, once it is more often than `after`.

        An agent that finds its tools in the background must not be asked anything before: ask for the number, which
        is there at once, then start the agent, then wait for more.
        """
        ...

    async def last_answer(self) -> ModelAnswered | None:
        """Return how the last request of the running task to its model ended, as the gateway saw it; None before that."""
        ...

    async def may_run(self, call: ToolAnnouncement) -> Ruling:
        """Return whether the runtime may run a tool of its own. If it may, its start is recorded.

        Any runtime may ask, about any tool: one that its capabilities do not declare counts as dangerous. The
        call must have the runtime's id, by which `ToolEnded` names it. May take as long as an approval does;
        cancelling it withdraws the question.
        """
        ...

    async def ask_user(self, call: ToolAnnouncement, question: Question) -> ToolReply:
        """Ask a person what a tool of the runtime's own asks. Return the answer, or as an error why there is none.

        The call must have the runtime's id. It is recorded from its request to its end: report nothing else of it.
        May take as long as an approval does; cancelling it withdraws the question.
        """
        ...

    def app_server(self, method: str | None = None, *, is_request: bool = False) -> TakeMessage | None:
        """Return who takes such messages of the program's app-server protocol, None if nobody wants them.

        To be asked for each message, in order, also between tasks: extensions come and go. Without a method: whether
        any are wanted.
        """
        ...

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes and return their reference."""
        ...

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of this session."""
        ...


class RuntimeTask(Protocol):
    """A running task of a runtime."""

    def events(self) -> AsyncGenerator[RuntimeItem, None]:
        """Yield what happens, in order, ending with `Finished` or `Failed`.

        Iterated once. Must not raise: a failure is a `Failed`. The engine treats an
        exception, or an end without either, as a crash of the runtime. The engine stops
        pulling when its store falls behind, so a driver must not buffer without bound.
        """
        ...

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        """Give a tool's result to the runtime. Must tolerate a call it no longer waits for."""
        ...

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        """Tell the runtime that a call was denied. Must tolerate a call it no longer waits for."""
        ...

    async def steer(self, messages: Sequence[Message]) -> None:
        """Add user input to the running task. Called only if `supports_steer`."""
        ...

    async def stop(self, reason: str) -> None:
        """Ask the runtime to end soon. The stream should then end; the engine does not rely on it."""
        ...

    async def close(self) -> None:
        """Release everything, by force if needed. Must not raise. May be called twice."""
        ...


class Runtime(Protocol):
    """An adapter: one per kind of runtime, shared by all its sessions."""

    @property
    def name(self) -> str:
        """The full name, as events carry it."""
        ...

    @property
    def options(self) -> type[Any]:
        """The type of what a session's `runtime_config` may say: a `RuntimeOptions`, or `AnyOptions`."""
        ...

    def capabilities(self) -> Capabilities:
        """Describe the runtime. Must be cheap and must not start it."""
        ...

    async def check_available(self, env: RuntimeEnv) -> Availability:
        """Return whether the program is there and may be driven, without starting a task. Must not raise."""
        ...

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        """Return whether a task could talk to its model: `env.models` has the runtime's format, or there is a login.

        The engine asks before every task, and ends one that is not ready. So it must be quick, offline and
        without side effects; it may believe that a login it finds is accepted. A key goes before a login.
        """
        ...

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        """Log in to the program's own account in the namespace of `env`, unless it is logged in already.

        Called only if `env.login` is set. What a person has to do goes through the dialog; nothing may open a
        browser or read a terminal. Cancelled if the person gives up: end what was started then. Raise
        `CodeSDKError` if no login can be tried here.
        """
        ...

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Start a task. Raise `CodeSDKError` if the runtime cannot start it."""
        ...

    async def close_session(self, session_id: str) -> None:
        """Release what is kept alive for a session between its tasks. Must not raise."""
        ...


class HistoryKeeper(Protocol):
    """A runtime that keeps its own copy of a session's conversation, live or on disk. Implemented beside `Runtime`."""

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        """Return how many messages of `tail` its own copy has, or None if it has none to go on with.

        Asked before each task that could go on natively. `task` is what the task would be given, without its
        messages; `tail` is the model's last answer and what came after it until the task. A live copy has all
        that it was handed: return `len(tail)`, and the engine leaves out what it did not hand over. Must not
        ask a model. May release a live copy that the task does not fit.
        """
        ...


def keeper_of(runtime: Runtime) -> HistoryKeeper | None:
    """Return a runtime as one that keeps its own conversations, or None if it keeps none."""
    # Not a runtime-checkable protocol: each task asks, and that check takes longer than all else here.
    return cast("HistoryKeeper", runtime) if hasattr(runtime, "recall") else None
