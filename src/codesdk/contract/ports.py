"""Ports: what the engine needs from the layers around it, as async protocols.

The store implements `EventLog`, `Blobs` and `UndoStore`, the tools implement `ToolRunner`, the policy
`Policy`; `Stamper` is the engine's own, and replay has one with recorded times and ids.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from codesdk.contract.actions import Equipment
from codesdk.contract.editor import EditorFiles
from codesdk.contract.entry import McpClient
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.ids import Prefix
from codesdk.contract.jobs import JobStore
from codesdk.contract.records import (
    ApprovalRow,
    ArtifactRow,
    Changes,
    KeyRow,
    MessageRow,
    SessionRow,
    SessionStatus,
    Snapshot,
    StoredFrame,
    TaskRow,
)
from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import (
    Evaluation,
    ExecutionEnv,
    OutputStream,
    PermissionMode,
    Question,
    SandboxSummary,
    Subjects,
    ToolClass,
    ToolSpec,
)
from codesdk.contract.workspace import Workspace

if TYPE_CHECKING:
    import asyncio


class Stamper(Protocol):
    """Time and new ids: the only two things in the engine that are not a function of its input."""

    def now(self) -> str:
        """Return the time as UTC ISO-8601 with milliseconds and `Z`."""
        ...

    def mint(self, prefix: Prefix) -> str:
        """Return a new id."""
        ...


FIRST_EPOCH = 1
"""The epoch of a session that was just created."""


class EventLog(JobStore, Protocol):
    """The log, the rows folded from it, and the jobs that came of it.

    One process writes. A session has an owner and an epoch; an append under another epoch than the current
    one is refused with `Conflict`, so a writer that lost a session cannot write to it. Rows are deleted with
    their session.
    """

    async def create(self, session: SessionRow, owner: str) -> int:
        """Register a session before its first append. Return `FIRST_EPOCH`. `Conflict` if the id exists.

        Sessions are registered in the order of calls: an append may be queued without waiting for this.
        """
        ...

    async def take(self, session_id: str, owner: str) -> int:
        """Become the owner of a session: raise its epoch and return it. `NotFound` if there is none."""
        ...

    def append(
        self,
        session_id: str,
        epoch: int,
        first_seq: int,
        frames: Sequence[bytes],
        *,
        durable: bool,
        changes: Changes | None = None,
    ) -> Awaitable[None]:
        """Queue frames, if any, and their row changes at once; the awaitable is done when they are committed.

        All or nothing. `first_seq` must be the head plus one: when an append fails, those queued
        behind it in the same session fail too. `durable` asks for a commit that survives a power cut.
        Raise `Conflict` (wrong epoch or seq) or `StorageFailure` from the awaitable.
        """
        ...

    async def head(self, session_id: str) -> int:
        """Return the last committed seq, 0 if there is none."""
        ...

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[StoredFrame]:
        """Return up to `limit` frames with a greater seq, in order. A damaged one has `damage` set."""
        ...

    async def read_all(self, after_cursor: int, limit: int, *, deltas: bool = True) -> list[StoredFrame]:
        """Return frames of all sessions, in commit order, with `cursor` and `session_id` set.

        Most of a log is deltas; pass `deltas=False` to leave them out (see `is_delta`).
        """
        ...

    async def cursor_of(self, subscriber: str) -> int | None:
        """Return a subscriber's stored cursor, None if it has none yet."""
        ...

    async def last_cursor(self) -> int:
        """Return the cursor of what was committed last, 0 if there is nothing."""
        ...

    async def keep_cursor(self, subscriber: str, cursor: int) -> None:
        """Store a subscriber's cursor. It is as durable as the events up to it."""
        ...

    async def changed(self, timeout_s: float) -> None:
        """Wait until something was committed since the last call, at most `timeout_s`."""
        ...

    async def session(self, session_id: str) -> SessionRow | None: ...

    async def sessions(
        self, *, after: str | None, limit: int, principal: str | None, status: SessionStatus | None
    ) -> list[SessionRow]:
        """Return sessions, newest first, older than the id `after`."""
        ...

    async def count_sessions(self, status: SessionStatus) -> int: ...

    async def interrupted(self, owner: str) -> list[str]:
        """Return the ids of an owner's sessions that a crash may have interrupted, in order.

        Those whose row has an active task or queued ones, and those whose row no append has changed yet.
        """
        ...

    async def snapshot(self, session_id: str) -> Snapshot | None: ...

    async def task(self, task_id: str, principal: str) -> TaskRow | None:
        """Return a task of a principal: two may have chosen the same id."""
        ...

    async def tasks(self, session_id: str, *, limit: int) -> list[TaskRow]:
        """Return the tasks of a session, newest first."""
        ...

    async def task_at(self, session_id: str, seq: int) -> TaskRow | None:
        """Return the task that was running at `seq`: started at or before it, not ended before it."""
        ...

    async def messages(self, session_id: str, *, before: int | None, limit: int) -> list[MessageRow]:
        """Return transcript messages with an index below `before`, in ascending order, the last ones."""
        ...

    async def approvals(self, *, principal: str | None, session_id: str | None) -> list[ApprovalRow]:
        """Return the approvals that are not closed, oldest first."""
        ...

    async def key(self, principal: str, route: str, key: str) -> KeyRow | None: ...

    async def artifact(self, artifact_id: str) -> ArtifactRow | None: ...

    async def artifacts(self, scope: str, *, after: str | None, limit: int) -> list[ArtifactRow]:
        """Return the artifacts of a session in the order of their ids."""
        ...

    async def add_artifact(self, row: ArtifactRow, key: KeyRow | None = None) -> None:
        """Record an artifact that no event mentions yet, and its idempotency key."""
        ...

    async def delete(self, session_id: str) -> None:
        """Remove a session with all its rows."""
        ...

    async def referenced(self, hashes: Sequence[str]) -> set[str]:
        """Return which of the content hashes some artifact row still names."""
        ...

    async def close(self) -> None: ...


