"""Ports: what the engine needs from the layers around it, as async protocols.

`EventLog`, `Blobs` and `UndoStore` are implemented by the store, `ToolRunner` by the tools,
`Policy` by the policy, `Stamper` by the engine itself and, with recorded
times and ids, by replay.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from codesdk.contract.actions import Equipment
from codesdk.contract.entry import McpClient
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.contract.ids import Prefix
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
    SandboxSummary,
    Subjects,
    ToolClass,
    ToolSpec,
)

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


class EventLog(Protocol):
    """The log and the rows folded from it.

    One process writes. A session has an owner and an epoch; an append under another
    epoch than the current one is refused with `Conflict`, so a writer that lost a
    session cannot write to it. Rows live and die with their session.
    """

    async def create(self, session: SessionRow, owner: str) -> int:
        """Register a session before its first append. Return `FIRST_EPOCH`. `Conflict` if the id exists.

        Registered in the order of calls: an append may be queued behind it without waiting.
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
        """The same over all sessions, in commit order; `cursor` and `session_id` are set.

        Most of a log is deltas. Who needs none can leave them out (see `is_delta`).
        """
        ...

    async def cursor_of(self, subscriber: str) -> int:
        """Return the cursor that a subscriber has kept, 0 if none."""
        ...

    async def keep_cursor(self, subscriber: str, cursor: int) -> None:
        """Keep how far a subscriber has got. It lasts as long as the events up to it."""
        ...

    async def changed(self, timeout_s: float) -> None:
        """Return when something was committed since the last call, or after the time."""
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
        """Record an artifact that no event mentions yet, and the key that it was asked for under."""
        ...

    async def delete(self, session_id: str) -> None:
        """Remove a session with all its rows."""
        ...

    async def referenced(self, hashes: Sequence[str]) -> set[str]:
        """Return those of the content hashes that some artifact row still names."""
        ...

    async def close(self) -> None: ...


class Blobs(Protocol):
    """Content-addressed bytes. Writes are atomic; when they return, they last at least as long as any later commit of the log."""

    async def put(self, data: bytes) -> str:
        """Store bytes and return their content hash. Storing them again costs only the hash."""
        ...

    async def get(self, content_hash: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes, or the range [start, end). `NotFound` if missing, `StorageFailure` if damaged."""
        ...

    async def has(self, content_hash: str) -> bool: ...

    async def sweep(self, keep: Callable[[Sequence[str]], Awaitable[set[str]]], older_than_s: float) -> int:
        """Remove blobs that `keep` does not return and that are older; return how many went."""
        ...


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What takes a change of one file back: the file as it was, and how to know that it is as the tool left it.

    A file that was not there before has no `before`; one that the tool removed has no `after_hash`.
    """

    path: str
    before: bytes | None
    before_mode: int | None = None
    after_hash: str | None = None
    after_mode: int | None = None
    made_folders: int = 0
    """How many of the folders that the file is in were made for it."""
    undone: bool = False
    """Whether the change was taken back; then the content is not kept any longer."""


class UndoStore(Protocol):
    """What files were before tools changed them: byte-exact, for the owner only, never served and never bundled."""

    async def keep(self, session_id: str, name: str, kept: Kept) -> None:
        """Store durably what takes a change back, or put it in place of what the name held."""
        ...

    async def find(self, session_id: str, name: str) -> Kept | None: ...

    async def drop(self, session_id: str) -> None:
        """Remove everything that is kept of a session."""
        ...

    async def sessions(self) -> list[str]:
        """Return the sessions of which something is kept."""
        ...


class Observer(Protocol):
    """Hears of what an engine has committed, for metrics, logs and traces. What it does not hear in time it never does.

    Called on the loop, after the commit: must not wait. One that raises is called no longer. `principal` is whose
    session it is.
    """

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Hear of events of one session, in order, each once."""
        ...

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Hear that a session's events could not be stored; everything behind them is lost with them."""
        ...


class Subscriber(Protocol):
    """Takes what an engine has committed, at its own pace, and misses nothing: how far it has got is stored.

    After a crash it is given the last page again, so it must know what it has taken (`session_id`, `seq` and `time`
    together are one event).
    """

    @property
    def name(self) -> str:
        """What its cursor is stored under."""
        ...

    @property
    def types(self) -> Collection[str]:
        """The types of events that it takes. Deltas are not for subscribers."""
        ...

    async def take(self, events: Sequence[Event]) -> None:
        """Take a page of events, in commit order, and return when it is safe. If this raises, the page comes again."""
        ...


class ToolInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """A decided call, on its way to the tool."""

    session_id: str
    task_id: str | None
    tool_call_id: str
    attempt: int
    name: str
    input: Any
    workspace: str


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
    """A tool with an input that it takes: what that would touch, where it would run, and how to run it."""

    run: Callable[[ToolInvocation, ToolSink], Coroutine[Any, Any, ToolRun]]
    """Run the tool. Cancelled when the task stops: must then end what it started."""
    execution_env: ExecutionEnv
    sandbox: SandboxSummary
    subjects: Subjects = Subjects()


class ToolRunner(Protocol):
    """Runs owned tools. Knows nothing of policy, approvals or the log."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools on offer."""
        ...

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        """Validate an input, once: return what can be run, or what is wrong with it, for the model to read."""
        ...

    async def close_session(self, session_id: str) -> None:
        """Release what tools keep for a session. Must not raise."""
        ...


class ToolCalls(Protocol):
    """Where the tool calls of sessions are made that come from outside the runtime's stream. The engine implements it."""

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        """Return the tools that a session offers. `NotFound` if there is no such live session."""
        ...

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        """Have a call decided, and run if it may run. Must not raise: what is wrong is in the future.

        The result is what the model should read; a denial is an error reply; `Conflict` if no task runs. It may take as
        long as an approval does. Cancelling the future means that nobody waits any more: the call is taken back.
        """
        ...


class McpEndpoints(Protocol):
    """Gives sessions an address at which their tools are offered over MCP. The MCP host implements it."""

    async def admit(self, session_id: str, calls: ToolCalls, client: McpClient) -> str:
        """Let a session in. Return the URL that its runtime is given; a token in it says whose it is."""
        ...

    async def dismiss(self, url: str) -> None:
        """Take an address back; calls that came over it are cancelled."""
        ...


class Prepared(Protocol):
    """Equipment that was checked and can be given to a session."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it makes of the session's settings: where its model's answers come from, its servers' names."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """What must be kept out of the log because of it."""
        ...

    async def attach(self, session_id: str) -> "tuple[ToolRunner, Callable[[], Awaitable[None]]] | None":
        """Give it to a session. Return its tools, if it brings any, and what ends those."""
        ...


class Equipper(Protocol):
    """Makes ready what a session is equipped with and what is not in its log."""

    async def prepare(
        self, equipment: Equipment, *, principal: str, recording: str | None = None
    ) -> Prepared:
        """Check equipment before anything is written. Raise `InvalidRequest` if it cannot be used."""
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
