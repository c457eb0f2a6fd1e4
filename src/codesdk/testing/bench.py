"""A scenario and a runtime under test → an SDK in memory around it, and ways to watch a task from outside.

Each cell of a check has a `Bench` of its own.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.ports import ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import InteractionMode, PermissionMode
from codesdk.engine import replay_session, verify_session
from codesdk.gateway import ScriptedModel, hashes_of, join
from codesdk.policy import ModePolicy
from codesdk.script import Script
from codesdk.sdk import CodeSDK, Session, Task
from codesdk.store import Audit, AuditRecord, MemoryBlobs, MemoryLog, verify_audit
from codesdk.testing.cells import Unchecked, Unmet, Unsupported, holds, same
from codesdk.testing.fakes import FakeRun, FakeTools, FrozenStamper, memory_sdk, tool_spec

READ = "check.read"
WRITE = "check.write"
FORBIDDEN = "check.forbidden"
SETTINGS = SessionSettings(result_inline_bytes=4096)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell needs of a runtime: a model that plays this script, and these capabilities.

    The script has plain steps only, so that a runtime or a model endpoint can play it.
    """

    name: str
    script: Script
    model: Script | None = None
    """What a model endpoint plays, if it expects less of the requests than the runtime's script does."""
    needs: tuple[str, ...] = ()
    """Flags of the capabilities without which the cell need not hold. It is tried anyway."""
    where: tuple[tuple[str, str], ...] = ()
    """What the capabilities must say for the cell to make sense. Otherwise it is not tried."""
    shows: tuple[str, ...] = ()
    """Other fields of the capabilities that the cell looks into."""
    program: str | None = None
    """The program to drive instead of the runtime's own. A runtime that takes none raises `Unchecked`."""


MakeRuntime = Callable[[Scenario], AbstractAsyncContextManager[Runtime]]
"""Makes the runtime for a scenario. A cell with a restart calls it twice; the second continues the script."""


class BenchTools(FakeTools):
    """Fake tools that signal when a call starts."""

    def __init__(self) -> None:
        super().__init__(tool_spec(READ), tool_spec(WRITE, "write"), tool_spec(FORBIDDEN, "dangerous"))
        self.begun: asyncio.Queue[ToolInvocation] = asyncio.Queue()

    def reset(self) -> None:
        """Forget all calls, and what was said about those to come."""
        self.runs.clear()
        self._held.clear()
        self._answers.clear()
        self.begun = asyncio.Queue()

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        self.begun.put_nowait(call)
        return await super().run(call, output)