Synchronous = Literal["auto", "full", "normal"]
"""Which commits survive a power failure: those that ask for it, all, or none."""


class StoredLog(EventLog, Protocol):
    """A log that outlives its process: it also says how much space it takes, and returns some."""

    def blobs(self, files: "Blobs") -> "Blobs":
        """Return the blobs beside this log: those in `files`, or some of them in its own tables."""
        ...

    async def last_owner(self) -> str | None:
        """Return who owns the newest session, or None if there is none."""
        ...

    async def bytes_of(self, session_id: str) -> int:
        """Return about how many bytes a session takes, including its artifacts."""
        ...

    async def unused_bytes(self) -> int:
        """Return how many bytes are free, for reuse or for `vacuum`."""
        ...

    async def trim_uploads(self, before: str, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove files that were uploaded before a time. Return how many, and their total size."""
        ...

    async def vacuum(self, *, rewrite: bool = False) -> int:
        """Return free space to the file system. Return how many bytes stay unused.

        `rewrite` allows what delays appends for a while.
        """
        ...


class Blobs(Protocol):
    """Content-addressed bytes. Writes are atomic, and at least as durable as any later commit of the log."""

    async def put(self, data: bytes) -> str:
        """Store bytes and return their content hash. Storing them again costs only the hash."""
        ...

    async def get(self, content_hash: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes, or the range [start, end). `NotFound` if missing, `StorageFailure` if damaged."""
        ...

    async def has(self, content_hash: str) -> bool: ...

    async def sweep(self, keep: Callable[[Sequence[str]], Awaitable[set[str]]], older_than_s: float) -> int:
        """Remove older blobs that `keep` does not return. Return how many were removed."""
        ...


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What undoes a change of one file: the file as it was, and how to tell that it is as the tool left it.

    A new file has no `before`; one that the tool removed has no `after_hash`.
    """

    path: str
    before: bytes | None
    before_mode: int | None = None
    after_hash: str | None = None
    after_mode: int | None = None
    made_folders: int = 0
    """How many of the file's folders were made for it."""
    undone: bool = False
    """Whether the change was undone; then the content is no longer kept."""


class UndoStore(Protocol):
    """What files were before tools changed them: byte-exact, for the owner only, never served and never bundled."""

    async def keep(self, session_id: str, name: str, kept: Kept) -> None:
        """Store durably what undoes a change, replacing what the name held."""
        ...

    async def find(self, session_id: str, name: str) -> Kept | None: ...

    async def drop(self, session_id: str) -> None:
        """Remove everything that is kept of a session."""
        ...

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        ...


class EquipmentStore(Protocol):
    """What sessions are equipped with: sealed, for the owner only, never served, logged or bundled."""

    async def save(self, session_id: str, sealed: bytes) -> None:
        """Store a session's equipment durably, replacing what was kept. Raise `StorageFailure`."""
        ...

    async def load(self, session_id: str) -> bytes | None:
        """Return what was saved last, or None. Raise `StorageFailure` if it cannot be read."""
        ...

    async def forget(self, session_id: str) -> None:
        """Remove what is kept of a session. Repeating it is no error."""
        ...

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        ...


class Observer(Protocol):
    """Is told what an engine has committed, for metrics, logs and traces. Nothing is repeated after a crash.

    Called on the loop, after the commit: must not block. One that raises is not called again. `principal` is
    the owner of the session.
    """

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Take events of one session, in order, each once."""
        ...

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Note that a session's events could not be stored; everything after them is lost with them."""
        ...


class Subscriber(Protocol):
    """Takes what an engine has committed, at its own pace, and misses nothing: its cursor is stored.

    After a crash it gets the last page again, so it must know what it has taken (`session_id`, `seq` and
    `time` together identify an event).
    """

    @property
    def name(self) -> str:
        """The name that its cursor is stored under."""
        ...

    @property
    def types(self) -> Collection[str]:
        """The types of events that it takes. Deltas are not for subscribers."""
        ...

    @property
    def gather_s(self) -> float:
        """How long it lets commits gather before it takes them: each taking costs some handing over between threads."""
        ...

    async def take(self, events: Sequence[Event]) -> None:
        """Take a page of events, in commit order; return when it is safe. If this raises, it comes again."""
        ...


AskUser = Callable[[Question], Awaitable[str | None]]
"""Asks a person while a tool runs. Returns the answer, or None if there is none. Never raises."""


async def nobody(question: Question) -> str | None:
    """Ask nobody: there is no answer."""
    return None


class ToolInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """An approved call, as the tool gets it."""

    session_id: str
    task_id: str | None
    tool_call_id: str
    attempt: int
    name: str
    input: Any
    workspace: Workspace
    ask: AskUser = nobody
    """Asks a person. What is still open when the call ends is closed."""
    editor: EditorFiles | None = None
    """The editor that started the task, if it says what is not saved in it."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a tool changed, with the diff taken from disk and, if it can be undone, what that needs."""

    path: str
    diff: str
    kept: Kept | None = None


class ToolRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back."""

    result: Any
    is_error: bool = False
    exit_code: int | None = None
    changes: Sequence[FileChange] = ()


ToolSink = Callable[[OutputStream, str], None]
"""Takes a running tool's output. Never blocks, never raises."""


class PreparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with a valid input: what it would touch, where it would run, and how to run it."""

    run: Callable[[ToolInvocation, ToolSink], Coroutine[Any, Any, ToolRun]]
    """Run the tool. Cancelled when the task stops: it must then end what it started."""
    execution_env: ExecutionEnv
    sandbox: SandboxSummary
    subjects: Subjects = Subjects()
    question: Question | None = None
    """What the call asks a person. Then it is not run: the answer is its result."""


class ToolRunner(Protocol):
    """Runs CodeSDK's own tools. Knows nothing about policy, approvals or the log."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools on offer."""
        ...

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        """Validate an input: return a call that can be run, or what is wrong, for the model to read."""
        ...

    async def close_session(self, session_id: str) -> None:
        """Release what tools keep for a session. Must not raise."""
        ...


class ToolCalls(Protocol):
    """Takes tool calls that come from outside the runtime's stream. The engine implements it."""

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        """Return the tools that a session offers. `NotFound` if there is no such live session."""
        ...

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        """Decide a call, and run it if it may run. Must not raise: errors are in the future.

        The result is for the model to read; a denial is an error reply; `Conflict` if no task runs. It may
        take as long as an approval does. Cancelling the future means that nobody waits: the call is ended.
        """
        ...


class McpEndpoints(Protocol):
    """Gives sessions a URL at which their tools are offered over MCP. The MCP host implements it."""

    async def admit(self, session_id: str, calls: ToolCalls, client: McpClient) -> str:
        """Admit a session. Return the URL for its runtime; a token in it identifies the session."""
        ...

    async def dismiss(self, url: str) -> None:
        """Revoke a URL; calls that came over it are cancelled."""
        ...


class Attached(NamedTuple):
    """The tools that a session was given, a function that closes them, and what was left out, in sentences."""

    tools: ToolRunner
    close: Callable[[], Awaitable[None]]
    left_out: Sequence[str] = ()


class Prepared(Protocol):
    """Equipment that was checked and can be given to a session."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The session settings that follow from it: where model answers come from, its servers' names."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """The secrets in it that must be kept out of the log."""
        ...

    async def attach(self, session_id: str, *, turn: int | None = None) -> Attached | None:
        """Give it to a session. Return its tools, if it has any.

        With a `turn`, the session had it before: its script goes on there and is not begun from the start.
        """
        ...


class Equipper(Protocol):
    """Prepares what a session is equipped with and what is not in its log."""

    async def prepare(self, equipment: Equipment, *, principal: str) -> Prepared:
        """Check equipment before anything is written. Raise `InvalidRequest` if it cannot be used."""
        ...


class AppServerSignal(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A message of a runtime's app server, on its way to extensions. Nothing of it is stored."""

    session_id: str
    principal: str
    runtime: str
    method: str
    read: Callable[[], Awaitable[Any]]
    """Gives the params, in which secrets are redacted. To be called once, for one signal of a session after the other."""
    received_at: str
    seq: int
    """The last event that the session had."""
    size_bytes: int
    task_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    request_id: int | str | None = None


class Listeners(Protocol):
    """Code of others that is told of events: what the engine must know of it, and what it tells it beside the log."""

    def hears(self, event_type: str, runtime: str) -> bool:
        """Return whether some of it would be told of an event of a type in a session of a runtime."""
        ...

    def wants(self, method: str | None, runtime: str, *, is_request: bool) -> bool:
        """Return whether some of it wants such messages of an app server, or any. Asked for each, so it must be quick."""
        ...

    def tell(self, signal: AppServerSignal) -> None:
        """Take a message that it wants. Must not raise, must not wait: what there is no room for is lost."""
        ...


class PolicyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A call for the policy to judge."""

    session_id: str
    name: str
    tool_class: ToolClass
    input: Any
    permission_mode: PermissionMode
    subjects: Subjects = Subjects()


class Policy(Protocol):
    """Judges calls. Pure: the same question gets the same answer."""

    def evaluate(self, question: PolicyQuestion) -> Evaluation: ...
