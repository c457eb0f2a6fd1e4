"""What the parts of a live session share: its recorder, its ports, its settings, its secrets.

The session's first event is written before its scope is made, so a scope is complete from the start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from codesdk.contract.access import ProviderKeys
from codesdk.contract.actions import Caller
from codesdk.contract.errors import Conflict, ErrorInfo, InvalidRequest, NotFound
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.figures import Strain
from codesdk.contract.ids import artifact_id
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.models import ModelEndpoints
from codesdk.contract.ports import (
    Blobs,
    EquipmentStore,
    Equipper,
    EventLog,
    Listeners,
    McpEndpoints,
    Observer,
    Policy,
    Stamper,
    Subscriber,
    ToolRunner,
    UndoStore,
)
from codesdk.contract.records import ArtifactRow
from codesdk.contract.settings import Limits, SessionSettings
from codesdk.contract.tools import ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.engine.calls.editors import Editors
from codesdk.engine.log.journal import Journal
from codesdk.engine.log.recorder import Recorder
from codesdk.engine.log.state import SessionState
from codesdk.engine.models.limits import Standing
from codesdk.engine.permits import Permits
from codesdk.engine.tasks.marks import Marks
from codesdk.redaction import Redactor, check_secrets
from codesdk.sandbox import PathRefused, identify
from codesdk.store import MemoryEquipment, MemoryUndo
from codesdk.tools import AnswerTools

AT_ONCE_BYTES = 256 * 1024
"""Up to this size, bytes are searched for secrets on the event loop; larger ones in a thread."""


class Ports(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an engine is built on."""

    log: EventLog
    blobs: Blobs
    tools: ToolRunner
    policy: Policy
    stamper: Stamper
    limits: Limits
    models: ModelEndpoints | None = None
    mcp: McpEndpoints | None = None
    undo: UndoStore = msgspec.field(default_factory=MemoryUndo)
    equipment: EquipmentStore = msgspec.field(default_factory=MemoryEquipment)
    state_dir: str = ""
    """Where runtimes keep their own state; empty if none is kept."""
    clean: Callable[[str, Redactor], None] | None = None
    """Deletes what a session's ended runtimes kept there if it holds a secret. Blocking; must not raise."""
    keys: ProviderKeys | None = None
    """The principals' own provider keys: secrets of every session."""
    observers: Sequence[Observer] = ()
    subscribers: Sequence[Subscriber] = ()
    equipper: Equipper | None = None
    identify: Callable[[Workspace], Workspace] = identify
    """Looks which directory a workspace is. Raises `PathRefused` if there is none, or another than before."""
    forget: Callable[[Caller, str], Awaitable[None]] | None = None
    """Called for each deleted session, to remove what is kept of it elsewhere."""
    alone: bool = True
    """Whether this process is the only writer of the log."""
    editors: Editors | None = None
    """The editors whose files tools may ask for; None if they may not."""
    listeners: Listeners | None = None
    """The extensions; None if none are switched on."""
    strain: Strain = msgspec.field(default_factory=Strain)


Halt = Callable[[ErrorInfo, Standing | None], None]
"""Ends a task: the reason, and the budget that is used up if that is the reason."""