class Bench:
    """The environment of one cell. Its store outlives the SDKs opened on it, one after another or at once."""

    def __init__(self, make: MakeRuntime, scenario: Scenario) -> None:
        self.tools = BenchTools()
        self.stated: Capabilities | None = None
        self._make = make
        self._scenario = scenario
        # One store for all SDKs of the cell: a second one finds what a crash of the first would leave.
        self._log = MemoryLog()
        self._blobs = MemoryBlobs()
        self._stamper = FrozenStamper()
        self._runtime = ""
        self._numbers = count()
        self._folder = tempfile.TemporaryDirectory(prefix="codesdk-conformance-")
        self.folder = Path(self._folder.name)
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()
        self.state = self.folder / "state"
        """Where programs keep their own."""
        self.model: ScriptedModel | None = None
        """Plays the script for a runtime that gets its model from the gateway; a second SDK continues it."""

    @asynccontextmanager
    async def sdk(self) -> AsyncGenerator[CodeSDK]:
        """Start the runtime and open an SDK with it. A second SDK takes over what the first has open."""
        async with (
            self._make(self._scenario) as runtime,
            memory_sdk(
                runtimes=[runtime],
                tools=self.tools,
                policy=ModePolicy(denied=[FORBIDDEN]),
                stamper=self._stamper,
                log=self._log,
                blobs=self._blobs,
                state_dir=str(self.state),
            ) as sdk,
        ):
            self._runtime = runtime.name
            capabilities = self.stated = runtime.capabilities()
            if capabilities.input_capture == "exact" and self.model is None:
                script = self._scenario.model or self._scenario.script
                self.model = ScriptedModel(script, spares_asides=True)
            yield sdk

    @property
    def capabilities(self) -> Capabilities:
        """What the runtime says that it can do. Only after an SDK was opened."""
        assert self.stated is not None, "an SDK was opened"
        return self.stated

    async def fit(self) -> None:
        """Raise `Unsupported` if the cell does not apply to the runtime."""
        if self._scenario.where:
            async with self._make(self._scenario) as runtime:
                capabilities = runtime.capabilities()
            for field, wanted in self._scenario.where:
                if getattr(capabilities, field) != wanted:
                    raise Unsupported(f"{field} is {getattr(capabilities, field)}")

    async def own_program(self) -> list[str]:
        """Return the command of the program that the runtime drives by default. Raise `Unchecked` if unknown."""
        async with self._make(self._scenario) as runtime:
            find: Callable[..., Awaitable[Any]] | None = getattr(runtime, "find", None)
            if find is None:
                raise Unchecked(f"{runtime.name} has no `find`, which says where its program is")
            # The matrix is what tests a version, so it must not be asked for before.
            any_version = "allow_untested" in signature(find).parameters
            found = await (find(allow_untested=True) if any_version else find())
            return getattr(found, "argv", None) or [found.path]

    def drive(self, program: str) -> None:
        """Make the runtime drive another program from now on."""
        self._scenario = msgspec.structs.replace(self._scenario, program=program)

    async def session(
        self,
        sdk: CodeSDK,
        mode: PermissionMode = "ask",
        interaction: InteractionMode = "interactive",
        *,
        scripted: bool = True,
        settings: SessionSettings = SETTINGS,
        native_tools: Sequence[str] = (),
    ) -> Session:
        """Create a session of the runtime under test. Its model plays the script, or is the provider's."""
        return await sdk.create_session(
            runtime=self._runtime,
            workspace=self.workspace,
            permission_mode=mode,
            interaction_mode=interaction,
            settings=settings,
            native_tools=list(native_tools) or "off",
            plays=self.model if scripted else None,
        )

    @asynccontextmanager
    async def task(
        self, message: str, mode: PermissionMode = "ask", interaction: InteractionMode = "interactive"
    ) -> AsyncGenerator[Task]:
        """Open an SDK and start a task in a new session of it."""
        async with self.sdk() as sdk:
            yield await (await self.session(sdk, mode, interaction)).start(message)

    async def again(self, sdk: CodeSDK, session: Session) -> Session:
        """Open a session of an earlier SDK in this one."""
        return await sdk.session(session.id, plays=self.model)

    async def begun(self, task: Task, count: int = 1) -> list[FakeRun]:
        """Wait until this many calls run at once."""
        ended = asyncio.ensure_future(task.result())
        try:
            for number in range(count):
                starting = asyncio.ensure_future(self.tools.begun.get())
                await asyncio.wait([ended, starting], return_when=asyncio.FIRST_COMPLETED)
                if not starting.done():
                    starting.cancel()
                    raise Unmet(f"the task ended after {number} of {count} calls had started")
        finally:
            ended.cancel()
        return self.tools.runs[-count:]

    async def history(self, session: Session) -> list[Event]:
        """Return a session's events, as they are stored."""
        return [decode(frame.data) for frame in await self._log.read(session.id, 0, 2**31)]

    async def events(self, task: Task) -> list[Event]:
        """Return a task's events, as they are stored."""
        return [event for event in await self.history(task.session) if event.trace.task_id == task.id]

    async def stored(self, task: Task, kinds: Container[str]) -> None:
        """Wait until the store has an event of the task of one of these types. Nobody follows the task for that."""
        while not any(event.type in kinds for event in await self.events(task)):
            await self._log.changed(1.0)

    async def audited(self, session: Session) -> list[AuditRecord]:
        """Return what an audit makes of a session's events: it is written to files, checked and read back."""
        root = self.folder / f"audit-{next(self._numbers)}"
        audit = await Audit.open(root)
        try:
            await audit.take([event for event in await self.history(session) if event.type in audit.types])
            records = await audit.read(limit=1000)
        finally:
            await audit.close()
        report = await asyncio.to_thread(verify_audit, root)
        same("what the check of the audit finds", report.findings, [])
        return records

    async def requests(self, task: Task) -> list[dict[str, Any]]:
        """Return the requests to the model that were recorded as they were sent, whole."""
        found: list[dict[str, Any]] = []
        for payload in await self.exact_inputs(task):
            document = msgspec.json.decode(await self._blobs.get(payload.input_ref.content_hash))
            found.append(join(document, {name: await self._blobs.get(name) for name in hashes_of(document)}))
        return found

    async def exact_inputs(self, task: Task) -> list[Any]:
        """Return the requests to the model that were recorded as they were sent."""
        return [p for p in payloads(await self.events(task), "model.input") if p.capture == "exact"]

    async def told(self, task: Task) -> str:
        """Return what the model was told in a task: the exact requests if recorded, else the transcript."""
        exact = await self.exact_inputs(task)
        if not exact:
            rows = await self._log.messages(task.session.id, before=None, limit=1000)
            return msgspec.json.encode([row.message for row in rows]).decode()
        texts: list[str] = []
        for payload in exact:
            document = msgspec.json.decode(await self._blobs.get(payload.input_ref.content_hash))
            texts += [(await self._blobs.get(name)).decode() for name in hashes_of(document)]
        return "\n".join(texts)

    async def check(self) -> None:
        """Check that every session of the cell verifies and replays."""
        for row in await self._log.sessions(after=None, limit=100, principal=None, status=None):
            findings = await verify_session(self._log, self._blobs, row.session_id)
            same("what verify finds", findings, [])
            _, differences = await replay_session(self._log, self._blobs, row.session_id)
            same("what replay finds", differences, [])
        if self.model is not None:
            same("what did not fit the script", list(self.model.problems), [])

    def discard(self) -> None:
        """Remove the workspace."""
        self._folder.cleanup()


async def seen(task: Task, kind: str) -> Any:
    """Wait for an event of the task and return its payload."""
    async for event in task.events():
        if event.type == kind:
            return event.payload
    raise Unmet(f"the task ended without {kind}")


def payloads(events: list[Event], kind: str) -> list[Any]:
    """Return the payloads of one type."""
    return [event.payload for event in events if event.type == kind]


def in_order(events: list[Event], *kinds: str) -> None:
    """Raise `Unmet` unless these types occur in this order, with anything in between."""
    types = iter([event.type for event in events])
    for kind in kinds:
        holds(kind in types, f"{' → '.join(kinds)}: {kind} has its place")
