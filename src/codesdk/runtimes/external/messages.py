"""The adapter protocol as types: each message between the engine and an adapter in another process, once, for both.

It is `contract/runtime.py` over JSON-RPC 2.0: the methods have the names of `Runtime`, `RuntimeTask`, `Host` and
`LoginDialog`, and the params are their arguments. New are only `initialize`, with which a process introduces
itself, `item` and `pull`, which are the stream of a task, and `$/cancel`. docs/adapter-protocol.md is written for authors.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginOutcome, LoginPrompt
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.messages import ArtifactRef, Message
from codesdk.contract.models import NO_SOURCES, InstructionSources, LoginKind, ModelAnswered, Wire
from codesdk.contract.ownership import DEFAULT_RULES, WireRules
from codesdk.contract.runtime import (
    AppServerMessage,
    Ruling,
    RuntimeEnv,
    TaskInput,
    ToolAnnouncement,
    ToolReply,
)
from codesdk.contract.tools import Question, ToolIdentity
from codesdk.runtimes.external.items import Item

PROTOCOL_VERSION = 1
WINDOW = 256
"""How many items an adapter may send before the engine has taken any. The engine asks for more as it takes them."""

# The errors of JSON-RPC, and ours among those that it leaves to applications.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
KNOWN_ERROR = -32000
"""An error of the contract; `data` is its `ErrorInfo`."""
HISTORY_LOST = -32001
"""`HistoryLost`: the runtime cannot go on with its own copy of the conversation after all."""
CANCELLED = -32800

CANCEL = "$/cancel"


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parent of what messages carry. Unknown fields are ignored, so that a version may add some."""


class Nothing(Params, frozen=True):
    """The result of a request that only has to be done."""


# --- the handshake ----------------------------------------------------------------------------------


class Initialize(Params, frozen=True, kw_only=True, omit_defaults=False):
    """The first message: the versions that the engine speaks, and what it calls this runtime."""

    protocol_versions: list[int]
    runtime: str
    engine_version: str
    max_frame_bytes: int
    """A longer line from the adapter ends it."""


class Description(Params, frozen=True, kw_only=True):
    """The answer to `initialize`: what an adapter is. Every process of the same adapter must give the same one."""

    protocol_version: int
    """One of those that the engine speaks."""
    name: str
    version: str
    capabilities: Capabilities
    """Those that are left out have the defaults of the contract: a runtime that can do everything."""
    wire: Wire | None = None
    """The format of its model requests, which decides whose key the gateway needs. None if it sends none."""
    keeps_history: bool = False
    """Whether it answers `recall`, because it keeps conversations of its own."""
    options: dict[str, str] | None = {}
    """What a session's `runtime_config` may have: names and what they mean. All others are refused. Null: anything."""


# --- the engine asks the adapter ----------------------------------------------------------------------


class InEnv(Params, frozen=True, kw_only=True):
    """A question about the environment that a runtime would work in."""

    env: RuntimeEnv


class Recall(Params, frozen=True, kw_only=True):
    """How much of the end of the conversation does the runtime's own copy have?"""

    task: TaskInput
    tail: list[Message]


class Recalled(Params, frozen=True, kw_only=True):
    """How many messages of `tail` it has; null if it has no conversation to go on with."""

    known: Annotated[int, msgspec.Meta(ge=0)] | None = None


class StartTask(Params, frozen=True, kw_only=True):
    """A task to work on, and how many items of it may be sent before the first `pull`."""

    task: TaskInput
    items: Annotated[int, msgspec.Meta(gt=0)]
    app_server: bool = False
    """Whether extensions want to see what the program says, if it is driven over an app-server protocol."""


class OfTask(Params, frozen=True, kw_only=True):
    """A task, by its id."""

    task_id: str


class SendToolResult(OfTask, frozen=True, kw_only=True):
    """What a tool gave back, for the runtime's model."""

    call: ToolIdentity
    reply: ToolReply


class SendToolDenied(OfTask, frozen=True, kw_only=True):
    """Why a call did not happen, for the runtime's model."""

    call: ToolIdentity
    reason: str


class Steer(OfTask, frozen=True, kw_only=True):
    """More user input for a running task."""

    messages: list[Message]


class Stop(OfTask, frozen=True, kw_only=True):
    """A task that should end soon."""

    reason: str


class OfSession(Params, frozen=True, kw_only=True):
    """A session, by its id."""

    session_id: str


class Pull(OfTask, frozen=True, kw_only=True):
    """How many more items of a task the engine takes."""

    items: Annotated[int, msgspec.Meta(gt=0)]


# --- what a task says -------------------------------------------------------------------------------


class ItemOf(OfTask, frozen=True, kw_only=True):
    """One item of a task's stream."""

    item: Item


# --- the adapter asks the engine ----------------------------------------------------------------------