class SessionScope(msgspec.Struct, kw_only=True, eq=False):
    """One live session's share of the engine.

    Six fields change: `taught`, when a runtime names secrets; `settings`, when somebody changes them; `workspace`, which learns its identity before the
    first work; `attached`, the tools including those of MCP servers, when servers are attached; `answering`, with each
    task that owes a result; and `halt`, which the session's queue sets once.
    """

    ports: Ports
    recorder: Recorder
    settings: SessionSettings
    workspace: Workspace
    permits: Permits = msgspec.field(default_factory=Permits)
    attached: ToolRunner | None = None
    marks: Marks = msgspec.field(default_factory=Marks)
    """What stands for denied calls in what the runtime repeats of its model's answers."""
    answering: tuple[str, ToolRunner, AnswerTools] | None = None
    """The tools of the last task with an output schema, and what they were made of."""
    taught: tuple[str, ...] = ()
    """The secrets that its runtimes named, which are bounded: those of the operator and of CodeSDK always have room."""
    halt: Halt = lambda cause, excess: None
    """Ends the running task for a reason that the engine knows."""

    def learn(self, secrets: Iterable[str]) -> None:
        """Redact these secrets, too, from now on."""
        self.journal.redact_with(Redactor((*self.redactor.secrets, *secrets)))

    def learn_from_runtime(self, secrets: Iterable[str], *, logins: bool = False) -> None:
        """Redact what a runtime, or its program, says is secret. Raise `InvalidRequest` if that is too much.

        The log says so, because a runtime that calls its own words secret hides them; except for the `logins` of its
        requests, which it must name.
        """
        known = self.redactor.secrets
        new = [secret for secret in dict.fromkeys(secrets) if secret not in known]
        if not new:
            return
        check_secrets([*self.taught, *new])
        self.learn(new)
        self.taught = (*self.taught, *new)
        if logins:
            return
        message = f"The runtime named {len(new)} values that are secret. They are redacted from now on."
        self.journal.write(RuntimeNotice(kind="secrets", message=message, details={"count": len(new)}))

    def hold_workspace(self) -> None:
        """Raise `Conflict` unless the workspace is the directory that it was. The first call finds out which."""
        try:
            self.workspace = self.ports.identify(self.workspace)
        except PathRefused as error:
            raise Conflict(f"Nothing was done: {error}.") from None

    @property
    def state(self) -> SessionState:
        """The session's state."""
        return self.recorder.state

    @property
    def redactor(self) -> Redactor:
        """The redactor for text that must be clean before it is stored: hashed, cut or passed on."""
        return self.recorder.choke_point.redactor

    @property
    def tools(self) -> ToolRunner:
        """The tools that this session offers, with the one for the result while a task runs that owes one."""
        base, task = self.attached or self.ports.tools, self.state.task
        if task is None or task.output_schema is None or task.output_way != "tool":
            return base
        if self.answering is None or self.answering[:2] != (task.task_id, base):
            self.answering = task.task_id, base, AnswerTools(base, task.output_schema)
        return self.answering[2]

    def offered(self) -> Sequence[ToolSpec]:
        """Return the tools that the session's runtime is told of: those that ask a person only where there is one."""
        specs = self.tools.specs()
        if self.state.config.interaction_mode == "interactive":
            return specs
        return [spec for spec in specs if not spec.interactive]

    @property
    def journal(self) -> Journal:
        """The journal that decisions are written through."""
        return self.recorder.journal

    async def put_artifact(self, data: bytes, content_type: str, name: str | None = None) -> ArtifactRef:
        """Store bytes, redacted; their row is committed with the next event."""
        row = await store_artifact(
            self.ports,
            self.recorder.choke_point.redactor,  # the last check, so not the one that the edges use
            scope=self.state.session_id,
            principal=self.state.principal,
            data=data,
            content_type=content_type,
            name=name,
        )
        self.recorder.add_artifact(row)
        return row.ref

    async def put_json(self, value: Any, name: str) -> ArtifactRef:
        """Store a JSON document."""
        return await self.put_artifact(msgspec.json.encode(value), "application/json", name)

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of this session, or of an upload of its principal."""
        row = await self.ports.log.artifact(artifact_id)
        if row is None or not row.is_open_to(self.state.session_id, self.state.principal):
            raise NotFound(f"There is no artifact {artifact_id} in this session.")
        return await self.ports.blobs.get(row.ref.content_hash)


def _redact(redactor: Redactor, data: bytes, content_type: str) -> bytes:
    """Redact bytes; a JSON document string by string, so that it stays valid and keeps its hash."""
    if content_type != "application/json":
        return redactor.data(data)
    try:
        if not redactor.suspects(data.decode()):
            return data
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return redactor.data(data)
    clean = redactor.value(value)
    return data if clean is value else msgspec.json.encode(clean)


async def store_artifact(
    ports: Ports,
    redactor: Redactor,
    *,
    scope: str,
    principal: str,
    data: bytes,
    content_type: str,
    name: str | None,
) -> ArtifactRow:
    """Redact bytes, store them, and return their artifact row. Nothing else creates artifacts."""
    if len(data) > ports.limits.max_artifact_bytes:
        raise InvalidRequest(
            f"An artifact may have {ports.limits.max_artifact_bytes:,} bytes; this one has {len(data):,}."
        )
    # A media type with a secret taken out would no longer be one.
    if redactor.text(content_type) != content_type:
        content_type = "application/octet-stream"
    if len(data) > AT_ONCE_BYTES:
        data = await asyncio.to_thread(_redact, redactor, data, content_type)
    else:
        data = _redact(redactor, data, content_type)
    name = None if name is None else redactor.text(name)
    stored = await ports.blobs.put(data)
    ref = ArtifactRef(
        artifact_id=artifact_id(scope, stored, content_type, name),
        content_hash=stored,
        content_type=content_type,
        size_bytes=len(data),
        name=name,
    )
    return ArtifactRow(ref=ref, scope=scope, principal=principal, created_at=ports.stamper.now())


def adopt_artifact(row: ArtifactRow, session_id: str, now: str) -> ArtifactRow:
    """Return a row of the session's own for an artifact of somebody else, so that it lasts as long as it does."""
    ref = row.ref
    own_id = artifact_id(session_id, ref.content_hash, ref.content_type, ref.name)
    ref = msgspec.structs.replace(ref, artifact_id=own_id)
    return ArtifactRow(ref=ref, scope=session_id, principal=row.principal, created_at=now)