class ModelEndpoint(OfTask, frozen=True, kw_only=True):
    """Where does the runtime reach its model, and how are tools owned in what passes there?"""

    sources: InstructionSources = NO_SOURCES
    login: LoginKind | None = None
    rules: WireRules = DEFAULT_RULES


class ToolEndpoint(OfTask, frozen=True, kw_only=True):
    """Where does the runtime reach the session's tools over MCP?"""

    client: McpClient = ANY_CLIENT


class Endpoint(Params, frozen=True, kw_only=True):
    """An address with a token in it. Both are secrets of the session."""

    url: str


class ToolsRead(OfTask, frozen=True, kw_only=True):
    """How often has the list at `tool_endpoint` been read? Answered once it is more often than `after`: -1 is at once."""

    after: int = -1


class Listings(Params, frozen=True, kw_only=True, omit_defaults=False):
    """How often the list of tools has been read since the session was opened."""

    count: int


class LastAnswer(Params, frozen=True, kw_only=True):
    """How the task's last model request ended, as the gateway saw it; null before that."""

    answer: ModelAnswered | None = None


class MayRun(OfTask, frozen=True, kw_only=True):
    """May the runtime run a tool of its own? The call must have the runtime's id."""

    call: ToolAnnouncement


class AskUser(OfTask, frozen=True, kw_only=True):
    """A question to a person, asked by a tool of the runtime's own."""

    call: ToolAnnouncement
    question: Question


class PutArtifact(OfTask, frozen=True, kw_only=True):
    """Bytes to store, in base64."""

    data: bytes
    content_type: str
    name: str | None = None


class ReadArtifact(OfTask, frozen=True, kw_only=True):
    """An artifact of the session."""

    artifact_id: str


class Data(Params, frozen=True, kw_only=True):
    """The bytes of an artifact, in base64."""

    data: bytes


class Learn(OfTask, frozen=True, kw_only=True):
    """Secrets to be redacted from now on. A notification, so that it goes before the items that are sent after it."""

    secrets: list[str]


class AppServer(OfTask, frozen=True, kw_only=True):
    """What the program of the runtime said over its app-server protocol. A notification; only sent if `start_task` asks for it."""

    message: AppServerMessage


class Prompt(Params, frozen=True, kw_only=True):
    """What a person who logs in is shown."""

    prompt: LoginPrompt


class PromptAnswer(Params, frozen=True, kw_only=True):
    """What the person answered. A secret."""

    answer: str


class Cancel(Params, frozen=True, kw_only=True):
    """A request of the sender that nobody waits for any more. It is still answered, mostly with an error."""

    id: int | str


# --- all of them ------------------------------------------------------------------------------------


class Method(msgspec.Struct, frozen=True):
    """One method: who calls it, with what, and what comes back. A notification has no result."""

    name: str
    caller: Literal["engine", "adapter", "both"]
    params: Any
    result: Any = None


METHODS: Sequence[Method] = (
    Method("initialize", "engine", Initialize, Description),
    Method("check_available", "engine", InEnv, Availability),
    Method("auth_status", "engine", InEnv, AuthStatus),
    Method("ensure_login", "engine", InEnv, LoginOutcome),
    Method("recall", "engine", Recall, Recalled),
    Method("start_task", "engine", StartTask, Nothing),
    Method("pull", "engine", Pull),
    Method("send_tool_result", "engine", SendToolResult, Nothing),
    Method("send_tool_denied", "engine", SendToolDenied, Nothing),
    Method("steer", "engine", Steer, Nothing),
    Method("stop", "engine", Stop, Nothing),
    Method("close", "engine", OfTask, Nothing),
    Method("close_session", "engine", OfSession, Nothing),
    Method("item", "adapter", ItemOf),
    Method("model_endpoint", "adapter", ModelEndpoint, Endpoint),
    Method("tool_endpoint", "adapter", ToolEndpoint, Endpoint),
    Method("tools_read", "adapter", ToolsRead, Listings),
    Method("last_answer", "adapter", OfTask, LastAnswer),
    Method("may_run", "adapter", MayRun, Ruling),
    Method("ask_user", "adapter", AskUser, ToolReply),
    Method("put_artifact", "adapter", PutArtifact, ArtifactRef),
    Method("read_artifact", "adapter", ReadArtifact, Data),
    Method("learn", "adapter", Learn),
    Method("app_server", "adapter", AppServer),
    Method("show", "adapter", Prompt, Nothing),
    Method("ask", "adapter", Prompt, PromptAnswer),
    Method(CANCEL, "both", Cancel),
)
BY_NAME = {method.name: method for method in METHODS}
OF_ENGINE = {method.name: method for method in METHODS if method.caller != "adapter"}
"""What an adapter is sent."""
OF_ADAPTER = {method.name: method for method in METHODS if method.caller != "engine"}
"""What the engine is sent."""
